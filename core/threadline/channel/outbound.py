"""Event handlers: after the event is recorded, in order per session, at least once.

Each session has a cursor per channel, kept by the store. A worker reads the log from there, so a
handler that is slow costs no memory, and one that was cut short by a crash runs again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

import structlog
from pydantic import ValidationError

from threadline import ndjson
from threadline.channel.context import EventContext, Session, closing
from threadline.channel.progress import PROGRESS, latest
from threadline.channel.runtime import ChannelRuntime
from threadline.events import parse_event
from threadline.session.core import SessionCore
from threadline.store.base import SessionRecord
from threadline.telemetry import span

__all__ = ["Dispatcher"]

log = structlog.get_logger("threadline.channel")

HANDLER_SECONDS = 1200.0
PROGRESS_SECONDS = 10.0
_REMEMBERED = 50_000
_COMPLETED = frozenset(ends for _, ends in PROGRESS.values())


class Dispatcher:
    """Runs the handlers of all channels of one agent."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._runtimes: dict[str, ChannelRuntime] = {}
        self._workers: dict[str, asyncio.Task[Any]] = {}
        self._dirty: set[str] = set()
        self._floor: dict[str, int] = {}
        # The store's cursors are written late, so a running process trusts its own.
        self._cursors: OrderedDict[str, int] = OrderedDict()
        core.services.subscribers = self

    def add(self, runtime: ChannelRuntime) -> None:
        """Serve a channel's handlers, if it has any."""
        if runtime.channel.events:
            self._runtimes[runtime.channel.id] = runtime

    def opened(self, session: SessionRecord, rested_at: int) -> None:
        """Catch up with what a crash left unhandled, from the session's last rest on."""
        if session.channel in self._runtimes:
            self._floor[session.id] = rested_at
            self._wake(session)

    def appended(self, session: SessionRecord, types: Collection[str]) -> None:
        """Wake the session's worker when a handler wants one of the types."""
        runtime = self._runtimes.get(session.channel)
        if runtime is not None and not runtime.channel.events.keys().isdisjoint(types):
            self._wake(session)

    def caught_up(self, session_id: str) -> bool:
        """Tell whether everything recorded so far was handled."""
        return session_id not in self._workers

    async def handled(self, session_id: str) -> None:
        """Return when everything recorded so far was handled."""
        while (worker := self._workers.get(session_id)) is not None:
            await asyncio.shield(worker)

    async def settle(self, seconds: float) -> None:
        """Wait, so long at most, until every session's handlers have caught up."""
        if self._workers:
            await asyncio.wait(list(self._workers.values()), timeout=seconds)

    def _wake(self, session: SessionRecord) -> None:
        self._dirty.add(session.id)
        if session.id not in self._workers:
            self._workers[session.id] = self._core.services.spawn(
                self._work(session), f"handlers {session.id}"
            )

    async def _work(self, session: SessionRecord) -> None:
        runtime = self._runtimes[session.channel]
        store = self._core.store
        cursor = self._cursor(session)
        texts: dict[str, str] = {}
        try:
            while session.id in self._dirty:
                self._dirty.discard(session.id)
                async with closing(store.read(session.id, cursor)) as chunks:
                    async for chunk in chunks:
                        wanted, end = _wanted(runtime, chunk, cursor)
                        for event in latest(wanted, texts):
                            await self._handle(runtime, session, event)
                        cursor = end
                        self._move(session, cursor)
        finally:
            self._workers.pop(session.id, None)

    def _cursor(self, session: SessionRecord) -> int:
        floor = self._floor.pop(session.id, 0)
        kept = self._cursors.get(session.id)
        if kept is None:
            kept = self._core.store.cursor(session.id, session.channel)
        return max(kept, floor)

    def _move(self, session: SessionRecord, cursor: int) -> None:
        self._cursors[session.id] = cursor
        self._cursors.move_to_end(session.id)
        if len(self._cursors) > _REMEMBERED:
            self._cursors.popitem(last=False)
        self._core.store.set_cursor(session.id, session.channel, cursor)

    async def _handle(
        self, runtime: ChannelRuntime, session: SessionRecord, event: dict[str, Any]
    ) -> None:
        """Run the handlers of one event."""
        handlers = runtime.channel.events.get(event["type"])
        if not handlers:
            return
        if event["type"] not in PROGRESS:
            # What a handler says to the world must not be lost again by a power cut.
            await self._core.synced(session.id)
        await self._call(runtime, session, event, handlers)
        self._move(session, int(event["index"]) + 1)

    async def _call(
        self,
        runtime: ChannelRuntime,
        session: SessionRecord,
        event: dict[str, Any],
        handlers: Collection[Any],
    ) -> None:
        try:
            parsed = parse_event(event)
        except ValidationError as error:
            self._failed(event, "the stored event has another shape", error)
            return
        identity = await self._identity(session, event)
        context = EventContext(runtime, Session(session, runtime), parsed, identity)
        for handler in handlers:
            await self._run(handler, parsed, context, event)

    async def _identity(self, session: SessionRecord, event: Mapping[str, Any]) -> str:
        """Name what a handler posts: a final answer belongs to the turn that was first asked."""
        turn_id = event.get("turnId")
        final = event["type"] == "message.completed" and event["data"]["finishReason"] == "stop"
        if not final or turn_id is None:
            return str(event["index"])
        origins = await self._core.origins(session.id)
        return f"answer/{origins.get(turn_id, turn_id)}"

    async def _run(
        self, handler: Any, parsed: Any, context: EventContext, event: Mapping[str, Any]
    ) -> None:
        """A handler that raises, or hangs, never breaks the turn, nor the handlers behind it."""
        try:
            with span("threadline.handler", type=event["type"], session=event["sessionId"]):
                seconds = PROGRESS_SECONDS if event["type"] in PROGRESS else HANDLER_SECONDS
                async with asyncio.timeout(seconds):
                    await handler(parsed, context)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            self._failed(event, "CancelledError", None)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._failed(event, repr(error), error)

    def _failed(self, event: Mapping[str, Any], said: str, error: BaseException | None) -> None:
        log.error(
            "handler.failed",
            session=event["sessionId"],
            type=event["type"],
            index=event["index"],
            error=said,
            exc_info=error,
        )


def _wanted(runtime: ChannelRuntime, chunk: bytes, cursor: int) -> tuple[list[dict[str, Any]], int]:
    """Return the events of a chunk that handlers want, and the index behind the chunk."""
    wanted = []
    for line in chunk.split(b"\n")[:-1]:
        event = ndjson.parse(line)
        if event is None or int(event["index"]) < cursor:
            continue
        cursor = int(event["index"]) + 1
        if event["type"] in runtime.channel.events or event["type"] in _COMPLETED:
            wanted.append(event)
    return wanted, cursor
