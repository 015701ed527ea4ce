"""How many turns may run at once, and who is next."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal

__all__ = ["Lane", "Slots", "Ticket"]

Lane = Literal["interactive", "background"]


class Ticket:
    """A place in the queue, or a slot once ``granted``."""

    def __init__(self, lane: Lane) -> None:
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
    """At most ``limit`` granted tickets; people first, then background work, each in order."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.running = 0
        self._lanes: dict[Lane, deque[Ticket]] = {"interactive": deque(), "background": deque()}

    @property
    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def free(self) -> bool:
        """True when a new ticket would be granted at once."""
        return self.limit is None or (self.running < self.limit and not self.waiting)

    def ask(self, lane: Lane) -> Ticket:
        """Return a ticket, granted at once when a slot is free."""
        ticket = Ticket(lane)
        if self.free:
            self.running += 1
            ticket.grant()
        else:
            self._lanes[lane].append(ticket)
        return ticket

    def position(self, ticket: Ticket) -> int:
        """Return how far back the ticket is; 1 is next."""
        ahead = 0 if ticket.lane == "interactive" else len(self._lanes["interactive"])
        return ahead + self._lanes[ticket.lane].index(ticket) + 1

    def give_back(self, ticket: Ticket) -> None:
        """Return a slot, or leave the queue."""
        if not ticket.granted:
            self._lanes[ticket.lane].remove(ticket)
            return
        self.running -= 1
        for lane in self._lanes.values():
            if lane and (self.limit is None or self.running < self.limit):
                self.running += 1
                lane.popleft().grant()
                return
