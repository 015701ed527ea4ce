"""What Slack sends, by HTTP or by socket, to what the core does; durable before it returns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from threadline import Context
from threadline.errors import DeliveryConflict
from threadline_slack import forms
from threadline_slack.bots import Bots
from threadline_slack.gather import metadata
from threadline_slack.inbound import Ask, Rules, Stop, decide, team_of
from threadline_slack.order import Order
from threadline_slack.people import principal, whisper

__all__ = ["Click", "Receiver"]

Click = Callable[[Context, forms.Click], Awaitable[None]]
_MANY_BOTS = 10_000


class Receiver:
    """Takes payloads; ``clicks`` has who handles a button, by its action id."""

    def __init__(self, bots: Bots, rules: Rules, clicks: Mapping[str, Click]) -> None:
        self._bots = bots
        self._rules = rules
        self._clicks = clicks
        self._order = Order(0.0)
        self._streaks: OrderedDict[str, int] = OrderedDict()

    def open(self, now: float) -> None:
        """Begin; ``now`` is in seconds of the epoch."""
        self._order = Order(now)

    async def take(self, ctx: Context, payload: Mapping[str, Any]) -> Any:
        """Do what a payload asks for, until it is durable; return what to answer."""
        match payload.get("type"):
            case "event_callback":
                await self._event(ctx, payload)
            case "url_verification":
                return {"challenge": str(payload.get("challenge", ""))}
            case "block_actions":
                for click in forms.clicks(payload):
                    await self._clicked(ctx, click)
            case _ if "command" in payload:
                return {
                    "response_type": "ephemeral",
                    "text": "Mention me in a channel, or write me a direct message.",
                }
            case _:
                ctx.log.info("slack.ignored", type=str(payload.get("type"))[:80])
        return None

    async def _clicked(self, ctx: Context, click: forms.Click) -> None:
        handle = self._clicks.get(click.action)
        if handle is None:
            ctx.log.info("slack.ignored", action=click.action[:80])
            return
        await handle(ctx, click)

    async def _event(self, ctx: Context, envelope: Mapping[str, Any]) -> None:
        def joined(token: str) -> bool:
            return ctx.session(token) is not None

        me = (await self._bots.of(team_of(envelope))).me
        decision = decide(envelope, me, self._rules, joined=joined)
        if isinstance(decision, Ask):
            await self._ask(ctx, decision)
        elif isinstance(decision, Stop):
            await self._stop(ctx, decision)
        else:
            ctx.log.debug("slack.ignored", reason=decision.reason)

    async def _ask(self, ctx: Context, ask: Ask) -> None:
        token = ask.place.token
        if not self._heeds(ask):
            ctx.log.info("slack.ignored", reason="bots talk among themselves", token=token)
            return
        self._order.note(token, ask.ts, ctx.clock.now())
        try:
            delivery = await ctx.send(
                ask.text,
                continuation_token=token,
                delivery_id=ask.delivery_id,
                principal=principal(ask.person),
                metadata=metadata(ask),
            )
        except DeliveryConflict:
            # The same post in another wording, as its twin or an edit has it: it was accepted.
            return
        if ask.person.bot and delivery.admitted != "duplicate":
            self._streaks[token] = self._streaks.get(token, 0) + 1

    def _heeds(self, ask: Ask) -> bool:
        """Tell whether a post is heard; of bots only so many without a person in between."""
        token = ask.place.token
        if not ask.person.bot:
            self._streaks.pop(token, None)
            return True
        while len(self._streaks) > _MANY_BOTS:
            self._streaks.popitem(last=False)
        return self._streaks.get(token, 0) < self._rules.bot_turns

    async def _stop(self, ctx: Context, stop: Stop) -> None:
        """Stop what is older than the stop; its twins and retries change nothing more."""
        token, name = stop.place.token, f"{stop.place.token}:{stop.ts}"
        if not self._order.first(name):
            return
        try:
            stopped = await ctx.stop(
                token, clear_pending=True, before=self._order.before(token, stop.ts)
            )
        except BaseException:
            self._order.forget(name)
            raise
        if not stopped:
            bot = await self._bots.of(stop.place.team)
            ctx.defer(whisper(bot, stop.place, stop.person.user, "Nothing is running here."))
