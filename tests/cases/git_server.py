"""Repositories over HTTP, as GitHub serves them to git: for those who have a token that is good."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from threadline.clock import Clock
from threadline.testing.serving import end, listen

__all__ = ["Fetch", "GitServer"]


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request of git: ``at`` is in seconds of the clock, ``wants`` are what it asked for."""

    name: str
    service: str
    token: str | None
    at: float
    status: int
    wants: str


class GitServer:
    """Serves bare repositories by ``owner/name``.

    ``admits`` tells whether a token is good for a repository now. Each first request of a fetch
    takes ``seconds`` of the clock; ``waiting`` is how many do so now.
    """

    def __init__(self, clock: Clock, admits: Callable[[str], bool]) -> None:
        self.seconds = 0.0
        self.waiting = 0
        self.fetches: list[Fetch] = []
        self._clock = clock
        self._admits = admits
        self._bare: dict[str, Path] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        app = web.Application(client_max_size=2**26, handler_args={"auto_decompress": True})
        app.add_routes([web.route("*", "/{owner}/{name}.git/{path:.*}", self._answer)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._listening = await listen(self._runner)
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await end(self._runner, self._listening)
            self._runner = None

    def serve(self, name: str, bare: Path) -> str:
        """Serve a repository under a name; return its address."""
        self._bare[name.lower()] = bare
        return f"{self._url}/{name}.git"

    async def _answer(self, request: web.Request) -> web.Response:
        name = "{owner}/{name}".format_map(request.match_info)
        path = request.match_info["path"]
        service = request.query.get("service", path)
        token = _password(request.headers.get("Authorization", ""))
        body = await request.read()
        bare = self._bare.get(name.lower())
        status = 200 if bare is not None else 404
        if token is None or not self._admits(token):
            status = 401
        wants = body.decode("latin-1")
        fetch = Fetch(name, service, token, self._clock.monotonic(), status, wants)
        self.fetches.append(fetch)
        if bare is None or status != 200:
            return web.Response(status=status, headers={"WWW-Authenticate": 'Basic realm="GitHub"'})
        if self.seconds and request.method == "GET":
            self.waiting += 1
            try:
                await self._clock.sleep(self.seconds)
            finally:
                self.waiting -= 1
        said = await _backend(bare, path, request, body)
        head, _, content = said.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = dict(re.split(r":\s*", line, maxsplit=1) for line in lines if ":" in line)
        code = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=code, headers=headers, body=content)


async def _backend(bare: Path, path: str, request: web.Request, body: bytes) -> bytes:
    """Run git's CGI program; https://git-scm.com/docs/git-http-backend."""
    env: Mapping[str, str] = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROJECT_ROOT": str(bare.parent),
        "PATH": os.environ.get("PATH", os.defpath),
        "PATH_INFO": f"/{bare.name}/{path}",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": request.content_type,
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "QUERY_STRING": request.query_string,
        "REQUEST_METHOD": request.method,
    }
    process = await asyncio.create_subprocess_exec(
        "git", "http-backend", env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    said, _ = await process.communicate(body)
    return said


def _password(header: str) -> str | None:
    """Return the password of basic credentials."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None
