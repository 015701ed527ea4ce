"""From a log to a state."""

from __future__ import annotations

from typing import Any

from threadline.session.fold import State, fold
from threadline.store.base import Outcome

PROMPT = {"text": "hi", "deliveryIds": ["d1", "d2"]}


def log(*events: tuple[str, dict[str, Any]], turn: str = "t1") -> list[dict[str, Any]]:
    return [
        {"type": kind, "index": n, "turnId": turn, "at": f"{n:03}", "data": data}
        for n, (kind, data) in enumerate(events)
    ]


def test_nothing_is_a_new_session() -> None:
    assert fold([]) == State()
    assert not State().resting


def test_a_turn_is_open_until_it_ends() -> None:
    events = log(
        ("session.started", {"mode": "task"}),
        ("message.received", PROMPT),
        ("turn.started", {"attempt": 1}),
        ("step.started", {"step": 1}),
        ("actions.requested", {"step": 1, "calls": [{"callId": "c1"}, {"callId": "c2"}]}),
        ("action.result", {"callId": "c1"}),
    )
    state = fold(events)
    assert (state.started, state.mode, state.status) == (True, "task", "running")
    assert state.turn is not None
    assert (state.turn.id, state.turn.at, state.turn.step) == ("t1", "001", 1)
    assert state.turn.delivery_ids == ["d1", "d2"]
    assert state.turn.batch == ["c1", "c2"]
    assert list(state.turn.calls) == ["c2"]
    assert state.outcomes["d2"] == Outcome("d2", "prompted", 1, "t1")
    more = log(("actions.completed", {}), ("turn.failed", {"code": "x", "status": "failed"}))
    state = fold(more, state)
    assert state.turn is None
    assert state.last is not None
    assert (state.last.status, state.last.code, state.ended_at) == ("failed", "x", "001")
    assert not state.resting
    state = fold(log(("session.failed", {})), state)
    assert state.resting
    assert (state.status, state.last) == ("failed", None)


def test_a_resumed_turn_has_the_prompt_of_the_first() -> None:
    failed = {"status": "interrupted", "code": "host_restarted"}
    state = fold(log(("message.received", PROMPT), ("turn.failed", failed)))
    assert state.last is not None
    assert state.last.wants_resume
    for attempt, turn in ((2, "t2"), (3, "t3")):
        resumes = {"attempt": attempt, "resumes": f"t{attempt - 1}"}
        state = fold(log(("turn.started", resumes), turn=turn), state)
        assert state.turn is not None
        assert state.turn.prompt == PROMPT
        assert (state.turn.attempt, state.turn.restarts) == (attempt, attempt - 1)
        if attempt == 2:
            state = fold(log(("turn.failed", failed), turn=turn), state)
    assert state.turn is not None
    assert state.turn.chain == ("t1", "t2")


def test_drains_are_no_restarts() -> None:
    failed = {"status": "interrupted", "code": "host_shutdown"}
    state = fold(log(("message.received", PROMPT), ("turn.failed", failed)))
    state = fold(log(("turn.started", {"attempt": 2, "resumes": "t1"}), turn="t2"), state)
    assert state.turn is not None
    assert state.turn.restarts == 0


def test_outcomes_are_what_the_log_says() -> None:
    state = fold(
        log(
            ("message.received", PROMPT),
            ("nudge.delivered", {"deliveryId": "d3", "text": ""}),
            ("nudge.delivered", {"text": "of an earlier contract"}),
            ("deliveries.cleared", {"deliveryIds": ["d4"]}),
        )
    )
    found = {name: outcome.state for name, outcome in state.outcomes.items()}
    assert found == {"d1": "prompted", "d2": "prompted", "d3": "steered", "d4": "cleared"}


def test_odd_events_change_nothing() -> None:
    odd: list[tuple[str, dict[str, Any]]] = [
        ("new.thing", {}),
        ("action.result", {}),
        ("actions.completed", {}),
        ("actions.requested", {}),
        ("step.started", {}),
        ("step.completed", {}),
        ("log.recovered", {"from": 1, "to": 2}),
    ]
    assert fold(log(*odd)) == State()
    assert fold([{"type": "session.waiting", "index": 0}]).status == "waiting"
    assert fold([{"type": None, "index": 0, "data": None}]) == State()
