"""Slack's mrkdwn to plain text, with the ids of who and what is mentioned kept.

One pass, left to right: a token is read as a token, an entity is decoded, and what comes out is
never looked at again. So what a person typed to look like a mention stays the text they typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from threadline_slack.words.tokens import ENTITY, decode, decode_if_encoded

__all__ = ["Reader", "mentioned_users"]

_TOKEN_OR_ENTITY = re.compile(rf"<([^<>]+)>|{ENTITY.pattern}")
_USER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_SCHEME = re.compile(r"^(?:https?://|mailto:|tel:)", re.IGNORECASE)


def mentioned_users(mrkdwn: str) -> list[str]:
    """Return the ids of the people a mrkdwn text mentions, in order."""
    return _USER.findall(mrkdwn)


@dataclass(slots=True)
class Reader:
    """Reads the texts of one message; ``names`` maps ids of users, groups and channels to names."""

    names: Mapping[str, str]
    users: dict[str, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    channels: dict[str, None] = field(default_factory=dict)
    broadcasts: dict[str, None] = field(default_factory=dict)

    def mrkdwn(self, text: str) -> str:
        """Return a mrkdwn text as plain text."""
        return _TOKEN_OR_ENTITY.sub(self._replace, text)

    def plain(self, text: str) -> str:
        """Return a ``plain_text`` or rich text: no tokens in it, entities perhaps."""
        return decode_if_encoded(text)

    def user(self, identity: str, label: str = "") -> str:
        """Return ``@Name`` of a user and keep the id."""
        self.users[identity] = None
        return "@" + self._name(identity, label)

    def group(self, identity: str, label: str = "") -> str:
        """Return ``@name`` of a user group and keep the id."""
        self.groups[identity] = None
        return "@" + self._name(identity, label)

    def channel(self, identity: str, label: str = "") -> str:
        """Return ``#name`` of a channel and keep the id."""
        self.channels[identity] = None
        return "#" + self._name(identity, label)

    def broadcast(self, scope: str) -> str:
        """Return ``@here``, ``@channel`` or ``@everyone`` and keep which."""
        self.broadcasts[scope] = None
        return "@" + scope

    def link(self, url: str, label: str = "") -> str:
        """Return ``label (url)``, or one of the two when the other adds nothing."""
        bare = _SCHEME.sub("", url)
        if not label or label in (url, bare, bare.rstrip("/")):
            return bare if url.startswith(("mailto:", "tel:")) else url
        return f"{label} ({url})"

    def _name(self, identity: str, label: str) -> str:
        return self.names.get(identity) or label.lstrip("@#") or identity

    def _replace(self, found: re.Match[str]) -> str:
        if found.group(1) is None:
            return decode(found.group())
        target, _, label = found.group(1).partition("|")
        target, label = decode(target), decode(label)
        match target[:1]:
            case "@":
                return self.user(target[1:], label)
            case "#":
                return self.channel(target[1:], label)
            case "!":
                return self._special(target[1:], label)
            case _:
                return self.link(target, label)

    def _special(self, command: str, label: str) -> str:
        name, _, argument = command.partition("^")
        if name == "subteam":
            return self.group(argument, label)
        if name == "date":
            return label or argument.partition("^")[0]
        if argument or label.lstrip("@") not in ("", name):
            return label or name
        return self.broadcast(name)
