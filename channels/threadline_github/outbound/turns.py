"""What the log says of a turn, as its posts need it: what asked for it, and what it came to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from threadline import Channel, Event, EventContext, MessageReceived, Session
from threadline_github.outbound.results import Check, result_of

__all__ = ["Asked", "Turns", "recorded", "told"]

_TYPES = (
    "action.result",
    "message.completed",
    "message.received",
    "turn.completed",
    "turn.failed",
    "turn.started",
)
_CODE = frozenset(
    {"opened", "ready_for_review", "reopened", "rerequested", "review_requested", "synchronize"}
)
_MANY = 10_000


@dataclass(slots=True)
class Asked:
    """A turn, with those that resumed it.

    ``id`` is the turn that was first asked, ``at`` when that was (ISO 8601). ``parts`` are the
    attributes of those who spoke, the newest last. ``answered``: there is a final answer;
    ``checks`` are the names of the checks that were reported, None for the channel's own.
    ``ended``: it is over for good, as far as is known.
    """

    id: str
    at: str
    parts: list[Mapping[str, Any]] = field(default_factory=list)
    delivery_ids: list[str] = field(default_factory=list)
    answered: bool = False
    checks: set[str | None] = field(default_factory=set)
    ended: bool = False

    @property
    def since(self) -> datetime:
        """When it was asked."""
        return datetime.fromisoformat(self.at)

    @property
    def review_comment(self) -> int | None:
        """The review comment that asked last; None when it was asked elsewhere."""
        found = self.parts[-1].get("review_comment") if self.parts else None
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def on_code(self) -> bool:
        """True when the code itself asked: a pull request that was opened, new commits."""
        return any(part.get("trigger") in _CODE for part in self.parts)

    def checked(self, name: str) -> bool:
        """Tell whether the channel's own check, of this name, was reported."""
        return not self.checks.isdisjoint({None, name})

    @property
    def head(self) -> str | None:
        """The newest commit that was spoken of."""
        heads = [part["head"] for part in self.parts if isinstance(part.get("head"), str)]
        return heads[-1] if heads else None


class Turns:
    """Reads turns from the log, from where the newest question of its session stands."""

    def __init__(self, channel: Channel) -> None:
        self._starts: OrderedDict[str, int] = OrderedDict()
        channel.on("message.received")(self._received)

    async def of(self, ctx: EventContext) -> Asked:
        """Return the turn of an event; of one that nobody asked for little is known."""
        session, event = ctx.session_record, ctx.event
        assert event is not None
        turn_id = event.turn_id or ""
        start = self._starts.get(session.id, 0)
        found = await _read(session, turn_id, start)
        if found is None and start:
            found = await _read(session, turn_id, 0)
        return found or Asked(turn_id, event.at.isoformat())

    async def _received(self, event: Event[MessageReceived], ctx: EventContext) -> None:
        self._starts[event.session_id] = event.index
        self._starts.move_to_end(event.session_id)
        while len(self._starts) > _MANY:
            self._starts.popitem(last=False)


def told(events: Iterable[Mapping[str, Any]], turn_id: str) -> Asked | None:
    """Return what events say of a turn; None when they do not say what asked for it."""
    asked: dict[str, Asked] = {}
    for event in events:
        name, data = str(event.get("turnId") or ""), event.get("data") or {}
        if event.get("type") == "message.received":
            asked[name] = _asked(name, event, data)
        elif event.get("type") == "turn.started" and data.get("resumes") in asked:
            asked[name] = asked[str(data["resumes"])]
            asked[name].ended = False
        elif (turn := asked.get(name)) is not None:
            _went_on(turn, str(event.get("type")), data)
    return asked.get(turn_id)


def _asked(name: str, event: Mapping[str, Any], data: Mapping[str, Any]) -> Asked:
    senders = [part.get("sender") or {} for part in data.get("parts") or []]
    parts = [
        (sender.get("attributes") or {}) if sender.get("kind") == "github" else {}
        for sender in senders
    ]
    return Asked(name, str(event["at"]), parts, list(data.get("deliveryIds") or []))


def _went_on(turn: Asked, type_: str, data: Mapping[str, Any]) -> None:
    match type_:
        case "message.completed":
            final = data.get("finishReason", "stop") == "stop" and not data.get("parentCallId")
            turn.answered = turn.answered or final
        case "action.result":
            result = None if data.get("isError") else result_of(data.get("output"))
            if isinstance(result, Check) and not data.get("dryRun"):
                turn.checks.add(result.name)
        case "turn.completed" | "turn.failed":
            turn.ended = True


async def _read(session: Session, turn_id: str, start: int) -> Asked | None:
    return told([event async for event in recorded(session, *_TYPES, start=start)], turn_id)


async def recorded(session: Session, *types: str, start: int = 0) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of some types, in order, as the log has them from an index on."""
    marks = [f'"{type_}"'.encode() for type_ in types]
    async for chunk in session.events(start):
        for line in chunk.split(b"\n"):
            if any(mark in line for mark in marks):
                event: dict[str, Any] = orjson.loads(line)
                if event.get("type") in types:
                    yield event
