"""The session core of one agent: the door for deliveries, stops and direct calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson
import structlog

from threadline import ndjson
from threadline.clock import Clock, SystemClock, iso
from threadline.errors import (
    ApprovalClosed,
    Conflict,
    Draining,
    Forbidden,
    NotFound,
    SessionBusy,
    StoreUnavailable,
    ThreadlineError,
)
from threadline.harness.base import Harness, ToolCall, ToolResult
from threadline.ids import new_id
from threadline.principal import Principal
from threadline.session import workspace
from threadline.session.admission import Admitted
from threadline.session.limits import Limits
from threadline.session.owner import SessionOwner
from threadline.session.parking import ParkedCall
from threadline.session.prepare import Preparer, Seconds, usual
from threadline.session.recovery import Plan
from threadline.session.slots import Slots
from threadline.session.turn import CallContext, Gate, ToolBox
from threadline.session.workspace import Seeds
from threadline.store.base import (
    AcceptRequest,
    AcceptResult,
    DecisionRecord,
    DeliveryRecord,
    InboxItem,
    SessionDeleted,
    SessionRecord,
    StopRecord,
    Store,
)
from threadline.telemetry import span

__all__ = ["Fate", "NoTools", "Services", "SessionCore", "Subscribers"]

log = structlog.get_logger("threadline.session")

IDLE_SECONDS = 30.0
SWEEP_SECONDS = 5.0
RETENTION_SECONDS = 3600.0
_REMEMBERED = 10_000
_TURN_ENDS = ("turn.completed", "turn.failed")
_MILLISECOND = timedelta(milliseconds=1)
_NEVER = datetime.min.replace(tzinfo=UTC)


class Subscribers(Protocol):
    """Who handles a session's events after they are recorded."""

    def appended(self, session: SessionRecord, types: Collection[str]) -> None:
        """Hear that events of these types were recorded."""

    def opened(self, session: SessionRecord, rested_at: int, next_index: int) -> None:
        """Hear that a session was opened whose last rest was before index ``rested_at``.

        What is below ``next_index`` was recorded before, or says how that ended.
        """

    def deleted(self, session_id: str) -> None:
        """Hear that a session is gone."""

    async def handled(self, session_id: str) -> None:
        """Return when everything recorded so far was handled."""

    def caught_up(self, session_id: str) -> bool:
        """Tell whether everything recorded so far was handled."""


class NoSubscribers:
    """Nobody listens."""

    def appended(self, session: SessionRecord, types: Collection[str]) -> None:
        """Do nothing."""

    def opened(self, session: SessionRecord, rested_at: int, next_index: int) -> None:
        """Do nothing."""

    def deleted(self, session_id: str) -> None:
        """Do nothing."""

    async def handled(self, session_id: str) -> None:
        """Return at once."""

    def caught_up(self, session_id: str) -> bool:
        """Say yes."""
        return True


