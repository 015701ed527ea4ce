"""What an event of Slack means for the agent: nothing, a question, or a stop; no I/O.

One post may come as ``message`` and as ``app_mention``, each with an event id of its own, and again
when it was not acknowledged. It is known by its team, channel and ``ts``, whatever carried it.
https://docs.slack.dev/reference/events/message
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from threadline_slack.text import File, Text, is_stop, mentions, read

__all__ = [
    "TOKEN",
    "Ask",
    "Decision",
    "Ignore",
    "Me",
    "Person",
    "Place",
    "Rules",
    "Stop",
    "decide",
    "team_of",
]

TOKEN = r"slack:[TE][A-Z0-9]+:[CDG][A-Z0-9]+:(?:[0-9]+\.[0-9]+|dm)"
_TS = re.compile(r"[0-9]+\.[0-9]+")
_SPOKEN = frozenset({None, "", "file_share", "thread_broadcast", "me_message", "bot_message"})
_FLAT = "dm"


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
class Rules:
    """Who is heard, and where.

    ``follow_ups``: posts in a thread that the agent is in need no mention. ``flat_dms``: the posts
    of a direct conversation outside of threads are one session. ``external``: people of other
    organisations may ask. ``bots``: other bots may ask, ``bot_turns`` times before a person posts
    in the thread again. ``allowed``: user ids, None for everybody; ``blocked``: never these.
    """

    follow_ups: bool = True
    flat_dms: bool = False
    external: bool = False
    bots: bool = False
    bot_turns: int = 5
    allowed: frozenset[str] | None = None
    blocked: frozenset[str] = frozenset()

    def admits(self, user: str) -> bool:
        """Tell whether the operator lets this user speak to the agent."""
        return user not in self.blocked and (self.allowed is None or user in self.allowed)


@dataclass(frozen=True, slots=True)
class Person:
    """Who posted: a user, or a bot that has none; ``team`` is their own, if Slack says it."""

    team: str
    user: str
    bot: bool = False
    external: bool = False


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


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing is to be done, for a reason."""

    reason: str
    place: Place | None = None
    person: Person | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A message for the agent."""

    place: Place
    ts: str
    person: Person
    text: str
    said: Text = field(default_factory=lambda: Text(""))
    mentioned: bool = False

    @property
    def delivery_id(self) -> str:
        """The post's own name, the same for its twins and retries."""
        return f"{self.place.team}:{self.place.channel}:{self.ts}"

    @property
    def files(self) -> Collection[File]:
        """The files of the message."""
        return self.said.files


@dataclass(frozen=True, slots=True)
class Stop:
    """The whole message says stop; what was asked behind it goes on."""

    place: Place
    ts: str
    person: Person


Decision: TypeAlias = Ignore | Ask | Stop


def decide(
    envelope: Mapping[str, Any],
    me: Me,
    rules: Rules,
    *,
    joined: Callable[[str], bool] = lambda _: False,
) -> Decision:
    """Return what an ``event_callback`` asks for; ``joined`` tells whether a token has a session.

    Nothing here depends on how often, by which event or with which retry header a post came.
    """
    event = envelope.get("event")
    if not isinstance(event, dict) or event.get("type") not in ("message", "app_mention"):
        return Ignore("an event that is not a message")
    me = _known(envelope, me)
    message = _message(event, me)
    if isinstance(message, Ignore):
        return message
    if me.wrote(message):
        return Ignore("the agent's own post")
    place, ts = _place(envelope, event, message, rules), str(message.get("ts", ""))
    if place is None or _TS.fullmatch(ts) is None:
        return Ignore("a post without a place")
    person = _person(envelope, message, place.team)
    if isinstance(person, Ignore):
        return person
    if (refused := _refused(person, rules)) is not None:
        return Ignore(refused, place, person)
    return _asked(event, message, me, rules, place, ts, person, joined)


