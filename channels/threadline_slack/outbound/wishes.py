"""What Slack is still to be shown: of each name the newest wish, one call after another.

For what is worth showing but never worth waiting for: no answer stands behind it, and what is
overtaken before its turn comes is never shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from threadline import TryAgain
from threadline.channel.target import sentence, understood
from threadline.clock import Clock
from threadline.errors import StoreUnavailable
from threadline_slack.outbound.thread import error_of

__all__ = ["Wishes", "understandable"]

_TRIES = 30  # with the longest wait between them some 25 minutes
_LONGEST_WAIT = 60.0
_LAST_SECONDS = 1.0
_PASSING = frozenset(
    {
        "fatal_error",
        "internal_error",
        "ratelimited",
        "rate_limited",
        "request_timeout",
        "service_unavailable",
    }
)


def understandable(error: Exception) -> Exception:
    """Return TryAgain for what may pass, also for what Slack says of itself in a 200."""
    told = understood(error)
    if isinstance(told, StoreUnavailable) or error_of(error) in _PASSING:
        return told if isinstance(told, TryAgain) else TryAgain(sentence(error))
    return told


class Wishes:
    """Carries wishes out in the order they came, each until it is done, refused or given up.

    ``carry`` makes the calls for a name, by what is wanted when it runs. When it raises what may
    pass, all of them wait, as they share a limit, and the name comes again.
    """

    def __init__(self, carry: Callable[[str], Awaitable[None]], clock: Clock, log: Any) -> None:
        self._carry = carry
        self._clock = clock
        self._log = log
        self._waiting: dict[str, None] = {}
        self._tries: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._sleeps = False

    def wish(self, name: str) -> None:
        """Have a name carried out soon."""
        self._waiting[name] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="slack wishes")

    async def close(self) -> None:
        """Give what is on its way a moment, and drop what is left."""
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task], timeout=0.0 if self._sleeps else _LAST_SECONDS)
            task.cancel()
            await asyncio.wait([task])
        self._waiting.clear()

    async def _work(self) -> None:
        while self._waiting:
            name = next(iter(self._waiting))
            del self._waiting[name]
            if seconds := await self._try(name):
                self._sleeps = True
                await self._clock.sleep(seconds)
                self._sleeps = False

    async def _try(self, name: str) -> float:
        """Carry one out; return the seconds to wait before the next."""
        try:
            await self._carry(name)
        except Exception as error:
            told = understandable(error)
            self._tries[name] += 1
            if isinstance(told, TryAgain) and self._tries[name] < _TRIES:
                self._waiting.setdefault(name)
                backoff = min(2.0 ** self._tries[name], _LONGEST_WAIT)
                return backoff if told.retry_after is None else told.retry_after
            self._log.warning("slack.not_shown", name=name, error=sentence(error))
        del self._tries[name]
        return 0.0
