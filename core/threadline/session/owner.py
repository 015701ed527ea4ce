"""One session's only writer: its inbox, its turns, and the events it appends.

Everything between two awaits is one step. That is how the check that the inbox is empty and the end
of a turn can never be parted by an arriving delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog

from threadline.errors import HarnessFailed, ThreadlineError
from threadline.harness.base import Prompt, PromptPart, TurnResult
from threadline.ids import new_id
from threadline.session import workspace
from threadline.session.admission import Admitted, Phase, admit
from threadline.session.fold import OpenTurn, State, apply
from threadline.session.limits import Exceeded, Meter, Totals
from threadline.session.parking import ParkedCall, Parking, Resolution
from threadline.session.prepare import Preparations
from threadline.session.recorder import Recorder
from threadline.session.recovery import USAGE, Facts, Plan, Resume, closing, recover, spent
from threadline.session.slots import Ticket
from threadline.session.turn import Batch, Reopened, RunningTurn, reopened
from threadline.store.base import (
    DecisionRecord,
    DeliveryRecord,
    Lease,
    Outcome,
    StopRecord,
    Watermark,
)
from threadline.telemetry import span

if TYPE_CHECKING:
    from threadline.session.core import Services

__all__ = ["SessionOwner"]

log = structlog.get_logger("threadline.session")

InterruptCode = Literal[
    "stopped", "preempted", "host_shutdown", "session_deleted", "store_failed", "limit", "parked"
]


class SessionOwner:
    """Runs one session; every method that is not a coroutine is one step."""

    def __init__(self, services: Services, lease: Lease) -> None:
        self.services = services
        self.lease = lease
        self.record = lease.session
        self.phase: Phase = "idle"
        self.log = Recorder(
            services, lease, failed=lambda: self.interrupt("store_failed"), lost=self.abort
        )
        self.pending: list[DeliveryRecord] = []
        self.touched = services.clock.monotonic()
        self.has_history = False
        self._last_seq = 0
        self._prepares = Preparations(
            services.preparer, services.clock, self._prepared, services.prepare_seconds
        )
        self.parking = Parking(services, self.emit, self._call_decided)
        self._resume: Resume | None = None
        self._dormant: OpenTurn | None = None
        self._running: RunningTurn | None = None
        self._ticket: Ticket | None = None
        self._exceeded: Exceeded | None = None
        self._applied: set[int] = set()
        self._next_turn: str | None = None
        self.opened_with: frozenset[int] = frozenset()
        self.opened_stops: frozenset[int] = frozenset()
        self._preempted = False
        self._work: asyncio.Task[None] | None = None
        self._resting: asyncio.Task[None] | None = None
        self._prompt_sync: asyncio.Task[None] | None = None
        self._turn_seq = (0, "")
        self._interrupt: asyncio.Future[InterruptCode] | None = None
        self._queued_stop: asyncio.Event = asyncio.Event()
        self._stops: list[StopRecord] = []

    @property
    def state(self) -> State:
        """What the log says."""
        return self.log.state

    # Opening

    def open(self) -> Plan:
        """Fold the log, decide what a crash left to do, and do it. Returns the plan."""
        store, session_id = self.services.store, self.record.id
        mark = self.lease.mark
        if mark is not None:
            status = str(mark.state.get("status", "waiting"))
            totals = Totals.from_wire(dict(mark.state))
            self.log.state = State(True, self.record.mode, status, ended_at=mark.at, totals=totals)
        for event in store.replay(session_id, mark.offset if mark else 0):
            apply(self.state, event)
        unsettled = store.unsettled(session_id, mark.next_index if mark else 0)
        self.pending = [d for d in unsettled if d.delivery_id not in self.state.outcomes]
        self._begin_fetching(self.pending)
        self.log.settle(self._uncached(unsettled))
        self.opened_with = frozenset(d.seq for d in unsettled)
        self._last_seq = max(self.opened_with, default=0)
        if mark is not None:
            self._last_seq = max(self._last_seq, int(mark.state.get("lastSeq", 0)))
        self.has_history = self.lease.next_index > 0
        plan = recover(self.state, self._facts())
        self.opened_stops = frozenset(stop.seq for stop in plan.stops_done)
        self._apply(plan)
        return plan

    def _uncached(self, unsettled: Sequence[DeliveryRecord]) -> list[Outcome]:
        """Return what the log says of deliveries and the ledger does not know yet."""
        found = [(d, self.state.outcomes.get(d.delivery_id)) for d in unsettled]
        return [
            outcome
            for delivery, outcome in found
            if outcome is not None and delivery.event_index != outcome.event_index
        ]

    def _facts(self) -> Facts:
        store, session_id = self.services.store, self.record.id
        turn = self.state.turn or (self.state.last.turn if self.state.last else None)
        checkpoints = store.checkpoints(session_id) if self.pending and self.has_history else ()
        return Facts(
            session=self.record,
            agent=self.services.agent,
            pending=self.pending,
            stops=store.stops(session_id),
            prompt_seqs=store.sequence_of(session_id, turn.delivery_ids) if turn else {},
            checkpoints=checkpoints,
            on_restart=self.services.on_restart,
            resumes=self.services.harness is None or self.services.harness.capabilities.resumes,
            parks=self.services.harness is not None and self.services.harness.capabilities.parks,
            idempotent=self.services.tools.idempotent(),
        )

    def _apply(self, plan: Plan) -> None:
        if self.lease.recovered is not None:
            lost_from, lost_to = self.lease.recovered
            self.emit("log.recovered", {"from": lost_from, "to": lost_to})
        for event in plan.events:
            self.emit(event.type, dict(event.data), event.turn_id)
            if event.type == "nudge.delivered":
                self._settled(event.data["deliveryId"], "steered", event.turn_id)
            elif event.type == "deliveries.cleared":
                for delivery_id in event.data["deliveryIds"]:
                    self._settled(delivery_id, "cleared", None)
        if plan.stopped:
            turn_id = new_id("turn")
            self._emit_prompt(turn_id, plan.stopped)
            self._end_failed(turn_id, "cancelled", "stopped", "turn interrupted")
        self.pending = [d for d in self.pending if d.delivery_id not in plan.settled]
        self._stops.extend(plan.stops_done)
        self._resume = plan.resume
        if plan.parked is not None:
            self._park_again(plan.parked)
        elif plan.resume is not None or plan.start:
            self._start_work()
        else:
            self._start_rest()
        self.log.schedule_flush()

    def _settled(
        self, delivery_id: str, state: Literal["steered", "prompted", "cleared"], turn: str | None
    ) -> None:
        index = self.lease.next_index - 1
        self.log.settle([Outcome(delivery_id, state, index, turn)])

    # Inbox

    def deliver(self, delivery: DeliveryRecord) -> Admitted:
        """Take an accepted delivery; return what it did."""
        self.pending.append(delivery)
        self._begin_fetching([delivery])
        self._last_seq = max(self._last_seq, delivery.seq)
        self.touched = self.services.clock.monotonic()
        decision = admit(self.phase, delivery.admission)
        if self.phase == "queued" and delivery.admission == "preempt":
            self._resume = None
        if decision.effect == "start":
            started = self.services.slots.free
            self._start_work()
            return "started" if started else "queued"
        if self._dormant is not None and decision.effect == "supersede":
            self._end_dormant("preempted")
            self._go_on()
        elif decision.effect in ("interrupt", "supersede"):
            self.interrupt("preempted")
        return decision.admitted

    def _begin_fetching(self, deliveries: Sequence[DeliveryRecord]) -> None:
        """Start fetching for what can steer; the rest is fetched for when its turn begins."""
        for delivery in deliveries:
            if delivery.steers:
                self._prepares.begin(delivery)

    def _prepared(self, delivery: DeliveryRecord) -> None:
        """Put what was fetched for a pending delivery in its place."""
        self.pending = [delivery if d.seq == delivery.seq else d for d in self.pending]

    def stop(self, stop: StopRecord) -> bool:
        """Apply a journaled stop; return whether there was a turn to stop."""
        self._stops.append(stop)
        stopped = False
        running = self.phase in ("running", "settling", "parked")
        if running and stop.concerns(*self._turn_seq):
            if self._dormant is not None:
                self._end_dormant("stopped")
            else:
                self.interrupt("stopped")
            stopped = True
        elif self.phase == "queued":
            concerned = [d for d in self.pending if stop.concerns(d.seq, d.at)]
            stopped = bool(concerned) or self._resume is not None
        if stop.clear_pending and self.phase != "queued":
            self._clear(stop)
        if self.phase == "queued" and stopped:
            self._stop_queued(stop)
        elif self.phase == "idle":
            self._go_on()
        return stopped

    # Approvals

    def decide(self, record: DecisionRecord) -> bool:
        """Apply a journaled decision; False when the call waits no more."""
        if record.seq in self._applied:
            return True
        parked = self.parking.calls.get(record.call_id)
        if parked is None or self.parking.overdue(parked, record.at):
            return False
        self._applied.add(record.seq)
        return self.parking.resolve(
            record.call_id, Resolution(record.decision, record.by, record.reason)
        )

    @property
    def decisions(self) -> Mapping[str, Mapping[str, Any]]:
        """How calls of the open batch were decided, by call id."""
        return self.state.turn.decided if self.state.turn is not None else {}

    async def decided(self, parked: ParkedCall, batch: Batch) -> Resolution:
        """Wait for a decision; the turn gives its slot away while it only waits for people."""
        self.park_if_waiting(batch)
        await self.log.synced()
        resolution = await parked.resolved
        await self.unparked()
        return resolution

    async def unparked(self) -> None:
        """Return when the turn may run on, with a slot."""
        if self.phase == "parked":
            if self._ticket is None:
                self._ticket = self.services.slots.ask(self.record.channel)
            await self._ticket.wait()
            self.phase = "running" if self.phase == "parked" else self.phase

    def park_if_waiting(self, batch: Batch) -> None:
        """Let others have the slot when nothing of the turn runs but waits for people."""
        if self.phase == "running" and self.parking.calls and not batch.active:
            self.phase = "parked"
            self._give_slot_back()

    def _park_again(self, turn: OpenTurn) -> None:
        """Wait on, after a restart, for what the open turn waits for."""
        self._dormant = turn
        self.phase = "parked"
        self._turn_seq = self._newest(turn)
        requests = dict(turn.waiting)
        for request in requests.values():
            self.parking.restore(turn.id, request)
        known = self.services.store.decisions(self.record.id, list(requests))
        for record in sorted(known.values(), key=lambda record: record.seq):
            self.decide(record)

    def _call_decided(self) -> None:
        """A call of a turn that has no harness any more was decided: give it one."""
        if self._dormant is not None:
            self._start_work()

    def _end_dormant(self, code: InterruptCode) -> None:
        """End a parked turn that has no harness any more."""
        turn, self._dormant = self._dormant, None
        assert turn is not None
        self.parking.supersede(code)
        for event in closing(turn, code):
            self.emit(event.type, dict(event.data), event.turn_id)
        self._end_interrupted(turn.id, code)
        self.phase = "idle"
        self._queued_stop.set()

    def _go_on(self) -> None:
        """Run what is pending, or rest."""
        if self.pending:
            self._start_work()
        else:
            self._start_rest()

    def _clear(self, stop: StopRecord) -> None:
        cleared = [d for d in self.pending if stop.concerns(d.seq, d.at)]
        if not cleared:
            return
        ids = [d.delivery_id for d in cleared]
        self.emit("deliveries.cleared", {"deliveryIds": ids, "reason": "stopped"})
        for delivery_id in ids:
            self._settled(delivery_id, "cleared", None)
        self._prepares.drop([d.seq for d in cleared])
        self.pending = [d for d in self.pending if d not in cleared]

    def _stop_queued(self, stop: StopRecord) -> None:
        """End a turn that waits for its slot: its prompt and its end, together."""
        taken = [d for d in self.pending if stop.concerns(d.seq, d.at)]
        self._prepares.drop([d.seq for d in taken])
        self.pending = [d for d in self.pending if d not in taken]
        turn_id = self._next_turn or new_id("turn")
        resume, self._resume = self._resume, None
        if resume is None:
            self._emit_prompt(turn_id, taken)
        else:
            self.pending = sorted([*self.pending, *taken], key=lambda d: d.seq)
            if stop.clear_pending:
                self._clear(stop)
            self._emit_started(turn_id, resume)
        self._end_failed(turn_id, "cancelled", "stopped", "turn interrupted")
        self._queued_stop.set()

    def interrupt(self, code: InterruptCode) -> None:
        """Ask the running turn to end; it has its grace period from the first time on."""
        if self._interrupt is not None and not self._interrupt.done():
            if code != "parked":
                self.parking.supersede(code)
            self._interrupt.set_result(code)
            self.phase = "settling"

    def exceed(self, exceeded: Exceeded) -> None:
        """End the running turn, which has met a limit."""
        self._exceeded = exceeded
        self.interrupt("limit")

    def hold(self) -> bool:
        """Take the session's lock for a direct tool call; False while a turn has it."""
        if self.phase != "idle":
            return False
        self.phase = "held"
        return True

    def unhold(self) -> None:
        """Give the lock back; what came meanwhile runs now."""
        self.phase = "idle"
        self._go_on()

    # Turns

    def _start_work(self) -> None:
        self.phase = "queued" if self._dormant is None else "parked"
        if self._resting is not None:
            self._resting.cancel()
        if self._work is None or self._work.done():
            self._work = self.services.spawn(self._run(), f"session {self.record.id}")

    async def _run(self) -> None:
        """Run turns until nothing is left to do."""
        while self._wanted and not self.log.closed:
            self.phase = "queued" if self._dormant is None else "parked"
            if self.services.draining:
                return
            if self.log.unwritten:
                await self.log.flush()
            else:
                await self._take_slot()
        if not self.log.closed and self.phase != "held":
            self.phase = "idle"
            self._start_rest()

    async def _take_slot(self) -> None:
        """Wait for a slot and run a turn in it, unless a stop comes first."""
        slots, dormant = self.services.slots, self._dormant
        turn_id = self._next_turn = dormant.id if dormant is not None else new_id("turn")
        self._queued_stop.clear()
        ticket = self._ticket = slots.ask(self.record.channel)
        try:
            if not ticket.granted and dormant is None:
                self.emit("turn.queued", {"position": slots.position(ticket)}, turn_id)
                if self.has_history:
                    # The turn before this one has ended, and the next prompt may be far off.
                    self.services.spawn(self.log.sync_quietly(), "sync")
            if not ticket.granted:
                await _first(ticket.wait(), self._queued_stop.wait(), self.services.drained.wait())
            going = ticket.granted and not self._queued_stop.is_set()
            while going and await self._ready(turn_id):
                self._next_turn = None
                await self._run_turn(turn_id)
                # A preempting follow-up keeps the slot of the turn it ended.
                going, turn_id = self._preempted, new_id("turn")
        finally:
            self._next_turn = None
            self._give_slot_back()

    def _give_slot_back(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self.services.slots.give_back(ticket)

    async def _ready(self, turn_id: str) -> bool:
        """Wait until what is pending is prepared; False when a stop or a drain comes first."""
        while self._may_run() and self._resume is None and self._dormant is None:
            self._prepares.begin_rest(self.pending)
            fetching = self._prepares.unready(self.pending)
            if not fetching:
                break
            self.phase, self._next_turn = "queued", turn_id
            self._queued_stop.clear()
            waits = (self._queued_stop.wait(), self.services.drained.wait())
            await _first(asyncio.wait(fetching), *waits)
            if self._queued_stop.is_set():
                return False
        return self._may_run()

    def _may_run(self) -> bool:
        return self._wanted and not self.log.closed and not self.services.draining

    @property
    def _wanted(self) -> bool:
        """True when there is a turn to run."""
        decided = self._dormant is not None and bool(self._dormant.decided)
        return bool(self.pending) or self._resume is not None or decided

    async def _run_turn(self, turn_id: str) -> None:
        self._preempted = False
        self._interrupt = asyncio.get_running_loop().create_future()
        self.phase = "running"
        began = self.services.clock.monotonic()
        self._exceeded = None
        meter = Meter(self.services.limits, self.state.totals)
        resume, self._resume = self._resume, None
        dormant, self._dormant = self._dormant, None
        taken: list[DeliveryRecord] = []
        if dormant is not None:
            prompt = prompt_of(dormant.prompt)
            await self.log.flush()
        else:
            if resume is None:
                taken, self.pending = self.pending, []
                prompt = self._emit_prompt(turn_id, taken)
                self._turn_seq = taken[-1].seq, taken[-1].at
            else:
                prompt = prompt_of(resume.turn.prompt)
                self._turn_seq = self._newest(resume.turn)
            self._emit_started(turn_id, resume)
            if exceeded := meter.start():
                self._interrupt = None
                self._end_failed(turn_id, "failed", exceeded.code, exceeded.message)
                return
        self._prompt_sync = self.services.spawn(self.log.sync_quietly(), "sync")
        try:
            turn, problems = self._make_turn(turn_id, prompt, resume, dormant, taken, meter)
        except Exception as error:
            log.warning("turn.not_started", session=self.record.id, turn=turn_id, exc_info=error)
            self._interrupt = None
            self.parking.supersede("turn_ended")
            self._end_failed(turn_id, "failed", *_described(error))
            return
        if problems:
            turn.prompt = Prompt(
                prompt.text, prompt.parts, [*prompt.context, *problems], prompt.attachments
            )
        self._running = turn
        try:
            with span("threadline.turn", session=self.record.id, turn=turn_id):
                await self._drive(turn, began)
        finally:
            self._interrupt = self._running = None

    def _newest(self, turn: OpenTurn) -> tuple[int, str]:
        """Return number and time of the newest delivery that a turn answers."""
        seqs = self.services.store.sequence_of(self.record.id, turn.delivery_ids)
        parts = turn.prompt.get("parts") or [{}]
        return max(seqs.values(), default=0), str(parts[-1].get("at") or "")

    def _emit_prompt(self, turn_id: str, taken: Sequence[DeliveryRecord]) -> Prompt:
        parts: list[dict[str, Any]] = []
        for delivery in taken:
            part: dict[str, Any] = {"deliveryId": delivery.delivery_id, "text": delivery.text}
            if delivery.sender is not None:
                part["sender"] = dict(delivery.sender)
            parts.append(part | {"at": delivery.at})
        data: dict[str, Any] = {
            "text": "\n\n".join(d.text for d in taken),
            "deliveryIds": [d.delivery_id for d in taken],
            "parts": parts,
        }
        if context := [text for d in taken for text in d.context]:
            data["context"] = context
        if attachments := [dict(item) for d in taken for item in d.attachments]:
            data["attachments"] = attachments
        self.emit("message.received", data, turn_id)
        for delivery in taken:
            self._settled(delivery.delivery_id, "prompted", turn_id)
        return prompt_of(data)

    def _emit_started(self, turn_id: str, resume: Resume | None) -> None:
        data: dict[str, Any] = {"attempt": resume.attempt if resume else 1}
        if resume is not None:
            data["resumes"] = resume.turn.id
        harness = self.services.harness
        if harness is not None and harness.model:
            data["model"] = harness.model
        self.emit("turn.started", data, turn_id)

    def _make_turn(
        self,
        turn_id: str,
        prompt: Prompt,
        resume: Resume | None,
        dormant: OpenTurn | None,
        taken: Sequence[DeliveryRecord],
        meter: Meter,
    ) -> tuple[RunningTurn, list[str]]:
        folder = self.folder(next((d.cwd for d in reversed(taken) if d.cwd), None))
        workspace.prepare(folder, self.services.seeds)
        if self.services.furnish is not None:
            own = folder == self.services.store.workspace(self.record.id)
            self.services.furnish(folder, self.record, own)
        problems = [p for delivery in taken for p in self.place_files(delivery, folder)]
        before = dormant or (resume.turn if resume else None)
        turn = RunningTurn(
            self,
            turn_id=turn_id,
            attempt=dormant.attempt if dormant else resume.attempt if resume else 1,
            resumes=before.id if before else None,
            prompt=prompt,
            chain=(*before.chain, before.id) if before else (),
            workspace=folder,
            meter=meter,
            reopened=self._reopened(dormant) if dormant else None,
        )
        self.has_history = True
        return turn, problems

    def _reopened(self, turn: OpenTurn) -> Reopened:
        """Read the open batch of a parked turn, with the results that it has already."""
        mark = self.lease.mark
        events = self.services.store.replay(self.record.id, mark.offset if mark else 0)
        own = [event for event in events if event.get("turnId") == turn.id]
        return reopened(own, turn.step, self._blob)

    def _blob(self, blob_id: str) -> bytes:
        path = self.services.store.blob(self.record.id, blob_id)
        return path.read_bytes() if path is not None else b"null"

    def folder(self, cwd: str | None = None) -> Path:
        """Return the working folder: a delivery's, the session's, the agent's, or its own."""
        chosen = cwd or self.record.cwd or self.services.local_cwd
        return Path(chosen) if chosen else self.services.store.workspace(self.record.id)

    def place_files(self, delivery: DeliveryRecord, folder: Path) -> list[str]:
        """Write a delivery's files; return what could not be written."""
        if not delivery.files:
            return []
        return workspace.write_files(folder, delivery.files)

    async def _drive(self, turn: RunningTurn, began: float) -> None:
        """Run the harness, with the interrupt and the grace period, and record how it ended."""
        interrupt = self._interrupt
        assert interrupt is not None
        task = self.services.spawn(_guarded(self.services.harness, turn), f"turn {turn.id}")
        await asyncio.wait([task, interrupt], return_when=asyncio.FIRST_COMPLETED)
        if interrupt.done() and not task.done():
            task.cancel()
            grace = self.services.spawn(
                self.services.clock.sleep(self._grace(interrupt.result())), "grace"
            )
            await asyncio.wait([task, grace], return_when=asyncio.FIRST_COMPLETED)
            grace.cancel()
            if not task.done():
                log.warning("turn.cut_off", session=self.record.id, turn=turn.id)
        self._end(turn, task, began, interrupt.result() if interrupt.done() else None)

    def _grace(self, code: InterruptCode) -> float:
        settle = self.services.settle_seconds
        return min(settle, 2.0) if code in ("host_shutdown", "session_deleted") else settle

    def _end(
        self,
        turn: RunningTurn,
        task: asyncio.Task[TurnResult],
        began: float,
        interrupted: InterruptCode | None,
    ) -> None:
        """Close the turn and decide what comes next, in one step."""
        failure, completed = _failure(task), None
        if failure is None and interrupted != "parked":
            try:
                turn.checkpoint(task.result().messages)
                completed = self._completed(task.result(), began)
            except Exception as error:
                failure = "harness_failed", f"The harness returned a result that is none: {error!r}"
        self._preempted = interrupted == "preempted"
        if interrupted == "parked":
            return
        if interrupted is not None:
            turn.close("cancelled")
            if interrupted != "session_deleted":
                self._end_interrupted(turn.id, interrupted)
        elif completed is None:
            turn.close("error")
            code, message = failure or ("harness_failed", "")
            log.warning("turn.failed", session=self.record.id, turn=turn.id, error=message)
            self._end_failed(turn.id, "failed", code, message)
        else:
            turn.close("stop")
            self._end_completed(turn.id, completed)

    def _end_interrupted(self, turn_id: str, code: InterruptCode) -> None:
        if code == "store_failed":
            message = "The log could not be written; the host has kept this and goes on."
            self._end_failed(turn_id, "failed", "store_unavailable", message)
        elif code == "limit" and self._exceeded is not None:
            self._end_failed(turn_id, "failed", self._exceeded.code, self._exceeded.message)
        elif code == "host_shutdown":
            data = {
                "status": "interrupted",
                "code": code,
                "message": "The host shut down while the turn was running.",
            }
            self.emit("turn.failed", data | self._spent(), turn_id)
        else:
            self._end_failed(turn_id, "cancelled", code, "turn interrupted")

    def _end_failed(self, turn_id: str, status: str, code: str, message: str) -> None:
        self.services.counts["turns", status] += 1
        data = {"status": status, "code": code, "message": message}
        self.emit("turn.failed", data | self._spent(), turn_id)
        if self.record.mode == "task":
            self.emit("session.failed", {"error": {"code": code, "message": message}})
        else:
            self.emit("session.waiting", {})

    def _spent(self) -> dict[str, Any]:
        """Return what the open turn took so far."""
        return spent(self.state.turn) if self.state.turn is not None else {}

    def _completed(self, result: TurnResult, began: float) -> dict[str, Any]:
        """Return the data of ``turn.completed``."""
        elapsed = round((self.services.clock.monotonic() - began) * 1000)
        seen = self._spent()
        usage = {key: int(result.usage.get(key, 0)) for key in USAGE}
        if not result.usage and seen:
            usage = seen["usage"]
        data: dict[str, Any] = {"result": result.result, "usage": usage, "durationMs": elapsed}
        cost = seen.get("costUsd") if result.cost_usd is None else result.cost_usd
        return data if cost is None else data | {"costUsd": float(cost)}

    def _end_completed(self, turn_id: str, data: dict[str, Any]) -> None:
        self.services.counts["turns", "completed"] += 1
        self.emit("turn.completed", data, turn_id)
        if self.record.mode == "task":
            self.emit("session.completed", {"result": data["result"]})
        else:
            self.emit("session.waiting", {})

    # Steering

    def steerable(self) -> list[DeliveryRecord]:
        """Return what may be offered to the running turn."""
        harness = self.services.harness
        if self.phase != "running" or harness is None or not harness.capabilities.steers:
            return []
        return list(takewhile(lambda one: one.steers, self._prepares.ready(self.pending)))

    def nudged(self, delivery_id: str, after: Sequence[str], turn_id: str) -> None:
        """Record that the running turn's history holds a delivery."""
        delivery = next((d for d in self.pending if d.delivery_id == delivery_id), None)
        if delivery is None:
            return
        self.pending.remove(delivery)
        data: dict[str, Any] = {
            "text": delivery.text,
            "deliveryId": delivery_id,
            "afterCallIds": list(after),
        }
        if delivery.sender is not None:
            data["sender"] = dict(delivery.sender)
        if delivery.context:
            data["context"] = list(delivery.context)
        self.emit("nudge.delivered", data, turn_id)
        self._settled(delivery_id, "steered", turn_id)

    # The log

    def emit(self, type_: str, data: dict[str, Any], turn_id: str | None = None) -> int:
        """Record an event: it is encoded and written within this tick of the event loop."""
        return self.log.emit(type_, data, turn_id)

    def note(self, type_: str, data: dict[str, Any], turn_id: str | None = None) -> int:
        """Record an event that may come while nothing runs; the session then rests again."""
        index = self.emit(type_, data, turn_id)
        if self.phase == "idle":
            self._start_rest()
        return index

    async def prompt_synced(self) -> None:
        """Return when the running turn's prompt is on stable storage."""
        if self._prompt_sync is not None:
            await asyncio.shield(self._prompt_sync)

    # Rest and end

    def _start_rest(self) -> None:
        if self._resting is None or self._resting.done():
            self._resting = self.services.spawn(self._rest(), "rest")

    async def _rest(self) -> None:
        """When all is synced and handled, note the place, so that opening again is cheap."""
        # A turn that a drain leaves open for the next process is no rest: its events count.
        while not self.log.closed and self.phase == "idle" and self.state.turn is None:
            stops = list(self._stops)
            await self.log.flush()
            await self.log.sync_quietly()
            if not self.log.closed:
                self._note_stops(stops)
            await self.services.handled(self.record.id)
            if self.log.closed or self.phase != "idle" or self.pending:
                return
            if not self.log.flushing and self.log.waiting:
                # They cannot be written, and nobody is going to try again.
                return
            if not self.log.flushing and not self._stops:
                self._note_rest()
                return

    def _note_stops(self, stops: Sequence[StopRecord]) -> None:
        """What these stops did is on stable storage: forget them."""
        for stop in stops:
            self.services.store.stop_done(stop)
        self._stops = [stop for stop in self._stops if stop not in stops]

    def _note_rest(self) -> None:
        size = self.services.store.size(self.record.id)
        state = {"status": self.state.status, "lastSeq": self._last_seq}
        state |= self.state.totals.to_wire()
        mark = Watermark(size, self.lease.next_index, self.lease.last_at, state)
        self.services.store.rest(self.lease, mark)
        self.state.outcomes.clear()

    @property
    def at_rest(self) -> bool:
        """True when the owner may be unloaded."""
        done = self._resting is None or self._resting.done()
        return self.phase == "idle" and not self.pending and not self.log.flushing and done

    @property
    def goes_on_elsewhere(self) -> bool:
        """True when the next process takes up the turn that this one's end has interrupted."""
        last = self.state.last
        return self.services.draining and last is not None and last.wants_resume

    @property
    def prepared(self) -> bool:
        """True when nothing is being fetched for what waits."""
        return not self._prepares.unready(self.pending)

    def abort(self, reason: Literal["session_deleted", "store_failed"]) -> None:
        """End the turn and record nothing: this process may not write the session any more."""
        if self.log.closed:
            return
        self.log.drop()
        self.parking.drop()
        self.interrupt("session_deleted")
        self._queued_stop.set()
        self._prepares.drop()
        if self._resting is not None:
            self._resting.cancel()
        self.services.unload(self, reason)

    async def shut_down(self) -> None:
        """Interrupt the turn for a drain and put everything on stable storage.

        One that waits for people goes on waiting in the next process.
        """
        harness = self.services.harness
        if self.phase == "parked" and harness is not None and harness.capabilities.parks:
            self._dormant = None
            if self._running is not None:
                self._running.abandon()
            self.interrupt("parked")
            self.parking.drop()
        self.interrupt("host_shutdown")
        self._prepares.drop()
        if self._work is not None:
            await asyncio.wait([self._work])
        if self._resting is not None:
            self._resting.cancel()
        with contextlib.suppress(ThreadlineError):
            await self.log.synced()
            if self.log.unwritten:
                return
            self._note_stops(self._stops)
            resting = self.phase == "idle" and not self.pending and self.state.resting
            if resting and self.services.caught_up(self.record.id):
                self._note_rest()
        self.log.closed = True


def prompt_of(data: Mapping[str, Any]) -> Prompt:
    """Return the prompt that a ``message.received`` describes."""
    parts = [
        PromptPart(p["deliveryId"], p.get("text", ""), p.get("sender"), p.get("at") or "")
        for p in data.get("parts") or []
    ]
    return Prompt(
        str(data.get("text") or ""),
        parts,
        list(data.get("context") or []),
        list(data.get("attachments") or []),
    )


async def _guarded(harness: Any, turn: RunningTurn) -> TurnResult:
    """Run a harness so that nothing it raises can end the event loop."""
    if harness is None:
        raise HarnessFailed(
            "This agent has no model. Set harness= in agent/agent.py, for example "
            'PydanticAI("anthropic:claude-sonnet-4-5").',
            code="model_not_configured",
        )
    try:
        result = await harness.run(turn)
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        raise HarnessFailed(f"The harness raised {type(error).__name__}.") from error
    if not isinstance(result, TurnResult):
        raise HarnessFailed(
            f"The harness returned {type(result).__name__}; it must return a TurnResult."
        )
    return result


def _failure(task: asyncio.Task[TurnResult]) -> tuple[str, str] | None:
    """Return code and message of a turn's failure; None when it ended well."""
    if not task.done() or task.cancelled():
        return "harness_failed", "The harness was cancelled, though nobody asked for it."
    error = task.exception()
    if error is None:
        return None
    if isinstance(error, ThreadlineError):
        return _described(error)
    return "harness_failed", f"The harness raised {type(error).__name__}: {error}"


def _described(error: Exception) -> tuple[str, str]:
    """Return code and message of what kept a turn from running or ended it."""
    if isinstance(error, HarnessFailed):
        return error.failure_code, error.message
    if isinstance(error, ThreadlineError):
        return error.code, error.message
    return "internal_error", f"The turn could not start: {type(error).__name__}: {error}"


async def _first(*waits: Any) -> None:
    """Return when the first of several awaitables is done; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
