"""Calls that read Slack, each method after the time that Slack said to wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from threadline.channel.target import understood
from threadline.clock import Clock
from threadline_slack.outbound.thread import error_of

__all__ = ["Limited", "Waits", "why"]

T = TypeVar("T")
_PATIENCE = 5.0  # seconds that a call may wait; what it belongs to has 20
_UNTOLD = 30.0


class Limited(Exception):
    """Slack does not take more calls of a method now."""


class Waits:
    """Remembers ``Retry-After`` by method."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    async def call(self, method: str, clock: Clock, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, after a short wait if there must be one.

        Raises Limited when Slack says so, or said that it takes longer, and what the call raises.
        """
        left = self._until.get(method, 0.0) - clock.monotonic()
        if left > _PATIENCE:
            raise Limited(f"Slack answered ratelimited, for {left:.0f} s more")
        if left > 0:
            await clock.sleep(left)
        try:
            return await call()
        except Exception as error:
            if error_of(error) in ("ratelimited", "rate_limited"):
                after = getattr(understood(error), "retry_after", None)
                self._until[method] = clock.monotonic() + (_UNTOLD if after is None else after)
                raise Limited("Slack answered ratelimited") from error
            raise


def why(error: BaseException) -> str:
    """Return what to say of a call that failed."""
    if said := error_of(error):
        return f"Slack answered {said}"
    return str(error) if isinstance(error, Limited) else type(error).__name__
