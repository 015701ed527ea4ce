"""A text grows in a thread: as a stream, or as a message that is edited; best effort.

All calls of one text are made one after another by one task, each as soon as the limits allow. What
cannot be sure any more is left as it is, and mended when the text is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from threadline import EventContext, TryAgain
from threadline.channel.deadline import Deadline
from threadline_slack.interaction import cards
from threadline_slack.outbound.live import ENDED, Kind, Shown, Writer, is_refused, progress
from threadline_slack.outbound.pace import Pace
from threadline_slack.outbound.stream import LATE, LATEST, Growth, Step, visible
from threadline_slack.words.chunks import TEXT_LIMIT
from threadline_slack.words.compose import Message, compose
from threadline_slack.words.defuse import defuse

if TYPE_CHECKING:
    from threadline_slack.bots import Bot
    from threadline_slack.inbound.decide import Person, Place

__all__ = ["Growing"]

_NEVER = frozenset({"unknown_method", "missing_scope", "not_allowed_token_type"})
_SOON = 2.0
_WORKING = "_Working…_"

State: TypeAlias = Literal["done", "refused", "later", "unsure"]
Call: TypeAlias = Callable[[Writer], Awaitable[Any]]
Wait: TypeAlias = tuple[float, float | None]


@dataclass(slots=True)
class _Made:
    """What became of a call: done, refused with an error, put off, or nobody knows."""

    state: State = "later"
    answer: Any = None
    error: str = ""


class Growing:
    """Shows one text after another; ``slots`` are the messages of the one that is not complete.

    ``keep`` is called whenever they have changed, and before one is begun. Frozen, it shows nothing
    more until ``reset``.
    """

    def __init__(
        self,
        ctx: EventContext,
        bot: Bot,
        place: Place,
        pace: Pace,
        mentions: Collection[str],
        slots: list[Shown],
        keep: Callable[[], Awaitable[None]],
    ) -> None:
        self.slots = slots
        self.source = ""
        self.frozen = bool(slots)
        self.asker: Person | None = None
        self._ctx = ctx
        self._bot = bot
        self._place = place
        self._pace = pace
        self._mentions = mentions
        self._keep = keep
        self._growth = Growth()
        self._note = ""
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self._news, self._ended = asyncio.Event(), asyncio.Event()

    def grow(self, text: str) -> None:
        """Show the newest whole text."""
        self.source = text
        self._wake()

    def work(self) -> None:
        """Show that there is work, where a message with a Stop button can stand for it."""
        if self._kind == "edits":
            self._note = _WORKING
            self._wake()

    async def settle(self) -> None:
        """Return when no call is on its way; none is begun until it is told of more."""
        self._ending = True
        self._news.set()
        self._ended.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._ending = False

    async def pause(self) -> None:
        """End a stream as it stands, if that goes quickly: another host will go on."""
        slot = self._open
        if slot is not None and slot.kind == "stream" and slot.ts is not None:
            await self._made("chat.stopStream", lambda w: w.stop(slot.ts or ""))

    def finish(self, text: str) -> list[str] | None:
        """Return what each message of a stream has to say; None where they say something else."""
        return self._growth.finish(defuse(text, mentions=self._mentions))

    def reset(self) -> None:
        """Begin with another text."""
        self.slots.clear()
        self._growth, self.source, self._note, self.frozen = Growth(), "", "", False

    @property
    def _kind(self) -> Kind:
        if self.slots:
            return self.slots[-1].kind
        streams = self._pace.streams and self._place.root is not None and self.asker is not None
        return "stream" if streams else "edits"

    @property
    def _open(self) -> Shown | None:
        slot = self.slots[-1] if self.slots else None
        return slot if slot is not None and slot.open else None

    # The task

    def _wake(self) -> None:
        self._news.set()
        if self._task is None and not self.frozen and not self._ending:
            self._ended.clear()
            self._task = asyncio.ensure_future(self._run())
            self._ctx.defer(self._task)

    async def _run(self) -> None:
        try:
            with self._pace.growing():
                while not self._ending and not self.frozen:
                    self._news.clear()
                    gap, until = await self._advance()
                    await self._pause(self._ended, gap)
                    if until is None and not self._news.is_set():
                        return
                    await self._pause(self._news, until)
        except Exception as error:
            self.frozen = True
            self._ctx.log.warning("slack.not_shown", error=repr(error))
        finally:
            self._task = None

    async def _pause(self, event: asyncio.Event, seconds: float | None) -> None:
        if seconds is None:
            return
        with contextlib.suppress(TimeoutError):
            async with Deadline(self._ctx.clock, seconds):
                await event.wait()

    async def _advance(self) -> Wait:
        """Make a step; return how long to wait at least, and when to go on without news."""
        if self._place in self._bot.deleted:
            self.frozen = True
            return 0.0, None
        return await (self._advance_stream() if self._kind == "stream" else self._advance_edits())

    async def _made(self, method: str, call: Call) -> _Made:
        """Make a call, if nothing more important needs its place."""
        made, writer = _Made(), Writer(self._bot, self._place, method)

        async def once() -> None:
            made.state = "unsure"
            try:
                made.answer = await call(writer)
            except Exception as error:
                if isinstance(error, TryAgain) and error.sent is False:
                    made.state = "later"
                elif name := is_refused(error):
                    made.state, made.error = "refused", name
                raise
            made.state = "done"

        await progress(self._ctx, writer, once)
        self.frozen = self.frozen or made.state == "unsure"
        return made

    async def _begin(self, kind: Kind, text: str, method: str, call: Call) -> State:
        """Begin a message; that it may be there is kept before."""
        slot = Shown(kind, opened=self._ctx.clock.monotonic())
        self.slots.append(slot)
        await self._keep()
        made = await self._made(method, call)
        if made.state == "unsure":
            return made.state
        if made.state == "done":
            slot.ts, slot.text = made.answer, text
        else:
            self.slots.remove(slot)
        await self._keep()
        if made.state == "refused":
            self._refused(kind, made.error)
        return made.state

    def _refused(self, kind: Kind, error: str) -> None:
        """Go on by edits where streams are refused; where these are too, show nothing."""
        if kind == "edits":
            self.frozen = True
            return
        if error in _NEVER:
            self._pace.streams = False
        self.asker = None
        self._ctx.log.info("slack.no_stream", error=error)

    # A stream

    async def _advance_stream(self) -> Wait:
        slot, asker = self._open, self.asker
        text = visible(self.source, self._mentions)
        age = self._ctx.clock.monotonic() - slot.opened if slot else 0.0
        step = self._growth.step(text, age)
        if step is None:
            return 0.0, _left(age) if slot else None
        if slot is not None:
            return await self._add(slot, step, text, age)
        if asker is None:
            self.frozen = True
            return 0.0, None
        if not self._pace.may_start(self._ctx.clock.monotonic()):
            return _SOON, 0.0
        begun = await self._begin(
            "stream", step.text, "chat.startStream", lambda w: w.start(step.text, asker)
        )
        if begun == "done":
            self._growth = self._growth.after(Step(step.text), text)
            return self._pace.gap("stream"), 0.0 if step.closes else LATE
        if begun == "later":
            self._pace.not_started()
        return 0.0 if begun == "refused" else _SOON, 0.0

    async def _add(self, slot: Shown, step: Step, text: str, age: float) -> Wait:
        """Add to a stream, or end it; what follows is said in another one."""
        ts, before, slot.text = slot.ts or "", slot.text, None
        if step.closes:
            made = await self._made(
                "chat.stopStream", lambda w: w.stop(ts, step.text, session_status="processing")
            )
        else:
            made = await self._made("chat.appendStream", lambda w: w.append(ts, step.text))
        if made.state == "done":
            slot.text = (before or "") + step.text
            slot.open = not step.closes
            self._growth = self._growth.after(step, text)
        elif made.state != "unsure":
            slot.text = before
        if made.state == "refused":
            self._dead(slot, made.error, text)
        gap = self._pace.gap("stream")
        again = step.closes or made.state == "refused"
        return gap, 0.0 if again else _SOON if made.state == "later" else _left(age)

    def _dead(self, slot: Shown, error: str, text: str) -> None:
        """Go on in another message where one takes no more; else leave all to the end.

        A person who stopped it, or took it away, wants no other. One that died is shown as broken
        until it is edited, so what it shows is not good enough.
        """
        slot.open = error not in ENDED
        self.frozen = error != "message_not_in_streaming_state"
        if not self.frozen:
            slot.text = None
            self._growth = self._growth.cut_off(text)

    # A message that is edited

    async def _advance_edits(self) -> Wait:
        message, slot = self._so_far(), self._open
        if message is None or (slot is not None and slot.text == message.text):
            return 0.0, None
        text, blocks = message.text, [*message.blocks, cards.stop_button(self._place.token)]
        if slot is None:
            state = await self._begin(
                "edits", text, "chat.postMessage", lambda w: w.begin(text, blocks)
            )
        else:
            ts = slot.ts or ""
            made = await self._made("chat.update", lambda w: w.rewrite(ts, text, blocks))
            state = made.state
            slot.text = text if state == "done" else slot.text
            slot.lost = state == "refused"
            # An edit may be made again, so it does no harm that nobody knows of the last one.
            self.frozen = slot.lost
        return self._pace.gap("edits"), None if state == "done" else _SOON

    def _so_far(self) -> Message | None:
        """Return what fits into one message."""
        source = self.source if self.source.strip() else self._note
        messages = compose(source, mentions=self._mentions, limit=TEXT_LIMIT)
        return messages[0] if messages else None


def _left(age: float) -> float:
    """Return how soon a stream has to be left, though nothing new is said."""
    return next((limit - age for limit in (LATE, LATEST) if age < limit), _SOON)
