"""What Slack sends, by HTTP or by socket, to what the core does; durable before it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from threadline import Context
from threadline.errors import DeliveryConflict
from threadline_slack.agents import Agents
from threadline_slack.assistant import looking_at
from threadline_slack.bots import Bots
from threadline_slack.inbound.decide import Ask, Gone, Place, Rules, Stop, decide, team_of
from threadline_slack.inbound.gather import metadata
from threadline_slack.inbound.lookout import Lookout
from threadline_slack.inbound.order import Order
from threadline_slack.inbound.streaks import Streaks
from threadline_slack.interaction import cards, forms
from threadline_slack.interaction.commands import Commands
from threadline_slack.interaction.interactions import Interactions
from threadline_slack.outbound.reactions import Acknowledgements
from threadline_slack.people import principal, whisper

__all__ = ["Receiver"]


class Receiver:
    """Takes payloads; ``interactions`` takes those of what people press, choose and command.

    ``gone`` is told of posts that were deleted.
    """

    def __init__(
        self,
        bots: Bots,
        rules: Rules,
        interactions: Interactions,
        agents: Agents,
        acks: Acknowledgements,
        lookout: Lookout,
        gone: Callable[[Gone], Awaitable[None]],
    ) -> None:
        self._bots = bots
        self._gone = gone
        self._agents = agents
        self._acks = acks
        self._lookout = lookout
        self._rules = rules
        self._interactions = interactions
        self._commands = Commands(interactions, bots)
        self._order = Order(0.0)
        # Conversations that are being asked now: who follows up there is heard, too.
        self._asking: Counter[str] = Counter()
        interactions.own("action", cards.STOP, self._stop_pressed)
        self._streaks = Streaks(rules.bot_turns)

    async def open(self, ctx: Context) -> None:
        """Begin, with what an earlier process left undone."""
        self._order = Order(ctx.clock.now().timestamp())
        self._commands.open(ctx)
        await self._interactions.open(ctx)

    async def take(self, ctx: Context, payload: Mapping[str, Any]) -> Any:
        """Do what a payload asks for, until it is durable; return what to answer."""
        if not await self._bots.hears(ctx, payload):
            return None
        match payload.get("type"):
            case "event_callback":
                await self._event(ctx, payload)
            case "url_verification":
                return {"challenge": str(payload.get("challenge", ""))}
            case _ if forms.is_interaction(payload):
                return await self._interactions.take(ctx, payload)
            case _:
                ctx.log.info("slack.ignored", type=str(payload.get("type"))[:80])
        return None

    async def _event(self, ctx: Context, envelope: Mapping[str, Any]) -> None:
        if self._bots.told(ctx, envelope):
            return
        if await self._agents.heard(ctx, envelope, self._stop):
            return

        def joined(token: str) -> bool:
            return token in self._asking or ctx.session(token) is not None

        envelope = await self._bots.meant(ctx, envelope, joined)
        team = team_of(envelope)
        bot = await self._bots.of(team)
        me = bot.me
        home = team if self._bots.workspaces is not None else ""
        if self._lookout.due(ctx, home):
            ctx.defer(self._lookout.look_up(ctx, home, bot.client))
        if (reacted := forms.reaction(envelope, team)) is not None:
            if reacted.user != me.user:
                await self._interactions.react(ctx, reacted)
            return
        decision = decide(envelope, me, self._rules, joined=joined, watched=self._lookout.of)
        if isinstance(decision, Ask):
            ask = self._lookout.settle(ctx, decision)
            await self._ask(ctx, ask, looking_at(envelope["event"]))
        elif isinstance(decision, Stop):
            await self._stop(ctx, decision)
        elif isinstance(decision, Gone):
            bot.gatherer.backfill.unhear(decision.place, decision.ts)
            await self._gone(decision)
        else:
            if decision.place is not None and joined(decision.place.token):
                bot.gatherer.backfill.hear(decision.place, envelope["event"], me)
            ctx.log.debug("slack.ignored", reason=decision.reason)

    async def _ask(self, ctx: Context, ask: Ask, seen: Sequence[str] = ()) -> None:
        token = ask.place.token
        if not await self._streaks.heeds(ask, ctx.session(token)):
            ctx.log.info("slack.ignored", reason="bots talk among themselves", token=token)
            return
        fresh = False
        try:
            if await self._commands.said(ctx, ask, lambda name: not self._order.first(name)):
                return
            fresh = await self._sent(ctx, ask, seen)
        finally:
            if not fresh:
                self._streaks.take_back(ask)

    async def _sent(self, ctx: Context, ask: Ask, seen: Sequence[str]) -> bool:
        """Accept a message; False when it was accepted before."""
        token = ask.place.token
        self._order.note(token, ask.ts, ctx.clock.now())
        self._asking[token] += 1
        try:
            delivery = await ctx.send(
                ask.text,
                continuation_token=token,
                delivery_id=ask.delivery_id,
                principal=principal(ask.person, ask.person.name or None),
                metadata=metadata(ask) | ({"looking": list(seen)} if seen else {}),
            )
        except DeliveryConflict:
            # The same post in another wording, as its twin or an edit has it: it was accepted.
            return False
        finally:
            self._asking[token] -= 1
            self._asking += Counter()
        if delivery.admitted == "duplicate":
            return False
        (await self._bots.of(ask.place.team)).deleted.discard(ask.place)
        waits = delivery.admitted == "queued" and not ask.person.bot and ask.watch is None
        if waits:
            self._acks.queued(delivery)
        return True

    async def _stop_pressed(self, ctx: Context, click: forms.Interaction) -> None:
        """Stop the conversation that the button names, if it stands there."""
        try:
            place = Place.of(click.value)
        except ValueError:
            place = None
        if place is None or place.channel != click.channel:
            self._interactions.told(ctx, click, "This button does not work any more.")
            return
        ts = click.action_ts or f"{ctx.clock.now().timestamp():.6f}"
        await self._stop(ctx, Stop(place, ts, click.person))

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
        if not stopped and stop.addressed:
            bot = await self._bots.of(stop.place.team)
            ctx.defer(whisper(bot, stop.place, stop.person.user, "Nothing is running here."))
