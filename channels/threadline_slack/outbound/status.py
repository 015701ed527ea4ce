"""The line under a thread that says what the agent does; it belongs to a turn.

https://docs.slack.dev/reference/methods/assistant.threads.setStatus
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from threadline import EventContext
from threadline.channel.deadline import Deadline
from threadline_slack.inbound.decide import Place
from threadline_slack.outbound.live import is_refused, progress
from threadline_slack.outbound.thread import Thread

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Status", "StatusText", "reasoning", "using"]

_NEVER = frozenset({"unknown_method", "missing_scope", "not_allowed_token_type"})
_MANY = 10_000
_RENEWED = 90.0  # seconds; Slack takes a status away after two minutes
_BETWEEN, _AGAIN = 1.5, 0.5
_TRIES = 9  # with twice the time between two each time: two minutes
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class StatusText:
    """What the line says behind the agent's name.

    ``tools`` and ``reasoning``: it names the tools in use, and the first line of what the model
    thinks. ``loading`` are up to ten short texts that Slack shows in turn.
    """

    thinking: str = "is thinking…"
    tools: bool = True
    reasoning: bool = True
    loading: Sequence[str] = ()


def using(tools: Iterable[str]) -> str:
    """Return what to say while tools run."""
    return f"is using {_short(', '.join(dict.fromkeys(tools)))}…"


def reasoning(text: str) -> str:
    """Return the first line of what a model thinks, without its marks; empty for nothing yet."""
    lines = (line.strip(" #*_`>-") for line in text.split("\n"))
    first = next((line for line in lines if line), "")
    return f"is thinking: {_short(first)}…" if first else ""


def _short(text: str) -> str:
    plain = text.translate({ord("<"): None, ord(">"): None})
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1].rstrip() + "…"


@dataclass(slots=True, eq=False)
class _Line:
    """The status of one thread: what it is to say, and what it says for sure.

    ``news`` is set by all that is wanted, and ``cleared`` when it is nothing; ``tries`` counts the
    calls that failed in a row.
    """

    turn: str | None
    wanted: str = ""
    loading: Sequence[str] = ()
    shown: str | None = None
    over: bool = False
    tries: int = 0
    task: asyncio.Task[None] | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    cleared: asyncio.Event = field(default_factory=asyncio.Event)

    def want(self, text: str) -> None:
        """Let it say a text."""
        self.wanted, self.tries = text, 0
        self.news.set()
        if not text:
            self.cleared.set()


class Status:
    """Keeps statuses as they are wanted, as long as the server knows the method and lets us."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client
        self.available = True
        self._lines: OrderedDict[Place, _Line] = OrderedDict()

    def show(
        self,
        ctx: EventContext,
        place: Place,
        turn: str | None,
        text: str,
        loading: Sequence[str] = (),
    ) -> None:
        """Let a thread's status be a text of a turn; once that is over, it is not heeded."""
        line = self._line(place, turn)
        if line is None or (line.turn == turn and line.over):
            return
        line.turn, line.over, line.loading = turn, False, loading
        line.want(text)
        self._begin(ctx, place, line)

    def end(self, ctx: EventContext, place: Place, turn: str | None) -> None:
        """Take a turn's status away, unless another turn has one; it is tried until it is gone."""
        line = self._line(place, turn)
        if line is None or line.turn != turn:
            return
        line.over = True
        line.want("")
        self._begin(ctx, place, line)

    def posted(self, place: Place) -> None:
        """Show it again: a post of the app takes it away."""
        line = self._lines.get(place)
        if line is not None and line.wanted:
            line.shown = None
            line.news.set()

    def _line(self, place: Place, turn: str | None) -> _Line | None:
        if place.root is None or not self.available:
            return None
        line = self._lines.setdefault(place, _Line(turn))
        self._lines.move_to_end(place)
        while len(self._lines) > _MANY and next(iter(self._lines.values())).task is None:
            self._lines.popitem(last=False)
        return line

    def _begin(self, ctx: EventContext, place: Place, line: _Line) -> None:
        if line.task is None and line.shown != line.wanted:
            line.task = asyncio.ensure_future(self._keep(ctx, place, line))
            ctx.defer(line.task)

    async def _keep(self, ctx: EventContext, place: Place, line: _Line) -> None:
        """Say what is wanted, one call at a time, until nothing is."""
        try:
            while self.available and line.tries < _TRIES:
                line.news.clear()
                if line.shown != line.wanted:
                    await self._say(ctx, place, line)
                elif not line.wanted:
                    return
                elif not await _told(ctx, line.news, _RENEWED):
                    line.shown = None
        finally:
            line.task = None

    async def _say(self, ctx: EventContext, place: Place, line: _Line) -> None:
        line.cleared.clear()
        wanted, line.shown = line.wanted, None
        target = _Target(self._client, place)
        made = await progress(ctx, target, lambda: self._set(target, wanted, line.loading))
        if made:
            line.shown = wanted
        line.tries = 0 if made else line.tries + 1
        if wanted or not made:
            seconds = _BETWEEN if made else _AGAIN * 2 ** (line.tries - 1)
            await _told(ctx, line.cleared, seconds)

    async def _set(self, target: _Target, text: str, loading: Sequence[str]) -> None:
        """Set it; what Slack refuses for good is as good as done."""
        try:
            await target.set(text, loading if text else ())
        except Exception as error:
            if not (name := is_refused(error)):
                raise
            self.available = name not in _NEVER


class _Target(Thread):
    """A thread's status, with a limit of its own."""

    def __init__(self, client: AsyncWebClient, place: Place) -> None:
        super().__init__(client, place)
        self.method = "assistant.threads.setStatus"

    async def set(self, text: str, loading: Sequence[str]) -> None:
        """Set the status, or take it away."""
        await self._call(
            lambda: self._client.assistant_threads_setStatus(
                channel_id=self._place.channel,
                thread_ts=self._place.root or "",
                status=text,
                loading_messages=list(loading) or None,
            )
        )


async def _told(ctx: EventContext, event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, so long at most; tell whether it came."""
    with contextlib.suppress(TimeoutError):
        async with Deadline(ctx.clock, seconds):
            await event.wait()
    return event.is_set()
