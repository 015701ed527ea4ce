"""Approvals in Slack: the card of a call that waits, and the clicks that decide it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal

from threadline import (
    ApprovalRequested,
    ApprovalResolved,
    Channel,
    Context,
    Event,
    EventContext,
    Session,
)
from threadline.errors import ApprovalClosed, Forbidden, NotFound
from threadline_slack.bots import Bots
from threadline_slack.inbound.decide import Place
from threadline_slack.interaction import cards
from threadline_slack.interaction.forms import Interaction
from threadline_slack.interaction.interactions import Interactions
from threadline_slack.outbound.thread import content
from threadline_slack.people import place_of, principal
from threadline_slack.words.compose import Message

__all__ = ["Approvals"]

_DECISIONS: dict[str, Literal["approved", "denied"]] = {
    cards.APPROVE: "approved",
    cards.DENY: "denied",
}
_MANY = 1_000


class Approvals:
    """Shows what waits, and lets people decide it."""

    def __init__(self, channel: Channel, bots: Bots, interactions: Interactions) -> None:
        self._bots = bots
        self._interactions = interactions
        # Slack may send a click twice, and people press twice: the second says nothing new.
        self._presses: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        channel.on("action.approval_requested")(self._asked)
        channel.on("action.approval_resolved")(self._decided)
        for action in _DECISIONS:
            interactions.own("action", action, self.clicked)

    async def clicked(self, ctx: Context, click: Interaction) -> None:
        """Decide as the person who pressed; what is refused they are told, and nobody else."""
        if (refused := await self._refusal(ctx, click)) is not None:
            self._interactions.told(ctx, click, refused)

    async def _refusal(self, ctx: Context, click: Interaction) -> str | None:
        """Decide; return why it cannot be."""
        called = cards.decision_of(click.value)
        if called is None:
            return "This button does not work any more."
        session_id, call_id = called
        who, decision = principal(click.person, click.user_name), _DECISIONS[click.name]
        press = call_id, decision, who.id
        again = press in self._presses
        self._presses[press] = None
        while len(self._presses) > _MANY:
            self._presses.popitem(last=False)
        try:
            _check_place(ctx, session_id, click)
            await ctx.resolve_approval(session_id, call_id, decision, principal=who)
        except ApprovalClosed as closed:
            resolved = await self._resolved(ctx, session_id, call_id)
            by = resolved.get("by") or {}
            if again or (resolved.get("decision"), by.get("id")) == (decision, who.id):
                return None
            return cards.too_late(resolved) if resolved else closed.message
        except (Forbidden, NotFound) as refused:
            self._presses.pop(press, None)
            return refused.message
        return None

    async def _resolved(self, ctx: Context, session_id: str, call_id: str) -> Mapping[str, Any]:
        """Return how the call was decided, and by whom."""
        session = ctx.session(session_id)
        return (await _told(session, call_id))[1] if session is not None else {}

    async def _asked(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        """Post the card, with the buttons."""
        asked = event.data
        value = cards.button_value(event.session_id, asked.call_id)
        card = cards.asked(asked.tool_name, asked.input, value, asked.approvers, asked.expires_at)
        await self._card(ctx, asked.call_id, card)

    async def _decided(self, event: Event[ApprovalResolved], ctx: EventContext) -> None:
        """Take the buttons away, and show what it was and who decided."""
        decided = event.data
        asked, _ = await _told(ctx.session_record, decided.call_id)
        tool = str(asked.get("toolName") or decided.call_id)
        card = cards.decided(tool, asked.get("input"), decided.decision, decided.by, decided.reason)
        await self._card(ctx, decided.call_id, card)

    async def _card(self, ctx: EventContext, call_id: str, card: Message) -> None:
        if (place := place_of(ctx)) is not None:
            bot = await self._bots.of(place.team)
            # The post's own text says whether it has to be edited, so it is all that is shown.
            whole = "\n".join(str(block) for block in card.blocks)
            said = content(card.text, card.blocks)
            await ctx.post(bot.thread(place), whole, key=f"approval/{call_id}", metadata=said)


def _check_place(ctx: Context, session_id: str, click: Interaction) -> None:
    """Raise Forbidden for a button that stands in another conversation than its session's."""
    session = ctx.session(session_id)
    token = session.continuation_token if session is not None else None
    if token is not None and Place.of(token).channel != click.channel:
        raise Forbidden("This button does not belong to this conversation.")


async def _told(session: Session, call_id: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what was asked of people about a call, and how it was decided."""
    asked: Mapping[str, Any] = {}
    resolved: Mapping[str, Any] = {}
    types = "action.approval_requested", "action.approval_resolved"
    async for event in session.recorded(*types):
        if event["data"].get("callId") == call_id:
            asked, resolved = (
                (event["data"], resolved) if event["type"] == types[0] else (asked, event["data"])
            )
    return asked, resolved
