"""Whose bot is meant in a channel that organisations share, where more than one installed the app.

Slack names one installation there, the same for all that is said, whoever speaks and whichever bot
is mentioned. The author's own comes first, when its bot is mentioned or at work in the thread.
https://github.com/slackapi/bolt-js/issues/2008
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from threadline_slack.installing.grants import Grant
from threadline_slack.places import Place, string, team_of
from threadline_slack.words.text import mentions

__all__ = ["author_team", "is_meant", "through"]


def author_team(envelope: Mapping[str, Any]) -> str | None:
    """Return who an author of a shared channel belongs to; None where only one can be meant."""
    event = envelope.get("event")
    if not envelope.get("is_ext_shared_channel") or not isinstance(event, dict):
        return None
    if event.get("type") not in ("app_mention", "message"):
        return None
    message = _message(event)
    named = (string(message.get(name)) for name in ("user_team", "source_team", "team"))
    team = next(filter(None, named), "")
    return team if team not in ("", team_of(envelope)) and team.isalnum() else None


def through(envelope: Mapping[str, Any], grant: Grant) -> dict[str, Any]:
    """Return an event as if it had come through another installation."""
    enterprise, team = grant.key
    authorization = {
        "enterprise_id": enterprise,
        "team_id": team,
        "user_id": grant.me.user,
        "is_bot": True,
        "is_enterprise_install": team is None,
    }
    return {
        **envelope,
        "authorizations": [authorization],
        "context_team_id": team,
        "context_enterprise_id": enterprise,
    }


def is_meant(envelope: Mapping[str, Any], grant: Grant, joined: Callable[[str], bool]) -> bool:
    """Tell whether an event, as it is through an installation, is for that one's bot."""
    event = envelope["event"]
    message = _message(event)
    if grant.me.user and mentions(message, grant.me.user):
        return True
    root = string(message.get("thread_ts")) or string(message.get("ts"))
    return joined(Place(team_of(envelope), string(event.get("channel")), root).token)


def _message(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message of an event; of a change the one that was changed."""
    found = (event.get(name) for name in ("message", "previous_message"))
    return next((one for one in found if isinstance(one, dict)), event)
