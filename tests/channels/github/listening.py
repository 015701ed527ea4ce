"""A server that webhooks are sent to, and how a test has it answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import orjson
from aiohttp import web

from threadline.testing.serving import end, listen

__all__ = ["Got", "Listener", "listening"]


@dataclass
class Got:
    """One request that came."""

    headers: dict[str, str]
    raw: bytes

    @property
    def event(self) -> str:
        return self.headers["X-GitHub-Event"]

    @property
    def guid(self) -> str:
        return self.headers["X-GitHub-Delivery"]

    @property
    def payload(self) -> Any:
        if self.headers["Content-Type"] == "application/x-www-form-urlencoded":
            return orjson.loads(parse_qs(self.raw.decode())["payload"][0])
        return orjson.loads(self.raw)

    @property
    def what(self) -> str:
        """Event and action."""
        return f"{self.event} {self.payload.get('action', '')}".rstrip()


@dataclass
class Listener:
    """What came, and the statuses of the next answers; 200 after that.

    Each request has a connection of its own, so two that are made at once may come in any order;
    ``made`` gives the GUIDs in the order in which they were made.
    """

    url: str = ""
    got: list[Got] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    silent: bool = False
    made: Callable[[], list[str]] = list

    @property
    def sent(self) -> list[Got]:
        """What came, in the order in which it was made."""
        order = {guid: number for number, guid in enumerate(self.made())}
        return sorted(self.got, key=lambda one: order.get(one.guid, len(order)))

    @property
    def what(self) -> list[str]:
        return [one.what for one in self.sent]


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """Serve until the block ends."""
    listener, never = Listener(), asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        listener.got.append(Got(dict(request.headers), await request.read()))
        if listener.silent:
            await never.wait()
        status = listener.statuses.pop(0) if listener.statuses else 200
        return web.json_response({"status": status}, status=status)

    application = web.Application()
    application.add_routes([web.post("/hook", take)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    listens = await listen(runner)
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield listener
    finally:
        never.set()
        await end(runner, listens)
