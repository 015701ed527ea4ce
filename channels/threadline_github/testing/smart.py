"""Git over HTTP, for repositories that have a real one behind them: to read, not to push.

https://git-scm.com/docs/git-http-backend
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field

from aiohttp import web

from threadline.testing.pulse import Pulse
from threadline_github.testing.auth import Doors
from threadline_github.testing.git import ENVIRON
from threadline_github.testing.model import Repository
from threadline_github.testing.refusal import Refusal
from threadline_github.testing.state import State

__all__ = ["GitCall", "SmartHttp"]

_PATH = re.compile(r"/([^/]+/[^/]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="GitHub"'}


@dataclass(frozen=True, slots=True)
class GitCall:
    """One request of git; ``caller`` is a login, or None for nobody."""

    repository: str
    path: str
    caller: str | None
    token: str | None = field(repr=False)
    status: int = 200


class SmartHttp:
    """Answers ``git clone`` and ``git fetch``."""

    def __init__(self, state: State, pulse: Pulse) -> None:
        self.calls: list[GitCall] = []
        self._state = state
        self._pulse = pulse
        self._doors = Doors(state)

    def wants(self, path: str) -> bool:
        """Whether a path is git's."""
        return _PATH.fullmatch(path) is not None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one request."""
        found = _PATH.fullmatch(request.path)
        assert found is not None
        name, rest = found.groups()
        with self._pulse.busy(f"git {request.method} {request.path}"):
            body = await request.read()
            header = request.headers.get("Authorization", "")
            caller = token = None
            try:
                who = self._doors.caller(header)
                caller, token = who.name, who.token.value if who.token is not None else None
                repository = self._repository(name)
                self._admit(header, repository, rest, request.query.get("service"))
                answer = await self._answered(request, repository, rest, body)
            except Refusal as refusal:
                text = f"remote: {refusal.message}\n"
                headers = _CHALLENGE if refusal.status == 401 else {}
                answer = web.Response(status=refusal.status, text=text, headers=headers)
            self.calls.append(GitCall(name, rest, caller, token, answer.status))
            return answer

    def _repository(self, name: str) -> Repository:
        try:
            found = self._state.repository(name)
        except LookupError:
            raise Refusal(404, "Repository not found.") from None
        if found.bare is None:
            raise Refusal(404, "Repository not found.")
        return found

    def _admit(self, header: str, repository: Repository, rest: str, service: str | None) -> None:
        if "git-receive-pack" in (rest, service):
            raise Refusal(403, "Permission to push is denied.")
        if not header and repository.private:
            raise Refusal(401, "Repository not found.")
        caller = self._doors.caller(header)
        if repository.private:
            self._doors.require(caller, repository, ["contents:read"], write=False)

    async def _answered(
        self, request: web.Request, repository: Repository, rest: str, body: bytes
    ) -> web.Response:
        assert repository.bare is not None
        environ = {
            **os.environ,
            **ENVIRON,
            "GIT_PROJECT_ROOT": str(repository.bare.resolve()),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{rest}",
            "REQUEST_METHOD": request.method,
            "QUERY_STRING": request.query_string,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": "",
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        process = await asyncio.create_subprocess_exec(
            "git",
            "-c",
            "safe.directory=*",
            "http-backend",
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate(body)
        head, _, content = out.partition(b"\r\n\r\n")
        headers = dict(
            line.split(": ", 1) for line in head.decode("latin-1").split("\r\n") if ": " in line
        )
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, body=content, headers=headers)
