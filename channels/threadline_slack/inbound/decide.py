"""What an event of Slack means for the agent: nothing, a question, a stop, an alert; no I/O.

One post may come as ``message`` and as ``app_mention``, each with an event id of its own, and again
when it was not acknowledged. It is known by its team, channel and ``ts``, whatever carried it.
https://docs.slack.dev/reference/events/message
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from threadline_slack.inbound.watch import Watch, fingerprint, own_content
from threadline_slack.places import TOKEN, Me, Person, Place, known, person_of, string, team_of
from threadline_slack.words.text import File, Text, is_stop, mentions, read

__all__ = [
    "TOKEN",
    "Ask",
    "Decision",
    "Gone",
    "Ignore",
    "Me",
    "Person",
    "Place",
    "Rules",
    "Stop",
    "decide",
    "team_of",
]

_TS = re.compile(r"[0-9]+\.[0-9]+")
# What nobody said. A subtype that Slack may add is heard: it is the author and the text that count.
_NOTICES = ("message_", "channel_", "group_", "bot_add", "bot_remove", "pinned_", "unpinned_")
_TOMBSTONE = "tombstone"


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
class Ignore:
    """Nothing is to be done, for a reason."""

    reason: str
    place: Place | None = None
    person: Person | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A message for the agent.

    ``watch`` is there when nobody asked: the channel is watched. ``change`` names the new content
    of a post that its app changed; ``at`` is when it was posted, or changed, as Slack has it.
    ``digest``: it is one of a storm, ``place`` is where the storm is handled.
    """

    place: Place
    ts: str
    person: Person
    text: str
    said: Text = field(default_factory=lambda: Text(""))
    mentioned: bool = False
    watch: Watch | None = None
    change: str = ""
    at: str = ""
    digest: bool = False

    @property
    def delivery_id(self) -> str:
        """The post's own name, the same for its twins and retries; a change has one for itself."""
        name = f"{self.place.team}:{self.place.channel}:{self.ts}"
        return f"{name}:{self.change}" if self.change else name

    @property
    def opens(self) -> bool:
        """True for an alert that is no answer to anything: the first post of its thread."""
        first = self.digest or self.place.root == self.ts
        return self.watch is not None and first and not self.change

    @property
    def files(self) -> Collection[File]:
        """The files of the message."""
        return self.said.files


@dataclass(frozen=True, slots=True)
class Stop:
    """The whole message says stop; what was asked behind it goes on.

    ``addressed``: to the agent; else it may be meant for another.
    """

    place: Place
    ts: str
    person: Person
    addressed: bool = True


@dataclass(frozen=True, slots=True)
class Gone:
    """A post was deleted; ``root``: its thread's first one, ``own``: the agent's.

    ``place`` is where it was; without ``previous_message``, which Slack may leave out, it is taken
    for a post outside of threads.
    """

    place: Place
    ts: str
    root: bool = False
    own: bool = False


Decision: TypeAlias = Ignore | Ask | Stop | Gone


@dataclass(frozen=True, slots=True)
class _Post:
    """What a decision is made of."""

    event: Mapping[str, Any]
    message: Mapping[str, Any]
    place: Place
    ts: str
    person: Person
    watch: Watch | None
    change: str

    @property
    def is_reply(self) -> bool:
        return self.place.root != self.ts


def decide(
    envelope: Mapping[str, Any],
    me: Me,
    rules: Rules,
    *,
    joined: Callable[[str], bool] = lambda _: False,
    watched: Callable[[str], Watch | None] = lambda _: None,
) -> Decision:
    """Return what an ``event_callback`` asks for; ``joined`` tells whether a token has a session.

    ``watched`` says how a channel is watched, by its id. Nothing here depends on how often, by
    which event or with which retry header a post came.
    """
    event = envelope.get("event")
    if not isinstance(event, dict) or event.get("type") not in ("message", "app_mention"):
        return Ignore("an event that is not a message")
    me = known(envelope, me)
    if (deleted := _deleted(event)) is not None:
        return _gone(envelope, event, deleted, me, rules)
    watch = watched(string(event.get("channel")))
    message = _message(event, me, watch)
    if isinstance(message, Ignore):
        return message
    if me.wrote(message):
        return Ignore("the agent's own post")
    place, ts = _place(envelope, event, message, rules), string(message.get("ts"))
    if place is None or _TS.fullmatch(ts) is None:
        return Ignore("a post without a place")
    person = person_of(envelope, message, place.team)
    if person is None:
        return Ignore("a post whose author is not known")
    if (refused := _refused(person, rules, watch)) is not None:
        return Ignore(refused, place, person)
    change = fingerprint(message) if person.bot and message is not event and watch else ""
    return _meant(_Post(event, message, place, ts, person, watch, change), me, rules, joined)


