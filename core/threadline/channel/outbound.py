"""Event handlers: after the event is recorded, in order per session, at least once.

Each session has a cursor per channel, kept by the store. A worker reads the log from there, so a
handler that is slow costs no memory, and one that was cut short by a crash runs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import orjson
import structlog

from threadline.channel.context import EventContext, Session
from threadline.channel.runtime import ChannelRuntime
from threadline.events import parse_event
from threadline.session.core import SessionCore
from threadline.store.base import SessionRecord
from threadline.telemetry import span

__all__ = ["Dispatcher"]

log = structlog.get_logger("threadline.channel")



class Dispatcher:
    """Runs the handlers of all channels of one agent."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._runtimes: dict[str, ChannelRuntime] = {}
        self._workers: dict[str, asyncio.Task[Any]] = {}
        self._dirty: set[str] = set()
        self._floor: dict[str, int] = {}
        core.services.subscribers = self

    def add(self, runtime: ChannelRuntime) -> None:
        """Serve a channel's handlers, if it has any."""
        if runtime.channel.events:
            self._runtimes[runtime.channel.id] = runtime

    def opened(self, session: SessionRecord, rested_at: int) -> None:
        """Catch up with what a crash left unhandled; what had come to rest before is not replayed."""
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

    def _wake(self, session: SessionRecord) -> None:
        self._dirty.add(session.id)
        if session.id not in self._workers:
            self._workers[session.id] = self._core.services.spawn(
                self._work(session), f"handlers {session.id}"
            )

    async def _work(self, session: SessionRecord) -> None:
        runtime = self._runtimes[session.channel]
        store = self._core.store
        cursor = max(store.cursor(session.id, session.channel), self._floor.pop(session.id, 0))
        try:
            while session.id in self._dirty:
                self._dirty.discard(session.id)
                async for chunk in store.read(session.id, cursor):
                    for line in chunk.split(b"\n")[:-1]:
                        cursor = await self._handle(runtime, session, line, cursor)
                    store.set_cursor(session.id, session.channel, cursor)
        finally:
            self._workers.pop(session.id, None)

    async def _handle(
        self, runtime: ChannelRuntime, session: SessionRecord, line: bytes, cursor: int
    ) -> int:
        """Run the handlers of one event; return the next index."""
        event = orjson.loads(line)
        handlers = runtime.channel.events.get(event["type"], ())
        if handlers:
            await self._core.synced(session.id)
            parsed = parse_event(event)
            context = EventContext(runtime, Session(session, runtime))
            for handler in handlers:
                await self._run(handler, parsed, context, event)
            self._core.store.set_cursor(session.id, session.channel, event["index"] + 1)
        return max(cursor, int(event["index"]) + 1)

    async def _run(
        self, handler: Any, parsed: Any, context: EventContext, event: Mapping[str, Any]
    ) -> None:
        """A handler that raises never breaks the turn, nor the handlers behind it."""
        try:
            with span("threadline.handler", type=event["type"], session=event["sessionId"]):
                await handler(parsed, context)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            self._failed(event, "CancelledError", None)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._failed(event, repr(error), error)

    def _failed(
        self, event: Mapping[str, Any], said: str, error: BaseException | None
    ) -> None:
        log.error(
            "handler.failed",
            session=event["sessionId"],
            type=event["type"],
            index=event["index"],
            error=said,
            exc_info=error,
        )
