"""Socket Mode: connections of apps, their envelopes, acknowledgements, pings and deaths."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Literal

from aiohttp import WSCloseCode, WSMsgType, web

from threadline.testing.pulse import Pulse
from threadline_slack.testing.model import App, Json
from threadline_slack.testing.state import State

__all__ = ["Socket", "Sockets"]

Disconnect = Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets"]

_MOST = 10
_CLOSING = 1.0  # seconds for the other side to say goodbye
_BUILD = {"host": "applink-fixture-1", "build_number": 1, "approximate_connection_time": 18060}


class Socket:
    """One connection of an app. ``sent`` and ``received`` are its frames, in order.

    ``silent``: it is dead and nobody knows: it sends nothing, answers no ping, hears nothing, yet
    Slack goes on choosing it for envelopes. ``ignores_acks``: it sends and answers pings, but no
    acknowledgement ever gets through.
    """

    def __init__(
        self,
        app: App,
        number: int,
        ws: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        pulse: Pulse,
    ) -> None:
        self.app = app.id
        self.number = number
        self.sent: list[Json] = []
        self.received: list[Json] = []
        self.pings: list[bytes] = []
        self.pongs: list[bytes] = []
        self.silent = False
        self.ignores_acks = False
        self.open = True
        self._ws = ws
        self._transport = transport
        self._pulse = pulse
        self._acks: dict[str, asyncio.Future[Json]] = {}

    async def send(self, frame: Json) -> None:
        """Send a frame, any at all."""
        if self.silent or self._ws.closed:
            return
        self.sent.append(frame)
        with contextlib.suppress(ConnectionError):
            await self._ws.send_str(json.dumps(frame, ensure_ascii=False, separators=(",", ":")))
        self._pulse.beat()

    async def disconnect(self, reason: Disconnect = "warning") -> None:
        """Announce the end of the connection, without ending it."""
        host = {"host": _BUILD["host"]}
        await self.send({"type": "disconnect", "reason": reason, "debug_info": host})

    async def ping(self, data: bytes = b"Ping from applink-fixture-1") -> None:
        """Ping the app; the answer comes into ``pongs``."""
        with contextlib.suppress(ConnectionError):
            await self._ws.ping(data)

    async def close(self, code: int = WSCloseCode.GOING_AWAY) -> None:
        """Close it properly."""
        self.open = False
        await self._ws.close(code=code, drain=False)

    def abort(self) -> None:
        """Cut the connection, as a network does."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # For Slack's side

    async def run(self) -> None:
        """Take what comes until the connection ends."""
        async for message in self._ws:
            if self.silent:
                continue
            if message.type is WSMsgType.PING:
                self.pings.append(bytes(message.data))
                await self._ws.pong(message.data)
            elif message.type is WSMsgType.PONG:
                self.pongs.append(bytes(message.data))
            elif message.type is WSMsgType.TEXT:
                self._take(json.loads(message.data))
            self._pulse.beat()

    def expect(self, envelope_id: str) -> asyncio.Future[Json]:
        """Return what will be the payload of the acknowledgement."""
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._acks[envelope_id] = future
        return future

    def forget(self, envelope_id: str) -> None:
        """Wait for this acknowledgement no longer."""
        self._acks.pop(envelope_id, None)

    def ended(self) -> None:
        """Note that the connection is gone; nothing will be acknowledged on it."""
        self.open = False
        for future in self._acks.values():
            future.cancel()
        self._acks.clear()

    def _take(self, frame: Json) -> None:
        self.received.append(frame)
        future = self._acks.get(str(frame.get("envelope_id")))
        if future is not None and not future.done() and not self.ignores_acks:
            future.set_result(frame.get("payload") or {})


class Sockets:
    """All connections of all apps; envelopes go round them."""

    def __init__(self, state: State, pulse: Pulse) -> None:
        self.all: list[Socket] = []
        self._state = state
        self._pulse = pulse
        self._tickets: dict[str, str] = {}
        self._turn = 0

    def ticket(self, app: App) -> str:
        """Return the address for one connection of an app."""
        ticket = self._state.mint("ticket-")
        self._tickets[ticket] = app.id
        base = self._state.url.replace("http://", "ws://", 1)
        return f"{base}/link/?ticket={ticket}&app_id={app.id}"

    def of(self, app: str) -> list[Socket]:
        """Return the connections of an app that Slack holds for alive."""
        return [one for one in self.all if one.open and one.app == app]

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection."""
        identity = self._tickets.pop(request.query.get("ticket", ""), None)
        if identity is None:
            return web.Response(status=404, text="This ticket is used up or was never given.")
        app = self._state.app(identity)
        ws = web.WebSocketResponse(autoping=False, timeout=_CLOSING)
        await ws.prepare(request)
        transport = request.transport
        wire = transport if isinstance(transport, asyncio.Transport) else None
        socket = Socket(app, len(self.all) + 1, ws, wire, self._pulse)
        self.all.append(socket)
        await self._greet(socket, app)
        try:
            await socket.run()
        finally:
            socket.ended()
            self._pulse.beat()
        return ws

    async def _greet(self, socket: Socket, app: App) -> None:
        count = len(self.of(app.id))
        if count > _MOST:
            await socket.disconnect("too_many_websockets")
            await socket.close()
            return
        await socket.send(
            {
                "type": "hello",
                "num_connections": count,
                "connection_info": {"app_id": app.id},
                "debug_info": dict(_BUILD),
            }
        )

    async def event(self, app: App, body: Json, number: int) -> Json | None:
        """Send an event once; returns None when it was not acknowledged in time."""
        envelope = {
            "envelope_id": f"envelope-{body.get('event_id', self._state.mint('e'))}",
            "payload": body,
            "type": "events_api",
            "accepts_response_payload": False,
            "retry_attempt": number,
            "retry_reason": "timeout" if number else "",
        }
        return await self._ask(app, envelope)

    async def interaction(
        self, app: App, body: Json, kind: Literal["interactive", "slash_commands"]
    ) -> Json | None:
        """Send an interaction or command; it is never retried."""
        envelope = {
            "envelope_id": self._state.mint("envelope-"),
            "payload": body,
            "type": kind,
            "accepts_response_payload": True,
        }
        return await self._ask(app, envelope)

    async def _ask(self, app: App, envelope: Json) -> Json | None:
        """Send an envelope on one connection, and wait for its acknowledgement."""
        sockets = self.of(app.id)
        if not sockets:
            return None
        self._turn += 1
        socket = sockets[self._turn % len(sockets)]
        identity: str = envelope["envelope_id"]
        future = socket.expect(identity)
        deaf = socket.silent or socket.ignores_acks  # then only the clock can end this
        what = f"the envelope {identity} on socket {socket.number}"
        with contextlib.nullcontext() if deaf else self._pulse.busy(what):
            try:
                await socket.send(envelope)
                return await self._acknowledged(future)
            finally:
                socket.forget(identity)

    async def _acknowledged(self, future: asyncio.Future[Json]) -> Json | None:
        timer = asyncio.ensure_future(self._state.clock.sleep(self._state.options.ack_within))
        waiting: set[asyncio.Future[Any]] = {future, timer}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return None if future.cancelled() or not future.done() else future.result()

    async def close(self) -> None:
        """End every connection."""
        for socket in self.all:
            if socket.open:
                await socket.close()