def _asked(
    event: Mapping[str, Any],
    message: Mapping[str, Any],
    me: Me,
    rules: Rules,
    place: Place,
    ts: str,
    person: Person,
    joined: Callable[[str], bool],
) -> Decision:
    mentioned = event["type"] == "app_mention" or (
        me.user is not None and mentions(message, me.user)
    )
    follows = rules.follow_ups and place.root != ts and joined(place.token)
    if not (mentioned or _is_direct(event) or follows):
        return Ignore("nobody asked the agent", place, person)
    if is_stop(_string(message.get("text")), bot=me.user) and not message.get("files"):
        return Stop(place, ts, person)
    said = read(message, bot=me.user)
    return Ask(place, ts, person, said.text or _unsaid(said), said, mentioned)


def _unsaid(said: Text) -> str:
    """Return what to tell the model of a post without words."""
    if said.files:
        return f"(No words, only: {', '.join(file.name for file in said.files)})"
    return "(I mentioned you without a question.)"


def _known(envelope: Mapping[str, Any], me: Me) -> Me:
    """Return the app's ids, those that the envelope names before those that we know."""
    found = _authorization(envelope)
    user = _string(found.get("user_id")) if found.get("is_bot", True) else ""
    return Me(user or me.user, me.bot, _string(envelope.get("api_app_id")) or me.app)


def _message(event: Mapping[str, Any], me: Me) -> Mapping[str, Any] | Ignore:
    """Return the message of an event; of an edit only when it adds the first mention."""
    subtype = event.get("subtype")
    if subtype in _SPOKEN:
        return event
    if subtype != "message_changed":
        return Ignore(f"a message of subtype {subtype}")
    now, before = event.get("message"), event.get("previous_message")
    if not isinstance(now, dict) or now.get("subtype") not in _SPOKEN or not now.get("user"):
        return Ignore("an edit whose author is not known")
    if me.user is None or not now.get("edited") or not mentions(now, me.user):
        return Ignore("an edit")
    if not isinstance(before, dict) or mentions(before, me.user):
        return Ignore("an edit of a post that the agent has")
    return now


def _place(
    envelope: Mapping[str, Any],
    event: Mapping[str, Any],
    message: Mapping[str, Any],
    rules: Rules,
) -> Place | None:
    channel, ts = _string(event.get("channel")), _string(message.get("ts"))
    thread = _string(message.get("thread_ts"))
    team = team_of(envelope)
    flat = rules.flat_dms and _is_direct(event) and thread in ("", ts)
    place = Place(team, channel, None if flat else thread or ts)
    return place if re.fullmatch(TOKEN, place.token) else None


def team_of(envelope: Mapping[str, Any]) -> str:
    """Return the installed team; an installation for a whole organisation has the event's."""
    own = _authorization(envelope).get("team_id") or envelope.get("context_team_id")
    return _string(own) or _string(envelope.get("team_id"))


def _authorization(envelope: Mapping[str, Any]) -> Mapping[str, Any]:
    found = envelope.get("authorizations")
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, dict) else {}


def _person(
    envelope: Mapping[str, Any], message: Mapping[str, Any], installed: str
) -> Person | Ignore:
    user, bot = _string(message.get("user")), _string(message.get("bot_id"))
    if not user and not bot:
        return Ignore("a post whose author is not known")
    team = _string(message.get("user_team")) or _string(message.get("source_team"))
    team = team or _string(message.get("team")) or installed
    org_wide = bool(_authorization(envelope).get("is_enterprise_install"))
    external = team != installed and (not org_wide or bool(envelope.get("is_ext_shared_channel")))
    is_bot = bool(bot) or message.get("subtype") == "bot_message"
    return Person(team, user or bot, is_bot, external)


def _refused(person: Person, rules: Rules) -> str | None:
    if person.bot and not rules.bots:
        return "a post of another bot"
    if person.external and not rules.external:
        return "a person of another organisation"
    return None if rules.admits(person.user) else "a person who may not ask"


def _is_direct(event: Mapping[str, Any]) -> bool:
    return event.get("channel_type") == "im" or _string(event.get("channel")).startswith("D")


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
