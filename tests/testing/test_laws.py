"""The checker sees each breach, and no breach where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from threadline import ndjson
from threadline.testing.laws import LawBroken, check_laws, violations

Entry = tuple[str, str | None, dict[str, Any]]

STARTED: Entry = ("session.started", None, {"mode": "chat"})
WAITING: Entry = ("session.waiting", None, {})
DONE: Entry = ("turn.completed", "t1", {})
ASKED: Entry = ("actions.requested", "t1", {"calls": [{"callId": "c1"}]})
RESULT: Entry = ("action.result", "t1", {"callId": "c1"})
PAIRED: Entry = ("actions.completed", "t1", {"callIds": ["c1"]})


def prompt(*ids: str, turn: str = "t1") -> list[Entry]:
    data = {"text": "\n\n".join(ids), "deliveryIds": list(ids)}
    parts = [{"deliveryId": i, "text": i} for i in ids]
    return [("message.received", turn, data | {"parts": parts}), ("turn.started", turn, {})]


def nudge(delivery_id: str) -> Entry:
    return ("nudge.delivered", "t1", {"deliveryId": delivery_id})


def step(number: int) -> Entry:
    return ("step.started", "t1", {"step": number})


def log(*entries: Entry) -> list[dict[str, Any]]:
    return [
        {"type": kind, "index": n, "sessionId": "ses_a", "turnId": turn, "at": f"{n:03}", "data": d}
        for n, (kind, turn, d) in enumerate(entries)
    ]


GOOD = [STARTED, *prompt("d1"), step(1), ASKED, RESULT, PAIRED, nudge("d2"), step(2), DONE, WAITING]


def test_a_good_log_breaks_nothing() -> None:
    check_laws(log(*GOOD), ["d1", "d2"])
    check_laws(b"".join(map(ndjson.encode, log(*GOOD))), ["d1", "d2"])
    check_laws([])


@pytest.mark.parametrize(
    ("entries", "accepted", "breach"),
    [
        (GOOD, ["d3"], "d3 was acknowledged and has no outcome"),
        ([*GOOD[:-2], nudge("d1"), *GOOD[-2:]], [], "d1 has 2 outcomes"),
        (GOOD[:-1], [], "does not rest"),
        (GOOD[:-2], [], "never ended"),
        ([*GOOD[:-2], WAITING], [], "rests while turn"),
        ([STARTED, *prompt("d1"), *prompt("d2", turn="t2"), DONE], [], "begins while"),
        ([STARTED, *prompt("d1"), DONE, WAITING, DONE, WAITING], [], "not the open one"),
        ([STARTED, *prompt("d1"), DONE, *prompt("d2"), DONE, WAITING], [], "has ended before"),
        ([STARTED, ("turn.started", "t1", {}), DONE, WAITING], [], "has no prompt"),
        ([STARTED, *prompt("d1"), ASKED, DONE, WAITING], [], "open batch"),
        ([STARTED, *prompt("d1"), ASKED, PAIRED, DONE, WAITING], [], "without a result"),
        ([STARTED, *prompt("d1"), ASKED, RESULT, RESULT], [], "has a result already"),
        ([STARTED, *prompt("d1"), RESULT], [], "was not asked for"),
        ([STARTED, *prompt("d1"), step(1), nudge("d2")], [], "not at a tool boundary"),
        ([STARTED, *prompt("d1"), step(2)], [], "is number 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_breach_is_seen(entries: list[Entry], accepted: list[str], breach: str) -> None:
    assert any(breach in found for found in violations(log(*entries), accepted))
    with pytest.raises(LawBroken, match=breach):
        check_laws(log(*entries), accepted)


def test_a_task_ends_once() -> None:
    task: Entry = ("session.started", None, {"mode": "task"})
    ended: Entry = ("session.completed", None, {})
    check_laws(log(task, *prompt("d1"), DONE, ended))
    assert list(violations(log(task, *prompt("d1"), DONE, ended, ended)))
    assert list(violations(log(task, *prompt("d1"), DONE, WAITING)))


def test_an_interrupted_turn_may_be_resumed() -> None:
    failed: Entry = ("turn.failed", "t1", {"code": "host_restarted"})
    resumed: Entry = ("turn.started", "t2", {"attempt": 2, "resumes": "t1"})
    ended: Entry = ("turn.completed", "t2", {})
    check_laws(log(STARTED, *prompt("d1"), failed, resumed, ended, WAITING))


def test_a_gap_needs_its_explanation() -> None:
    events = log(STARTED, ("log.recovered", None, {"from": 1, "to": 99}), WAITING)
    events[1]["index"], events[2]["index"] = 100, 101
    check_laws(events)
    events[1]["data"]["to"] = 98
    assert any("index 100 follows 0" in found for found in violations(events))


def test_time_and_session_stay_the_same() -> None:
    events = log(*GOOD)
    events[3]["at"] = "9"
    events[4]["sessionId"] = "ses_b"
    found = list(violations(events))
    assert any("at decreases" in item for item in found)
    assert any("several sessions" in item for item in found)


@pytest.mark.parametrize(
    ("raw", "breach"),
    [
        (b'{"type":"session.waiting","index":0', "no newline"),
        (b'{"type":"session.waiting","index":0,"at":"","x":NaN}\n', "not strict JSON"),
        (b"\x00\x00\n", "not strict JSON"),
        ('{"type":"x","index":0,"at":"","data":{"a":"\u2028"}}\n'.encode(), "raw line separator"),
        (b'{"type":"x","index":0,"at":"","data":{"a":["\\ud800"]}}\n', "lone surrogate"),
    ],
)
def test_lines_are_strict_json(raw: bytes, breach: str) -> None:
    assert any(breach in found for found in violations(raw, at_rest=False))
