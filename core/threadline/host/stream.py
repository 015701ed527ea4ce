"""A session's log over HTTP: NDJSON or server-sent events, stored or followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from threadline import ndjson
from threadline.channel.context import EventStream, Session, closing
from threadline.errors import Draining, IndexOutOfRange, InvalidRequest

__all__ = ["respond"]

log = structlog.get_logger("threadline.host")

HEARTBEAT_SECONDS = 15.0
STALL_SECONDS = 60.0
_FAREWELL_SECONDS = 1.0
_BUFFERED = 16 * 1024
_MOST_DIGITS = 18
_ENDS = ("session.completed", "session.failed")
_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


async def respond(
    request: web.Request, stream: EventStream, ending: asyncio.Event
) -> web.StreamResponse:
    """Answer with the stream; ends after a task's last event, or when the host drains.

    Raises IndexOutOfRange when it would start beyond the next index, Draining when the host ends.
    """
    if stream.follow and ending.is_set():
        raise Draining("The host is shutting down. Resume the stream in a moment.")
    events = stream.follow and "text/event-stream" in request.headers.get("Accept", "")
    start = _start(request, stream.start) if events else stream.start
    next_index = await stream.session.next_index()
    if start > next_index:
        raise IndexOutOfRange(
            f"The log has no index {start} yet; the next one is {next_index}.",
            nextIndex=next_index,
        )
    response = web.StreamResponse(headers=_HEADERS)
    response.content_type = "text/event-stream" if events else "application/x-ndjson"
    try:
        sink = await response.prepare(request)
        assert sink is not None
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=_BUFFERED)
        writer = _Writer(response, sink, events)
        await _first(_copy(stream, start, writer), *_company(stream, writer, ending))
        async with asyncio.timeout(_FAREWELL_SECONDS if ending.is_set() else STALL_SECONDS):
            await response.write_eof()
    except (ConnectionError, TimeoutError):
        # The client is gone, or does not read; it may resume by index.
        _abort(request)
    except Exception as error:
        # The answer has begun, so that nothing else can be said: a cut stream is resumed.
        log.error("stream.failed", session=stream.session.id, error=repr(error), exc_info=error)
        _abort(request)
    return response


def _start(request: web.Request, start: int) -> int:
    """Return where a browser's stream goes on: after the last event that it has."""
    last = request.headers.get("Last-Event-ID", "").strip()
    if not last:
        return start
    if not (last.isascii() and last.isdigit() and len(last) <= _MOST_DIGITS):
        raise InvalidRequest("Last-Event-ID must be the index of an event.")
    return int(last) + 1


def _company(
    stream: EventStream, writer: _Writer, ending: asyncio.Event
) -> list[Coroutine[Any, Any, Any]]:
    return [ending.wait(), writer.beat()] if stream.follow else []


async def _first(*works: Coroutine[Any, Any, Any]) -> None:
    """Return, or raise, with the first that ends; the others are cancelled and have ended then."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _copy(stream: EventStream, start: int, writer: _Writer) -> None:
    session = stream.session
    task = session.mode == "task" and stream.follow
    left = stream.limit
    begun = start == 0
    async with closing(_chunks(stream, start)) as chunks:
        async for chunk in chunks:
            if chunk and not begun:
                chunk = _from_index(chunk, start)
                begun = bool(chunk)
            if left is not None:
                chunk = _first_lines(chunk, left)
                left -= chunk.count(b"\n")
            if chunk:
                await writer.write(chunk)
            elif writer.silent and stream.follow:
                if task and start and await _ended_before(session, start):
                    return
                await writer.beat_once()
            if left == 0 or (task and _has_end(chunk)):
                return


def _chunks(stream: EventStream, start: int) -> AsyncIterator[bytes]:
    if not stream.follow:
        return stream.session.events(start)
    return stream.session.follow(start)


def _from_index(chunk: bytes, start: int) -> bytes:
    """Leave out what is before an index: it was on its way when the reader asked."""
    begin = 0
    while begin < len(chunk):
        end = chunk.index(b"\n", begin) + 1
        event = ndjson.parse(chunk[begin:end])
        if event is not None and event["index"] >= start:
            break
        begin = end
    return chunk[begin:]


def _first_lines(chunk: bytes, count: int) -> bytes:
    end = 0
    for _ in range(count):
        found = chunk.find(b"\n", end)
        if found == -1:
            return chunk
        end = found + 1
    return chunk[:end]


async def _ended_before(session: Session, start: int) -> bool:
    """Tell whether the log's last event, before ``start``, ended the task."""
    last = b""
    async with closing(session.events(start - 1)) as chunks:
        async for chunk in chunks:
            last = chunk
    return _has_end(last)


def _has_end(chunk: bytes) -> bool:
    last = chunk[chunk.rfind(b"\n", 0, -1) + 1 :]
    event = ndjson.parse(last) if b'"session.' in last else None
    return event is not None and event["type"] in _ENDS


class _Writer:
    """Writes whole lines to one client, and a sign of life when there is nothing to write."""

    def __init__(
        self, response: web.StreamResponse, sink: AbstractStreamWriter, events: bool
    ) -> None:
        self._response = response
        self._sink = sink
        self._events = events
        self._last = asyncio.get_running_loop().time()
        self.silent = True

    async def write(self, chunk: bytes) -> None:
        """Write whole lines.

        Raises TimeoutError when the client takes nothing for a while.
        """
        await self._send(_as_events(chunk) if self._events else chunk)

    async def _send(self, data: bytes) -> None:
        self.silent = False
        async with asyncio.timeout(STALL_SECONDS):
            await self._response.write(data)
            # Without this, aiohttp takes more before it waits for the client.
            await self._sink.drain()
        self._last = asyncio.get_running_loop().time()

    async def beat_once(self) -> None:
        """Write a blank line, or a comment, which no log stores."""
        await self._send(b": \n\n" if self._events else b"\n")

    async def beat(self) -> None:
        """Write a blank line whenever nothing was written for a while."""
        loop = asyncio.get_running_loop()
        while True:
            quiet = loop.time() - self._last
            if quiet >= HEARTBEAT_SECONDS:
                await self.beat_once()
                quiet = 0.0
            await asyncio.sleep(HEARTBEAT_SECONDS - quiet)


def _as_events(chunk: bytes) -> bytes:
    out = []
    for line in chunk.split(b"\n")[:-1]:
        event = ndjson.parse(line)
        if event is not None:
            out.append(b"id: %d\ndata: %b\n\n" % (event["index"], line))
    return b"".join(out)
