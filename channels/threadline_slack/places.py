"""Who speaks and where, as an event of Slack says it; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from threadline_slack.words.tokens import clean

__all__ = ["TOKEN", "Me", "Person", "Place", "known", "person_of", "string", "team_of"]

TOKEN = r"slack:[TE][A-Z0-9]+:[CDG][A-Z0-9]+:(?:[0-9]+\.[0-9]+|dm)"
_FLAT = "dm"
_NAME = 80  # characters


@dataclass(frozen=True, slots=True)
class Me:
    """The app's own ids, as far as they are known; an event names the first and the last too."""

    user: str | None = None
    bot: str | None = None
    app: str | None = None

    def wrote(self, message: Mapping[str, Any]) -> bool:
        """Tell whether a message is the app's own: by its user, its bot or its app."""
        profile = message.get("bot_profile")
        app = message.get("app_id") or (profile.get("app_id") if isinstance(profile, dict) else "")
        pairs = (self.user, message.get("user")), (self.bot, message.get("bot_id")), (self.app, app)
        return any(own and own == given for own, given in pairs)


@dataclass(frozen=True, slots=True)
class Person:
    """Who posted: a user, or a bot that has none; ``team`` is their own, if Slack says it.

    ``name`` is what a bot calls itself in the post.
    """

    team: str
    user: str
    bot: bool = False
    external: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation is; ``root`` is None outside of threads, in a flat conversation."""

    team: str
    channel: str
    root: str | None

    @property
    def token(self) -> str:
        """The continuation token."""
        return f"slack:{self.team}:{self.channel}:{self.root or _FLAT}"

    @classmethod
    def of(cls, token: str) -> Place:
        """Read a token; raises ValueError when it is none."""
        if re.fullmatch(TOKEN, token) is None:
            raise ValueError(f"{token!r} is not a token of this channel.")
        _, team, channel, root = token.split(":")
        return cls(team, channel, None if root == _FLAT else root)


def known(envelope: Mapping[str, Any], me: Me) -> Me:
    """Return the app's ids, those that the envelope names before those that we know."""
    found = _authorization(envelope)
    user = string(found.get("user_id")) if found.get("is_bot", True) else ""
    return Me(user or me.user, me.bot, string(envelope.get("api_app_id")) or me.app)


def team_of(envelope: Mapping[str, Any]) -> str:
    """Return the installed team; an installation for a whole organisation has the event's.

    In a channel that others share the event's may be anybody's: there it is the organisation's id.
    """
    authorization = _authorization(envelope)
    own = authorization.get("team_id") or envelope.get("context_team_id")
    if authorization.get("is_enterprise_install") and envelope.get("is_ext_shared_channel"):
        own = own or authorization.get("enterprise_id")
    return string(own) or string(envelope.get("team_id"))


def _authorization(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    found = envelope.get("authorizations")
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, dict) else {}


def person_of(
    envelope: Mapping[str, Any], message: Mapping[str, Any], installed: str
) -> Person | None:
    """Return who posted a message; None when it names nobody. ``installed`` is the app's team."""
    user, bot = string(message.get("user")), string(message.get("bot_id"))
    if not user and not bot:
        return None
    team = string(message.get("user_team")) or string(message.get("source_team"))
    team = team or string(message.get("team")) or installed
    authorization = _authorization(envelope)
    org_wide = bool(authorization.get("is_enterprise_install"))
    ours = installed, authorization.get("enterprise_id")  # Slack may name either as a user's team
    external = team not in ours and (not org_wide or bool(envelope.get("is_ext_shared_channel")))
    is_bot = bool(bot) or message.get("subtype") == "bot_message"
    profile = message.get("bot_profile")
    named = string(message.get("username")) if is_bot else ""
    if is_bot and not named and isinstance(profile, dict):
        named = string(profile.get("name"))
    return Person(team, user or bot, is_bot, external, " ".join(clean(named).split())[:_NAME])


def string(value: Any) -> str:
    """Return a value that is a string, else nothing."""
    return value if isinstance(value, str) else ""
