"""What tools have posted beside the answer: reviews, checks, labels."""

from __future__ import annotations

from typing import Any

import orjson

from threadline import ActionResult, Channel, Event, EventContext
from threadline_github.client import GitHubRefused
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

_REFUSED = GitHubRefused.__name__
_PREFIX = '{"type":"github_'


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
        result = result_of(await _output(event, ctx))
        thread = await self._hub.thread(ctx) if result is not None else None
        if result is None or thread is None:
            return
        if isinstance(result, Review):
            await self._review(event, ctx, thread, result)
        elif isinstance(result, Check):
            await self._runs.report(ctx, thread, result)
        else:
            await self._label(event, ctx, thread, result)

    async def _review(
        self, event: Event[ActionResult], ctx: EventContext, thread: Thread, review: Review
    ) -> None:
        """Submit a review; where there can be none, as in an issue, it is a comment."""
        key, refused = f"review/{event.data.call_id}", ""
        if thread.is_pull:
            sha = await head_of(ctx, event.session_id, await self._turns.of(ctx))
            target = Reviews(self._hub, ctx, thread, event.at, review, sha)
            posted = await ctx.post(target, review.model_dump_json(), key=key)
            if posted.ref is not None or not (posted.failure or "").startswith(_REFUSED):
                return
            refused = f"_GitHub does not take this as a review. {posted.failure}_\n\n"
        body = refused + draft(review, "", files=()).body
        comments = Conversation(self._hub, ctx, thread, event.at)
        await ctx.post(comments, body, key=f"{key}/comment")

    async def _label(
        self, event: Event[ActionResult], ctx: EventContext, thread: Thread, labels: Labels
    ) -> None:
        target = LabelSet(self._hub, ctx, thread, labels)
        key = f"labels/{event.data.call_id}"
        await ctx.post(target, labels.model_dump_json(), key=key)


async def _output(event: Event[ActionResult], ctx: EventContext) -> Any:
    """Return what a tool returned; of a long result the event has only the beginning."""
    output, truncated = event.data.output, event.data.truncated
    if truncated is None or not str(output).startswith(_PREFIX):
        return output
    whole = await ctx.session_record.blob(str(truncated.get("blobId")))
    return orjson.loads(whole) if whole is not None else None
