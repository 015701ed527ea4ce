"""The pure parts: what a message is, which hosts are allowed, what a log says."""

from __future__ import annotations

from typing import Any

import pytest

from threadline_mcp.hosts import allowed_hosts, allowed_origins
from threadline_mcp.message import Message, accepts_events, read
from threadline_mcp.progress import sentence


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"id": 1, "method": "ping"}', Message(id=1)),
        (b'{"id": "a", "params": {"_meta": {"progressToken": 0}}}', Message("a", 0)),
        (b'{"id": true, "params": {"_meta": {"progressToken": true}}}', Message()),
        (b'{"id": 1.5, "params": {"_meta": []}}', Message()),
        (b'{"id": null, "params": null}', Message()),
        (
            b'{"method": "notifications/cancelled", "params": {"requestId": 7}}',
            Message(cancels=7),
        ),
        (
            b'{"id": 2, "method": "notifications/cancelled", "params": {"requestId": 7}}',
            Message(id=2),
        ),
        (b"[1]", Message()),
        (b"{", Message()),
        (b"", Message()),
    ],
)
def test_a_message_is_read(body: bytes, message: Message) -> None:
    assert read(body) == message


@pytest.mark.parametrize(
    ("accept", "events"),
    [
        ("application/json, text/event-stream", True),
        ("application/json,TEXT/Event-Stream;q=0.5", True),
        ("*/*", True),
        ("text/*", True),
        ("application/json", False),
        ("text/html", False),
        ("", False),
    ],
)
def test_who_takes_events(accept: str, events: bool) -> None:
    assert accepts_events(accept) is events


@pytest.mark.parametrize(
    ("url", "local", "there", "absent"),
    [
        (
            "https://agents.example.com/oncall/",
            "10.0.0.7",
            {"agents.example.com", "agents.example.com:*", "10.0.0.7:*", "localhost:*"},
            {"example.com", "evil.example"},
        ),
        ("http://[2001:db8::1]:3000/", "2001:db8::1", {"[2001:db8::1]:*"}, {"2001:db8::1:*"}),
        ("http://127.0.0.1:3000/", None, {"127.0.0.1:3000", "[::1]", "localhost"}, {"", ":*"}),
    ],
)
def test_the_hosts_own_names(
    url: str, local: str | None, there: set[str], absent: set[str]
) -> None:
    names = set(allowed_hosts(url, local))
    assert there <= names
    assert not absent & names


def test_the_hosts_own_pages() -> None:
    origins = allowed_origins("https://agents.example.com/oncall/")
    assert "https://agents.example.com" in origins
    assert "http://localhost:*" in origins
    assert not any("agents.example.com:" in origin for origin in origins)


@pytest.mark.parametrize(
    ("type_", "data", "said"),
    [
        ("turn.queued", {"position": 2}, "Waiting for a free place, at position 2."),
        ("turn.started", {"attempt": 1}, "The agent has begun."),
        (
            "actions.requested",
            {"calls": [{"toolName": "a"}, {"toolName": "b"}, {"toolName": "a"}]},
            "Calling a, b.",
        ),
        ("action.approval_requested", {"toolName": "a"}, "a waits for a person to approve it."),
        ("message.completed", {"finishReason": "tool_calls", "text": "Looking."}, "Looking."),
        ("message.completed", {"finishReason": "tool_calls", "text": ""}, None),
        ("message.completed", {"finishReason": "stop", "text": "The answer."}, None),
        ("message.appended", {"delta": "x"}, None),
    ],
)
def test_what_a_person_who_waits_hears(type_: str, data: dict[str, Any], said: str | None) -> None:
    assert sentence({"type": type_, "data": data}) == said


def test_a_long_text_is_cut() -> None:
    data = {"finishReason": "tool_calls", "text": "x" * 1000}
    said = sentence({"type": "message.completed", "data": data})
    assert said is not None
    assert len(said) == 300
    assert said.endswith("…")
