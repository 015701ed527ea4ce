"""People in many rooms, who say something until it is acknowledged."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

__all__ = ["Rooms", "get"]

RETRY_SECONDS = 0.03
MESSAGES_A_ROOM = 6


@dataclass(slots=True)
class Rooms:
    """``messages`` said by ``clients`` at once; ``acknowledged`` has each one's session, by id."""

    url: str
    messages: int
    clients: int
    seed: int
    acknowledged: dict[str, str] = field(default_factory=dict)
    retries: int = 0
    _taken: int = 0
    _http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Rooms:
        """Open the connections."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self._http = aiohttp.ClientSession(self.url, connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self.http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        """The client of all requests."""
        assert self._http is not None
        return self._http

    async def run(self) -> None:
        """Say everything."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.clients):
                group.create_task(self._client(number))

    async def _client(self, number: int) -> None:
        dice = random.Random(f"{self.seed}/{number}")
        rooms = max(2, self.messages // MESSAGES_A_ROOM)
        while self._taken < self.messages:
            self._taken += 1
            await self._say(f"d{self._taken}", f"room-{dice.randrange(rooms)}")
            await asyncio.sleep(dice.expovariate(1 / 0.05))

    async def _say(self, delivery_id: str, room: str) -> None:
        body = {"room": room, "text": f"This is {delivery_id}.", "id": delivery_id}
        while True:
            try:
                async with self.http.post("/v1/channels/room/said", json=body) as answer:
                    if answer.status == 202:
                        said = await answer.json()
                        self.acknowledged[delivery_id] = said["sessionId"]
                        return
                    if answer.status != 503:
                        raise AssertionError(
                            f"{delivery_id}: {answer.status} {await answer.text()}"
                        )
            except (aiohttp.ClientError, ConnectionError):
                pass
            self.retries += 1
            await asyncio.sleep(RETRY_SECONDS)


async def get(http: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    """Ask the host, also while it is starting."""
    while True:
        try:
            async with http.get(path) as answer:
                answer.raise_for_status()
                body: dict[str, Any] = await answer.json()
                return body
        except (aiohttp.ClientConnectionError, ConnectionError):
            await asyncio.sleep(0.05)
