"""The comment that says what the agent is at, until it becomes the answer; best effort.

GitHub counts what is written, 80 a minute and 500 an hour for everybody together, so a comment is
edited ever more seldom. https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from threadline import EventContext, Post
from threadline.channel.deadline import Deadline
from threadline_github.client import GitHubRefused
from threadline_github.outbound.conversation import Conversation
from threadline_github.outbound.words import quoted

__all__ = ["WORKING", "Steps", "Working"]

WORKING = "_Working on it…_"
_FIRST, _GROWTH, _LONGEST = 5.0, 1.5, 60.0  # seconds between edits
_SHOWN = 12
_NAME = 80
_MANY = 10_000


@dataclass(slots=True)
class Steps:
    """The tools that a turn used, in the order of their first use; ``now`` are those in use."""

    used: Counter[str] = field(default_factory=Counter)
    now: tuple[str, ...] = ()
    waits: str = ""

    def text(self) -> str:
        """Return what to show."""
        lines = [WORKING if not self.waits else f"_Waiting: {self.waits}_"]
        names = list(self.used)
        hidden = len(names) - _SHOWN
        if hidden > 0:
            lines.append(f"- {hidden} more")
        lines += [self._line(name) for name in names[max(hidden, 0) :]]
        return "\n".join([lines[0], "", *lines[1:]]) if len(lines) > 1 else lines[0]

    def _line(self, name: str) -> str:
        times = f" ×{self.used[name]}" if self.used[name] > 1 else ""
        return f"- {quoted(name[:_NAME])}{times}{' …' if name in self.now else ''}"


@dataclass(slots=True, eq=False)
class _Shown:
    """One comment: the post that it is, where it stands, and what it says."""

    turn: str
    post: Post
    ref: str
    target: Conversation
    due: float
    steps: Steps = field(default_factory=Steps)
    said: str = WORKING
    gap: float = _FIRST
    over: bool = False
    task: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Working:
    """The comments of the turns that run now, one for each session; in memory, and bounded."""

    def __init__(self) -> None:
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def begin(self, ctx: EventContext, target: Conversation, ref: str, post_id: str) -> None:
        """Keep a comment that says that there is work up to date."""
        event = ctx.event
        assert event is not None
        turn = event.turn_id or ""
        due = ctx.clock.monotonic() + _FIRST
        post = Post(post_id, event.session_id, turn, WORKING)
        self._shown[event.session_id] = _Shown(turn, post, ref, target, due)
        while len(self._shown) > _MANY:
            self._shown.popitem(last=False)

    def use(self, ctx: EventContext, tools: Iterable[str]) -> None:
        """Show that tools are in use; none: that the model thinks."""
        shown = self._of(ctx)
        if shown is not None:
            shown.steps.now = tuple(tools)
            shown.steps.used.update(shown.steps.now)
            self._wake(ctx, shown)

    def wait(self, ctx: EventContext, what: str) -> None:
        """Show what is waited for; an empty text: nothing any more."""
        shown = self._of(ctx)
        if shown is not None:
            shown.steps.waits = what
            self._wake(ctx, shown)

    async def end(self, session_id: str) -> None:
        """Edit no more; returns when no call is on its way."""
        shown = self._shown.pop(session_id, None)
        if shown is None:
            return
        shown.over = True
        shown.ended.set()
        if shown.task is not None:
            await asyncio.wait([shown.task])

    def _of(self, ctx: EventContext) -> _Shown | None:
        event = ctx.event
        shown = self._shown.get(event.session_id) if event is not None else None
        return shown if shown is not None and event and shown.turn == event.turn_id else None

    def _wake(self, ctx: EventContext, shown: _Shown) -> None:
        if shown.task is None and not shown.over:
            shown.task = asyncio.ensure_future(self._keep(ctx, shown))
            ctx.defer(shown.task)

    async def _keep(self, ctx: EventContext, shown: _Shown) -> None:
        """Edit the comment until it says what is so now."""
        try:
            while not shown.over and shown.steps.text() != shown.said:
                await _pause(ctx, shown)
                if not shown.over:
                    await self._show(ctx, shown)
        finally:
            shown.task = None

    async def _show(self, ctx: EventContext, shown: _Shown) -> None:
        text = shown.steps.text()

        async def once() -> None:
            try:
                await shown.target.rewrite(shown.ref, _saying(shown.post, text))
            except GitHubRefused:
                # It is gone, or not ours to change: the answer will be made anew.
                shown.over = True
                raise
            shown.said = text

        await ctx.progress(shown.target, once)
        shown.due = ctx.clock.monotonic() + shown.gap
        shown.gap = min(shown.gap * _GROWTH, _LONGEST)


def _saying(post: Post, text: str) -> Post:
    return Post(post.id, post.session_id, post.turn_id, text, post.metadata)


async def _pause(ctx: EventContext, shown: _Shown) -> None:
    """Wait until the comment may be edited again, or need not be."""
    seconds = shown.due - ctx.clock.monotonic()
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            async with Deadline(ctx.clock, seconds):
                await shown.ended.wait()
