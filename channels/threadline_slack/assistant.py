"""What people do with an agent's threads: they open one, look at something, press stop; no I/O.

An app with the older assistant view hears ``assistant_thread_started`` and
``assistant_thread_context_changed``; one that is declared an agent hears ``app_home_opened``, and
its messages say in ``app_context`` what the person looks at.
https://docs.slack.dev/ai/migrating-to-agent-messaging https://docs.slack.dev/ai/agent-sessions
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from threadline_slack.inbound.decide import Person, Place, Stop, team_of

__all__ = ["Assistant", "Heard", "Opened", "looking_at", "read", "title_of"]

_TS = re.compile(r"[0-9]+\.[0-9]+")
_ID = re.compile(r"[A-Z][A-Z0-9]{2,30}")
_PROMPTS, _SEEN, _TITLE = 4, 3, 80


@dataclass(frozen=True, slots=True)
class Assistant:
    """What a new conversation begins with: up to four ``(title, message)``, under a title."""

    prompts: tuple[tuple[str, str], ...] = ()
    title: str | None = None

    @classmethod
    def of(cls, prompts: Sequence[tuple[str, str]], title: str | None) -> Assistant:
        """Check the prompts; raises ValueError."""
        if len(prompts) > _PROMPTS:
            raise ValueError(f"Slack shows {_PROMPTS} suggested prompts, not {len(prompts)}.")
        for one in prompts:
            if isinstance(one, str) or len(one) != 2 or not all(one):
                raise ValueError(f"A suggested prompt is (title, message), not {one!r}.")
        return cls(tuple((heading, message) for heading, message in prompts), title)

    def to_wire(self) -> list[dict[str, str]]:
        """Return the prompts as Slack takes them."""
        return [{"title": heading, "message": message} for heading, message in self.prompts]


@dataclass(frozen=True, slots=True)
class Opened:
    """A person opened a conversation, or moved on while it is open.

    ``thread`` is that of an assistant thread, None for the messages tab of an agent. ``fresh``: it
    was opened now. ``seen`` is what they look at, as ``looking_at`` has it.
    """

    team: str
    channel: str
    user: str
    thread: str | None
    fresh: bool
    seen: tuple[str, ...] = ()


Heard: TypeAlias = Opened | Stop | None


def read(envelope: Mapping[str, Any]) -> Heard:
    """Return what an event says that is not a message; None for nothing that matters here."""
    event = envelope.get("event")
    if not isinstance(event, dict):
        return None
    match event.get("type"):
        case "assistant_thread_started":
            return _thread(envelope, event, fresh=True)
        case "assistant_thread_context_changed":
            return _thread(envelope, event, fresh=False)
        case "app_home_opened" if event.get("tab") == "messages":
            return _opened(envelope, event.get("channel"), event.get("user"), None, fresh=True)
        case "agent_session_stopped":
            return _stopped(envelope, event)
        case _:
            return None


def _thread(envelope: Mapping[str, Any], event: Mapping[str, Any], *, fresh: bool) -> Opened | None:
    thread = event.get("assistant_thread")
    if not isinstance(thread, dict) or not _is_ts(thread.get("thread_ts")):
        return None
    context = thread.get("context")
    seen = _string(context.get("channel_id")) if isinstance(context, dict) else ""
    return _opened(
        envelope,
        thread.get("channel_id"),
        thread.get("user_id"),
        str(thread["thread_ts"]),
        fresh=fresh,
        seen=(seen,) if _ID.fullmatch(seen) else (),
    )


def _opened(
    envelope: Mapping[str, Any],
    channel: Any,
    user: Any,
    thread: str | None,
    *,
    fresh: bool,
    seen: tuple[str, ...] = (),
) -> Opened | None:
    team = team_of(envelope)
    ids = team, _string(channel), _string(user)
    if not all(_ID.fullmatch(one) for one in ids):
        return None
    return Opened(*ids, thread, fresh, seen)


def _stopped(envelope: Mapping[str, Any], event: Mapping[str, Any]) -> Stop | None:
    thread, ts, user = event.get("thread_ts"), event.get("event_ts"), _string(event.get("user"))
    if not _is_ts(thread) or not _is_ts(ts) or not user:
        return None
    place = Place(team_of(envelope), _string(event.get("channel")), str(thread))
    try:
        Place.of(place.token)
    except ValueError:
        return None
    return Stop(place, str(ts), Person(place.team, user))


def looking_at(message: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the writer of a message looks at, the nearest first.

    Ids of channels, canvases and lists, and ``<channel>/<ts>`` for a message.
    """
    context = message.get("app_context")
    entities = context.get("entities") if isinstance(context, dict) else None
    found = (_entity(one) for one in (entities if isinstance(entities, list) else []))
    return tuple(dict.fromkeys(one for one in found if one))[:_SEEN]


def _entity(entity: Any) -> str:
    value = entity.get("value") if isinstance(entity, dict) else None
    if isinstance(value, dict):
        channel, ts = _string(value.get("channel_id")), value.get("message_ts")
        return f"{channel}/{ts}" if _ID.fullmatch(channel) and _is_ts(ts) else ""
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


def title_of(question: str) -> str:
    """Return a title for a conversation that begins with a question: its first line, not long."""
    words = question.strip().partition("\n")[0].split()
    title = " ".join(words)
    return title if len(title) <= _TITLE else title[: _TITLE - 1].rstrip() + "…"


def _is_ts(value: Any) -> bool:
    return isinstance(value, str) and _TS.fullmatch(value) is not None


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