class NoTools:
    """An agent without tools."""

    def infos(self) -> list[Any]:
        """Return none."""
        return []

    def effect(self, name: str) -> str:
        """Call everything a read."""
        return "read"

    def idempotent(self) -> frozenset[str]:
        """Return none."""
        return frozenset()

    def limit(self, name: str) -> int | None:
        """Limit nothing."""
        return None

    def validated(self, call: ToolCall) -> Any:
        """Return the input as it came."""
        return call.input

    def refusal(self, call: ToolCall, context: CallContext) -> ToolResult | None:
        """Refuse nothing."""
        return None

    def gate(self, call: ToolCall) -> Gate | None:
        """Let nothing wait."""
        return None

    async def may_decide(
        self, principal: Principal, call: ToolCall, session: SessionRecord
    ) -> bool | None:
        """Name nobody."""
        return None

    async def run(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Answer that there is no such tool."""
        message = f"There is no tool {call.tool_name!r}; this agent has none."
        return ToolResult(call.call_id, call.tool_name, message, True, "unknown_tool")


Furnish = Callable[[Path, SessionRecord | None, bool], None]
"""Puts into a workspace, of a session or of one call, what the agent wants there now; the last
argument says that it is nobody else's folder."""


Guard = Callable[[SessionRecord, ToolCall], "Awaitable[str | None]"]
"""Says why a session's model may not make a call; None when it may."""


@dataclass(slots=True)
class Services:
    """What an owner needs of the world around it."""

    store: Store
    agent: str = "agent"
    harness: Harness | None = None
    tools: ToolBox = field(default_factory=NoTools)
    instructions: str = ""
    clock: Clock = field(default_factory=SystemClock)
    slots: Slots = field(default_factory=lambda: Slots(None))
    seeds: Seeds = field(default_factory=Seeds)
    furnish: Furnish | None = None
    local_cwd: Path | None = None
    on_restart: Literal["resume", "fail"] = "resume"
    settle_seconds: float = 10.0
    blob_threshold: int = 256 * 1024
    limits: Limits = field(default_factory=Limits)
    retention: timedelta | None = None
    mask: Callable[[bytes], bytes] = lambda line: line
    preparer: Preparer | None = None
    prepare_seconds: Seconds = usual
    guard: Guard | None = None
    normal_token: Callable[[SessionRecord, str], str] = lambda _, token: token
    subscribers: Subscribers = field(default_factory=NoSubscribers)
    draining: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    unload: Callable[[SessionOwner, str], None] = lambda owner, reason: None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _stamp: tuple[datetime, datetime, str] = (_NEVER, _NEVER, "")

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task that is kept until it ends; what it raises is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not task.get_name().startswith("turn "):
            log.error("task.failed", task=task.get_name(), error=repr(error), exc_info=error)

    def stamp(self) -> str:
        """Return the time as events have it; formatted once a millisecond."""
        now = self.clock.now()
        begins, ends, text = self._stamp
        if not begins <= now < ends:
            begins = now.replace(microsecond=now.microsecond // 1000 * 1000)
            text = iso(now)
            self._stamp = (begins, begins + _MILLISECOND, text)
        return text

    def appended(self, session: SessionRecord, types: Collection[str]) -> None:
        """Pass on what was recorded."""
        self.subscribers.appended(session, types)

    async def handled(self, session_id: str) -> None:
        """Wait for the subscribers."""
        await self.subscribers.handled(session_id)

    def caught_up(self, session_id: str) -> bool:
        """Ask the subscribers."""
        return self.subscribers.caught_up(session_id)


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a delivery, and of the turn that carried it."""

    outcome: Literal["steered", "prompted", "cleared"]
    turn_id: str | None = None
    status: Literal["completed", "failed", "cancelled", "interrupted", "cleared"] | None = None
    result: Any = None
    error: Mapping[str, Any] | None = None


class SessionCore:
    """Decides what each delivery does, runs the turns, and records all of it."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.store = services.store
        services.unload = self._unload
        self._owners: dict[str, SessionOwner] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._reopening: set[str] = set()
        self._early: dict[str, list[InboxItem]] = {}
        self._admitted: OrderedDict[int, Admitted] = OrderedDict()
        self._decided: OrderedDict[int, bool] = OrderedDict()
        self._stopped: OrderedDict[int, bool] = OrderedDict()
        self._sweeper: asyncio.Task[Any] | None = None

    # Life

    async def start(self) -> None:
        """Open the store and carry on with what a crash or a drain left."""
        await self.store.open()
        self.store.listen(self._inbox)
        for sentence in self.store.damage:
            log.warning("store.repaired", detail=sentence)
        for session_id in self.store.unrested():
            await self._load_quietly(session_id)
        self._sweeper = self.services.spawn(self._sweep(), "sweeper")

    async def drain(self, seconds: float) -> None:
        """Take nothing new, let turns end for a while, then interrupt them; all is synced."""
        self.services.draining = True
        self.services.drained.set()
        deadline = self.services.clock.monotonic() + seconds
        while self._running() and self.services.clock.monotonic() < deadline:
            await self.services.clock.sleep(0.02)
        owners = list(self._owners.values())
        await asyncio.gather(*(owner.shut_down() for owner in owners), return_exceptions=True)

    def _running(self) -> int:
        return sum(owner.phase in ("running", "settling") for owner in self._owners.values())

    async def close(self, *, drain_seconds: float = 0.0) -> None:
        """Drain, then close the store; leaves no task of its own behind."""
        await self.drain(drain_seconds)
        leftovers = [task for task in self.services.tasks if task is not asyncio.current_task()]
        for task in leftovers:
            task.cancel()
        if leftovers:
            await asyncio.wait(leftovers, timeout=1.0)
        await self.store.close()

    @property
    def load(self) -> Mapping[str, int]:
        """Counts for metrics: open sessions, running and queued turns."""
        return {
            "sessions": len(self._owners),
            "running": self._running(),
            "queued": sum(owner.phase == "queued" for owner in self._owners.values()),
        }

    # Deliveries

    async def send(self, request: AcceptRequest) -> tuple[AcceptResult, Admitted]:
        """Accept a delivery durably; return the store's answer and what the delivery did."""
        if self.services.draining:
            raise Draining("The host is shutting down. Send this again in a moment.")
        self._check_files(request)
        with span("threadline.accept", channel=request.channel) as accepting:
            result = await self.store.accept(request)
            accepting.set("session", result.session.id)
            accepting.set("delivery", result.delivery.delivery_id)
        self.services.counts["deliveries", "duplicate" if result.duplicate else "accepted"] += 1
        if result.duplicate:
            return result, "duplicate"
        seq = result.delivery.seq
        if seq not in self._admitted and result.session.id in self._loading:
            await self._load_quietly(result.session.id)
        return result, self._admitted.pop(seq, "queued")

    def _check_files(self, request: AcceptRequest) -> None:
        """Refuse files that would go through a link in the workspace as it is now."""
        if not request.files:
            return
        record = None
        if request.session_id is not None:
            record = self.store.session(request.session_id)
        elif request.token is not None:
            record = self.store.session_by_token(request.channel, request.token)
        if record is not None and not request.may(record):
            return
        chosen = request.cwd or (record and record.cwd) or self.services.local_cwd
        if chosen is not None:
            workspace.check_links(Path(chosen), request.files)
        elif record is not None:
            workspace.check_links(self.store.workspace(record.id), request.files)

    def folder(self, session_id: str) -> Path:
        """Return a session's working folder."""
        record = self.store.session(session_id)
        chosen = (record.cwd if record else None) or self.services.local_cwd
        return Path(chosen) if chosen else self.store.workspace(session_id)

    async def stop(
        self, session_id: str, *, clear_pending: bool = False, before: str | None = None
    ) -> bool:
        """Stop what runs or waits for a slot; durable when it returns. False: nothing to stop.

        Raises Draining for a turn that the host's end has interrupted: the next process takes it up
        again, and can be told.
        """
        owner = await self.owner(session_id)
        if owner is None or (owner.phase == "idle" and not owner.pending):
            if owner is not None and owner.goes_on_elsewhere:
                raise Draining("The host is shutting down. Send this again in a moment.")
            return False
        # Never earlier than the turn it is meant for, whatever the wall clock did meanwhile.
        at = max(self.services.stamp(), owner.lease.last_at)
        try:
            stop = await self.store.stop(
                session_id, at=at, clear_pending=clear_pending, before=before
            )
        except NotFound:
            return False
        return self._stopped.pop(stop.seq, False)

    def _inbox(self, item: InboxItem) -> None:
        """Hear of everything that was accepted, in commit order."""
        if isinstance(item, SessionDeleted):
            owner = self._owners.pop(item.session_id, None)
            if owner is not None:
                owner.abort("session_deleted")
            self.services.subscribers.deleted(item.session_id)
            return
        owner = self._owners.get(item.session_id)
        if owner is not None:
            self._hand(owner, item)
            return
        self._early.setdefault(item.session_id, []).append(item)
        self._start_loading(item.session_id)

    def _hand(
        self, owner: SessionOwner, item: DeliveryRecord | StopRecord | DecisionRecord
    ) -> None:
        """Give an owner what it has not found in the ledger when it was opened."""
        if isinstance(item, DecisionRecord):
            _remember(self._decided, item.seq, owner.decide(item))
        elif isinstance(item, StopRecord):
            if item.seq not in owner.opened_stops:
                _remember(self._stopped, item.seq, owner.stop(item))
        elif item.seq not in owner.opened_with:
            _remember(self._admitted, item.seq, owner.deliver(item))

    def _start_loading(self, session_id: str) -> asyncio.Task[None]:
        task = self._loading.get(session_id)
        if task is None:
            task = self.services.spawn(self._open(session_id), f"load {session_id}")
            self._loading[session_id] = task
            task.add_done_callback(lambda done: self._loaded(session_id, done))
        return task

    async def _load(self, session_id: str) -> None:
        if session_id not in self._owners:
            await asyncio.shield(self._start_loading(session_id))

    async def _load_quietly(self, session_id: str) -> None:
        """Load a session; one that cannot be opened is logged and keeps what it has."""
        with contextlib.suppress(Exception):
            await self._load(session_id)

    async def _open(self, session_id: str) -> None:
        try:
            await self._open_owner(session_id)
        finally:
            del self._loading[session_id]

    def _loaded(self, session_id: str, task: asyncio.Task[None]) -> None:
        """What could not be opened is tried again: its deliveries were accepted."""
        if not task.cancelled() and isinstance(task.exception(), Exception):
            self._reopen_soon(session_id)

    def _reopen_soon(self, session_id: str) -> None:
        if self.services.draining or session_id in self._reopening:
            return
        self._reopening.add(session_id)
        again = self.services.spawn(self._reopen(session_id), "reopen")
        again.add_done_callback(lambda _: self._reopening.discard(session_id))

    async def _open_owner(self, session_id: str) -> None:
        lease = await self.store.lease(session_id)
        early = self._early.pop(session_id, [])
        if lease is None:
            return
        owner = SessionOwner(self.services, lease)
        free = self.services.slots.free
        plan = owner.open()
        self._owners[session_id] = owner
        rested_at = lease.mark.next_index if lease.mark else 0
        self.services.subscribers.opened(owner.record, rested_at, lease.next_index)
        stops = {stop.seq for stop in plan.stops_done}
        for item in early:
            if isinstance(item, SessionDeleted):
                continue
            if isinstance(item, StopRecord) and item.seq in stops:
                _remember(self._stopped, item.seq, _stopped_by(plan))
            elif isinstance(item, DeliveryRecord) and item.seq in owner.opened_with:
                first = item.seq == min(owner.opened_with)
                _remember(self._admitted, item.seq, _admitted_by(plan, starts=first and free))
            else:
                self._hand(owner, item)

    # Sessions

    async def owner(self, session_id: str) -> SessionOwner | None:
        """Return a session's owner, opened if need be; None when there is no session."""
        if self.store.session(session_id) is None:
            return None
        await self._load(session_id)
        return self._owners.get(session_id)

    async def synced(self, session_id: str) -> bool:
        """Return when all that a session recorded so far is on stable storage.

        False: it is not open here. It was deleted, or its disk failed and it will be opened again.
        """
        owner = self._owners.get(session_id)
        if owner is not None:
            await owner.log.synced()
        return owner is not None

    def status(self, session_id: str) -> str:
        """Return ``running``, ``queued``, ``parked``, ``waiting``, ``completed`` or ``failed``."""
        owner = self._owners.get(session_id)
        if owner is None:
            return self.store.rested_status(session_id) or "waiting"
        if owner.phase in ("queued", "running", "parked"):
            return owner.phase
        return "running" if owner.phase in ("settling", "held") else owner.state.status

    def prepared(self, session_id: str) -> bool:
        """Tell whether nothing is being fetched for what waits."""
        owner = self._owners.get(session_id)
        return owner is None or owner.prepared

    async def delete(self, session_id: str) -> bool:
        """Remove a session and everything of it."""
        return await self.store.delete(session_id)

    def _unload(self, owner: SessionOwner, reason: str) -> None:
        session_id = owner.record.id
        if self._owners.get(session_id) is owner:
            del self._owners[session_id]
        self.store.release(owner.lease)
        if reason == "store_failed":
            self._reopen_soon(session_id)

    async def _reopen(self, session_id: str) -> None:
        """Open a session again that a failing disk has closed, when the disk may be back."""
        delay = 1.0
        while session_id not in self._owners and self.store.session(session_id) is not None:
            await self.services.clock.sleep(delay)
            await self._load_quietly(session_id)
            delay = min(delay * 2, 60.0)

    async def _sweep(self) -> None:
        """Unload sessions that rest, and remove those that are older than the retention."""
        since_retention = RETENTION_SECONDS
        while True:
            if self.services.retention is not None and since_retention >= RETENTION_SECONDS:
                since_retention = 0.0
                await self._retire(self.services.retention)
            await self.services.clock.sleep(SWEEP_SECONDS)
            since_retention += SWEEP_SECONDS
            limit = self.services.clock.monotonic() - IDLE_SECONDS
            for owner in list(self._owners.values()):
                if owner.at_rest and owner.touched < limit:
                    owner.log.closed = True
                    self._unload(owner, "idle")

    async def _retire(self, retention: timedelta) -> None:
        for session_id in self.store.idle_since(self.services.clock.now() - retention):
            with contextlib.suppress(ThreadlineError):
                await self.store.delete(session_id)

    # What became of it

    async def follow(self, session_id: str, start: int = 0) -> AsyncIterator[Mapping[str, Any]]:
        """Yield a session's events from an index on, decoded, as they are recorded."""
        async for chunk in self.store.read(session_id, start, follow=True):
            for line in chunk.split(b"\n"):
                if line:
                    yield orjson.loads(line)

    async def origins(self, session_id: str) -> dict[str, str]:
        """Return, for each turn that resumes another, the first turn of its chain."""
        origins: dict[str, str] = {}
        async for chunk in self.store.read(session_id):
            for line in chunk.split(b"\n") if b'"resumes":' in chunk else ():
                event = ndjson.parse(line) if b'"resumes":' in line else None
                if event is not None and event["type"] == "turn.started":
                    before = str(event["data"].get("resumes"))
                    origins[str(event.get("turnId"))] = origins.get(before, before)
        return origins

    async def fate(self, delivery: DeliveryRecord, *, settled: bool) -> Fate:
        """Wait for a delivery's outcome, or (``settled``) for the end of the turn that has it."""
        fate: Fate | None = None
        async for event in self.follow(delivery.session_id):
            data = event["data"]
            if fate is None:
                fate = _outcome(event, delivery.delivery_id)
                if fate is not None and (not settled or fate.outcome == "cleared"):
                    return fate
            elif event["type"] in _TURN_ENDS and event.get("turnId") == fate.turn_id:
                return _settled(fate, event["type"], data)
        if self.services.draining:
            raise Draining("The host shut down before this was known. Ask again in a moment.")
        return Fate("cleared", status="cleared", error={"code": "session_deleted"})

    # Approvals

    async def approvals(self, session_id: str) -> list[ParkedCall]:
        """Return the calls of a session that wait for a decision, oldest first."""
        owner = await self.owner(session_id)
        return list(owner.parking.calls.values()) if owner is not None else []

    async def decide(
        self,
        session_id: str,
        call_id: str,
        decision: Literal["approved", "denied"],
        principal: Principal,
        *,
        may: Callable[[SessionRecord], bool],
        reason: str | None = None,
    ) -> DecisionRecord:
        """Decide a parked call; durable when it returns.

        ``may`` tells whether the principal may speak in the session: that is who may decide when
        the tool names no approvers. Raises NotFound, Forbidden, or ApprovalClosed when the call
        waits no more.
        """
        if self.services.draining:
            raise Draining("The host is shutting down. Decide this again in a moment.")
        owner = await self.owner(session_id)
        if owner is None:
            raise NotFound(f"There is no session {session_id}.")
        parked = owner.parking.calls.get(call_id)
        call, ended = await self._asked(session_id, call_id)
        if call is None and may(owner.record):
            raise NotFound(f"No call {call_id[:80]!r} of this session waits for an approval.")
        if call is None or not await self._entitled(principal, call, owner.record, may):
            raise Forbidden("You are not one of those who may decide this call.")
        now = self.services.stamp()
        if parked is None or owner.parking.overdue(parked, now):
            late = None if parked is None else {"decision": "expired"}
            raise self._not_taken(call_id, ended or late)
        try:
            record = await self.store.decide(
                session_id, call_id, decision, by=principal.to_wire(), at=now, reason=reason
            )
        except ApprovalClosed:
            ended = (await self._asked(session_id, call_id))[1]
            raise self._not_taken(call_id, ended) from None
        if record.seq not in self._decided and session_id in self._loading:
            await self._load_quietly(session_id)
        if not self._decided.pop(record.seq, False):
            raise self._not_taken(call_id, (await self._asked(session_id, call_id))[1])
        return record

    def _not_taken(self, call_id: str, ended: Mapping[str, Any] | None) -> ThreadlineError:
        """Return the error of a decision that came too late, or of one nobody can tell about.

        The latter may be journaled, and then counts when the session is opened again.
        """
        if ended is not None:
            return _closed(call_id, ended)
        kind = Draining if self.services.draining else StoreUnavailable
        return kind(f"It is not known yet how call {call_id} was decided. Ask again in a moment.")

    async def _entitled(
        self,
        principal: Principal,
        call: ToolCall,
        session: SessionRecord,
        may: Callable[[SessionRecord], bool],
    ) -> bool:
        named = await self.services.tools.may_decide(principal, call, session)
        return may(session) if named is None else named

    async def _asked(
        self, session_id: str, call_id: str
    ) -> tuple[ToolCall | None, Mapping[str, Any] | None]:
        """Return, from the log, a call that an approval was asked for, and how that ended."""
        owner = self._owners.get(session_id)
        if owner is not None:
            await owner.log.flush()
        call, ended = None, None
        async for chunk in self.store.read(session_id):
            for line in chunk.split(b"\n") if b'"action.approval_' in chunk else ():
                event = ndjson.parse(line) if b'"action.approval_' in line else None
                data = event["data"] if event is not None else {}
                if event is None or data.get("callId") != call_id:
                    continue
                if event["type"] == "action.approval_requested":
                    call = ToolCall(call_id, data["toolName"], data.get("input"))
                elif event["type"] == "action.approval_resolved":
                    ended = data
        return call, ended

    # Direct tool calls

    async def call_tool(
        self,
        name: str,
        value: Any,
        principal: Principal,
        session_id: str | None = None,
        *,
        dry_run: bool = False,
        as_of: str | None = None,
        purpose: str | None = None,
    ) -> ToolResult:
        """Run a tool without a model; bound to a session it takes the session's lock.

        A session that is a dry run, or as of a time, is so for its calls too. Raises SessionBusy
        while a turn runs, WorkspaceUnavailable when a write tool has no place, Conflict for an
        ``as_of`` behind the session's.
        """
        if self.services.draining:
            raise Draining("The host is shutting down. Call this again in a moment.")
        call = ToolCall(new_id("call"), name, value)
        context = CallContext(
            session_id=session_id,
            turn_id=None,
            principal=principal,
            workspace=None,
            direct=True,
            dry_run=dry_run,
            as_of=as_of,
            purpose=purpose,
        )
        if session_id is None:
            return await self._call(call, context, self.store.scratch(call.call_id))
        owner = await self.owner(session_id)
        if owner is None:
            raise NotFound(f"There is no session {session_id}.")
        context = _bound(context, owner.record)
        if not owner.hold():
            raise SessionBusy(
                f"Session {session_id} is busy with a turn. Wait for session.waiting, or stop it."
            )
        try:
            return await self._call(call, context, owner.folder())
        finally:
            owner.unhold()

    async def _call(self, call: ToolCall, context: CallContext, folder: Path) -> ToolResult:
        scratch = context.session_id is None
        furnish = self.services.furnish
        if self.services.tools.effect(call.tool_name) == "write" or not scratch or furnish:
            await asyncio.to_thread(workspace.prepare, folder, self.services.seeds)
        if furnish is not None:
            session = None if context.session_id is None else self.store.session(context.session_id)
            own = session is None or folder == self.store.workspace(session.id)
            await asyncio.to_thread(furnish, folder, session, own)
        context = replace(context, workspace=folder if folder.is_dir() else None)
        try:
            return await self.services.tools.run(call, context)
        finally:
            if scratch:
                await asyncio.to_thread(_remove, folder)

    # What host code adds to a log

    async def note(
        self, session_id: str, type_: str, data: dict[str, Any], turn_id: str | None = None
    ) -> bool:
        """Record an event on stable storage, also while nothing runs; False when it cannot be.

        A turn that has ended meanwhile is not named. Raises StoreUnavailable.
        """
        owner = await self.owner(session_id)
        if owner is None or owner.log.closed:
            return False
        turn = owner.state.turn
        owner.note(type_, data, turn_id if turn is not None and turn.id == turn_id else None)
        await owner.log.synced()
        return not owner.log.closed


def _closed(call_id: str, ended: Mapping[str, Any]) -> ApprovalClosed:
    decision = str(ended.get("decision") or "decided")
    by = (ended.get("by") or {}).get("name") or (ended.get("by") or {}).get("id")
    who = f" by {by}" if by else ""
    return ApprovalClosed(
        f"Call {call_id} waits no more: it was {decision}{who}.", decision=decision
    )


def _bound(context: CallContext, session: SessionRecord) -> CallContext:
    """Return the context of a call that is bound to a session: it never gets round its limits."""
    as_of = context.as_of or session.as_of
    if session.as_of is not None and as_of is not None and as_of > session.as_of:
        raise Conflict(
            f"Session {session.id} runs as of {session.as_of}; the call asks for a later time. "
            "Leave asOf out, or give an earlier one."
        )
    return replace(
        context,
        dry_run=context.dry_run or session.dry_run,
        as_of=as_of,
        purpose=context.purpose or session.purpose,
    )


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _remember(kept: OrderedDict[int, Any], key: int, value: Any) -> None:
    """Keep an answer for its sender; those whose sender went away are dropped in time."""
    kept[key] = value
    if len(kept) > _REMEMBERED:
        kept.popitem(last=False)


def _admitted_by(plan: Plan, *, starts: bool) -> Admitted:
    """Return what opening the session did with a delivery that was already in the ledger.

    The first of them starts the turn if a slot is free; the others join its prompt.
    """
    if any(e.type == "turn.failed" and e.data.get("code") == "preempted" for e in plan.events):
        return "preempted"
    return "started" if plan.start and starts else "queued"


def _stopped_by(plan: Plan) -> bool:
    return any(e.type == "turn.failed" and e.data.get("code") == "stopped" for e in plan.events)


def _outcome(event: Mapping[str, Any], delivery_id: str) -> Fate | None:
    data, turn_id = event["data"], event.get("turnId")
    if event["type"] == "message.received" and delivery_id in data.get("deliveryIds", ()):
        return Fate("prompted", turn_id)
    if event["type"] == "nudge.delivered" and data.get("deliveryId") == delivery_id:
        return Fate("steered", turn_id)
    if event["type"] == "deliveries.cleared" and delivery_id in data.get("deliveryIds", ()):
        return Fate("cleared", status="cleared")
    return None


def _settled(fate: Fate, type_: str, data: Mapping[str, Any]) -> Fate:
    if type_ == "turn.completed":
        return Fate(fate.outcome, fate.turn_id, "completed", data.get("result"))
    error = {"code": data.get("code"), "message": data.get("message")}
    return Fate(fate.outcome, fate.turn_id, data.get("status", "failed"), None, error)
