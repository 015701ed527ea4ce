"""How much background work goes on at once, so that what arrives is accepted in time.

Every callback that is ready makes a pass of the event loop longer, and an acknowledgement takes
several passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Turnstile"]

_LEASE_SECONDS = 1.0


class Turnstile:
    """Lets ``places`` pieces of work run at once, in the order in which they came.

    Work that takes longer than a second waits for something itself, and gives its place away, so
    that nothing that hangs holds up the rest.
    """

    def __init__(self, places: int) -> None:
        self._free = asyncio.Semaphore(places)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Have a place for the body, at first."""
        await self._free.acquire()
        lease = asyncio.get_running_loop().call_later(_LEASE_SECONDS, self._free.release)
        try:
            yield
        finally:
            if not lease.cancelled() and lease.when() > asyncio.get_running_loop().time():
                lease.cancel()
                self._free.release()
