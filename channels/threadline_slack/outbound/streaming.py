"""A conversation's messages while they are written: they grow, and are completed or removed.

Where Slack streams, a message is a stream, and another goes on before it dies or is full. Elsewhere
it is one message that is edited, with a Stop button; what does not fit in it follows at the end.
What was begun is kept before anything is added to it, so that after a crash it is completed too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from threadline import EventContext
from threadline_slack.outbound.growing import Growing
from threadline_slack.outbound.live import Ending, Removal, Shown
from threadline_slack.outbound.pace import Pace
from threadline_slack.outbound.thread import Thread
from threadline_slack.words.chunks import TEXT_LIMIT, truncate
from threadline_slack.words.compose import Message, compose
from threadline_slack.words.render import mrkdwn

if TYPE_CHECKING:
    from threadline_slack.bots import Bot
    from threadline_slack.inbound.decide import Person, Place

__all__ = ["Live", "Lives", "Piece"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A message of a complete text, and where it goes: ``slot`` is what is shown of it already.

    ``stream`` is its text in a stream.
    """

    message: Message
    target: Thread
    slot: Shown | None = None
    stream: str = ""


class Live:
    """What is on its way in one session, until its turn is over.

    ``kept`` is what a process before this one left; it is completed, and not added to. ``silent``:
    nothing grows any more in this turn.
    """

    def __init__(
        self,
        ctx: EventContext,
        bot: Bot,
        place: Place,
        pace: Pace,
        mentions: Collection[str],
        kept: Any,
    ) -> None:
        self._ctx = ctx
        self._bot = bot
        self._place = place
        self._mentions = mentions
        self._said: str | None = kept.get("said") if kept else None
        self._stored = bool(kept)
        self._slots = [Shown(one["kind"], one["ts"]) for one in kept["slots"]] if kept else []
        self.left_over = bool(self._slots)
        self.silent = False
        self._growing = Growing(ctx, bot, place, pace, mentions, self._slots, self._keep)

    @property
    def thread(self) -> Thread:
        """Where posts go."""
        return self._bot.thread(self._place)

    # While it grows

    def grow(self, asker: Person | None, text: str) -> None:
        """Show the newest whole text of a message, for who asked."""
        if not self.silent:
            self._growing.asker = asker
            self._growing.grow(text)

    def work(self, asker: Person | None) -> None:
        """Show that there is work, where nothing else can."""
        if not self.silent:
            self._growing.asker = asker
            self._growing.work()

    async def settle(self) -> None:
        """Return when no call is on its way; none is begun until it is told of more."""
        await self._growing.settle()

    async def pause(self) -> None:
        """Leave what is there to the next host."""
        await self._growing.settle()
        await self._growing.pause()

    # Completing

    async def said(self) -> str:
        """Return what was said of a message that never became complete; it is kept from now on."""
        if self._said is None:
            self._said = self._growing.source if self._slots and not self.left_over else ""
            if self._slots:
                await self._keep()
        return self._said

    def pieces(self, text: str, *, goes_on: bool = False) -> list[Piece]:
        """Return the messages of a complete text, each where it is shown already.

        ``goes_on``: the turn does.
        """
        edits = any(slot.kind == "edits" for slot in self._slots)
        whole = None
        if self._slots and not edits and not self.left_over:
            whole = self._growing.finish(text)
        if whole is not None:
            messages = [self._message(part) for part in whole]
        else:
            limit = TEXT_LIMIT if edits else None
            messages = compose(text, mentions=self._mentions, limit=limit)
        places = zip_longest(messages, self._slots[: len(messages)], whole or ())
        return [
            Piece(message, self._target(slot, goes_on), slot, part or "")
            for message, slot, part in places
        ]

    def anew(self, text: str) -> list[Piece]:
        """Return the messages of a text that is not what is shown."""
        return [Piece(message, self.thread) for message in compose(text, mentions=self._mentions)]

    def _message(self, part: str) -> Message:
        said = truncate(mrkdwn(part, mentions=self._mentions), TEXT_LIMIT)
        return Message(said, [{"type": "markdown", "text": part.strip("\n")}])

    def _target(self, slot: Shown | None, goes_on: bool) -> Thread:
        if slot is None:
            return self.thread
        status = "processing" if goes_on else ""
        others = self._others(slot)
        return Ending(self._bot, self._place, slot, others, self._keep, status=status)

    def _others(self, slot: Shown) -> list[str]:
        return [one.ts for one in self._slots if one is not slot and one.ts is not None]

    async def done(self, ctx: EventContext, shown: Collection[str] = ()) -> None:
        """Remove what is there beside the messages of a complete text, and keep nothing more."""
        shown = () if self._place in self._bot.deleted else shown
        for slot in [one for one in self._slots if one.ts is None or one.ts not in shown]:
            known = [*self._others(slot), *shown]
            target = Removal(self._bot, self._place, slot, known, self._keep)
            event = ctx.event.index if ctx.event is not None else 0
            await ctx.post(target, "", key=f"removed/{slot.ts or f'after {event}'}")
        self._growing.reset()
        self._said, self.left_over = None, False
        if self._stored:
            await self._ctx.kv.delete(_key(ctx.session_record.id))
            self._stored = False

    async def _keep(self) -> None:
        """Keep what a restart needs to know."""
        self._stored = True
        slots = [slot.to_json() for slot in self._slots]
        await self._ctx.kv.put(
            _key(self._ctx.session_record.id), {"slots": slots, "said": self._said}
        )


class Lives:
    """Finds what is on its way in each session."""

    def __init__(self, mentions: Collection[str]) -> None:
        self._mentions = mentions
        self._lives: dict[str, Live] = {}
        self._paces: WeakKeyDictionary[Bot, Pace] = WeakKeyDictionary()

    async def of(self, ctx: EventContext, bot: Bot, place: Place) -> Live:
        """Return what is on its way in the event's session; after a restart the store knows."""
        session_id = ctx.session_record.id
        if session_id not in self._lives:
            pace = self._paces.setdefault(bot, Pace())
            kept = await ctx.kv.get(_key(session_id))
            made = Live(ctx, bot, place, pace, self._mentions, kept)
            self._lives.setdefault(session_id, made)
        return self._lives[session_id]

    def drop(self, session_id: str) -> None:
        """Forget a session, whose turn is over here; the store may still know of it."""
        self._lives.pop(session_id, None)


def _key(session_id: str) -> str:
    return f"live/{session_id}"
