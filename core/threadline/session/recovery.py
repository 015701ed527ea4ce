"""From a state to what must be done after a crash or a drain: a pure decision.

Applying a plan and deciding again gives an empty plan: doing all this twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from threadline.session.fold import EndedTurn, OpenTurn, State
from threadline.store.base import Checkpoint, DeliveryRecord, SessionRecord, StopRecord

__all__ = ["MAX_RESTARTS", "Facts", "Plan", "Planned", "Resume", "recover"]

MAX_RESTARTS = 3
UNKNOWN_WRITE = (
    "The host stopped while {tools} was running, so it is not known whether it took effect. "
    "Please check, and tell me whether to try again."
)


@dataclass(frozen=True, slots=True)
class Planned:
    """An event to append."""

    type: str
    data: Mapping[str, Any]
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """A turn to go on with: what it was, and the attempt that comes."""

    turn: OpenTurn
    attempt: int
    restarts: int


@dataclass(slots=True)
class Plan:
    """Events to append, in order; then resume, start what is pending, or rest.

    ``stopped`` is what a stop met while it waited for a slot: its prompt and its end are still to
    be recorded, together.
    """

    events: list[Planned] = field(default_factory=list)
    stopped: list[DeliveryRecord] = field(default_factory=list)
    resume: Resume | None = None
    start: bool = False
    stops_done: list[StopRecord] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What recovery knows beside the log."""

    session: SessionRecord
    agent: str
    pending: Sequence[DeliveryRecord] = ()
    stops: Sequence[StopRecord] = ()
    prompt_seqs: Mapping[str, int] = field(default_factory=dict)
    checkpoints: Sequence[Checkpoint] = ()
    on_restart: Literal["resume", "fail"] = "resume"
    resumes: bool = True
    idempotent: Collection[str] = ()


def recover(state: State, facts: Facts) -> Plan:
    """Decide what a session needs before anything else happens to it."""
    plan = Plan()
    if not state.started:
        plan.events.append(Planned("session.started", started_data(facts)))
    pending = [d for d in facts.pending if d.delivery_id not in state.outcomes]
    pending = _append_confirmed_nudges(state, facts, plan, pending)
    ended = _close(state, facts, plan, pending) if state.turn is not None else state.last
    pending = _stop_waiting(state, facts, plan, pending)
    pending = _clear(facts, plan, pending)
    plan.stops_done.extend(facts.stops)
    if ended is not None and ended.wants_resume and state.status not in _ENDED:
        plan.resume = _resume(ended, facts, pending)
    begun = state.turn is not None or state.last is not None or state.status in _ENDED
    plan.start = bool(pending) and plan.resume is None
    if facts.session.mode == "task" and begun:
        plan.start = False
    if not (plan.resume or plan.start or plan.stopped) and state.status not in _ENDED:
        plan.events.extend(_rest(facts, ended))
    return plan


_ENDED = ("waiting", "completed", "failed")


def started_data(facts: Facts) -> dict[str, Any]:
    """Return the data of ``session.started``."""
    session = facts.session
    data: dict[str, Any] = {
        "agent": facts.agent,
        "channel": session.channel,
        "mode": session.mode,
        "principal": session.owner.to_wire(),
    }
    optional = {
        "title": session.title,
        "purpose": session.purpose,
        "dryRun": session.dry_run or None,
        "asOf": session.as_of,
        "parent": session.parent,
    }
    return data | {key: value for key, value in optional.items() if value is not None}


def _append_confirmed_nudges(
    state: State, facts: Facts, plan: Plan, pending: list[DeliveryRecord]
) -> list[DeliveryRecord]:
    """The history holds these, so the model has read them: the log must say so."""
    held = {
        str(nudge["deliveryId"]): (nudge, checkpoint.turn_id)
        for checkpoint in facts.checkpoints
        for nudge in checkpoint.nudges
    }
    named = [d for d in pending if d.delivery_id in held]
    if named and state.turn is not None:
        _close_calls(state.turn, plan)
    for delivery in named:
        nudge, turn_id = held[delivery.delivery_id]
        data: dict[str, Any] = {
            "text": delivery.text,
            "deliveryId": delivery.delivery_id,
            "afterCallIds": list(nudge.get("afterCallIds", [])),
        }
        if delivery.sender is not None:
            data["sender"] = dict(delivery.sender)
        plan.events.append(Planned("nudge.delivered", data, turn_id))
        plan.settled.add(delivery.delivery_id)
    return [d for d in pending if d.delivery_id not in plan.settled]


def _close_calls(turn: OpenTurn, plan: Plan) -> None:
    """Pair every requested call and batch with its end, so that readers can."""
    if turn.batch is None:
        return
    for call_id, call in turn.calls.items():
        plan.events.append(
            Planned(
                "action.result",
                {
                    "callId": call_id,
                    "toolName": _tool_name(call),
                    "isError": True,
                    "error": {
                        "code": "interrupted",
                        "message": "The host stopped before the call had a result.",
                    },
                    "durationMs": 0,
                },
                turn.id,
            )
        )
    plan.events.append(
        Planned("actions.completed", {"step": turn.step, "callIds": list(turn.batch)}, turn.id)
    )
    turn.batch = None


