"""The check run of each turn: begun where the code asked, completed when the turn ends."""

from __future__ import annotations

from threadline import Channel, Event, EventContext, SessionWaiting, TurnFailed
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.checks import CheckRun, State, ended, reported
from threadline_github.outbound.heads import head_of
from threadline_github.outbound.results import Check, Conclusion
from threadline_github.outbound.turns import Asked, Turns

__all__ = ["Runs"]

_STOPPED = frozenset({"stopped", "preempted"})


class Runs:
    """Keeps a turn's check run; ``name`` is the channel's own, None where only tools report."""

    def __init__(self, channel: Channel, hub: Hub, turns: Turns, name: str | None) -> None:
        self._hub = hub
        self._turns = turns
        self._name = name
        self._refused = False
        channel.on("session.waiting")(self._waiting)

    async def begin(self, ctx: EventContext, thread: Thread, turn: Asked) -> None:
        """Begin the check run of a turn that the code asked for."""
        await self._own(ctx, thread, turn, State())

    async def report(self, ctx: EventContext, thread: Thread, check: Check) -> None:
        """Say what a tool reported."""
        name = check.name or self._name or ctx.agent
        await self._post(ctx, thread, await self._turns.of(ctx), name, reported(check))

    async def complete(self, ctx: EventContext, thread: Thread, turn: Asked) -> None:
        """Complete it at the end of a turn that reported nothing."""
        summary = "The agent ended its turn without reporting a result."
        await self._own(ctx, thread, turn, ended("No result", summary, "neutral"))

    async def fail(
        self, ctx: EventContext, thread: Thread, turn: Asked, failure: TurnFailed
    ) -> None:
        """Complete it for a turn that ended early; one that goes on keeps it."""
        if failure.status == "interrupted" and not failure.asks:
            return
        summary = _summary(failure.message, turn)
        stopped = failure.code in _STOPPED
        conclusion: Conclusion = "cancelled" if stopped else "failure"
        title = "Stopped" if stopped else "The agent failed"
        await self._own(ctx, thread, turn, ended(title, summary, conclusion))

    async def _waiting(self, event: Event[SessionWaiting], ctx: EventContext) -> None:
        """Complete it for a turn that was interrupted, and does not go on."""
        turn = await self._turns.newest(ctx) if self._name is not None else None
        thread = await self._hub.thread(ctx) if turn is not None else None
        if turn is not None and thread is not None and turn.interrupted:
            summary = _summary(turn.interrupted, turn)
            await self._own(ctx, thread, turn, ended("Interrupted", summary, "cancelled"))

    async def _own(self, ctx: EventContext, thread: Thread, turn: Asked, state: State) -> None:
        """Post the channel's own check run, unless a tool has reported it."""
        if self._name is not None and turn.on_code and not turn.checked(self._name):
            await self._post(ctx, thread, turn, self._name, state)

    async def _post(
        self, ctx: EventContext, thread: Thread, turn: Asked, name: str, state: State
    ) -> None:
        if not thread.is_pull or not self._may(ctx):
            return
        sha = await head_of(ctx, ctx.session_record.id, turn)
        target = CheckRun(self._hub, ctx, thread, name, sha, state)
        own = "" if name == self._name else f"/{name}"
        await ctx.post(target, state.key(), key=f"check/{turn.id}{own}")

    def _may(self, ctx: EventContext) -> bool:
        """Tell whether the bot may make check runs: a token's owner may not, only an App."""
        if self._hub.client.config.app_id is not None:
            return True
        if not self._refused:
            ctx.log.warning("github.no_checks", why="only a GitHub App can make check runs")
        self._refused = True
        return False


def _summary(message: str, turn: Asked) -> str:
    return f"{message or 'Something went wrong.'} (`{turn.id}`)"
