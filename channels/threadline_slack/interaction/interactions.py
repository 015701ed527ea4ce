"""Interactions at work: who may, which handler, and what Slack is answered.

What is ours is done before Slack is answered. What the channel's code declares is kept durably
before that and runs after it, but for what Slack waits for: options, and answers to modals.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from threadline import Context
from threadline.errors import Draining, ThreadlineError
from threadline.ids import new_id
from threadline_slack.bots import Bot, Bots
from threadline_slack.inbound.decide import Place, Rules
from threadline_slack.interaction.acting import InteractionContext
from threadline_slack.interaction.declared import OURS, Interactive
from threadline_slack.interaction.forms import Interaction, Kind, interactions
from threadline_slack.interaction.journal import Journal
from threadline_slack.people import refusal, tell

if TYPE_CHECKING:
    from threadline_slack.interaction.declared import Handler

__all__ = ["Interactions", "Own", "offered"]

Own: TypeAlias = Callable[[Context, Interaction], Awaitable[Any]]
"""Does what is ours; durable when it returns, and what it returns is Slack's answer."""

_ANSWER_SECONDS = 2.5
_OLD = "This button is from an older version of this app, and does nothing any more."
_GIVEN_UP = "What you did here before could not be finished. Please do it again."


class Interactions:
    """Takes what people do, between ``open`` and the end of the process.

    ``unhandled`` takes the commands that have no handler, ``fallback`` is what it has run.
    """

    def __init__(self, declared: Interactive, bots: Bots, rules: Rules) -> None:
        self.declared = declared
        self.fallback: Handler | None = None
        self.unhandled: Own | None = None
        self._bots = bots
        self._rules = rules
        self._own: dict[tuple[Kind, str], Own] = {}
        self._handlers: dict[tuple[Kind, str], Handler] = {}
        self._journal = Journal()
        self._late: set[str] = set()

    def own(self, kind: Kind, name: str, do: Own) -> None:
        """Do this before Slack is answered."""
        self._own[kind, name] = do

    def serve(self, kind: Kind, name: str, handler: Handler) -> None:
        """Handle a name of ours as those that are declared."""
        self._handlers[kind, name] = handler

    async def open(self, ctx: Context) -> None:
        """Begin, with what an earlier process left undone."""
        found, tried = await self._journal.load(ctx.kv)
        for interaction in tried:
            ctx.log.error("slack.handler_given_up", name=interaction.name[:80], id=interaction.id)
            ctx.defer(self._tell(interaction, _GIVEN_UP))
        for interaction in found:
            handler = self._handler(interaction)
            if handler is None:
                ctx.defer(self._journal.end(interaction))
            else:
                ctx.defer(self._work(ctx, handler, interaction, again=True))

    async def take(self, ctx: Context, payload: Mapping[str, Any]) -> Any:
        """Do what a payload tells of, until it is durable; return what to answer Slack."""
        answer = None
        for interaction in interactions(payload, flat_dms=self._rules.flat_dms):
            said = await self._one(ctx, interaction)
            answer = answer if said is None else said
        return answer

    async def react(self, ctx: Context, interaction: Interaction) -> None:
        """Take a reaction; one that may not, or that nobody handles, is passed over."""
        handler = self._handler(interaction)
        if handler is not None and refusal(interaction.person, self._rules) is None:
            await self.run(ctx, handler, interaction)

    def _handler(self, interaction: Interaction) -> Handler | None:
        key = interaction.kind, interaction.name
        found = self.declared.handler(*key) or self._handlers.get(key)
        return self.fallback if found is None and interaction.kind == "command" else found

    async def _one(self, ctx: Context, interaction: Interaction) -> Any:
        refused = refusal(interaction.person, self._rules)
        if refused is not None:
            ctx.log.info("slack.refused", user=interaction.user, name=interaction.name[:80])
            return self.told(ctx, interaction, refused)
        if (own := self._own.get((interaction.kind, interaction.name))) is not None:
            return await own(ctx, interaction)
        handler = self._handler(interaction)
        if interaction.kind == "command" and handler is self.fallback and self.unhandled:
            return await self.unhandled(ctx, interaction)
        if handler is None:
            ctx.log.info("slack.ignored", kind=interaction.kind, name=interaction.name[:80])
            ours = interaction.name.startswith(OURS)
            return self.told(ctx, interaction, _OLD) if ours else self._nothing(interaction)
        if interaction.kind == "options":
            return await self._options(ctx, handler, interaction)
        return await self.run(ctx, handler, interaction)

    def told(self, ctx: Context, interaction: Interaction, text: str) -> Any:
        """Tell the person, and nobody else; by the answer itself where Slack shows it."""
        if interaction.kind == "command" and interaction.response_url:
            return {"response_type": "ephemeral", "text": text}
        if interaction.kind == "view":
            return {"response_action": "update", "view": _notice(text)}
        if interaction.kind not in ("options", "view_closed"):
            ctx.defer(self._tell(interaction, text))
        return self._nothing(interaction)

    async def _tell(self, interaction: Interaction, text: str) -> None:
        await tell(await self._bots.of(interaction.team), interaction, text)

    def _nothing(self, interaction: Interaction) -> Any:
        return {"options": []} if interaction.kind == "options" else None

    # Handlers

    async def run(self, ctx: Context, handler: Handler, interaction: Interaction) -> Any:
        """Have a handler run, once it is certain that it will; return a modal's answer."""
        if not await self._journal.begin(interaction):
            return None
        work = asyncio.ensure_future(self._work(ctx, handler, interaction))
        ctx.defer(work)
        if interaction.kind != "view":
            return None
        if await _within(ctx, work):
            return work.result()
        self._late.add(interaction.id)
        return None

    async def _options(self, ctx: Context, handler: Handler, interaction: Interaction) -> Any:
        """Ask for options while Slack waits; what takes too long offers none."""
        acting = InteractionContext(ctx, await self._bots.of(interaction.team), interaction)
        work = asyncio.ensure_future(handler(acting, interaction))
        try:
            if await _within(ctx, work):
                return offered(work.result())
            ctx.log.warning("slack.options_late", action=interaction.name[:80])
        except Exception as error:
            ctx.log.error("slack.options_failed", action=interaction.name[:80], exc_info=error)
        finally:
            work.cancel()
        return {"options": []}

    async def _work(
        self, ctx: Context, handler: Handler, interaction: Interaction, *, again: bool = False
    ) -> Any:
        """Run a handler; what it raises is told to the person, with the reference in the log."""
        answer = None
        try:
            bot = await self._bots.of(interaction.team)
            if interaction.kind == "reaction":
                interaction = await _located(bot, interaction)
            acting = InteractionContext(ctx, bot, interaction, again=again)
            answer = await handler(acting, interaction)
        except Draining:
            return None  # It stays in the journal: the next process does it.
        except Exception as error:
            answer = await self._failed(ctx, interaction, error)
        late = interaction.id in self._late
        self._late.discard(interaction.id)
        if late and answer is not None:
            ctx.log.warning("slack.answer_late", name=interaction.name[:80])
        await self._journal.end(interaction)
        return answer if isinstance(answer, Mapping) and not late else None

    async def _failed(self, ctx: Context, interaction: Interaction, error: Exception) -> Any:
        reference = new_id("err")
        ctx.log.error(
            "slack.handler_failed",
            reference=reference,
            kind=interaction.kind,
            name=interaction.name[:80],
            exc_info=error,
        )
        said = error.message if isinstance(error, ThreadlineError) else "Something went wrong here."
        said = f"{said} (`{reference}`)"
        if interaction.kind == "view" and interaction.id not in self._late:
            return {"response_action": "update", "view": _notice(said)}
        try:
            await self._tell(interaction, said)
        except Exception as unsaid:
            ctx.log.warning("slack.untold", reference=reference, error=repr(unsaid))
        return None


