"""From a log to a session's state: a pure left fold over its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from threadline.session.limits import Totals
from threadline.store.base import DeliveryState, Outcome

__all__ = ["FOLDED", "EndedTurn", "OpenTurn", "State", "apply", "fold"]


@dataclass(slots=True)
class OpenTurn:
    """A turn without an end event.

    ``prompt`` is the data of its ``message.received``, or of the turn's that it resumes. ``calls``
    are the requested calls without a result, by id; ``batch`` all calls of the open batch;
    ``waiting`` what was asked of people and not decided, by call id; ``decided`` the decisions of
    the open batch; ``usage`` and ``cost`` are those of its steps so far (None: not known); ``at``
    is when it began.
    """

    id: str
    prompt: Mapping[str, Any]
    at: str = ""
    model: str | None = None
    attempt: int = 1
    restarts: int = 0
    chain: tuple[str, ...] = ()
    step: int = 0
    step_open: bool = False
    usage: Counter[str] = field(default_factory=Counter)
    cost: float | None = 0.0
    batch: list[str] | None = None
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    decided: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def delivery_ids(self) -> list[str]:
        """The deliveries that the prompt carries."""
        return list(self.prompt.get("deliveryIds") or [])


@dataclass(slots=True)
class EndedTurn:
    """How the last turn ended; ``turn`` is what it was.

    ``asks``: a write call was open, so a person decides whether it is tried again.
    """

    turn: OpenTurn
    status: str
    code: str | None = None
    message: str = ""
    result: Any = None
    asks: bool = False

    @property
    def wants_resume(self) -> bool:
        """True when the turn was only interrupted, so that recovery may go on with it."""
        interrupted = self.code in ("host_restarted", "host_shutdown") and not self.asks
        return self.status == "interrupted" and interrupted


@dataclass(slots=True)
class State:
    """What the log says; ``status`` is that of the newest session event, or ``"running"``.

    ``ended_at`` is when the last turn ended; ``totals`` is what all turns took.
    """

    started: bool = False
    mode: str = "chat"
    status: str = "new"
    turn: OpenTurn | None = None
    last: EndedTurn | None = None
    ended_at: str = ""
    totals: Totals = field(default_factory=Totals)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def resting(self) -> bool:
        """True when the newest event says that nothing runs."""
        return self.turn is None and self.status in ("waiting", "completed", "failed")


def fold(events: Iterable[Mapping[str, Any]], state: State | None = None) -> State:
    """Apply events in order to a state."""
    state = state or State()
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: Mapping[str, Any]) -> None:
    """Apply one event; types that do not matter here, and unknown ones, change nothing."""
    handler = _HANDLERS.get(str(event.get("type")))
    if handler is not None:
        handler(state, event, event.get("data") or {})


def _session_started(state: State, _: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    state.started = True
    state.mode = str(data.get("mode") or "chat")


def _session_rests(state: State, event: Mapping[str, Any], _: Mapping[str, Any]) -> None:
    state.status = str(event["type"]).partition(".")[2]
    state.last = None


def _message_received(state: State, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    state.status = "running"
    turn_id = str(event.get("turnId") or "")
    state.turn = OpenTurn(turn_id, data, _at(event))
    for delivery_id in data.get("deliveryIds") or []:
        _outcome(state, event, delivery_id, "prompted")


def _turn_started(state: State, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    state.status = "running"
    turn_id = str(event.get("turnId") or "")
    resumes = data.get("resumes")
    if resumes and state.last is not None and state.last.turn.id == resumes:
        before = state.last
        counted = 1 if before.code == "host_restarted" else 0
        state.turn = OpenTurn(
            turn_id,
            before.turn.prompt,
            _at(event),
            restarts=before.turn.restarts + counted,
            chain=(*before.turn.chain, before.turn.id),
        )
    elif state.turn is None or state.turn.id != turn_id:
        state.turn = OpenTurn(turn_id, {}, _at(event))
    state.turn.attempt = int(data.get("attempt") or 1)
    state.turn.model = data.get("model")


def _turn_ended(state: State, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    turn = state.turn or OpenTurn(str(event.get("turnId") or ""), {})
    state.ended_at = _at(event)
    _count(state.totals, data)
    completed = event["type"] == "turn.completed"
    state.last = EndedTurn(
        turn,
        "completed" if completed else str(data.get("status") or "failed"),
        data.get("code"),
        str(data.get("message") or ""),
        data.get("result"),
        asks=bool(data.get("asks")),
    )
    state.turn = None
    state.status = "between"


def _count(totals: Totals, data: Mapping[str, Any]) -> None:
    usage = data.get("usage") or {}
    totals.turns += 1
    totals.tokens += int(usage.get("inputTokens") or 0) + int(usage.get("outputTokens") or 0)
    totals.cost += float(data.get("costUsd") or 0.0)


def _step_started(state: State, _: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if state.turn is not None:
        state.turn.step = int(data.get("step") or state.turn.step + 1)
        state.turn.step_open = True


def _step_completed(state: State, _: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    turn, usage = state.turn, data.get("usage")
    if turn is None:
        return
    turn.step_open = False
    if usage:
        turn.usage.update({**usage, "requests": 1})
        cost = data.get("costUsd")
        turn.cost = None if cost is None or turn.cost is None else turn.cost + cost


def _actions_requested(state: State, _: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if state.turn is not None:
        calls = {str(call.get("callId")): call for call in _calls(data)}
        state.turn.calls = dict(calls)
        state.turn.batch = list(calls)
        state.turn.waiting.clear()
        state.turn.decided.clear()


def _calls(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the requested calls; logs of the earlier contract name them ``actions``."""
    return list(data.get("calls") or data.get("actions") or [])


