"""One gate per credential and method: pauses that all callers obey, final posts before progress."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator

from threadline.clock import Clock

__all__ = ["Limiter"]

_FINAL, _PROGRESS = 0, 1


class _Gate:
    def __init__(self, limit: int) -> None:
        self.free = limit
        self.closed_until = 0.0
        self.waiting: list[tuple[int, int, asyncio.Future[None]]] = []


class Limiter:
    """Lets at most ``concurrency`` calls of one credential and method run at once.

    After ``pause`` nobody with that key calls for so long, whoever was refused first.
    """

    def __init__(self, clock: Clock, *, concurrency: int = 4) -> None:
        self._clock = clock
        self._concurrency = concurrency
        self._gates: dict[tuple[str, str], _Gate] = {}
        self._order = itertools.count()

    def pause(self, credential: str, method: str, seconds: float) -> None:
        """Hold back every call with this key, as a ``Retry-After`` asks."""
        gate = self._gate(credential, method)
        gate.closed_until = max(gate.closed_until, self._clock.monotonic() + seconds)

    def busy(self, credential: str, method: str) -> bool:
        """Tell whether a call with this key would have to wait."""
        gate = self._gate(credential, method)
        return gate.free == 0 or gate.closed_until > self._clock.monotonic()

    @contextlib.asynccontextmanager
    async def turn(self, credential: str, method: str, *, final: bool) -> AsyncIterator[None]:
        """Wait for a place; final posts go before progress, each in order of arrival."""
        gate = self._gate(credential, method)
        await self._enter(gate, _FINAL if final else _PROGRESS)
        try:
            while (left := gate.closed_until - self._clock.monotonic()) > 0:
                await self._clock.sleep(left)
            yield
        finally:
            self._leave(gate)

    def _gate(self, credential: str, method: str) -> _Gate:
        return self._gates.setdefault((credential, method), _Gate(self._concurrency))

    async def _enter(self, gate: _Gate, lane: int) -> None:
        if gate.free > 0:
            gate.free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(gate.waiting, (lane, next(self._order), place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave(gate)
            raise

    def _leave(self, gate: _Gate) -> None:
        while gate.waiting:
            _, _, place = heapq.heappop(gate.waiting)
            if not place.done():
                place.set_result(None)
                return
        gate.free += 1
