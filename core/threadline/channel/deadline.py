"""A time limit by any clock, which does not run while it is held."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from types import TracebackType

from threadline.clock import Clock

__all__ = ["Deadline"]


class Deadline:
    """Cuts an ``async with`` block off after so many seconds: it raises TimeoutError.

    Time spent in a :meth:`held` block does not count.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._left = max(seconds, 0.0)
        self._since = 0.0
        self._holds = 0
        self._limit = asyncio.timeout(None)
        self._timer: asyncio.Task[None] | None = None
        self._entered = False

    async def __aenter__(self) -> Deadline:
        """Let the time run."""
        await self._limit.__aenter__()
        self._entered = True
        self._run()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; raise TimeoutError when the time was up."""
        self._stop()
        self._entered = False
        await self._limit.__aexit__(kind, error, trace)

    @property
    def expired(self) -> bool:
        """True when the block was cut off."""
        return self._limit.expired()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let a block take its own time; several may overlap, also after the end."""
        self._holds += 1
        self._stop()
        try:
            yield
        finally:
            self._holds -= 1
            if self._entered and not self._holds:
                self._run()

    def _run(self) -> None:
        self._since = self._clock.monotonic()
        self._timer = asyncio.create_task(self._expire(self._left), name="deadline")

    def _stop(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._left = max(self._left - (self._clock.monotonic() - self._since), 0.0)

    async def _expire(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._timer = None
        self._limit.reschedule(asyncio.get_running_loop().time())
