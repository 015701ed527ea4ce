"""How many turns may run at once, and who is next."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Slots", "Ticket"]


class Ticket:
    """A place in the queue, or a slot once ``granted``."""

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.granted = False
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grant(self) -> None:
        """Give the slot."""
        self.granted = True
        if not self._ready.done():
            self._ready.set_result(None)

    async def wait(self) -> None:
        """Return when the slot is granted."""
        await asyncio.shield(self._ready)


class Slots:
    """At most ``limit`` granted tickets.

    The lanes, one a channel, take turns; within a lane first come, first served. So a storm in one
    channel does not starve people in another.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.running = 0
        # Lanes with somebody in them; the first one's turn is next.
        self._lanes: dict[str, deque[Ticket]] = {}

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def free(self) -> bool:
        """True when a new ticket would be granted at once."""
        return self.limit is None or (self.running < self.limit and not self._lanes)

    def ask(self, lane: str) -> Ticket:
        """Return a ticket, granted at once when a slot is free."""
        ticket = Ticket(lane)
        if self.free:
            self.running += 1
            ticket.grant()
        else:
            self._lanes.setdefault(lane, deque()).append(ticket)
        return ticket

    def position(self, ticket: Ticket) -> int:
        """Return how far back a waiting ticket is, if nobody else comes; 1 is next."""
        rounds = self._lanes[ticket.lane].index(ticket)
        ahead, extra = 0, 1
        for name, lane in self._lanes.items():
            if name == ticket.lane:
                ahead, extra = ahead + rounds, 0
            else:
                ahead += min(len(lane), rounds + extra)
        return ahead + 1

    def give_back(self, ticket: Ticket) -> None:
        """Return a slot, or leave the queue."""
        if not ticket.granted:
            self._take(ticket.lane, ticket)
            return
        self.running -= 1
        if self._lanes and (self.limit is None or self.running < self.limit):
            name, lane = next(iter(self._lanes.items()))
            following = lane[0]
            self._take(name, following)
            if name in self._lanes:
                self._lanes[name] = self._lanes.pop(name)
            self.running += 1
            following.grant()

    def _take(self, name: str, ticket: Ticket) -> None:
        lane = self._lanes[name]
        lane.remove(ticket)
        if not lane:
            del self._lanes[name]