def _meant(post: _Post, me: Me, rules: Rules, joined: Callable[[str], bool]) -> Decision:
    watch, place, person = post.watch, post.place, post.person
    is_alert = person.bot and watch is not None
    mentioned = _is_mention(post, me)
    addressed = mentioned or _is_direct(post.event)
    heard = joined(place.token)
    if is_stop(string(post.message.get("text")), bot=me.user) and not post.message.get("files"):
        follows = rules.follow_ups and watch is None and post.is_reply and heard
        if not is_alert and (addressed or heard or watch is not None):
            return Stop(place, post.ts, person, addressed or follows)
    if watch is not None and (post.change or not addressed):
        return _alert(post, watch)
    if not addressed and not (rules.follow_ups and post.is_reply and heard):
        return Ignore("nobody asked the agent", place, person)
    said = read(post.message, bot=me.user)
    text = said.text or _unsaid(said, mentioned)
    return Ask(place, post.ts, person, text, said, mentioned, at=post.ts)


def _alert(post: _Post, watch: Watch) -> Ask | Ignore:
    """Return a post in a watched channel that nobody addressed to the agent."""
    if post.is_reply and (post.change or watch.posts == "top_level"):
        return Ignore("a reply in a watched channel", post.place, post.person)
    said = read(own_content(post.message))
    if not said.text and not said.files:
        return Ignore("a post that says nothing", post.place, post.person)
    at = string(post.event.get("event_ts")) if post.change else post.ts
    return Ask(
        post.place,
        post.ts,
        post.person,
        said.text or _unsaid(said),
        said,
        watch=watch,
        change=post.change,
        at=at if _TS.fullmatch(at) else post.ts,
    )


def _is_mention(post: _Post, me: Me) -> bool:
    """Tell whether a post mentions the agent; in an alert, in its own words."""
    if me.user is not None and mentions(post.message, me.user):
        return True
    quoted = post.watch is not None and post.person.bot and me.user is not None
    return bool(post.event["type"] == "app_mention") and not quoted


def _unsaid(said: Text, mentioned: bool = False) -> str:
    """Return what to tell the model of a post without words."""
    if said.files:
        return f"(No words, only: {', '.join(file.name for file in said.files)})"
    return "(I mentioned you without a question.)" if mentioned else "(A message without words.)"


def _message(event: Mapping[str, Any], me: Me, watch: Watch | None) -> Mapping[str, Any] | Ignore:
    """Return the message of an event.

    Of an edit only when it adds the first mention, or when an app changes what its post in a
    watched channel says.
    """
    subtype = event.get("subtype")
    if _is_spoken(subtype):
        return event
    if subtype != "message_changed":
        return Ignore(f"a message of subtype {subtype}")
    now, before = event.get("message"), event.get("previous_message")
    if not isinstance(now, dict) or not _is_spoken(now.get("subtype")):
        return Ignore("an edit that is not of a message")
    if watch is not None and now.get("bot_id"):
        same = isinstance(before, dict) and fingerprint(now) == fingerprint(before)
        return Ignore("an edit that says nothing new") if same else now
    if not now.get("user"):
        return Ignore("an edit whose author is not known")
    if me.user is None or not now.get("edited") or not mentions(now, me.user):
        return Ignore("an edit")
    if not isinstance(before, dict) or mentions(before, me.user):
        return Ignore("an edit of a post that the agent has")
    return now


def _is_spoken(subtype: Any) -> bool:
    """Tell whether a post of this subtype is somebody's words, and not a notice."""
    if not isinstance(subtype, str):
        return subtype is None
    return subtype != _TOMBSTONE and not subtype.startswith(_NOTICES)


def _deleted(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the post that an event says is deleted; a root with replies leaves a tombstone."""
    now, before = event.get("message"), event.get("previous_message")
    post = before if isinstance(before, dict) else {}
    if event.get("subtype") == "message_deleted":
        return {**post, "ts": event.get("deleted_ts") or post.get("ts")}
    if event.get("subtype") == "message_changed" and isinstance(now, dict):
        return {**now, **post} if now.get("subtype") == _TOMBSTONE else None
    return None


def _gone(
    envelope: Mapping[str, Any],
    event: Mapping[str, Any],
    post: Mapping[str, Any],
    me: Me,
    rules: Rules,
) -> Gone | Ignore:
    place, ts = _place(envelope, event, post, rules), string(post.get("ts"))
    if place is None or _TS.fullmatch(ts) is None:
        return Ignore("a deletion without a place")
    return Gone(place, ts, place.root == ts, me.wrote(post))


def _place(
    envelope: Mapping[str, Any],
    event: Mapping[str, Any],
    message: Mapping[str, Any],
    rules: Rules,
) -> Place | None:
    channel, ts = string(event.get("channel")), string(message.get("ts"))
    thread = string(message.get("thread_ts"))
    team = team_of(envelope)
    flat = rules.flat_dms and _is_direct(event) and thread in ("", ts)
    place = Place(team, channel, None if flat else thread or ts)
    return place if re.fullmatch(TOKEN, place.token) else None


def _refused(person: Person, rules: Rules, watch: Watch | None) -> str | None:
    """Return why somebody is not heard; a watched channel is there for the posts of bots."""
    if person.bot and watch is None and not rules.bots:
        return "a post of another bot"
    if person.external and not rules.external:
        return "a person of another organisation"
    is_alert = person.bot and watch is not None and person.user not in rules.blocked
    return None if is_alert or rules.admits(person.user) else "a person who may not ask"


def _is_direct(event: Mapping[str, Any]) -> bool:
    return event.get("channel_type") == "im" or string(event.get("channel")).startswith("D")
