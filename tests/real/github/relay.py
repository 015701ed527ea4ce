"""Stands between a host and its GitHub: passes calls on, and keeps an answer back when told to."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import aiohttp
from aiohttp import web

__all__ = ["Relay"]

_HOP = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}


class Relay:
    """An HTTP server on 127.0.0.1 before ``target``."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.url = ""
        self.calls: list[tuple[str, str, int]] = []
        self.reached = asyncio.Event()
        self._kept: tuple[str, re.Pattern[str]] | None = None
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None

    def keep_back(self, method: str, path: str) -> None:
        """Let GitHub do the next such call, and never say so; ``path`` is a regular expression."""
        self.reached.clear()
        self._kept = method, re.compile(path)

    async def start(self) -> None:
        """Listen."""
        self._http = aiohttp.ClientSession(auto_decompress=False)
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        assert self._http is not None
        headers: dict[str, Any] = {
            name: value for name, value in request.headers.items() if name.lower() not in _HOP
        }
        async with self._http.request(
            request.method,
            f"{self.target}{request.raw_path}",
            data=await request.read(),
            headers=headers | {"Accept-Encoding": "identity"},
            allow_redirects=False,
        ) as answer:
            body = await answer.read()
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
        self.calls.append((request.method, request.path, answer.status))
        if self._kept is not None:
            method, path = self._kept
            if method == request.method and path.fullmatch(request.path):
                self._kept = None
                self.reached.set()
                await asyncio.Event().wait()
        return web.Response(status=answer.status, headers=kept, body=body)
