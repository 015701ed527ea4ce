"""Event handlers: after the event is recorded, in order per session, at least once.

Each session has a cursor per channel, kept by the store. A worker reads the log from there, so a
handler that is slow costs no memory, and one that was cut short by a crash runs again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from pydantic import ValidationError

from threadline import ndjson
from threadline.cancelled import is_cancelled
from threadline.channel.channel import Handler
from threadline.channel.context import EventContext, Session, closing
from threadline.channel.deadline import Deadline
from threadline.channel.outbox import PROGRESS_SECONDS
from threadline.channel.progress import ENDINGS, PROGRESS, Lane, Texts
from threadline.channel.runtime import ChannelRuntime
from threadline.channel.target import sentence
from threadline.channel.turnstile import Turnstile
from threadline.errors import NotFound
from threadline.events import Event, parse_event
from threadline.session.core import SessionCore
from threadline.store.base import SessionRecord
from threadline.telemetry import span

__all__ = ["Dispatcher"]

log = structlog.get_logger("threadline.channel")

HANDLER_SECONDS = 1200.0
_REMEMBERED = 10_000
_TURNS = 16
_HANDLING = 8  # sessions
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0


class _NotOpen(Exception):
    """The session is not open here any more."""


def _set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class _Line:
    """One session's place in its log, and what is known of what stands there.

    ``live`` is where this opening of the session began: no progress is shown from before.
    ``caught_up`` is set while everything is handled. ``origins`` are the newest turns, each with
    the turn that was first asked.
    """

    session: SessionRecord
    runtime: ChannelRuntime
    cursor: int
    lane: Lane
    live: int = 0
    dirty: bool = False
    caught_up: asyncio.Event = field(default_factory=_set)
    worker: asyncio.Task[Any] | None = None
    texts: Texts = field(default_factory=Texts)
    origins: dict[str, str] = field(default_factory=dict)

    def take(self, chunk: bytes) -> tuple[list[dict[str, Any]], int]:
        """Return the events of a chunk that matter here, and the index behind the chunk."""
        wanted, end = [], self.cursor
        for line in chunk.split(b"\n")[:-1]:
            event = ndjson.parse(line)
            if event is None or event["index"] < end:
                continue
            end = event["index"] + 1
            type_ = event["type"]
            if type_ == "turn.started":
                self._started(event)
            stale = type_ in PROGRESS and event["index"] < self.live
            if (type_ in self.runtime.channel.events and not stale) or type_ in ENDINGS:
                wanted.append(event)
        return wanted, end

    def _started(self, event: Mapping[str, Any]) -> None:
        data, turn_id = event.get("data"), str(event.get("turnId"))
        resumes = data.get("resumes") if isinstance(data, dict) else None
        origin = turn_id if resumes is None else self.origins.get(str(resumes))
        if origin is not None:
            self.origin_is(turn_id, origin)

    def origin_is(self, turn_id: str, origin: str) -> None:
        """Remember the turn that was first asked."""
        self.origins[turn_id] = origin
        while len(self.origins) > _TURNS:
            del self.origins[next(iter(self.origins))]


class Dispatcher:
    """Runs the handlers of all channels of one agent, between ``start`` and ``settle``."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core
        self._runtimes: dict[str, ChannelRuntime] = {}
        self._wanted: dict[str, frozenset[str]] = {}
        # The store's cursors are written late, so a running process trusts its own.
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._open = False
        self._handling = Turnstile(_HANDLING)
        core.services.subscribers = self

    def add(self, runtime: ChannelRuntime) -> None:
        """Serve a channel's handlers, if it has any."""
        channel = runtime.channel
        if channel.events:
            ends = ENDINGS if channel.events.keys() & PROGRESS.keys() else ()
            self._runtimes[channel.id] = runtime
            self._wanted[channel.id] = frozenset({*channel.events, *ends})

    def start(self) -> None:
        """Begin with what has gathered; the channels have started, so their handlers can work."""
        self._open = True
        for line in list(self._lines.values()):
            if line.dirty:
                self._wake(line)

    def opened(self, session: SessionRecord, rested_at: int, next_index: int) -> None:
        """Catch up with what a crash left unhandled, from the session's last rest on."""
        if session.channel in self._runtimes:
            line = self._line(session)
            line.cursor = max(line.cursor, rested_at)
            line.live = next_index
            self._wake(line)

    def appended(self, session: SessionRecord, types: Collection[str]) -> None:
        """Wake the session's worker when a handler wants one of the types."""
        wanted = self._wanted.get(session.channel)
        if wanted is not None and not wanted.isdisjoint(types):
            self._wake(self._line(session))

    def deleted(self, session_id: str) -> None:
        """Forget a session; a handler that still runs can post nothing more of it."""
        line = self._lines.pop(session_id, None)
        if line is not None:
            line.caught_up.set()

    def caught_up(self, session_id: str) -> bool:
        """Tell whether everything recorded so far was handled."""
        line = self._lines.get(session_id)
        return line is None or line.caught_up.is_set()

    async def handled(self, session_id: str) -> None:
        """Return when everything recorded so far was handled."""
        line = self._lines.get(session_id)
        if line is not None:
            await line.caught_up.wait()

    async def settle(self, seconds: float) -> None:
        """Wait, so long at most, until all handlers have caught up, then end those that have not.

        What they leave undone is done by the next process, which looks up their intents first.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (working := self._working()) and (left := deadline - loop.time()) > 0:
            await asyncio.wait(working, timeout=left)
        self._open = False
        ending = [*self._working()]
        for task in ending:
            task.cancel()
        for line in self._lines.values():
            ending += line.lane.cancel()
        if ending:
            await asyncio.wait(ending, timeout=1.0)

    def _working(self) -> list[asyncio.Task[Any]]:
        return [line.worker for line in self._lines.values() if line.worker is not None]

    # One session

    def _line(self, session: SessionRecord) -> _Line:
        line = self._lines.get(session.id)
        if line is None:
            cursor = self._core.store.cursor(session.id, session.channel)
            line = _Line(session, self._runtimes[session.channel], cursor, self._lane(session))
            self._lines[session.id] = line
            self._forget_idle()
        self._lines.move_to_end(session.id)
        return line

    def _lane(self, session: SessionRecord) -> Lane:
        services, name = self._core.services, f"progress {session.id}"

        async def run(event: dict[str, Any]) -> None:
            if (line := self._lines.get(session.id)) is not None:
                await self._call(line, event)

        def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return services.spawn(work, name)

        return Lane(run, spawn, services.clock)

    def _forget_idle(self) -> None:
        """Drop those that were idle for the longest time; the store knows where they stand."""
        many = max(len(self._lines) - _REMEMBERED, 0)
        for session_id, line in list(itertools.islice(self._lines.items(), many)):
            if line.caught_up.is_set() and line.worker is None and not line.texts:
                del self._lines[session_id]

    def _wake(self, line: _Line) -> None:
        line.dirty = True
        line.caught_up.clear()
        if line.worker is None and self._open:
            name = f"handlers {line.session.id}"
            line.worker = self._core.services.spawn(self._work(line), name)

    async def _work(self, line: _Line) -> None:
        """Handle until nothing is left; what goes wrong here, outside of handlers, may pass."""
        wait = _FIRST_WAIT
        try:
            while line.dirty:
                line.dirty = False
                try:
                    async with self._handling.place():
                        await self._catch_up(line)
                    wait = _FIRST_WAIT
                except _NotOpen:
                    return
                except Exception as error:
                    session = line.session.id
                    log.error(
                        "handlers.delayed", session=session, error=sentence(error), exc_info=error
                    )
                    line.dirty = True
                    await self._core.services.clock.sleep(wait)
                    wait = min(wait * 2, _LONGEST_WAIT)
            line.caught_up.set()
        finally:
            line.worker = None

    async def _catch_up(self, line: _Line) -> None:
        async with closing(self._core.store.read(line.session.id, line.cursor)) as chunks:
            async for chunk in chunks:
                wanted, end = line.take(chunk)
                for event in line.texts.latest(wanted):
                    await self._handle(line, event)
                self._move(line, end)

    def _move(self, line: _Line, cursor: int) -> None:
        line.cursor = cursor
        self._core.store.set_cursor(line.session.id, line.session.channel, cursor)

    async def _handle(self, line: _Line, event: dict[str, Any]) -> None:
        """Run the handlers of one event; progress goes to its lane, and makes way for all else."""
        if event["type"] in PROGRESS:
            line.lane.show(event)
            return
        if event["type"] not in line.runtime.channel.events:
            line.lane.drop(event)
            return
        await line.lane.clear()
        # What a handler says to the world must not be lost again by a power cut.
        if not await self._core.synced(line.session.id):
            raise _NotOpen
        await self._call(line, event)
        self._move(line, int(event["index"]) + 1)

    # One event

    async def _call(self, line: _Line, event: dict[str, Any]) -> None:
        try:
            parsed = parse_event(event)
        except ValidationError as error:
            self._failed(event, "the stored event has another shape", error)
            return
        identity = await self._identity(line, event)
        for number, handler in enumerate(line.runtime.channel.events[event["type"]]):
            name = f"{identity}#{number}" if number else identity
            await self._run(line, handler, parsed, event, name)

    async def _identity(self, line: _Line, event: Mapping[str, Any]) -> str:
        """Name what a handler posts: a final answer belongs to the turn that was first asked."""
        data, turn_id = event["data"], event.get("turnId")
        final = event["type"] == "message.completed" and data["finishReason"] == "stop"
        if not final or turn_id is None or data.get("parentCallId") is not None:
            return f"event/{event['index']}"
        return f"answer/{await self._origin(line, turn_id)}"

    async def _origin(self, line: _Line, turn_id: str) -> str:
        """Return the turn that was first asked."""
        if turn_id not in line.origins:
            origins = await self._core.origins(line.session.id)
            line.origin_is(turn_id, origins.get(turn_id, turn_id))
        return line.origins[turn_id]

    async def _run(
        self,
        line: _Line,
        handler: Handler,
        parsed: Event[Any],
        event: Mapping[str, Any],
        identity: str,
    ) -> None:
        """A handler that raises, or hangs, never breaks the turn, nor the handlers behind it."""
        seconds = PROGRESS_SECONDS if event["type"] in PROGRESS else HANDLER_SECONDS
        deadline = Deadline(self._core.services.clock, seconds)
        session = Session(line.session, line.runtime)

        async def answer() -> str | None:
            turn_id = parsed.turn_id
            return None if turn_id is None else f"answer/{await self._origin(line, turn_id)}"

        context = EventContext(line.runtime, session, parsed, identity, deadline, answer)
        try:
            with span("threadline.handler", type=event["type"], session=line.session.id):
                async with deadline:
                    await handler(parsed, context)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self._failed(event, "CancelledError", None)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if isinstance(error, NotFound) and line.session.id not in self._lines:
                log.info("handler.session_deleted", session=line.session.id, type=event["type"])
                return
            late = isinstance(error, TimeoutError) and deadline.expired
            said = f"it was cut off after {seconds:g} seconds" if late else sentence(error)
            self._failed(event, said, error)

    def _failed(self, event: Mapping[str, Any], said: str, error: BaseException | None) -> None:
        log.error(
            "handler.failed",
            session=event["sessionId"],
            type=event["type"],
            index=event["index"],
            error=said,
            exc_info=error,
        )
