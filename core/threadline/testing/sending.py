"""What a fake service sends by itself: requests of its own, and work that ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiohttp

from threadline.testing.pulse import Pulse

__all__ = ["Sender"]


class Sender:
    """Runs work between ``open`` and ``close``; ``name`` is the service's, for errors.

    ``starting`` counts what has been set off and has not run at all yet. ``http`` makes requests;
    there is none while it is closed.
    """

    def __init__(self, name: str, pulse: Pulse) -> None:
        self.starting = 0
        self.http: aiohttp.ClientSession | None = None
        self._name = name
        self._pulse = pulse
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Be ready to send."""
        self._loop = asyncio.get_running_loop()
        # A connection for each request: a host that was restarted has closed the old ones.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        self.http = aiohttp.ClientSession(connector=connector)

    async def close(self) -> None:
        """Give up what is on its way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.http is not None:
            await self.http.close()
            self.http = self._loop = None

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something that ``close`` ends if it is not done by then."""
        if self._loop is None:
            work.close()
            raise RuntimeError(
                f"This {self._name} does not run; use 'async with', or await start()."
            )
        waiting = [work]
        self.starting += 1

        async def run() -> Any:
            waiting.clear()
            self.starting -= 1
            return await work

        def ended(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if waiting:  # cancelled before it ran
                self.starting -= 1
                work.close()
            self._pulse.beat()

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(ended)
        return task
