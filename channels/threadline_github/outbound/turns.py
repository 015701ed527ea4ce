"""What the log says of a turn, as its posts need it: what asked for it, and what it came to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from threadline import Channel, Event, EventContext, MessageReceived, Session
from threadline_github.outbound.results import Check, result_of

__all__ = ["Asked", "Turns", "told"]

_TYPES = (
    "action.result",
    "message.completed",
    "message.received",
    "nudge.delivered",
    "turn.completed",
    "turn.failed",
    "turn.started",
)
_CODE = frozenset(
    {"opened", "ready_for_review", "reopened", "rerequested", "review_requested", "synchronize"}
)
_LONG_CHECK = '{"type":"github_check"'
_MANY = 10_000


@dataclass(slots=True)
class Asked:
    """A turn, with those that resumed it.

    ``id`` is the turn that was first asked, ``at`` when that was (ISO 8601). ``parts`` are the
    attributes of what asked, the newest last, and ``nudges`` of what was said meanwhile.
    ``answered``: there is a final answer. ``checks`` are the names of the checks that were
    reported, None for the channel's own. ``ended``: it is over for good, as far as is known;
    ``interrupted`` says why if it may still go on.
    """

    id: str
    at: str
    parts: list[Mapping[str, Any]] = field(default_factory=list)
    nudges: list[Mapping[str, Any]] = field(default_factory=list)
    delivery_ids: list[str] = field(default_factory=list)
    answered: bool = False
    checks: set[str | None] = field(default_factory=set)
    ended: bool = False
    interrupted: str = ""

    @property
    def since(self) -> datetime:
        """When it was asked."""
        return datetime.fromisoformat(self.at)

    @property
    def review_comment(self) -> int | None:
        """The review comment that asked last; None when it was asked elsewhere."""
        return _place(self.parts[-1]) if self.parts else None

    @property
    def elsewhere(self) -> list[int | None]:
        """The other places where somebody spoke, None for the conversation, in order."""
        spoken = [part for part in (*self.parts, *self.nudges) if "comment" in part]
        places = dict.fromkeys(map(_place, spoken))
        return [place for place in places if place != self.review_comment]

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
        event = ctx.event
        assert event is not None
        turn_id = event.turn_id or ""
        session, start = ctx.session_record, self._starts.get(event.session_id, 0)
        found = (await _read(session, start)).get(turn_id)
        if found is None and start:
            found = (await _read(session, 0)).get(turn_id)
        return found or Asked(turn_id, event.at.isoformat())

    async def newest(self, ctx: EventContext) -> Asked | None:
        """Return the session's newest turn."""
        session = ctx.session_record
        turns = await _read(session, self._starts.get(session.id, 0))
        return next(reversed(turns.values()), None)

    async def _received(self, event: Event[MessageReceived], ctx: EventContext) -> None:
        self._starts[event.session_id] = event.index
        self._starts.move_to_end(event.session_id)
        while len(self._starts) > _MANY:
            self._starts.popitem(last=False)


def told(events: Iterable[Mapping[str, Any]]) -> dict[str, Asked]:
    """Return what events say of turns, by id; of one whose question they do not have, nothing."""
    asked: dict[str, Asked] = {}
    for event in events:
        name, data = str(event.get("turnId") or ""), event.get("data") or {}
        if event.get("type") == "message.received":
            asked[name] = _asked(name, event, data)
        elif event.get("type") == "turn.started" and data.get("resumes") in asked:
            turn = asked[name] = asked[str(data["resumes"])]
            turn.ended, turn.interrupted = False, ""
        elif name in asked:
            _went_on(asked[name], str(event.get("type")), data)
    return asked


def _asked(name: str, event: Mapping[str, Any], data: Mapping[str, Any]) -> Asked:
    parts = [_attributes(part.get("sender")) for part in data.get("parts") or []]
    ids = list(data.get("deliveryIds") or [])
    return Asked(name, str(event["at"]), parts, delivery_ids=ids)


def _attributes(sender: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what is known of a message from GitHub; nothing of one from elsewhere."""
    known = sender is not None and sender.get("kind") == "github"
    return (sender.get("attributes") or {}) if known and sender is not None else {}


def _place(part: Mapping[str, Any]) -> int | None:
    found = part.get("review_comment")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _went_on(turn: Asked, type_: str, data: Mapping[str, Any]) -> None:
    match type_:
        case "message.completed":
            final = data.get("finishReason", "stop") == "stop" and not data.get("parentCallId")
            turn.answered = turn.answered or final
        case "action.result":
            if not data.get("isError") and not data.get("dryRun"):
                _reported(turn, data.get("output"))
        case "nudge.delivered":
            turn.nudges.append(_attributes(data.get("sender")))
        case "turn.completed" | "turn.failed":
            turn.ended = True
            goes_on = data.get("status") == "interrupted" and not data.get("asks")
            turn.interrupted = str(data.get("message") or type_) if goes_on else ""


def _reported(turn: Asked, output: object) -> None:
    """Take note of a check; of a long one the log has the beginning, as text."""
    result = result_of(output)
    if isinstance(result, Check):
        turn.checks.add(result.name)
    elif isinstance(output, str) and output.startswith(_LONG_CHECK):
        turn.checks.add(None)


async def _read(session: Session, start: int) -> dict[str, Asked]:
    return told([event async for event in session.recorded(*_TYPES, start=start)])
