"""The REST API over HTTP: reads a call, checks who calls, meets faults and limits, answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from threadline.testing.pulse import Pulse
from threadline_github.testing.auth import Caller, Doors
from threadline_github.testing.faults import Fault, Faults
from threadline_github.testing.model import Repository
from threadline_github.testing.refusal import Refusal, not_found
from threadline_github.testing.routes import ENDPOINTS
from threadline_github.testing.table import Ask, Desk, Endpoint, Reply, decoded

__all__ = ["Api", "Call"]


@dataclass(slots=True)
class Call:
    """One call. ``path`` is without the API's prefix and the query; ``reply`` what was answered.

    ``caller`` is a login, ``app`` for an app itself, or None. ``done`` is when the answer was given
    or lost; ``took_effect`` whether the endpoint ran and did not refuse; ``dropped`` whether the
    caller got no answer.
    """

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str] = field(repr=False)
    token: str | None = field(repr=False)
    at: float
    caller: str | None = None
    reply: Any = None
    status: int = 0
    took_effect: bool = False
    dropped: bool = False
    done: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was answered with success, and the caller heard it."""
        return self.done and not self.dropped and 200 <= self.status < 300


class Api:
    """Answers calls by the table of endpoints."""

    def __init__(self, desk: Desk, faults: Faults, pulse: Pulse, prefix: str) -> None:
        self.calls: list[Call] = []
        self._desk = desk
        self._faults = faults
        self._pulse = pulse
        self._prefix = prefix
        self._doors = Doors(desk.state)
        self._spent: Counter[tuple[str, int]] = Counter()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        path = urlsplit(request.raw_path).path
        if not path.startswith(self._prefix + "/"):
            return web.json_response({"message": "Not Found"}, status=404)
        path = path.removeprefix(self._prefix)
        with self._pulse.busy(f"{request.method} {path}"):
            raw = await request.read()
            call = self._noted(request, path, raw)
            fault = self._faults.take(call)
        if fault is not None:
            return await self._faulty(request, call, fault)
        return self._answer(call, self._run(call))

    def _noted(self, request: web.Request, path: str, raw: bytes) -> Call:
        authorization = request.headers.get("Authorization", "")
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode("utf-8", "replace")
        call = Call(
            request.method,
            path,
            dict(request.query),
            body,
            dict(request.headers),
            authorization.partition(" ")[2] or None,
            self._desk.state.clock.monotonic(),
        )
        try:
            call.caller = self._doors.caller(authorization).name
        except Refusal:
            call.caller = None
        self.calls.append(call)
        return call

    # Faults

    async def _faulty(self, request: web.Request, call: Call, fault: Fault) -> web.StreamResponse:
        if fault.drop == "before":
            return self._cut(request, call)
        if fault.gate is not None and fault.gate.place == "before":
            await self._arrive(fault)
        reply = self._lay_over(call, fault)
        if fault.gate is not None and fault.gate.place == "after":
            await self._arrive(fault)
        if fault.delay:
            self._pulse.beat()
            await self._desk.state.clock.sleep(fault.delay)
        if fault.drop == "after":
            return self._cut(request, call)
        return self._answer(call, reply)

    async def _arrive(self, fault: Fault) -> None:
        if fault.gate is not None:
            arrival = fault.gate.arrive()
            self._pulse.beat()
            await arrival

    def _lay_over(self, call: Call, fault: Fault) -> Reply:
        """Run the call if the fault lets it, and return what the caller is to be told."""
        done = self._run(call) if fault.effect or fault.status is None else Reply()
        if fault.status is None:
            return done
        text = None
        if fault.body is None:
            text = f"<html><body>{fault.status}</body></html>"
        return Reply(fault.body, fault.status, dict(fault.headers), text)

    def _cut(self, request: web.Request, call: Call) -> web.StreamResponse:
        """End the connection without an answer."""
        call.dropped = call.done = True
        self._pulse.beat()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    # The ordinary way

    def _run(self, call: Call) -> Reply:
        """Do what is asked, or say why not."""
        headers: dict[str, str] = {}
        try:
            caller = self._doors.caller(call.headers.get("Authorization", ""))
            if "User-Agent" not in call.headers:
                raise Refusal(403, "Request forbidden by administrative rules.")
            headers = self._limited(caller)
            reply = self._found(call, caller)
        except Refusal as refusal:
            return Reply(refusal.body, refusal.status, {**headers, **refusal.headers})
        reply.headers = {**headers, **reply.headers}
        call.took_effect = 200 <= reply.status < 300
        return reply

    def _limited(self, caller: Caller) -> dict[str, str]:
        """Count a call; raises Refusal when there are none left in this hour."""
        limit, now = self._desk.state.options.hourly, self._desk.state.now()
        hour = now.replace(minute=0, second=0)
        key = caller.budget, int(hour.timestamp())
        self._spent[key] += 1
        left = max(limit - self._spent[key], 0)
        headers = {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Used": str(min(self._spent[key], limit)),
            "X-RateLimit-Reset": str(int((hour + timedelta(hours=1)).timestamp())),
            "X-RateLimit-Resource": "core",
        }
        if self._spent[key] > limit:
            raise Refusal(403, f"API rate limit exceeded for {caller.budget}.", headers=headers)
        return headers

    def _found(self, call: Call, caller: Caller) -> Reply:
        """Find the endpoint, and let it answer."""
        for one, path, repository in self._candidates(call):
            found = one.path.fullmatch(path)
            if one.method != call.method or found is None:
                continue
            if repository is not None and not self._is_now(call.path, repository):
                return self._moved(call, repository)
            ask = Ask(
                self._desk,
                caller,
                decoded(found),
                call.query,
                call.body,
                call.headers.get("Accept", ""),
                f"{self._desk.state.api}{call.path}",
            )
            self._admit(one, ask, repository)
            return one.answer(ask)
        raise not_found()

    def _candidates(self, call: Call) -> list[tuple[Endpoint, str, Repository | None]]:
        """Return the endpoints that may be meant, and the rest of the path that each reads."""
        whole = call.path
        parts = whole.split("/", 4)
        state = self._desk.state
        if parts[1] == "repos" and len(parts) >= 4:
            identity = state.names.get(f"{parts[2]}/{parts[3]}".lower())
            rest = f"/{parts[4]}" if len(parts) > 4 else ""
        elif parts[1] == "repositories" and len(parts) >= 3:
            identity = int(parts[2]) if parts[2].isdecimal() else None
            rest = "".join(f"/{part}" for part in parts[3:])
        else:
            return [(one, whole, None) for one in ENDPOINTS if not one.below]
        repository = state.repositories.get(identity) if identity is not None else None
        if repository is None:
            raise not_found()
        return [(one, rest, repository) for one in ENDPOINTS if one.below]

    def _is_now(self, path: str, repository: Repository) -> bool:
        """Whether a path has the name that a repository has now, or its id."""
        parts = path.lower().split("/")
        return parts[1] == "repositories" or parts[2:4] == repository.full_name.lower().split("/")

    def _moved(self, call: Call, repository: Repository) -> Reply:
        """Lead to where a repository is now."""
        rest = "".join(f"/{part}" for part in call.path.split("/", 4)[4:])
        url = f"{self._desk.state.api}/repositories/{repository.id}{rest}"
        status = self._desk.state.options.moved or (301 if call.method == "GET" else 307)
        body = {
            "message": "Moved Permanently" if status in (301, 308) else "Temporary Redirect",
            "url": url,
            "documentation_url": "https://docs.github.com/rest",
        }
        query = "&".join(f"{name}={value}" for name, value in call.query.items())
        return Reply(body, status, {"Location": url + (f"?{query}" if query else "")})

    def _admit(self, one: Endpoint, ask: Ask, repository: Repository | None) -> None:
        """Raise Refusal unless the caller may."""
        if one.who == "app" and ask.caller.app is None:
            raise Refusal(401, "A JSON web token could not be decoded")
        if repository is None:
            if one.who == "token":
                assert ask.acting
            return
        ask.repository = repository
        if one.who == "repository":
            write = one.method != "GET"
            self._doors.require(ask.caller, repository, one.needs, write=write)

    def _answer(self, call: Call, reply: Reply) -> web.Response:
        call.reply, call.status, call.done = reply.body, reply.status, True
        self._pulse.beat()
        headers = {**self._common(), **reply.headers}
        if reply.text is not None:
            return web.Response(
                status=reply.status, text=reply.text, content_type=reply.kind, headers=headers
            )
        if reply.body is None:
            return web.Response(status=reply.status, headers=headers)
        return web.json_response(reply.body, status=reply.status, headers=headers)

    def _common(self) -> Mapping[str, str]:
        return {
            "Date": format_datetime(self._desk.state.now(), usegmt=True),
            "Server": "github.com",
            "X-GitHub-Media-Type": "github.v3; format=json",
            "X-GitHub-Request-Id": f"FAKE:{len(self.calls):06X}",
        }
