"""Who asked last in each conversation, as its log says."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from threadline import Channel, Event, EventContext, MessageReceived, NudgeDelivered, Session
from threadline_slack.inbound.decide import Person

__all__ = ["Askers"]

_MANY = 10_000


class Askers:
    """Remembers the newest asker of each session; for others the log is read."""

    def __init__(self, channel: Channel) -> None:
        self._known: OrderedDict[str, Person | None] = OrderedDict()
        channel.on("message.received")(self._prompted)
        channel.on("nudge.delivered")(self._steered)

    async def of(self, ctx: EventContext) -> Person | None:
        """Return who asked last; None when it was nobody in Slack."""
        session = ctx.session_record
        if session.id not in self._known:
            self._keep(session.id, await _read(session))
        return self._known[session.id]

    async def _prompted(self, event: Event[MessageReceived], ctx: EventContext) -> None:
        if event.data.parts:
            self._keep(event.session_id, _person(event.data.parts[-1].sender))

    async def _steered(self, event: Event[NudgeDelivered], ctx: EventContext) -> None:
        self._keep(event.session_id, _person(event.data.sender))

    def _keep(self, session_id: str, person: Person | None) -> None:
        self._known[session_id] = person
        self._known.move_to_end(session_id)
        while len(self._known) > _MANY:
            self._known.popitem(last=False)


def _person(sender: Mapping[str, Any] | None) -> Person | None:
    """Return the person that a delivery's sender is, if they are in Slack; an app is nobody."""
    if not sender or sender.get("kind") != "slack":
        return None
    attributes = sender.get("attributes") or {}
    team, user = attributes.get("team"), attributes.get("user")
    if not isinstance(team, str) or not isinstance(user, str) or user[:1] not in ("U", "W"):
        return None
    return Person(team, user, attributes.get("bot") is True, attributes.get("external") is True)


async def _read(session: Session) -> Person | None:
    """Return the newest asker that the log names."""
    found = None
    async for event in session.recorded("message.received", "nudge.delivered"):
        found = _sender(event) or found
    return found


def _sender(event: Mapping[str, Any]) -> Person | None:
    data = event["data"]
    if event["type"] == "nudge.delivered":
        return _person(data.get("sender"))
    if event["type"] == "message.received" and data.get("parts"):
        return _person(data["parts"][-1].get("sender"))
    return None