async def _within(ctx: Context, work: asyncio.Future[Any]) -> bool:
    """Wait as long as Slack does; tell whether the work is done."""
    timer = asyncio.ensure_future(ctx.clock.sleep(_ANSWER_SECONDS))
    try:
        await asyncio.wait({work, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return work.done()


async def _located(bot: Bot, interaction: Interaction) -> Interaction:
    """Return a reaction with the conversation of its message, which the event does not name."""
    answer = await bot.client.conversations_replies(
        channel=interaction.channel, ts=interaction.ts, limit=1
    )
    first: Mapping[str, Any] = next(iter(answer.get("messages") or ()), {})
    root = str(first.get("thread_ts") or interaction.ts)
    token = Place(interaction.team, interaction.channel, root).token
    return dataclasses.replace(interaction, token=token)


def offered(found: Any) -> dict[str, Any]:
    """Return options as Slack wants them: texts, ``(text, value)``, or its own shape."""
    if isinstance(found, Mapping):
        return dict(found)
    return {"options": [_option(one) for one in list(found or ())[:100]]}


def _option(one: Any) -> Any:
    if isinstance(one, Mapping):
        return dict(one)
    text, value = (one, one) if isinstance(one, str) else one
    return {"text": {"type": "plain_text", "text": str(text)[:75]}, "value": str(value)[:150]}


def _notice(text: str) -> dict[str, Any]:
    return {
        "type": "modal",
        "title": {"type": "plain_text", "text": "Nothing was done"},
        "close": {"type": "plain_text", "text": "Close"},
        "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}}],
    }
