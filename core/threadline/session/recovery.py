"""From a state to what must be done after a crash or a drain: a pure decision.

Applying a plan and deciding again gives an empty plan: doing all this twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from threadline.session.fold import EndedTurn, OpenTurn, State
from threadline.store.base import Checkpoint, DeliveryRecord, SessionRecord, StopRecord

__all__ = [
    "MAX_RESTARTS",
    "USAGE",
    "Facts",
    "Plan",
    "Planned",
    "Resume",
    "closing",
    "recover",
    "spent",
]

MAX_RESTARTS = 3
USAGE = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "requests")
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
    be recorded, together. ``parked`` is a turn that stays open and waits for a decision.
    """

    events: list[Planned] = field(default_factory=list)
    stopped: list[DeliveryRecord] = field(default_factory=list)
    resume: Resume | None = None
    parked: OpenTurn | None = None
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
    parks: bool = False
    idempotent: Collection[str] = ()


def recover(state: State, facts: Facts) -> Plan:
    """Decide what a session needs before anything else happens to it."""
    plan = Plan()
    if not state.started:
        plan.events.append(Planned("session.started", started_data(facts)))
    pending = [d for d in facts.pending if d.delivery_id not in state.outcomes]
    pending = _append_confirmed_nudges(state, facts, plan, pending)
    if state.turn is not None and _stays_parked(state.turn, facts, pending):
        return _park(state.turn, facts, plan, pending)
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


def _stays_parked(turn: OpenTurn, facts: Facts, pending: Sequence[DeliveryRecord]) -> bool:
    """Tell whether the open turn goes on waiting for a person as if nothing had happened."""
    waits = bool(turn.waiting) and turn.batch is not None and facts.parks and bool(turn.prompt)
    preempted = any(d.admission == "preempt" for d in pending)
    return waits and not preempted and not _stopped(turn, facts)


def _park(turn: OpenTurn, facts: Facts, plan: Plan, pending: list[DeliveryRecord]) -> Plan:
    """Leave the turn open; what its other calls did while the host stopped is said, not guessed."""
    for call_id in _unknown_writes(turn, facts):
        call = turn.calls[call_id]
        message = (
            f"The host stopped while {_tool_name(call)} was running, so it is not known whether "
            "it took effect. Check before you try it again."
        )
        plan.events.append(_interrupted(turn, call_id, call, message))
    _clear(facts, plan, pending)
    plan.stops_done.extend(facts.stops)
    plan.parked = turn
    return plan


def _unknown_writes(turn: OpenTurn, facts: Facts) -> list[str]:
    """Return the calls of which nobody knows whether they took effect."""
    return [
        call_id
        for call_id, call in turn.calls.items()
        if call.get("effect") == "write"
        and _tool_name(call) not in facts.idempotent
        and call_id not in turn.waiting
    ]


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
        plan.events.extend(closing(state.turn, "host_restarted"))
        state.turn.batch = None
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


def closing(turn: OpenTurn, reason: str) -> list[Planned]:
    """Return what pairs every requested call, approval and batch with its end."""
    if turn.batch is None:
        return []
    events = [
        Planned(
            "action.approval_resolved",
            {"callId": call_id, "decision": "superseded", "reason": reason},
            turn.id,
        )
        for call_id in turn.waiting
    ]
    message = "The host stopped before the call had a result."
    if reason != "host_restarted":
        message = "The turn ended before the result."
    events += [_interrupted(turn, i, call, message) for i, call in turn.calls.items()]
    data = {"step": turn.step, "callIds": list(turn.batch)}
    return [*events, Planned("actions.completed", data, turn.id)]


def spent(turn: OpenTurn) -> dict[str, Any]:
    """Return what the steps of a turn took, as its end has it; nothing where none is known."""
    if not turn.usage:
        return {}
    usage = {key: int(turn.usage.get(key, 0)) for key in USAGE}
    return {"usage": usage} | ({} if turn.cost is None else {"costUsd": turn.cost})


def _interrupted(turn: OpenTurn, call_id: str, call: Mapping[str, Any], message: str) -> Planned:
    data = {
        "callId": call_id,
        "toolName": _tool_name(call),
        "isError": True,
        "error": {"code": "interrupted", "message": message},
        "durationMs": 0,
    }
    return Planned("action.result", data, turn.id)


def _tool_name(call: Mapping[str, Any]) -> str:
    return str(call.get("toolName") or call.get("name") or "")


def _close(state: State, facts: Facts, plan: Plan, pending: Sequence[DeliveryRecord]) -> EndedTurn:
    """End the open turn for the reason that counts: a stop, a preempting delivery, a restart."""
    turn = state.turn
    assert turn is not None
    unknown = sorted({_tool_name(turn.calls[i]) for i in _unknown_writes(turn, facts)})
    status, code, message = _reason(turn, facts, pending)
    plan.events.extend(closing(turn, code))
    turn.batch = None
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
    ended |= spent(turn)
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
