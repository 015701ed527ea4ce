"""The approval card: what is asked, two buttons, and afterwards who decided; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from threadline_slack.compose import Message
from threadline_slack.tokens import escape

__all__ = ["APPROVE", "DENY", "asked", "button_value", "decided", "decision_of"]

APPROVE, DENY = "threadline:approve", "threadline:deny"
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


def asked(tool: str, input_: Any, value: str, approvers: list[Any] | None) -> Message:
    """Return the card of a call that waits."""
    who = f"\nDecided by: {escape(', '.join(map(str, approvers)))}" if approvers else ""
    text = f"The agent wants to run *{escape(tool)}*.{who}\n{_code(input_)}"
    buttons = [
        _button("Approve", APPROVE, value, "primary"),
        _button("Deny", DENY, value, "danger"),
    ]
    return Message(
        f"Approval needed: {escape(tool)}",
        [_section(text), {"type": "actions", "elements": buttons}],
    )


def decided(tool: str, decision: str, by: Mapping[str, Any] | None, reason: str | None) -> Message:
    """Return the card of a call that was decided: no buttons, and who it was."""
    outcome = _OUTCOMES.get(decision, escape(decision))
    by_whom = f" by {_who(by)}" if by else ""
    why = f"\n>{escape(reason)}" if reason else ""
    text = f"{outcome}{by_whom}: {escape(tool)}{why}"
    return Message(text, [_section(text)])


def _who(by: Mapping[str, Any]) -> str:
    """Return a mention that Slack shows by name; people from elsewhere by their own name."""
    name = str(by.get("name") or by.get("id"))
    if by.get("kind") != "slack":
        return escape(name)
    return f"<@{escape(str(by.get('id', '')).rpartition(':')[2])}>"


def _code(value: Any) -> str:
    shown = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    if len(shown) > _INPUT:
        shown = shown[:_INPUT] + "\n…"
    return f"```\n{escape(shown.replace('```', chr(0x200B).join('```')))}\n```"


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}}


def _button(label: str, action: str, value: str, style: str) -> dict[str, Any]:
    return {
        "type": "button",
        "text": {"type": "plain_text", "text": label},
        "action_id": action,
        "value": value,
        "style": style,
    }
