"""What people see of a turn: the status line, the answer in messages, and why there is none."""

from __future__ import annotations

from collections.abc import Collection

from threadline import (
    ActionsRequested,
    Channel,
    Event,
    EventContext,
    MessageCompleted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from threadline_slack.bots import Bots
from threadline_slack.compose import compose
from threadline_slack.people import place_of
from threadline_slack.thread import Thread, content

__all__ = ["Replies"]

_GOES_ON = frozenset({"preempted", "host_restarted", "host_shutdown"})
_THINKING = "is thinking…"


class Replies:
    """Posts each final answer, in as many messages as it takes."""

    def __init__(self, channel: Channel, bots: Bots, mentions: Collection[str]) -> None:
        self._bots = bots
        self._mentions = frozenset(mentions)
        channel.on("turn.started")(self._started)
        channel.on("actions.requested")(self._using)
        channel.on("message.completed")(self._answered)
        channel.on("turn.completed")(self._completed)
        channel.on("turn.failed")(self._failed)

    async def _started(self, event: Event[TurnStarted], ctx: EventContext) -> None:
        await self._show(ctx, _THINKING)

    async def _using(self, event: Event[ActionsRequested], ctx: EventContext) -> None:
        names = list(dict.fromkeys(call.tool_name for call in event.data.calls))
        await self._show(ctx, f"is using {', '.join(names)[:80]}…")

    async def _answered(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        if event.data.finish_reason == "stop" and event.data.parent_call_id is None:
            await self._say(ctx, event.data.text)

    async def _completed(self, event: Event[TurnCompleted], ctx: EventContext) -> None:
        await self._show(ctx, "")

    async def _failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Say why there is no answer; a turn that goes on says nothing."""
        await self._show(ctx, "")
        if event.data.code == "stopped":
            await self._say(ctx, "Stopped.")
        elif event.data.code not in _GOES_ON:
            why = event.data.message or "something went wrong"
            await self._say(ctx, f"There is no answer: {why} (`{event.turn_id}`)")

    async def _say(self, ctx: EventContext, markdown: str) -> None:
        place = place_of(ctx)
        if place is None:
            return
        bot = await self._bots.of(place.team)
        for message in compose(markdown, mentions=self._mentions):
            # The whole text tells one post from another; what is shown is in the metadata.
            whole = "\n".join(str(block.get("text", "")) for block in message.blocks)
            said = content(message.text, message.blocks)
            await ctx.post(Thread(bot.client, place), whole, metadata=said)

    async def _show(self, ctx: EventContext, text: str) -> None:
        place = place_of(ctx)
        if place is None:
            return
        status = (await self._bots.of(place.team)).status
        if status.available:
            await ctx.progress(status.target(place), lambda: status.show(place, text))
