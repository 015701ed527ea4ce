"""A place in a fake service where calls wait until a test lets them go on."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

__all__ = ["CallGate", "Place"]

Place: TypeAlias = Literal["before", "after"]


class CallGate:
    """A place where calls wait: ``before`` their effect, or ``after`` it, before the answer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.arrived = 0
        self._open = asyncio.Event()

    def release(self) -> None:
        """Let the calls that wait go on, and those that come."""
        self._open.set()

    async def arrive(self) -> None:
        """Be a call that comes here."""
        self.arrived += 1
        await self._open.wait()
