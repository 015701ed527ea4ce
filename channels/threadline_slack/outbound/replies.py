"""What people see of a turn: the answer in messages, what it is at, and why there is none.

``post``: the final answer. ``agent``: every message that the agent completes, also before it calls
tools. ``stream``: the same, and each grows while it is written. A message that is complete is a
post, there once whatever happens; one that grows becomes that post, or is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, TypeAlias

from threadline import (
    ActionsCompleted,
    ActionsRequested,
    ApprovalRequested,
    ApprovalResolved,
    Channel,
    Event,
    EventContext,
    MessageAppended,
    MessageCompleted,
    ReasoningAppended,
    Target,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from threadline_slack.bots import Bots
from threadline_slack.outbound import delay
from threadline_slack.outbound.askers import Askers
from threadline_slack.outbound.rated import Rated
from threadline_slack.outbound.status import StatusText, reasoning, using
from threadline_slack.outbound.streaming import Live, Lives, Piece
from threadline_slack.outbound.thread import content
from threadline_slack.people import place_of
from threadline_slack.words.chunks import TEXT_LIMIT, truncate
from threadline_slack.words.compose import Message

__all__ = ["Replies", "ReplyMode"]

ReplyMode: TypeAlias = Literal["post", "stream", "agent"]

_GOES_ON = frozenset({"preempted", "host_restarted", "host_shutdown"})


class Replies:
    """Shows each turn in its thread."""

    def __init__(
        self,
        channel: Channel,
        bots: Bots,
        askers: Askers,
        mentions: Collection[str],
        mode: ReplyMode = "post",
        status: StatusText | None = None,
        *,
        feedback: bool = False,
    ) -> None:
        self._bots = bots
        self._askers = askers
        self._mode = mode
        self._status = status
        self._feedback = feedback
        self._lives = Lives(frozenset(mentions))
        channel.on("turn.started")(self._started)
        if status is not None or mode == "stream":
            channel.on("actions.requested")(self._using)
            channel.on("actions.completed")(self._used)
            channel.on("action.approval_requested")(self._parked)
            channel.on("action.approval_resolved")(self._unparked)
        channel.on("message.completed")(self._said)
        channel.on("turn.completed")(self._completed)
        channel.on("turn.failed")(self._failed)
        if mode == "stream":
            channel.on("message.appended")(self._grew)
        if status is not None and status.reasoning:
            channel.on("reasoning.appended")(self._thought)

    # While it works

    async def _started(self, event: Event[TurnStarted], ctx: EventContext) -> None:
        live = await self._live(ctx)
        if live is not None and event.data.resumes is not None:
            live.silent = await ctx.answered()
        await self._works(event, ctx)

    async def _used(self, event: Event[ActionsCompleted], ctx: EventContext) -> None:
        await self._show(event, ctx, self._status.thinking if self._status else "")

    async def _unparked(self, event: Event[ApprovalResolved], ctx: EventContext) -> None:
        await self._works(event, ctx)

    async def _works(self, event: Event[Any], ctx: EventContext) -> None:
        await self._show(event, ctx, self._status.thinking if self._status else "")
        if self._mode == "stream" and (live := await self._live(ctx)) is not None:
            live.work(await self._askers.of(ctx))

    async def _using(self, event: Event[ActionsRequested], ctx: EventContext) -> None:
        if self._status is not None and self._status.tools:
            await self._show(event, ctx, using(call.tool_name for call in event.data.calls))
        if self._mode == "stream" and (live := await self._live(ctx)) is not None:
            live.work(await self._askers.of(ctx))

    async def _thought(self, event: Event[ReasoningAppended], ctx: EventContext) -> None:
        if text := reasoning(event.data.text or ""):
            await self._show(event, ctx, text)

    async def _parked(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        """Show nothing that moves while a person is waited for."""
        await self._show(event, ctx, "")
        live = await self._live(ctx)
        if live is not None:
            await live.settle()
            await live.done(ctx)

    async def _grew(self, event: Event[MessageAppended], ctx: EventContext) -> None:
        live = await self._live(ctx)
        if live is not None and event.data.text is not None:
            live.grow(await self._askers.of(ctx), event.data.text)

    # What is said

    async def _said(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        final = event.data.finish_reason == "stop"
        if event.data.parent_call_id is not None or not (final or self._mode != "post"):
            return
        if final:
            await self._rest(event, ctx)
        live = await self._live(ctx)
        if live is None:
            return
        await live.settle()
        pieces = live.pieces(event.data.text, goes_on=not final)
        shown = await self._post_all(event, ctx, pieces, rated=final and self._feedback)
        await self._tidy(ctx, live, shown)
        if not final and (place := place_of(ctx)) is not None:
            (await self._bots.of(place.team)).status.posted(place)

    async def _completed(self, event: Event[TurnCompleted], ctx: EventContext) -> None:
        await self._rest(event, ctx)
        live = await self._live(ctx)
        if live is not None:
            await live.settle()
            await live.done(ctx)
            self._lives.drop(event.session_id)

    async def _failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Say why there is no answer, below what was said; a turn that goes on says nothing."""
        await self._rest(event, ctx)
        live = await self._live(ctx)
        if live is None:
            return
        self._lives.drop(event.session_id)
        if event.data.code in _GOES_ON:
            await live.pause()
            return
        await live.settle()
        shown = await self._post_all(event, ctx, live.pieces(await live.said()))
        if not await ctx.answered():
            why = f"There is no answer: {event.data.message or 'something went wrong'}"
            note = "Stopped." if event.data.code == "stopped" else f"{why} (`{event.turn_id}`)"
            await self._post_all(event, ctx, live.anew(note), key=f"ended/{event.turn_id}")
        await self._tidy(ctx, live, shown)

    async def _post_all(
        self,
        event: Event[Any],
        ctx: EventContext,
        pieces: Sequence[Piece],
        *,
        key: str = "",
        rated: bool = False,
    ) -> list[str]:
        """Post the messages of a text; returns where they stand."""
        late = delay.note(event.at.isoformat(), ctx.clock.now())
        shown = []
        for number, piece in enumerate(pieces):
            name = key and f"{key}/{number}"
            target: Target = piece.target
            if rated and piece is pieces[-1]:
                target = Rated(piece.target, event.session_id, event.turn_id or "")
            shown.append(await self._post(ctx, piece, target, key=name, late=late))
            late = None
        return [ts for ts in shown if ts is not None]

    async def _tidy(self, ctx: EventContext, live: Live, shown: Collection[str]) -> None:
        """Take away what is not of the text that was posted: of another attempt, or on its way."""
        await ctx.take_back_rest(live.thread)
        await live.done(ctx, shown)

    async def _post(
        self, ctx: EventContext, piece: Piece, target: Target, *, key: str, late: str | None
    ) -> str | None:
        """Post a message; returns where it stands, or what was shown of it if it was given up."""
        # The whole text tells one post from another; what is shown is in the metadata.
        whole = "\n".join(str(block.get("text", "")) for block in piece.message.blocks)
        asker = await self._askers.of(ctx)
        message = _noted(piece.message, late)
        said = {
            **content(message.text, message.blocks, asker.user if asker else None),
            "stream": "" if late else piece.stream,
        }
        posted = await ctx.post(target, whole, key=key, metadata=said)
        return posted.ref or (piece.slot.ts if piece.slot else None)

    # Where

    async def _live(self, ctx: EventContext) -> Live | None:
        place = place_of(ctx)
        if place is None:
            return None
        return await self._lives.of(ctx, await self._bots.of(place.team), place)

    async def _show(self, event: Event[Any], ctx: EventContext, text: str) -> None:
        place = place_of(ctx)
        if place is not None and self._status is not None:
            status = (await self._bots.of(place.team)).status
            status.show(ctx, place, event.turn_id, text, self._status.loading)

    async def _rest(self, event: Event[Any], ctx: EventContext) -> None:
        place = place_of(ctx)
        if place is not None and self._status is not None:
            (await self._bots.of(place.team)).status.end(ctx, place, event.turn_id)


def _noted(message: Message, note: str | None) -> Message:
    """Return a message below a line that says why it comes late."""
    if note is None:
        return message
    line = {"type": "context", "elements": [{"type": "mrkdwn", "text": note}]}
    return Message(truncate(f"{note}\n{message.text}", TEXT_LIMIT), [line, *message.blocks])
