"""The bodies that Slack sends to the one endpoint, and the clicks in them; no I/O.

https://docs.slack.dev/interactivity/handling-user-interaction
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import orjson

from threadline.errors import InvalidRequest

__all__ = ["Click", "clicks", "parse"]


@dataclass(frozen=True, slots=True)
class Click:
    """A button that a person pressed; ``value`` is what the button carried."""

    action: str
    value: str
    user: str
    team: str
    name: str | None
    channel: str
    ts: str
    label: str = ""


def parse(content_type: str, body: bytes) -> dict[str, Any]:
    """Return what a body says: JSON, a form's ``payload``, or the form; raises InvalidRequest."""
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        return _object(body)
    try:
        form = parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise InvalidRequest("The body is not a form.") from None
    fields = {name: values[-1] for name, values in form.items()}
    return _object(fields["payload"]) if "payload" in fields else fields


def _object(text: bytes | str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        raise InvalidRequest("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    return value


def clicks(payload: Mapping[str, Any]) -> list[Click]:
    """Return the buttons pressed in a ``block_actions`` payload."""
    user, team = _part(payload, "user"), _part(payload, "team")
    container = _part(payload, "container")
    found = payload.get("actions")
    return [
        Click(
            action=str(action.get("action_id", "")),
            value=str(action.get("value") or ""),
            user=str(user.get("id", "")),
            team=str(user.get("team_id") or team.get("id") or ""),
            name=user.get("name") or user.get("username"),
            channel=str(_part(payload, "channel").get("id") or container.get("channel_id") or ""),
            ts=str(container.get("message_ts") or _part(payload, "message").get("ts") or ""),
            label=str(_part(action, "text").get("text", "")),
        )
        for action in (found if isinstance(found, list) else [])
        if isinstance(action, dict)
    ]


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}
