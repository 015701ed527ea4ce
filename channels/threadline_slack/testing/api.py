"""The Web API over HTTP: reads a call, checks who calls, meets faults and limits, answers."""

from __future__ import annotations

import base64
import binascii
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from threadline.testing.pulse import Pulse
from threadline_slack.testing.faults import Fault, Faults
from threadline_slack.testing.methods import METHODS
from threadline_slack.testing.model import App, Install, Json
from threadline_slack.testing.rates import Rates
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.table import Ask, Desk, Method

__all__ = ["Call", "WebApi"]

_JSON = "application/json"
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_STRUCTURED = ("blocks", "attachments", "metadata", "chunks", "view", "files", "prompts")


@dataclass(slots=True)
class Call:
    """One call of a method. ``args`` are decoded; ``reply`` is what was answered.

    ``done`` is when the answer was given or lost; ``took_effect`` whether the method ran and was
    not refused; ``dropped`` whether the caller got no answer.
    """

    method: str
    args: Json
    token: str | None
    app: str | None
    at: float
    reply: Json = field(default_factory=dict)
    status: int = 200
    took_effect: bool = False
    dropped: bool = False
    done: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was answered with ``ok: true``, and the caller heard it."""
        return self.done and not self.dropped and self.reply.get("ok") is True

    @property
    def error(self) -> str | None:
        """The error that was answered."""
        return self.reply.get("error")


class WebApi:
    """Answers calls by the table of methods."""

    def __init__(self, desk: Desk, faults: Faults, pulse: Pulse) -> None:
        self.calls: list[Call] = []
        self._desk = desk
        self._faults = faults
        self._pulse = pulse
        self._rates = Rates(desk.state)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one call."""
        name = request.match_info["method"]
        with self._pulse.busy(f"a call of {name}"):
            args, token, basic = await _read(request)
            installed = self._desk.state.by_token(token) if token else None
            app = installed.app if installed else self._app(token)
            now = self._desk.state.clock.monotonic()
            call = Call(name, _decoded(args), token, app.id if app else None, now)
            self.calls.append(call)
            fault = self._faults.take(call)
        ask = Ask(self._desk, args, token, app, installed, basic=basic)
        if fault is not None:
            return await self._faulty(request, call, ask, fault)
        return self._answer(call, *self._run(call, ask))

    # Faults

    async def _faulty(
        self, request: web.Request, call: Call, ask: Ask, fault: Fault
    ) -> web.StreamResponse:
        if fault.drop == "before":
            return self._cut(request, call)
        if fault.gate is not None and fault.gate.place == "before":
            self._pulse.beat()
            await self._arrive(fault)
        body, status, headers = self._lay_over(call, ask, fault)
        if fault.gate is not None and fault.gate.place == "after":
            await self._arrive(fault)
        if fault.delay:
            self._pulse.beat()
            await self._desk.state.clock.sleep(fault.delay)
        if fault.drop == "after":
            return self._cut(request, call)
        if fault.text is not None:
            call.reply, call.status, call.done = body, status, True
            self._pulse.beat()
            return web.Response(status=status, text=fault.text, content_type="text/html")
        return self._answer(call, body, status, headers)

    async def _arrive(self, fault: Fault) -> None:
        if fault.gate is not None:
            arrival = fault.gate.arrive()
            self._pulse.beat()
            await arrival

    def _lay_over(self, call: Call, ask: Ask, fault: Fault) -> tuple[Json, int, dict[str, str]]:
        """Run the call if the fault lets it, and return what the caller is to be told."""
        body: Json = {}
        status = 200
        headers: dict[str, str] = {}
        if fault.effect or fault.reply is None:
            if fault.reply is not None and isinstance(fault.reply.get("ts"), str):
                ask.forced_ts = fault.reply["ts"]
            body, status, headers = self._run(call, ask)
        if fault.reply is None:
            return body, status, headers
        replied = {**body, **fault.reply} if fault.reply.get("ok") else dict(fault.reply)
        return replied, fault.status, {**headers, **fault.headers}

    def _cut(self, request: web.Request, call: Call) -> web.StreamResponse:
        """End the connection without an answer."""
        call.dropped = call.done = True
        self._pulse.beat()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    # The ordinary way

    def _run(self, call: Call, ask: Ask) -> tuple[Json, int, dict[str, str]]:
        """Do what is asked; returns body, HTTP status and headers."""
        row = METHODS.get(call.method)
        headers: dict[str, str] = {}
        try:
            if row is None:
                raise Refusal("unknown_method", req_method=call.method)
            self._authorise(row, ask)
            if ask.installed is not None:
                headers["X-OAuth-Scopes"] = ",".join(sorted(ask.installed.scopes))
                headers["X-Accepted-OAuth-Scopes"] = ",".join(row.scopes)
                ask.require(*row.scopes)
                self._limit(row, ask, ask.installed)
            body = {"ok": True, **row.answer(ask)}
        except Refusal as refusal:
            return refusal.body, refusal.status, {**headers, **refusal.headers}
        call.took_effect = True
        return body, 200, headers

    def _authorise(self, row: Method, ask: Ask) -> None:
        if row.token == "none":
            return
        if not ask.token:
            raise Refusal("not_authed")
        if ask.app is None:
            raise Refusal("invalid_auth")
        if (row.token == "app") is (ask.installed is not None):
            raise Refusal("not_allowed_token_type")
        if ask.installed is not None and ask.installed.revoked:
            raise Refusal("token_revoked")

    def _limit(self, row: Method, ask: Ask, install: Install) -> None:
        wait = self._rates.check(install, row.name, row.tier, ask.maybe("channel"))
        if wait is not None:
            raise Refusal("ratelimited", status=429, headers={"Retry-After": str(wait)})

    def _answer(
        self, call: Call, body: Json, status: int, headers: Mapping[str, str]
    ) -> web.Response:
        call.reply, call.status, call.done = copy.deepcopy(body), status, True
        self._pulse.beat()
        return web.json_response(body, status=status, headers=dict(headers))

    def _app(self, token: str | None) -> App | None:
        for app in self._desk.state.apps.values():
            if token and app.app_token == token:
                return app
        return None


async def _read(request: web.Request) -> tuple[Json, str | None, tuple[str, str] | None]:
    """Return the arguments, wherever they were put, the token, and client credentials."""
    args: Json = dict(request.query)
    kind = request.content_type
    if kind == _JSON and request.body_exists:
        try:
            decoded = json.loads(await request.read() or b"{}")
        except ValueError:
            decoded = {}
        args |= decoded if isinstance(decoded, dict) else {}
    elif kind in _FORMS and request.body_exists:
        for name, value in (await request.post()).items():
            args[name] = value.file.read() if isinstance(value, web.FileField) else value
    token = args.pop("token", None) if kind != _JSON else None
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials:
        token = credentials.strip()
    return args, token, _basic(credentials) if scheme.lower() == "basic" else None


def _basic(credentials: str) -> tuple[str, str] | None:
    try:
        name, _, secret = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return name, secret


def _decoded(args: Mapping[str, Any]) -> Json:
    """Return arguments with what came as text although it is JSON decoded, for tests to read."""
    made = copy.deepcopy(dict(args))
    for name in _STRUCTURED:
        if isinstance(made.get(name), str) and made[name]:
            try:
                made[name] = json.loads(made[name])
            except ValueError:
                continue
    return made
