"""One gate per credential and method: pauses that all callers obey, final posts before progress."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from threadline.channel.deadline import Deadline
from threadline.clock import Clock

__all__ = ["Limiter"]

_FINAL, _PROGRESS = 0, 1
_MANY = 1_000


@dataclass(slots=True)
class _Gate:
    """The places of one key; ``waiting`` is a heap of (lane, order, place)."""

    free: int
    closed_until: float = -math.inf
    waiting: list[tuple[int, int, asyncio.Future[None]]] = field(default_factory=list)


class Limiter:
    """Lets at most ``concurrency`` calls of one credential and method run at once.

    Half of the places, at least one, are kept for final posts. After ``pause`` nobody with that key
    calls for so long, whoever was refused first.
    """

    def __init__(self, clock: Clock, *, concurrency: int = 4) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}.")
        self._clock = clock
        self._concurrency = concurrency
        self._kept_for_finals = max(1, concurrency // 2)
        self._gates: dict[tuple[str, str], _Gate] = {}
        self._order = itertools.count()

    def pause(self, credential: str, method: str, seconds: float) -> None:
        """Hold back every call with this key, as a ``Retry-After`` asks."""
        gate = self._gate(credential, method)
        gate.closed_until = max(gate.closed_until, self._clock.monotonic() + seconds)

    def busy(self, credential: str, method: str) -> bool:
        """Tell whether progress with this key would have to wait, or hold up a final post."""
        gate = self._gates.get((credential, method))
        if gate is None:
            return self._concurrency <= self._kept_for_finals
        return gate.free <= self._kept_for_finals or self._left(gate) > 0

    @contextlib.asynccontextmanager
    async def turn(
        self, credential: str, method: str, *, final: bool, seconds: float | None = None
    ) -> AsyncIterator[None]:
        """Wait for a place; final posts go before progress, each in order of arrival.

        Raises TimeoutError when it takes longer than ``seconds``, or will: then nothing was called.
        """
        gate = self._gate(credential, method)
        until = math.inf if seconds is None else self._clock.monotonic() + seconds
        await self._enter(gate, _FINAL if final else _PROGRESS, until)
        try:
            await self._opened(gate, until)
            yield
        finally:
            self._leave(gate)

    def _gate(self, credential: str, method: str) -> _Gate:
        gate = self._gates.get((credential, method))
        if gate is None:
            if len(self._gates) >= _MANY:
                self._forget_idle()
            gate = self._gates[credential, method] = _Gate(self._concurrency)
        return gate

    def _forget_idle(self) -> None:
        """A channel may have a credential for each of its conversations."""
        for key, gate in list(self._gates.items()):
            if gate.free == self._concurrency and self._left(gate) <= 0:
                del self._gates[key]

    def _left(self, gate: _Gate) -> float:
        return gate.closed_until - self._clock.monotonic()

    async def _enter(self, gate: _Gate, lane: int, until: float) -> None:
        if gate.free > 0:
            gate.free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(gate.waiting, (lane, next(self._order), place))
        try:
            if until == math.inf:
                await place
            else:
                async with Deadline(self._clock, until - self._clock.monotonic()):
                    await place
        except BaseException:
            if place.done() and not place.cancelled():
                self._leave(gate)
            raise

    async def _opened(self, gate: _Gate, until: float) -> None:
        """Wait until nobody has been asked to wait any more."""
        while (left := self._left(gate)) > 0:
            if gate.closed_until > until:
                raise TimeoutError(f"The target wants no call for another {left:.0f} seconds.")
            await self._clock.sleep(left)

    def _leave(self, gate: _Gate) -> None:
        while gate.waiting:
            _, _, place = heapq.heappop(gate.waiting)
            if not place.done():
                place.set_result(None)
                return
        gate.free += 1
