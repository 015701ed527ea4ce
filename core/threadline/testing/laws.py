"""The laws that every session's log obeys, as one check."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

__all__ = ["LawBroken", "check_laws", "violations"]

_SEPARATORS = ("\u2028", "\u2029", "\u0085")


class LawBroken(AssertionError):
    """A log breaks a law; the message lists how, then shows the log."""


def check_laws(
    log: bytes | Sequence[Mapping[str, Any]],
    accepted: Collection[str] = (),
    *,
    cleared: Collection[str] = (),
    at_rest: bool = True,
) -> None:
    """Raise LawBroken unless a session's log obeys every law.

    ``log`` is the stored bytes, or decoded events. ``accepted`` are the ids of the deliveries that
    were acknowledged; ``cleared`` those of them that the ledger, not the log, says were dropped
    (their session was deleted). ``at_rest`` says that nothing runs or is pending any more.
    """
    found = list(violations(log, accepted, cleared=cleared, at_rest=at_rest))
    if found:
        lines = log.decode("utf-8", "replace") if isinstance(log, bytes) else _text(log)
        raise LawBroken("\n".join(["", *(f"- {item}" for item in found), "", lines]))


def violations(
    log: bytes | Sequence[Mapping[str, Any]],
    accepted: Collection[str] = (),
    *,
    cleared: Collection[str] = (),
    at_rest: bool = True,
) -> Iterator[str]:
    """Yield a sentence for each law that a log breaks."""
    if isinstance(log, bytes):
        broken, events = _decode(log)
        yield from broken
    else:
        events = [dict(event) for event in log]
    yield from _indices(events)
    yield from _times(events)
    yield from _outcomes(events, accepted, cleared, at_rest=at_rest)
    yield from _turns(events, at_rest=at_rest)
    if at_rest:
        yield from _rest(events)


def _decode(log: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    broken: list[str] = []
    events: list[dict[str, Any]] = []
    if log and not log.endswith(b"\n"):
        broken.append("the last line has no newline")
    for number, raw in enumerate(log.split(b"\n")):
        if not raw:
            continue
        try:
            text = raw.decode()
            event = json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            broken.append(f"line {number} is not strict JSON: {error}")
            continue
        if any(separator in text for separator in _SEPARATORS):
            broken.append(f"line {number} has a raw line separator")
        if _has_surrogate(event):
            broken.append(f"line {number} has a lone surrogate")
        events.append(event)
    return broken, events


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _has_surrogate(value: Any) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, dict):
        return any(_has_surrogate(item) for pair in value.items() for item in pair)
    return isinstance(value, list) and any(_has_surrogate(item) for item in value)


def _indices(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    expected = 0
    for event in events:
        index = event["index"]
        if index != expected:
            data = event.get("data") or {}
            explained = event["type"] == "log.recovered" and (
                data.get("from"),
                data.get("to"),
            ) == (expected, index - 1)
            if not explained:
                yield f"index {index} follows {expected - 1}"
        expected = index + 1
    sessions = {event.get("sessionId") for event in events}
    if len(sessions) > 1:
        yield f"the log names several sessions: {sorted(map(str, sessions))}"


def _times(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for before, after in itertools.pairwise(events):
        if after["at"] < before["at"]:
            yield f"at decreases at index {after['index']}"


def _outcomes(
    events: Sequence[Mapping[str, Any]],
    accepted: Collection[str],
    cleared: Collection[str],
    *,
    at_rest: bool,
) -> Iterator[str]:
    named: Counter[str] = Counter(cleared)
    for event in events:
        data = event.get("data") or {}
        if event["type"] in ("message.received", "deliveries.cleared"):
            named.update(data.get("deliveryIds") or [])
        elif event["type"] == "nudge.delivered" and data.get("deliveryId"):
            named[data["deliveryId"]] += 1
        if event["type"] == "message.received":
            yield from _parts(event)
    for delivery_id, count in named.items():
        if count > 1:
            yield f"delivery {delivery_id} has {count} outcomes"
    for delivery_id in accepted:
        if at_rest and not named[delivery_id]:
            yield f"delivery {delivery_id} was acknowledged and has no outcome"


def _parts(event: Mapping[str, Any]) -> Iterator[str]:
    data = event["data"]
    parts = data.get("parts")
    if parts is None:
        return
    if [part["deliveryId"] for part in parts] != data.get("deliveryIds"):
        yield f"parts and deliveryIds differ at index {event['index']}"
    if "\n\n".join(part["text"] for part in parts) != data.get("text"):
        yield f"text is not the joined parts at index {event['index']}"


@dataclass
class _Turns:
    """What the turns of a log look like up to an event."""

    open: str | None = None
    started: bool = False
    ended: dict[str, str] = field(default_factory=dict)
    batch: dict[str, bool] | None = None
    boundary: bool = False
    steps: int = 0
    waiting: set[str] = field(default_factory=set)
    decided: dict[str, str] = field(default_factory=dict)


def _turns(events: Sequence[Mapping[str, Any]], *, at_rest: bool) -> Iterator[str]:
    seen = _Turns()
    for event in events:
        for problem in _turn_event(seen, event, event.get("data") or {}):
            yield f"{problem} at index {event['index']} ({event['type']})"
    if at_rest and seen.open is not None:
        yield f"turn {seen.open} never ended"
    if at_rest and seen.batch is not None:
        yield f"the batch {sorted(seen.batch)} was never completed"


def _turn_event(seen: _Turns, event: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    kind, turn_id = event["type"], event.get("turnId")
    if kind in ("message.received", "turn.started"):
        yield from _turn_begins(seen, kind, turn_id, data)
    elif kind == "turn.queued":
        if seen.open is not None:
            yield "a turn waits while another is open"
    elif kind.startswith("session."):
        if seen.open is not None:
            yield f"the session rests while turn {seen.open} is open"
    elif turn_id is not None and turn_id != seen.open:
        yield f"turn {turn_id} is not the open one ({seen.open})"
    elif kind in ("turn.completed", "turn.failed"):
        if seen.batch is not None:
            yield "the turn ends with an open batch"
        if seen.waiting:
            yield f"the turn ends while {sorted(seen.waiting)} wait for a decision"
        if turn_id is not None:
            seen.ended[turn_id] = str(data.get("code") or kind)
        seen.open, seen.batch = None, None
    else:
        yield from _inside(seen, kind, data)


def _turn_begins(
    seen: _Turns, kind: str, turn_id: str | None, data: Mapping[str, Any]
) -> Iterator[str]:
    if turn_id is None or turn_id in seen.ended:
        yield f"turn {turn_id} has ended before"
    if kind == "turn.started" and turn_id == seen.open and not seen.started:
        seen.started = True
        return
    if seen.open is not None:
        yield f"turn {turn_id} begins while {seen.open} is open"
    if kind == "turn.started":
        resumed = data.get("resumes")
        if seen.ended.get(str(resumed)) not in ("host_restarted", "host_shutdown"):
            yield f"turn {turn_id} has no prompt and resumes {resumed}"
    seen.open, seen.started = turn_id, kind == "turn.started"
    seen.batch, seen.boundary, seen.steps = None, False, 0
    seen.waiting.clear()


def _inside(seen: _Turns, kind: str, data: Mapping[str, Any]) -> Iterator[str]:
    if kind == "actions.requested":
        if seen.batch is not None:
            yield "a batch begins inside another"
        seen.batch = {call["callId"]: False for call in data["calls"]}
    elif kind == "action.result":
        call_id = data["callId"]
        if seen.batch is None or seen.batch.get(call_id, True):
            yield f"call {call_id} was not asked for, or has a result already"
        else:
            seen.batch[call_id] = True
        if call_id in seen.waiting:
            yield f"call {call_id} has a result while it waits for a decision"
        if seen.decided.get(call_id, "approved") != "approved" and not data.get("isError"):
            yield f"call {call_id} was {seen.decided[call_id]} and ran"
    elif kind.startswith("action.approval_"):
        yield from _approval(seen, kind, data)
    elif kind == "actions.completed":
        if seen.batch is None or not all(seen.batch.values()):
            yield "the batch is not open, or has calls without a result"
        elif list(seen.batch) != list(data["callIds"]):
            yield "the batch completes other calls than it asked for"
        seen.batch, seen.boundary = None, True
    elif kind == "step.started":
        seen.boundary, seen.steps = False, seen.steps + 1
        if data.get("step") != seen.steps:
            yield f"step {data.get('step')} is number {seen.steps}"
    elif kind == "nudge.delivered" and not seen.boundary:
        yield "a nudge is not at a tool boundary"


def _approval(seen: _Turns, kind: str, data: Mapping[str, Any]) -> Iterator[str]:
    call_id = data["callId"]
    if kind == "action.approval_requested":
        if seen.batch is None or seen.batch.get(call_id, True) or call_id in seen.decided:
            yield f"call {call_id} waits, but it is not open, or was decided already"
        seen.waiting.add(call_id)
        return
    if call_id not in seen.waiting:
        yield f"call {call_id} is decided, but does not wait"
    seen.waiting.discard(call_id)
    seen.decided[call_id] = data["decision"]


def _rest(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check where the log ends, and that a task ends once."""
    mode = "chat"
    status = None
    for event in events:
        kind = event["type"]
        if kind == "session.started":
            mode = (event.get("data") or {}).get("mode") or "chat"
        elif kind in ("session.waiting", "session.completed", "session.failed"):
            if mode == "task" and status is not None:
                yield f"the task ends again at index {event['index']}"
            status = kind
        elif kind in ("message.received", "turn.started") and mode == "chat":
            status = None
    wanted = ("session.waiting",) if mode == "chat" else ("session.completed", "session.failed")
    if events and status not in wanted:
        yield f"the {mode} session does not rest in {' or '.join(wanted)}, but {status}"


def _text(events: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(event, ensure_ascii=False, default=str) for event in events)
