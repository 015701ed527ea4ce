"""A session's log over HTTP: NDJSON or server-sent events, stored or followed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from threadline.channel.context import EventStream
from threadline.errors import IndexOutOfRange

__all__ = ["respond"]

HEARTBEAT_SECONDS = 15.0
STALL_SECONDS = 60.0
_ENDS = (b'{"type":"session.completed"', b'{"type":"session.failed"')
_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


async def respond(
    request: web.Request, stream: EventStream, closing: asyncio.Event
) -> web.StreamResponse:
    """Answer with the stream; ends after a task's last event, or when the host closes.

    Raises IndexOutOfRange when it would start beyond the next index.
    """
    next_index = await stream.session.next_index()
    start = stream.start
    events = "text/event-stream" in request.headers.get("Accept", "")
    if events and (last := request.headers.get("Last-Event-ID", "")).isdigit():
        start = int(last) + 1
    if start > next_index:
        raise IndexOutOfRange(
            f"The log has no index {start} yet; the next one is {next_index}.",
            nextIndex=next_index,
        )
    response = web.StreamResponse(headers=_HEADERS)
    response.content_type = "text/event-stream" if events else "application/x-ndjson"
    response.charset = "utf-8"
    await response.prepare(request)
    writer = _Writer(request, response, events)
    reading = asyncio.ensure_future(_copy(stream, start, writer))
    ended = asyncio.ensure_future(closing.wait())
    beating = asyncio.ensure_future(writer.beat()) if stream.follow else None
    try:
        await asyncio.wait([reading, ended], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            with contextlib.suppress(ConnectionError):  # the client went away, as clients may
                reading.result()
    finally:
        for task in (reading, ended, beating):
            if task is not None:
                task.cancel()
        await asyncio.gather(
            *(t for t in (reading, ended, beating) if t is not None), return_exceptions=True
        )
    with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
        await asyncio.wait_for(response.write_eof(), STALL_SECONDS)
    return response


async def _copy(stream: EventStream, start: int, writer: _Writer) -> None:
    session = stream.session
    task = session.mode == "task"
    left = stream.limit
    async for chunk in _chunks(stream, start):
        if left is not None:
            chunk = _first_lines(chunk, left)
            left -= chunk.count(b"\n")
        if chunk:
            await writer.write(chunk)
        elif writer.silent:
            await writer.write(b"\n", raw=True)
        if left == 0 or (task and stream.follow and _has_end(chunk)):
            return


def _chunks(stream: EventStream, start: int) -> AsyncIterator[bytes]:
    if not stream.follow:
        return stream.session.events(start)
    return stream.session.follow(start)


def _first_lines(chunk: bytes, count: int) -> bytes:
    end = 0
    for _ in range(count):
        found = chunk.find(b"\n", end)
        if found == -1:
            return chunk
        end = found + 1
    return chunk[:end]


def _has_end(chunk: bytes) -> bool:
    last = chunk[chunk.rfind(b"\n", 0, -1) + 1 :]
    return last.startswith(_ENDS)


class _Writer:
    """Writes whole lines to one client, and a sign of life when there is nothing to write."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, events: bool
    ) -> None:
        self._request = request
        self._response = response
        self._events = events
        self._last = asyncio.get_running_loop().time()
        self.silent = True

    async def write(self, chunk: bytes, *, raw: bool = False) -> None:
        """Write; a client that takes nothing for a minute is cut off, and may resume by index."""
        data = chunk if raw or not self._events else _as_events(chunk)
        self.silent = False
        try:
            await asyncio.wait_for(self._response.write(data), STALL_SECONDS)
        except asyncio.TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client does not read") from None
        self._last = asyncio.get_running_loop().time()

    async def beat(self) -> None:
        """Write a blank line whenever nothing was written for a while."""
        loop = asyncio.get_running_loop()
        while True:
            quiet = loop.time() - self._last
            if quiet >= HEARTBEAT_SECONDS:
                await self.write(b": \n\n" if self._events else b"\n", raw=True)
                quiet = 0.0
            await asyncio.sleep(HEARTBEAT_SECONDS - quiet)


def _as_events(chunk: bytes) -> bytes:
    out = []
    for line in chunk.split(b"\n")[:-1]:
        event: dict[str, Any] = json.loads(line)
        out.append(b"id: %d\ndata: %b\n\n" % (event["index"], line))
    return b"".join(out)
