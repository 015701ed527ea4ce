"""What is said of a tool call that waits for a person; no I/O.

It is decided over HTTP or on the command line, or in another channel: nobody presses a button here.
What the tool is given is not shown, since a repository may be public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from threadline_github.outbound.words import public, quoted

__all__ = ["asked", "decided"]

_OUTCOMES = {
    "approved": "Approved",
    "denied": "Denied",
    "expired": "Expired: nobody decided in time",
    "superseded": "Withdrawn: the turn ended before anybody decided",
}


def asked(
    tool: str,
    approvers: Sequence[Any] | None,
    expires_at: str | None,
    *,
    session_id: str,
    call_id: str,
) -> str:
    """Return the comment on a call that waits; ``expires_at`` is an ISO instant."""
    named = ", ".join(quoted(str(one)) for one in approvers or ())
    who = f"To be decided by {named}." if named else "Whoever the tool lets may decide."
    until = f" It expires at {_moment(expires_at)}." if expires_at else ""
    command = f"threadline session approve {session_id} {call_id}"
    return (
        f"**Approval needed**: the agent wants to run {quoted(tool)}. {who}{until}\n\n"
        f"It is decided where the agent runs, with {quoted(command)} (or `deny`), or over HTTP; "
        "what the tool is to do is shown there."
    )


def decided(tool: str, decision: str, by: Mapping[str, Any] | None, reason: str | None) -> str:
    """Return the comment on a call that was decided: what it was, and by whom."""
    outcome = _OUTCOMES.get(decision, decision.capitalize())
    by_whom = f" by {quoted(str(by.get('name') or by.get('id')))}" if by else ""
    said = reason if reason and decision != "superseded" else ""
    why = "\n\n" + "\n".join(f"> {line}" for line in public(said).split("\n")) if said else ""
    return f"**{outcome}**{by_whom}: {quoted(tool)}{why}"


def _moment(at: str) -> str:
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