def _tool_name(call: Mapping[str, Any]) -> str:
    return str(call.get("toolName") or call.get("name") or "")


def _close(state: State, facts: Facts, plan: Plan, pending: Sequence[DeliveryRecord]) -> EndedTurn:
    """End the open turn for the reason that counts: a stop, a preempting delivery, a restart."""
    turn = state.turn
    assert turn is not None
    unknown = sorted(
        {
            _tool_name(call)
            for call in turn.calls.values()
            if call.get("effect") == "write" and _tool_name(call) not in facts.idempotent
        }
    )
    _close_calls(turn, plan)
    status, code, message = _reason(turn, facts, pending)
    asks = bool(code == "host_restarted" and unknown and facts.on_restart == "resume")
    if asks:
        message = UNKNOWN_WRITE.format(tools=" and ".join(unknown))
        plan.events.append(
            Planned(
                "message.completed",
                {"messageId": f"{turn.id}-host", "text": message, "finishReason": "stop"},
                turn.id,
            )
        )
    ended: dict[str, Any] = {"status": status, "code": code, "message": message}
    if asks:
        ended["asks"] = True
    plan.events.append(Planned("turn.failed", ended, turn.id))
    return EndedTurn(turn, status, code, message, asks=asks)


def _reason(
    turn: OpenTurn, facts: Facts, pending: Sequence[DeliveryRecord]
) -> tuple[str, str, str]:
    if _stopped(turn, facts):
        return "cancelled", "stopped", "turn interrupted"
    if any(d.admission == "preempt" for d in pending):
        return "cancelled", "preempted", "turn interrupted"
    if turn.restarts + 1 >= MAX_RESTARTS:
        return (
            "interrupted",
            "resume_limit",
            f"The host restarted {turn.restarts + 1} times while this was worked on, so it is not "
            "tried again. Send a message to go on.",
        )
    return "interrupted", "host_restarted", "The host restarted while the turn was running."


def _stopped(turn: OpenTurn, facts: Facts) -> bool:
    """Tell whether a stop is meant for this turn, not for one before it."""
    newest = max((facts.prompt_seqs.get(i, 0) for i in turn.delivery_ids), default=0)
    at = max((str(p.get("at") or "") for p in turn.prompt.get("parts") or []), default="")
    return any(stop.concerns(newest, at) and stop.at >= turn.at for stop in facts.stops)


def _stop_waiting(
    state: State, facts: Facts, plan: Plan, pending: list[DeliveryRecord]
) -> list[DeliveryRecord]:
    """Stop what waited for its turn, unless the stop was meant for a turn that had begun."""
    if state.turn is not None or (state.last is not None and state.last.wants_resume):
        return pending
    stops = [stop for stop in facts.stops if stop.at > state.ended_at]
    plan.stopped = [d for d in pending if any(stop.concerns(d.seq, d.at) for stop in stops)]
    plan.settled.update(d.delivery_id for d in plan.stopped)
    return [d for d in pending if d.delivery_id not in plan.settled]


def _clear(facts: Facts, plan: Plan, pending: list[DeliveryRecord]) -> list[DeliveryRecord]:
    clearing = [stop for stop in facts.stops if stop.clear_pending]
    cleared = [
        d.delivery_id for d in pending if any(stop.concerns(d.seq, d.at) for stop in clearing)
    ]
    if cleared:
        plan.events.append(
            Planned("deliveries.cleared", {"deliveryIds": cleared, "reason": "stopped"})
        )
        plan.settled.update(cleared)
    return [d for d in pending if d.delivery_id not in plan.settled]


def _resume(ended: EndedTurn, facts: Facts, pending: Sequence[DeliveryRecord]) -> Resume | None:
    turn = ended.turn
    wanted = facts.on_restart == "resume" and facts.resumes and bool(turn.prompt)
    stopped = _stopped(turn, facts)
    preempted = any(d.admission == "preempt" for d in pending)
    if not wanted or stopped or preempted:
        return None
    counted = 1 if ended.code == "host_restarted" else 0
    return Resume(turn, turn.attempt + 1, turn.restarts + counted)


def _rest(facts: Facts, ended: EndedTurn | None) -> list[Planned]:
    if facts.session.mode == "chat":
        return [Planned("session.waiting", {})]
    if ended is None:
        message = "The host stopped before the task began, and its message is lost."
        return [Planned("session.failed", {"error": {"code": "interrupted", "message": message}})]
    if ended.status == "completed":
        return [Planned("session.completed", {"result": ended.result})]
    error = {"code": ended.code or "failed", "message": ended.message}
    return [Planned("session.failed", {"error": error})]