def _action_result(state: State, _: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if state.turn is not None:
        state.turn.calls.pop(str(data.get("callId")), None)


def _actions_completed(state: State, _: Mapping[str, Any], __: Mapping[str, Any]) -> None:
    if state.turn is not None:
        state.turn.calls.clear()
        state.turn.waiting.clear()
        state.turn.batch = None


def _approval_requested(state: State, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if state.turn is not None:
        state.turn.waiting[str(data.get("callId"))] = {**data, "at": _at(event)}


def _approval_resolved(state: State, _: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if state.turn is not None:
        call_id = str(data.get("callId"))
        state.turn.waiting.pop(call_id, None)
        state.turn.decided[call_id] = data


def _nudged(state: State, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    if data.get("deliveryId"):
        _outcome(state, event, data["deliveryId"], "steered")


def _cleared(state: State, event: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    for delivery_id in data.get("deliveryIds") or []:
        _outcome(state, event, delivery_id, "cleared")


def _at(event: Mapping[str, Any]) -> str:
    return str(event.get("at") or "")


def _outcome(
    state: State, event: Mapping[str, Any], delivery_id: str, outcome: DeliveryState
) -> None:
    state.outcomes[delivery_id] = Outcome(
        delivery_id, outcome, int(event["index"]), event.get("turnId")
    )


_HANDLERS = {
    "action.approval_requested": _approval_requested,
    "action.approval_resolved": _approval_resolved,
    "action.result": _action_result,
    "actions.completed": _actions_completed,
    "actions.requested": _actions_requested,
    "deliveries.cleared": _cleared,
    "message.received": _message_received,
    "nudge.delivered": _nudged,
    "session.completed": _session_rests,
    "session.failed": _session_rests,
    "session.started": _session_started,
    "session.waiting": _session_rests,
    "step.completed": _step_completed,
    "step.started": _step_started,
    "turn.completed": _turn_ended,
    "turn.failed": _turn_ended,
    "turn.started": _turn_started,
}

FOLDED = frozenset(_HANDLERS)
"""The types of event that change a state."""
