"""A chat service outside: it keeps every message; at times it refuses, fails or says nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

__all__ = ["Message", "Service"]

FAULTS = {
    "none": 83,
    "limited": 3,
    "failed": 3,
    "refused": 2,
    "unheard": 3,
    "unanswered": 4,
    "failed late": 2,
}


@dataclass(slots=True)
class Message:
    """One visible message, and how often it was changed."""

    ref: str
    id: str
    text: str
    edits: int = 0


@dataclass(slots=True)
class Service:
    """Served in the test's own process, so that it outlives the hosts.

    While ``strike`` is set, the next message that arrives sets ``struck``, and its sender is kept
    waiting: that is the moment between call and receipt.
    """

    seed: int
    messages: list[Message] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    strike: bool = False
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _dice: random.Random = field(default_factory=random.Random)
    _by_id: dict[str, list[Message]] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Service:
        """Serve on a free port."""
        self._dice.seed(self.seed)
        app = web.Application(middlewares=[_forgiving])
        app.router.add_post("/messages", self._post)
        app.router.add_get("/messages", self._find)
        app.router.add_patch("/messages/{ref}", self._edit)
        app.router.add_post("/typing", self._typing)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        assert self._runner is not None
        await self._runner.cleanup()

    def of(self, post_id: str) -> list[Message]:
        """Return what is visible of a post."""
        return self._by_id.get(post_id, [])

    async def _post(self, request: web.Request) -> web.StreamResponse:
        fault = await self._before(request)
        if isinstance(fault, web.StreamResponse):
            return fault
        body = await request.json()
        message = Message(f"m{len(self.messages) + 1}", body["id"], body["text"])
        self.messages.append(message)
        self._by_id.setdefault(message.id, []).append(message)
        self.counts["posted"] += 1
        if self.strike:
            self.strike = False
            self.struck.set()
            await asyncio.sleep(0.2)
        return self._after(request, fault, {"ref": message.ref})

    async def _find(self, request: web.Request) -> web.StreamResponse:
        fault = await self._before(request)
        if isinstance(fault, web.StreamResponse):
            return fault
        self.counts["looked up"] += 1
        found = [{"ref": m.ref, "text": m.text} for m in self.of(request.query["id"])]
        return self._after(request, fault, {"messages": found})

    async def _edit(self, request: web.Request) -> web.StreamResponse:
        fault = await self._before(request)
        if isinstance(fault, web.StreamResponse):
            return fault
        message = self.messages[int(request.match_info["ref"][1:]) - 1]
        message.text = (await request.json())["text"]
        message.edits += 1
        self.counts["edited"] += 1
        return self._after(request, fault, {})

    async def _typing(self, request: web.Request) -> web.StreamResponse:
        fault = await self._before(request)
        if isinstance(fault, web.StreamResponse):
            return fault
        self.counts["typing shown"] += 1
        return self._after(request, fault, {})

    async def _before(self, request: web.Request) -> web.StreamResponse | str:
        """Take a moment; return an answer without an effect, or what will go wrong behind it."""
        await asyncio.sleep(self._dice.expovariate(1 / 0.004))
        fault = self._dice.choices(list(FAULTS), list(FAULTS.values()))[0]
        match fault:
            case "limited":
                self.counts["429"] += 1
                after = f"{self._dice.uniform(0.02, 0.2):.3f}"
                return web.json_response({}, status=429, headers={"Retry-After": after})
            case "failed" | "refused":
                self.counts["5xx"] += 1
                return web.json_response({}, status=500 if fault == "failed" else 503)
            case "unheard":
                self.counts["connections lost"] += 1
                return _hang_up(request)
        return fault

    def _after(self, request: web.Request, fault: str, body: Any) -> web.StreamResponse:
        if fault == "unanswered":
            self.counts["done without an answer"] += 1
            return _hang_up(request)
        if fault == "failed late":
            self.counts["done with a 502"] += 1
            return web.json_response({}, status=502)
        return web.json_response(body)


@web.middleware
async def _forgiving(request: web.Request, handler: Any) -> web.StreamResponse:
    """Whoever sends half a request and is killed was never heard."""
    try:
        answer: web.StreamResponse = await handler(request)
    except ConnectionResetError:
        return _hang_up(request)
    return answer


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return web.Response()
