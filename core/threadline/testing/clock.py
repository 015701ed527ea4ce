"""A clock that only a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

__all__ = ["ManualClock"]

_START = datetime(2025, 1, 1, tzinfo=UTC)


class ManualClock:
    """A :class:`~threadline.clock.Clock` that stands still until it is advanced.

    ``advance`` wakes the sleepers that are due, in the order of their deadlines; their code runs
    when the test next awaits. For code that sleeps again and again use ``elapse``.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watchers: list[tuple[int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Return the start time plus what has been advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that have been advanced."""
        return self._elapsed

    @property
    def sleepers(self) -> int:
        """How many calls of ``sleep`` are waiting."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been advanced that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        entry = (self._elapsed + seconds, next(self._order), future)
        heapq.heappush(self._sleepers, entry)
        self._notify()
        await future

    async def sleeping(self, count: int = 1) -> None:
        """Return when at least ``count`` calls of ``sleep`` are waiting."""
        while self.sleepers < count:
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.append((count, watcher))
            await watcher

    def advance(self, seconds: float) -> None:
        """Move the time on and wake every sleeper that is due."""
        self._move_to(self._elapsed + seconds)

    async def elapse(self, seconds: float) -> None:
        """Move the time on deadline by deadline, letting what wakes run in between."""
        end = self._elapsed + seconds
        await self._let_run()
        while (deadline := self._next_deadline()) is not None and deadline <= end:
            self._move_to(deadline)
            await self._let_run()
        self._move_to(end)
        await self._let_run()

    def _move_to(self, moment: float) -> None:
        self._elapsed = moment
        while self._sleepers and self._sleepers[0][0] <= moment:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    def _next_deadline(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _notify(self) -> None:
        waiting = self.sleepers
        for count, watcher in self._watchers:
            if waiting >= count and not watcher.done():
                watcher.set_result(None)
        self._watchers = [entry for entry in self._watchers if not entry[1].done()]

    @staticmethod
    async def _let_run() -> None:
        # A handful of loop turns: a woken task usually awaits a few things before it sleeps again.
        for _ in range(10):
            await asyncio.sleep(0)
