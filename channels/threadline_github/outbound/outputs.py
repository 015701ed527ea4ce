"""What tools have posted beside the answer: reviews, checks, labels."""

from __future__ import annotations

from threadline import ActionResult, Channel, Event, EventContext
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.conversation import Conversation
from threadline_github.outbound.drafts import draft
from threadline_github.outbound.heads import head_of
from threadline_github.outbound.labels import LabelSet
from threadline_github.outbound.results import Check, Labels, Review, result_of
from threadline_github.outbound.reviews import Reviews
from threadline_github.outbound.runs import Runs
from threadline_github.outbound.turns import Turns

__all__ = ["Outputs"]

_PREFIX = '{"type":"github_'
_TOO_LARGE = (
    "The result of the tool `{tool}` was too large to be posted; it is in the session's log. "
    "(`{turn}`)"
)


class Outputs:
    """Posts each :class:`Review`, :class:`Check` and :class:`Labels` that a tool returned."""

    def __init__(self, channel: Channel, hub: Hub, turns: Turns, runs: Runs) -> None:
        self._hub = hub
        self._turns = turns
        self._runs = runs
        channel.on("action.result")(self._resulted)

    async def _resulted(self, event: Event[ActionResult], ctx: EventContext) -> None:
        data = event.data
        if data.is_error or data.dry_run or ctx.session_record.record.dry_run:
            return
        result = result_of(data.output)
        too_large = data.truncated is not None and str(data.output).startswith(_PREFIX)
        thread = await self._hub.thread(ctx) if result is not None or too_large else None
        if thread is None:
            return
        if result is None:
            await self._lost(event, ctx, thread)
        elif isinstance(result, Review):
            await self._review(event, ctx, thread, result)
        elif isinstance(result, Check):
            await self._runs.report(ctx, thread, result)
        else:
            await self._label(event, ctx, thread, result)

    async def _review(
        self, event: Event[ActionResult], ctx: EventContext, thread: Thread, review: Review
    ) -> None:
        """Submit a review; an issue has none, so there it is a comment."""
        turn = await self._turns.of(ctx)
        key, said = f"review/{event.data.call_id}", review.model_dump_json()
        if thread.is_pull:
            sha = await head_of(ctx, event.session_id, turn)
            target = Reviews(self._hub, ctx, thread, event.at, review, sha)
            await ctx.post(target, said, key=key)
        else:
            body = draft(review, "", own=False, files=()).body
            await ctx.post(Conversation(self._hub, ctx, thread, event.at), body, key=key)

    async def _label(
        self, event: Event[ActionResult], ctx: EventContext, thread: Thread, labels: Labels
    ) -> None:
        target = LabelSet(self._hub, ctx, thread, labels)
        key = f"labels/{event.data.call_id}"
        await ctx.post(target, labels.model_dump_json(), key=key)

    async def _lost(self, event: Event[ActionResult], ctx: EventContext, thread: Thread) -> None:
        ctx.log.error("github.result_too_large", session=event.session_id, call=event.data.call_id)
        text = _TOO_LARGE.format(tool=event.data.tool_name, turn=event.turn_id)
        target = Conversation(self._hub, ctx, thread, event.at)
        await ctx.post(target, text, key=f"lost/{event.data.call_id}")
