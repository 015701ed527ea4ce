"""Approvals in Slack: the card of a call that waits, and the clicks that decide it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from threadline import ApprovalRequested, ApprovalResolved, Channel, Context, Event, EventContext
from threadline.errors import ApprovalClosed, Forbidden, NotFound
from threadline_slack import cards, forms
from threadline_slack.bots import Bots
from threadline_slack.inbound import Person, Place, Rules
from threadline_slack.people import place_of, principal, whisper
from threadline_slack.thread import Thread, content

__all__ = ["Approvals"]

_DECISIONS: dict[str, Literal["approved", "denied"]] = {
    cards.APPROVE: "approved",
    cards.DENY: "denied",
}


class Approvals:
    """Shows what waits, and lets people decide it."""

    actions: Collection[str] = tuple(_DECISIONS)

    def __init__(self, channel: Channel, bots: Bots, rules: Rules) -> None:
        self._bots = bots
        self._rules = rules
        channel.on("action.approval_requested")(self._asked)
        channel.on("action.approval_resolved")(self._decided)

    async def clicked(self, ctx: Context, click: forms.Click) -> None:
        """Decide as the person who pressed; what is refused they are told, and nobody else."""
        called = cards.decision_of(click.value)
        if called is None:
            ctx.log.info("slack.ignored", action=click.action[:80])
            return
        person = Person(click.team, click.user)
        try:
            if not self._rules.admits(click.user):
                raise Forbidden("You may not decide this.")
            await ctx.resolve_approval(
                *called, _DECISIONS[click.action], principal=principal(person, click.name)
            )
        except (ApprovalClosed, Forbidden, NotFound) as refused:
            session = ctx.session(called[0])
            token = session.continuation_token if session is not None else None
            if token is not None:
                place = Place.of(token)
                bot = await self._bots.of(place.team)
                ctx.defer(whisper(bot, place, click.user, refused.message))

    async def _asked(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        """Post the card, with the buttons."""
        asked = event.data
        value = cards.button_value(event.session_id, asked.call_id)
        card = cards.asked(asked.tool_name, asked.input, value, asked.approvers)
        await self._card(ctx, asked.call_id, card.text, card.blocks)

    async def _decided(self, event: Event[ApprovalResolved], ctx: EventContext) -> None:
        """Take the buttons away, and show who decided."""
        decided = event.data
        by = decided.by
        card = cards.decided(f"call `{decided.call_id}`", decided.decision, by, decided.reason)
        await self._card(ctx, decided.call_id, card.text, card.blocks)

    async def _card(
        self, ctx: EventContext, call_id: str, text: str, blocks: list[dict[str, Any]]
    ) -> None:
        if (place := place_of(ctx)) is not None:
            bot = await self._bots.of(place.team)
            said = content(text, blocks)
            target = Thread(bot.client, place)
            await ctx.post(target, text, key=f"approval/{call_id}", metadata=said)
