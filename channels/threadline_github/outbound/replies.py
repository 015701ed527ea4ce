"""What people see of a turn: that there is work, the answer, why there is none, what waits.

The comment that says that there is work becomes the answer: they are one post, which is edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from threadline import (
    ActionsCompleted,
    ActionsRequested,
    ApprovalRequested,
    ApprovalResolved,
    Channel,
    Event,
    EventContext,
    MessageCompleted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound import approvals
from threadline_github.outbound.conversation import Conversation
from threadline_github.outbound.discussion import Discussion
from threadline_github.outbound.links import link
from threadline_github.outbound.outputs import Outputs
from threadline_github.outbound.runs import Runs
from threadline_github.outbound.split import split
from threadline_github.outbound.turns import Asked, Turns
from threadline_github.outbound.words import public, quoted
from threadline_github.outbound.working import WORKING, Working

__all__ = ["Replies"]

_DONE = "Done."


class Replies:
    """Shows each turn where it was asked: in the conversation, or in the discussion of a line.

    ``working``: a comment says that there is work until there is an answer. ``check`` is the name
    of the check run of turns that the code asks for; None for none.
    """

    def __init__(
        self, channel: Channel, hub: Hub, *, working: bool = True, check: str | None = None
    ) -> None:
        self._hub = hub
        self._shows_work = working
        self._working = Working()
        self._turns = Turns(channel)
        self._runs = Runs(channel, hub, self._turns, check)
        self._outputs = Outputs(channel, hub, self._turns, self._runs)
        channel.on("turn.started")(self._started)
        channel.on("actions.requested")(self._using)
        channel.on("actions.completed")(self._used)
        channel.on("action.approval_requested")(self._parked)
        channel.on("action.approval_resolved")(self._unparked)
        channel.on("message.completed")(self._said)
        channel.on("turn.completed")(self._completed)
        channel.on("turn.failed")(self._failed)

    # While it works

    async def _started(self, event: Event[TurnStarted], ctx: EventContext) -> None:
        """Say that there is work, unless it is over by now."""
        thread, turn = await self._hub.thread(ctx), await self._turns.of(ctx)
        if thread is None or turn.answered or turn.ended:
            return
        if self._shows_work:
            target = self._target(ctx, thread, turn.review_comment, turn)
            posted = await ctx.post(target, WORKING, answers=True)
            if posted.ref is not None:
                self._working.begin(ctx, target, posted.ref, posted.post_id)
        await self._runs.begin(ctx, thread, turn)

    async def _using(self, event: Event[ActionsRequested], ctx: EventContext) -> None:
        self._working.use(ctx, [call.tool_name for call in event.data.calls])

    async def _used(self, event: Event[ActionsCompleted], ctx: EventContext) -> None:
        self._working.use(ctx, ())

    # What waits for a person

    async def _parked(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        """Say what waits in a comment of its own, since an edit tells nobody."""
        data = event.data
        self._working.wait(ctx, f"{quoted(data.tool_name)} needs an approval")
        text = approvals.asked(
            data.tool_name,
            data.approvers,
            data.expires_at,
            session_id=event.session_id,
            call_id=data.call_id,
        )
        await self._approval(ctx, data.call_id, text)

    async def _unparked(self, event: Event[ApprovalResolved], ctx: EventContext) -> None:
        data = event.data
        self._working.wait(ctx, "")
        asked = await _call(ctx, data.call_id)
        tool = str(asked.get("toolName") or data.call_id)
        text = approvals.decided(tool, data.decision, data.by, data.reason)
        await self._approval(ctx, data.call_id, text)

    async def _approval(self, ctx: EventContext, call_id: str, text: str) -> None:
        thread = await self._hub.thread(ctx)
        if thread is not None:
            turn = await self._turns.of(ctx)
            target = self._target(ctx, thread, turn.review_comment, turn)
            await ctx.post(target, text, key=f"approval/{call_id}")

    # How it ends

    async def _said(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        if event.data.parent_call_id is None and event.data.finish_reason == "stop":
            await self._answer(ctx, event.data.text)

    async def _completed(self, event: Event[TurnCompleted], ctx: EventContext) -> None:
        thread, turn = await self._hub.thread(ctx), await self._turns.of(ctx)
        if not turn.answered:
            await self._answer(ctx, _DONE)
        if thread is not None:
            await self._runs.complete(ctx, thread, turn)

    async def _failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Say why there is no answer, unless there is one, or the turn is taken up again."""
        thread, turn = await self._hub.thread(ctx), await self._turns.of(ctx)
        if turn.ended and not turn.answered:
            why = _why(event.data, event.turn_id)
            await self._answer(ctx, why, points=not _goes_on(event.data))
        if thread is not None:
            await self._runs.fail(ctx, thread, turn, event.data)

    async def _answer(self, ctx: EventContext, text: str, *, points: bool = True) -> None:
        """Let the turn's comment say a text, and further ones what does not fit.

        ``points``: it is what those who spoke elsewhere wait for.
        """
        await self._working.end(ctx.session_record.id)
        thread = await self._hub.thread(ctx)
        if thread is None:
            return
        turn = await self._turns.of(ctx)
        target = self._target(ctx, thread, turn.review_comment, turn)
        ref = None
        for part in split(public(text)) or [_DONE]:
            posted = await ctx.post(target, part, answers=True)
            ref = ref or posted.ref
        await ctx.take_back_rest(target)
        if ref is not None and points:
            await self._point(ctx, thread, turn, link(self._api_url, thread, ref))

    async def _point(self, ctx: EventContext, thread: Thread, turn: Asked, url: str) -> None:
        """Tell those who spoke elsewhere where the answer is."""
        for place in turn.elsewhere:
            target = self._target(ctx, thread, place, turn)
            key = f"pointer/{turn.id}/{place or thread.kind}"
            await ctx.post(target, f"See [the answer]({url}).", key=key)

    @property
    def _api_url(self) -> str:
        return self._hub.client.config.api_url

    def _target(
        self, ctx: EventContext, thread: Thread, comment: int | None, turn: Asked
    ) -> Conversation:
        """Return the discussion of a review comment, or the conversation."""
        if thread.is_pull and comment is not None:
            return Discussion(self._hub, ctx, thread, turn.since, comment)
        return Conversation(self._hub, ctx, thread, turn.since)


def _goes_on(failure: TurnFailed) -> bool:
    """Tell whether a turn is taken up again after this, as after a restart."""
    return failure.status == "interrupted" and failure.code != "resume_limit"


def _why(failure: TurnFailed, turn_id: str | None) -> str:
    """Return what to say of a turn that ended early."""
    told = failure.message.rstrip(".") or "something went wrong"
    if failure.code == "stopped":
        said = "Stopped."
    elif failure.code == "preempted":
        said = "Stopped for a newer message."
    elif _goes_on(failure):
        said = f"Interrupted: {told}. If there is no answer soon, ask again."
    else:
        said = f"There is no answer: {told}."
    return f"{said} (`{turn_id}`)"


async def _call(ctx: EventContext, call_id: str) -> Mapping[str, Any]:
    """Return what was asked of people about a call."""
    asked: Mapping[str, Any] = {}
    async for event in ctx.session_record.recorded("action.approval_requested"):
        if event["data"].get("callId") == call_id:
            asked = event["data"]
    return asked
