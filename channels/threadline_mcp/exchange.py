"""One POST: the library answers through it, and it answers the caller.

The answer is one JSON body, unless the caller asked to hear of progress or the answer is long in
coming: then, where the caller takes events, it is an event stream that ends with that body.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

import orjson
from aiohttp import web

from threadline.channel.context import Reply, RouteContext
from threadline.errors import ThreadlineError
from threadline.ids import new_id
from threadline_mcp.message import CANCELLED, INTERNAL, INVALID, Message, accepts_events, fault

__all__ = ["Exchange"]

PING_SECONDS = 15.0
_CLEANUP_SECONDS = 6.0
_MODERN = "2026"
_JSON = "application/json"
_HINTS = {421: ". Where the host is called by another name, give it --public-url."}
_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}

Event: TypeAlias = MutableMapping[str, Any]
Work: TypeAlias = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """A request and its answer.

    ``receive`` and ``send`` are the two sides of ASGI; ``refused`` is an error whose HTTP status
    the answer gets.
    """

    def __init__(self, ctx: RouteContext, message: Message) -> None:
        self.ctx = ctx
        self.message = message
        self.refused: ThreadlineError | None = None
        self.events = accepts_events(ctx.headers.get("accept", ""))
        # Until 2025-11-25 a closed connection says nothing, and a notification cancels. From
        # 2026-07-28 on closing the connection is how a client cancels.
        self.closing_cancels = ctx.headers.get("mcp-protocol-version", "") >= _MODERN
        self._work: asyncio.Future[None] | None = None
        self._cancelled = False
        self._asked = False
        self._status = 500
        self._kind = ""
        self._body = bytearray()
        self._progress = 0
        self._stream: web.StreamResponse | None = None
        self._writing = asyncio.Lock()

    async def run(self, work: Work) -> Reply | web.StreamResponse:
        """Let the library work, and return the answer; cancelled, it cancels the work."""
        self._work = asyncio.ensure_future(work(self))
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({self._work})
        finally:
            watch.cancel()
            await asyncio.wait({watch})
            if not self._work.done():
                self._work.cancel()
                await asyncio.wait({self._work}, timeout=_CLEANUP_SECONDS)
        return await self._answer()

    def cancel(self) -> None:
        """End the work, because the caller no longer wants it."""
        self._cancelled = True
        if self._work is not None:
            self._work.cancel()

    async def progress(self, sentence: str) -> None:
        """Tell the caller how it goes, if it asked for that."""
        token = self.message.progress_token
        if token is None:
            return
        self._progress += 1
        params = {"progressToken": token, "progress": self._progress, "message": sentence}
        wire = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        await self._write(_event(orjson.dumps(wire)))

    # The library's side

    async def receive(self) -> Event:
        """Give the body once, and then nothing more."""
        if self._asked:
            await asyncio.get_running_loop().create_future()
        self._asked = True
        return {"type": "http.request", "body": self.ctx.body, "more_body": False}

    async def send(self, event: Event) -> None:
        """Take the answer."""
        if event["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in event.get("headers", ())}
            self._status = event["status"]
            self._kind = headers.get(b"content-type", b"").decode("latin-1")
        elif event["type"] == "http.response.body":
            self._body += event.get("body", b"")

    # The caller's side

    async def _watch(self) -> None:
        """Keep the connection alive, and see when it is closed."""
        while True:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self.ctx.hung_up()
            except TimeoutError:
                await self._write(b": ping\n\n")
                continue
            if self.closing_cancels:
                self.cancel()
            return

    async def _write(self, chunk: bytes) -> None:
        """Write a piece of the event stream, which begins with the first."""
        if not self.events:
            return
        async with self._writing:
            # What the caller no longer hears is not missed.
            with contextlib.suppress(ConnectionError):
                if self._stream is None:
                    stream = web.StreamResponse(headers=_HEADERS)
                    await stream.prepare(self.ctx.request)
                    self._stream = stream
                await self._stream.write(chunk)

    async def _answer(self) -> Reply | web.StreamResponse:
        status, body = self._outcome()
        if self._stream is None:
            headers = {"Retry-After": "5"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
            return Reply(body or None, status, headers, _JSON if body else None)
        await self._write(_event(body))
        with contextlib.suppress(ConnectionError):
            await self._stream.write_eof()
        return self._stream

    def _outcome(self) -> tuple[int, bytes]:
        """Return the status and the JSON-RPC body."""
        assert self._work is not None
        if self._cancelled:
            return 200, fault(self.message.id, CANCELLED, "Request cancelled")
        error = self._work.exception() if not self._work.cancelled() else asyncio.CancelledError()
        if error is not None:
            return self._failed(error)
        body = bytes(self._body)
        if self.refused is not None:
            return self.refused.status, body
        if self._status >= 400 and _JSON not in self._kind:
            said = body.decode("utf-8", "replace") or HTTPStatus(self._status).phrase
            return self._status, fault(None, INVALID, said + _HINTS.get(self._status, ""))
        return self._status, body

    def _failed(self, error: BaseException) -> tuple[int, bytes]:
        error_id = new_id("err")
        self.ctx.log.error("mcp.failed", error_id=error_id, error=repr(error), exc_info=error)
        said = f"Something went wrong here; the host's log has the details under {error_id}."
        return 500, fault(self.message.id, INTERNAL, said)


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"
