"""The one function that turns events into what ``run`` and ``session get`` print."""

from __future__ import annotations

import json
from typing import Any

import pytest

from threadline.cli.trajectory import read_events, summary_of_file, trajectory
from threadline.errors import NotFound


def event(kind: str, turn: str | None = "t1", **data: Any) -> dict[str, Any]:
    """Return an event of session ses_1."""
    wire: dict[str, Any] = {"type": kind, "index": 0, "sessionId": "ses_1", "data": data}
    return wire | ({"turnId": turn} if turn else {})


def requested(call_id: str, turn: str = "t1") -> dict[str, Any]:
    call = {"callId": call_id, "toolName": "look", "input": {"at": "sky"}, "effect": "read"}
    return event("actions.requested", turn, step=1, calls=[call])


def said(text: str, turn: str | None = "t1", **data: Any) -> dict[str, Any]:
    return event("message.completed", turn, messageId="m", text=text, **data)


def test_a_turn_has_its_reply_its_calls_and_its_usage() -> None:
    events = [
        event("session.started", None),
        event("message.received", text="look", deliveryIds=["d1"]),
        event("turn.started"),
        said("I look.", finishReason="tool_calls"),
        requested("c1"),
        event("action.result", callId="c1", toolName="look", isError=False, output=1, durationMs=3),
        said("It is blue.", finishReason="stop"),
        event("turn.completed", result="It is blue.", usage={"inputTokens": 5, "requests": 2}),
        event("session.waiting", None),
    ]
    assert trajectory(events) == {
        "sessionId": "ses_1",
        "status": "completed",
        "reply": "It is blue.",
        "toolCalls": [
            {
                "callId": "c1",
                "toolName": "look",
                "input": {"at": "sky"},
                "isError": False,
                "durationMs": 3,
                "output": 1,
            }
        ],
        "usage": {
            "inputTokens": 5,
            "outputTokens": 0,
            "cacheReadTokens": 0,
            "cacheWriteTokens": 0,
            "requests": 2,
        },
    }


def test_a_failed_call_has_its_error_and_an_open_one_has_neither() -> None:
    error = {"code": "timeout", "message": "too slow"}
    events = [
        requested("c1"),
        requested("c2"),
        event("action.result", callId="c1", toolName="look", isError=True, error=error),
    ]
    first, second = trajectory(events)["toolCalls"]
    assert first["error"] == error
    assert "output" not in first
    assert second["isError"] is None
    assert not {"output", "error"} & set(second)


def test_the_same_call_id_in_two_turns_is_two_calls() -> None:
    assert len(trajectory([requested("c1"), requested("c1", "t2")])["toolCalls"]) == 2


def test_status_and_reply_are_the_last_turns_and_usage_is_everybodys() -> None:
    events = [
        event("turn.started"),
        said("First.", finishReason="stop"),
        event("turn.completed", usage={"inputTokens": 2}),
        event("turn.started", "t2"),
        event("step.completed", "t2", step=1, usage={"inputTokens": 3}),
        event("turn.failed", "t2", status="cancelled", code="stopped", message="turn interrupted"),
    ]
    summary = trajectory(events)
    assert (summary["status"], summary["reply"]) == ("cancelled", None)
    assert summary["error"] == {"code": "stopped", "message": "turn interrupted"}
    assert summary["usage"]["inputTokens"] == 5
    assert summary["usage"]["requests"] == 1


def test_a_subagents_answer_is_not_the_reply() -> None:
    events = [
        said("Mine.", finishReason="stop"),
        said("Its.", finishReason="stop", parentCallId="c"),
    ]
    assert trajectory(events)["reply"] == "Mine."


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "waiting"),
        ([event("turn.queued", position=1)], "queued"),
        ([event("turn.started")], "running"),
        ([event("turn.failed", message="turn interrupted")], "cancelled"),
        ([event("turn.failed", message="the model is gone")], "failed"),
        ([event("turn.completed"), event("session.completed", None)], "completed"),
        ([event("turn.completed"), event("session.failed", None, error={"code": "x"})], "failed"),
    ],
)
def test_status(events: list[dict[str, Any]], status: str) -> None:
    assert trajectory(events)["status"] == status


def test_the_earlier_contract_names_less_and_is_read() -> None:
    events = [
        event("message.received", None, message="hello"),
        event("actions.requested", None, calls=[{"toolName": "look"}]),
        event("action.result", None, toolName="look", output="blue"),
        said("Blue.", None),
        event("turn.completed", None, usage={"inputTokens": 1, "outputTokens": 2}),
    ]
    summary = trajectory(events)
    assert (summary["status"], summary["reply"]) == ("completed", "Blue.")
    assert summary["usage"]["outputTokens"] == 2


def test_lines_end_at_newline_bytes_only_and_what_is_damaged_is_left_out() -> None:
    good = {"type": "message.completed", "data": {"text": "a\u2028b\x85c\x0cd"}}
    data = b"\n".join(
        [
            b"\xef\xbb\xbf" + json.dumps({"type": "turn.started", "more": 1}).encode(),
            b'{"type": "turn.comp',
            b"\xff\xfe\x00",
            b"[1, 2]",
            b'{"no": "type"}',
            b"",
            json.dumps(good, ensure_ascii=False).encode() + b"\r",
            b'{"type": "session.waiting"}',
        ]
    )
    events = read_events(data)
    assert [e["type"] for e in events] == ["turn.started", "message.completed", "session.waiting"]
    assert events[1] == good
    assert read_events(data[:-1])[-1] == good


def test_odd_fields_do_no_harm() -> None:
    events = [
        {"type": "actions.requested", "data": {"calls": "none"}},
        {"type": "actions.requested", "data": {"calls": [7, {}]}},
        {"type": "action.result", "data": None},
        {"type": "turn.completed", "turnId": 7, "data": {"usage": [1]}},
        {"type": "session.failed", "data": {"error": "because"}},
    ]
    assert trajectory(events)["status"] == "failed"


def test_a_file_without_events_is_no_log(tmp_path: Any) -> None:
    empty = tmp_path / "empty.ndjson"
    empty.write_bytes(b"hello\n")
    with pytest.raises(NotFound, match="holds no events"):
        summary_of_file(empty)
    with pytest.raises(NotFound, match="cannot be read"):
        summary_of_file(tmp_path / "none")
