"""What is said of a call that waits for a person, and of how it was decided."""

from __future__ import annotations

from typing import Any

import pytest

from threadline_github.outbound.approvals import asked, decided


def waiting(**more: Any) -> str:
    given: dict[str, Any] = {"approvers": None, "expires_at": None, **more}
    return asked("deploy", **given, session_id="ses_1", call_id="c1")


def test_a_call_that_waits_says_what_who_and_how() -> None:
    said = waiting(approvers=["user:alice"], expires_at="2025-10-09T09:53:20Z")
    assert said == (
        "**Approval needed**: the agent wants to run `deploy`. To be decided by `user:alice`. "
        "It expires at 2025-10-09 09:53 UTC.\n\n"
        "It is decided where the agent runs, with `threadline session approve ses_1 c1` "
        "(or `deny`), or over HTTP; what the tool is to do is shown there."
    )
    assert "Whoever the tool lets may decide.\n\nIt is decided" in waiting()


@pytest.mark.parametrize(
    ("decision", "by", "reason", "said"),
    [
        ("approved", {"kind": "user", "id": "alice", "name": "Alice"}, None, "**Approved** by"),
        ("denied", {"kind": "user", "id": "bob"}, "Not\nnow, @org/team.", "**Denied** by `bob`"),
        ("expired", None, None, "**Expired: nobody decided in time**: `deploy`"),
        ("superseded", None, "turn interrupted", "**Withdrawn: the turn ended"),
    ],
)
def test_a_decided_call_says_who_and_why(
    decision: str, by: dict[str, Any] | None, reason: str | None, said: str
) -> None:
    text = decided("deploy", decision, by, reason)
    assert text.startswith(said)
    assert ("> Not\n> now, @\u200borg/team." in text) is (decision == "denied")
    assert "interrupted" not in text
