"""The approval card: what is asked, two buttons, and afterwards who decided; and Stop; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from threadline_slack.words.compose import Message
from threadline_slack.words.tokens import escape

__all__ = [
    "APPROVE",
    "DENY",
    "STOP",
    "asked",
    "button_value",
    "decided",
    "decision_of",
    "stop_button",
    "too_late",
    "who",
]

APPROVE, DENY, STOP = "threadline:approve", "threadline:deny", "threadline:stop"
_INPUT = 2_500
_OUTCOMES = {
    "approved": ":white_check_mark: *Approved*",
    "denied": ":no_entry: *Denied*",
    "expired": ":hourglass: *Expired*: nobody decided in time",
    "superseded": ":fast_forward: *Withdrawn*: the turn ended before anybody decided",
}


def button_value(session_id: str, call_id: str) -> str:
    """Return what both buttons carry."""
    return f"{session_id}/{call_id}"


def decision_of(value: str) -> tuple[str, str] | None:
    """Return session and call of a button; None when the value is not ours."""
    session_id, _, call_id = value.partition("/")
    return (session_id, call_id) if session_id and call_id else None


def stop_button(token: str) -> dict[str, Any]:
    """Return the actions block that stops what a conversation runs, by its continuation token."""
    button = {
        "type": "button",
        "text": {"type": "plain_text", "text": "Stop"},
        "action_id": STOP,
        "value": token,
    }
    return {"type": "actions", "elements": [button]}


def asked(
    tool: str, input_: Any, value: str, approvers: list[Any] | None, expires_at: str | None
) -> Message:
    """Return the card of a call that waits; ``expires_at`` is an ISO instant."""
    asks = f"The agent wants to run *{escape(tool)}*."
    buttons = [
        _button("Approve", APPROVE, value, "primary"),
        _button("Deny", DENY, value, "danger"),
    ]
    return Message(
        f"Approval needed: {escape(tool)}",
        [
            _section(f"{asks}\n{_code(input_)}"),
            _context(_deciders(approvers) + _until(expires_at)),
            {"type": "actions", "elements": buttons},
        ],
    )


def decided(
    tool: str, input_: Any, decision: str, by: Mapping[str, Any] | None, reason: str | None
) -> Message:
    """Return the card of a call that was decided: no buttons, and who it was."""
    outcome = _OUTCOMES.get(decision, escape(decision))
    by_whom = f" by {who(by)}" if by else ""
    why = f"\n>{escape(reason)}" if reason and decision != "superseded" else ""
    text = f"{outcome}{by_whom}: *{escape(tool)}*{why}"
    return Message(text, [_section(f"{text}\n{_code(input_)}")])


def too_late(resolved: Mapping[str, Any]) -> str:
    """Return what to tell who pressed when it was over, by ``action.approval_resolved``'s data."""
    decision, by = str(resolved.get("decision")), resolved.get("by")
    if by and decision in ("approved", "denied"):
        return f"Too late: {who(by)} has {decision} this already."
    return "Too late: this waits no more. It " + (
        "expired before anybody decided." if decision == "expired" else "was withdrawn."
    )


def who(by: Mapping[str, Any]) -> str:
    """Return a mention that Slack shows by name; people from elsewhere by their own name."""
    name = str(by.get("name") or by.get("id"))
    if by.get("kind") != "slack":
        return escape(name)
    return f"<@{escape(str(by.get('id', '')).rpartition(':')[2])}>"


def _deciders(approvers: list[Any] | None) -> str:
    named = ", ".join(map(_approver, map(str, approvers or ())))
    return f"To be decided by {named}." if named else "Whoever the tool lets may decide."


def _approver(key: str) -> str:
    """Return an approver as people read it: ``slack:T1:U1``, ``group:sre``, another's key."""
    kind, _, identity = key.partition(":")
    if kind == "slack":
        return f"<@{escape(identity.rpartition(':')[2])}>"
    return f"group {escape(identity)}" if kind == "group" else escape(key)


def _until(expires_at: str | None) -> str:
    if not expires_at:
        return ""
    moment = datetime.fromisoformat(expires_at)
    shown = moment.strftime("%Y-%m-%d %H:%M UTC")
    return f" Expires <!date^{int(moment.timestamp())}^{{date_short_pretty}} at {{time}}|{shown}>."


def _code(value: Any) -> str:
    shown = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    shown = escape(shown.replace("```", chr(0x200B).join("```")))
    if len(shown) > _INPUT:
        shown = re.sub(r"&[a-z]*$", "", shown[:_INPUT]) + "\n…"
    return f"```\n{shown}\n```"


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text[:2000]}]}


def _button(label: str, action: str, value: str, style: str) -> dict[str, Any]:
    return {
        "type": "button",
        "text": {"type": "plain_text", "text": label},
        "action_id": action,
        "value": value,
        "style": style,
    }
