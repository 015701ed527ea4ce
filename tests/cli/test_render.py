"""What a person sees: events as pieces of text."""

from __future__ import annotations

import io
from typing import Any

import pytest

from threadline.cli.render import Piece, Renderer, inline
from threadline.cli.terminal import Lines, PlainTerminal


def event(kind: str, turn: str | None = "t1", **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data} | ({"turnId": turn} if turn else {})


def seen(renderer: Renderer, *events: dict[str, Any]) -> str:
    """Return what a plain terminal shows of the events."""
    stream = io.StringIO()
    terminal = PlainTerminal(stream, 0)
    for one in events:
        for piece in renderer.show(one):
            terminal.show(piece)
    return stream.getvalue()


def received(delivery_id: str, turn: str = "t1", text: str = "hi") -> dict[str, Any]:
    return event("message.received", turn, text=text, deliveryIds=[delivery_id])


def test_text_streams_and_is_not_said_twice() -> None:
    shown = seen(
        Renderer(),
        event("reasoning.appended", blockId="r", delta="Hm."),
        event("reasoning.completed", blockId="r", text="Hm."),
        event("message.appended", messageId="m", delta="It is "),
        event("message.appended", messageId="m", delta="blue."),
        event("message.completed", messageId="m", text="It is blue.", finishReason="stop"),
        event("message.completed", messageId="n", text="Not streamed.", finishReason="stop"),
    )
    assert shown == "Hm.\nIt is blue.\nNot streamed.\n"


def test_tool_calls_show_input_time_and_error() -> None:
    shown = seen(
        Renderer(),
        event("actions.requested", calls=[{"callId": "c", "toolName": "look", "input": {"at": 1}}]),
        event("action.result", callId="c", toolName="look", isError=False, durationMs=12),
        event(
            "action.result",
            callId="d",
            toolName="dig",
            isError=True,
            error={"code": "x", "message": "too\ndeep"},
            durationMs=2500,
        ),
    )
    assert shown == "→ look at=1\n✓ look (12 ms)\n✗ dig (2.5 s): too deep\n"


def test_what_became_of_a_message_sent_while_the_agent_works() -> None:
    renderer = Renderer()
    renderer.sending("d1", "first")
    assert seen(renderer, received("d1"), event("turn.started")) == ""
    renderer.sending("d2", "second")
    renderer.sending("d3", "third")
    steered = event("nudge.delivered", deliveryId="d2", text="second")
    assert seen(renderer, steered) == "[added to the running turn: second]\n"
    seen(renderer, event("turn.completed"), event("session.waiting", None))
    assert renderer.unsettled
    assert not renderer.busy
    assert seen(renderer, received("d3", "t2")) == "[answered in the next turn: third]\n"
    seen(renderer, event("turn.completed", "t2"))
    assert not renderer.unsettled


def test_an_interrupting_message_says_interrupted_only() -> None:
    renderer = Renderer()
    renderer.sending("d1", "first")
    seen(renderer, received("d1"), event("turn.started"))
    renderer.sending("d2", "second", interrupts=True)
    failed = event("turn.failed", status="cancelled", code="preempted", message="turn interrupted")
    assert seen(renderer, failed, received("d2", "t2")) == "[interrupted]\n"
    assert not renderer.failed


def test_a_turn_that_a_restart_interrupts_carries_its_messages_on() -> None:
    renderer = Renderer()
    renderer.sending("d1", "first")
    seen(renderer, received("d1"), event("turn.started"))
    seen(renderer, event("turn.failed", status="interrupted", code="host_restarted", message=""))
    assert renderer.unsettled
    shown = seen(renderer, event("turn.started", "t2", attempt=2, resumes="t1"))
    assert "attempt 2" in shown
    seen(renderer, event("turn.completed", "t2"))
    assert not renderer.unsettled


def test_a_message_from_elsewhere_is_shown() -> None:
    assert "(elsewhere) hello" in seen(Renderer(), received("other", text="hello"))


def test_a_failed_turn_is_an_error_with_its_reason() -> None:
    renderer = Renderer()
    shown = seen(renderer, event("turn.failed", status="failed", code="x", message="It broke."))
    assert shown == "the turn failed: x: It broke.\n"
    assert renderer.failed


def test_cleared_messages_are_settled() -> None:
    renderer = Renderer()
    renderer.sending("d1", "first")
    shown = seen(renderer, event("deliveries.cleared", None, deliveryIds=["d1"], reason="stop"))
    assert "dropped" in shown
    assert not renderer.unsettled


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": "x y", "b": [1]}, "a=x y b=[1]"),
        ("two\nlines", "two lines"),
        (None, ""),
        ("x" * 100, "x" * 71 + "…"),
    ],
)
def test_inline(value: Any, text: str) -> None:
    assert inline(value) == text


def test_lines_wait_for_their_end_and_the_last_one_needs_none() -> None:
    lines = Lines()
    assert lines.feed("ü".encode()[:1]) == []
    assert lines.feed("ü".encode()[1:] + b"\r\nmo") == ["ü"]
    assert lines.feed(b"") == ["mo"]
    assert lines.feed(b"") == []


def test_a_line_piece_starts_on_a_line_of_its_own() -> None:
    stream = io.StringIO()
    terminal = PlainTerminal(stream, 0)
    for piece in (Piece("half"), Piece("whole", line=True), Piece("", line=True)):
        terminal.show(piece)
    assert stream.getvalue() == "half\nwhole\n"
