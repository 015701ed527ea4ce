"""What is under way, and waiting for something to have happened, without sleeping."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

__all__ = ["Pulse"]

_TICK = 0.02  # seconds; what happens elsewhere, as in the app under test, gives no sign


class Pulse:
    """Counts what is under way; wakes whoever waits whenever anything changes."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._busy: list[str] = []
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def under_way(self) -> list[str]:
        """What is under way, in words."""
        return list(self._busy)

    @contextlib.contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Count this as under way."""
        self._busy.append(what)
        try:
            yield
        finally:
            self._busy.remove(what)
            self.beat()

    def beat(self) -> None:
        """Say that something has changed."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(
        self,
        predicate: Callable[[], object],
        describe: Callable[[], str],
        patience: float | None = None,
    ) -> None:
        """Return when the predicate is true; raises AssertionError after ``patience`` seconds.

        It is tried whenever something has changed here, and every fiftieth of a second. The seconds
        are real ones: they only bound a test that would otherwise never end.
        """
        try:
            async with asyncio.timeout(self.patience if patience is None else patience):
                while not predicate():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.add(waiter)
                    await asyncio.wait({waiter}, timeout=_TICK)
                    self._waiters.discard(waiter)
        except TimeoutError:
            raise AssertionError(describe()) from None
