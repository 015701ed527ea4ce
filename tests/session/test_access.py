"""Who may do what to a session."""

from __future__ import annotations

import pytest

from threadline.principal import Principal
from threadline.session.access import Action, channel_principal, may
from threadline.store.base import SessionRecord

ALICE = Principal("user", "alice")
BOB = Principal("user", "bob")
OPERATOR = Principal("user", "root", operator=True)
ACTIONS: list[Action] = ["read", "send", "stop", "delete"]


def session(owner: Principal, channel: str = "slack") -> SessionRecord:
    return SessionRecord("ses_a", channel, "chat", owner, "")


@pytest.mark.parametrize("action", ACTIONS)
def test_the_owner_may_do_everything_through_any_channel(action: Action) -> None:
    again = Principal("user", "alice", name="Other name", attributes={"x": 1})
    assert may(again, session(ALICE), action, via="http")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_stranger_may_do_nothing(action: Action) -> None:
    assert not may(BOB, session(ALICE), action, via="slack")
    assert not may(Principal("team", "alice"), session(ALICE), action, via="slack")


@pytest.mark.parametrize("action", ACTIONS)
def test_an_operator_may_read(action: Action) -> None:
    assert may(OPERATOR, session(ALICE), action, via="http") is (action == "read")


@pytest.mark.parametrize("action", ACTIONS)
def test_whoever_a_shared_channel_admits_may_speak_there_only(action: Action) -> None:
    shared = session(channel_principal("slack"))
    assert may(BOB, shared, action, via="slack")
    assert not may(BOB, shared, action, via="http")
    assert not may(BOB, session(channel_principal("slack"), "github"), action, via="slack")
    assert not may(BOB, session(channel_principal("slack"), "github"), action, via="github")


def test_no_caller_can_pass_for_a_channel_by_its_name() -> None:
    shared = session(channel_principal("slack"))
    assert not may(Principal("user", "slack"), shared, "send", via="http")
