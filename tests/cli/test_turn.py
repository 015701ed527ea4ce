"""Waiting for the turn that carries a message."""

from __future__ import annotations

from typing import Any

import pytest

from threadline.cli.turn import Awaited

RECEIVED = {"type": "message.received", "turnId": "t1", "data": {"deliveryIds": ["d1"]}}
INTERRUPTED = {"type": "turn.failed", "turnId": "t1", "data": {"status": "interrupted"}}
WAITING = {"type": "session.waiting", "data": {}}


def end(turn: str = "t1") -> dict[str, Any]:
    return {"type": "turn.completed", "turnId": turn, "data": {}}


def saw(*events: dict[str, Any]) -> Awaited:
    awaited = Awaited("d1")
    for one in events:
        awaited.see(one)
    return awaited


def test_the_turn_of_the_message_ends_the_wait() -> None:
    assert saw(RECEIVED, end()).done
    assert saw(RECEIVED, end()).status == "completed"


def test_another_turn_does_not() -> None:
    awaited = saw(WAITING, end("t0"), WAITING, RECEIVED)
    assert not awaited.done
    assert not awaited.owns(end("t0"))
    assert awaited.owns(WAITING)


def test_a_message_that_was_steered_waits_for_the_turn_it_joined() -> None:
    nudge = {"type": "nudge.delivered", "turnId": "t7", "data": {"deliveryId": "d1"}}
    assert saw(nudge, end("t7")).status == "completed"


def test_an_interrupted_turn_goes_on_in_another_one() -> None:
    resumed = {"type": "turn.started", "turnId": "t2", "data": {"resumes": "t1"}}
    awaited = saw(RECEIVED, INTERRUPTED, resumed)
    assert not awaited.done
    assert saw(RECEIVED, INTERRUPTED, resumed, end("t2")).status == "completed"


def test_an_interrupted_turn_that_nothing_continues_is_over_when_the_session_rests() -> None:
    awaited = saw(RECEIVED, INTERRUPTED, WAITING)
    assert (awaited.done, awaited.status) == (True, "interrupted")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_failed_turn_is_over(status: str) -> None:
    failed = {"type": "turn.failed", "turnId": "t1", "data": {"status": status}}
    awaited = saw(RECEIVED, failed)
    assert (awaited.done, awaited.status) == (True, status)


def test_a_cleared_message_is_over() -> None:
    cleared = {"type": "deliveries.cleared", "data": {"deliveryIds": ["d1"]}}
    assert saw(cleared).status == "cleared"
