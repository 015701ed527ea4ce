"""Progress is best effort: a handler gets the latest text, not each piece, and delays nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from threadline.channel.deadline import Deadline
from threadline.clock import Clock

__all__ = ["ENDINGS", "PROGRESS", "Lane", "Texts"]

log = structlog.get_logger("threadline.channel")

GRACE_SECONDS = 1.0

PROGRESS: Mapping[str, tuple[str, str]] = {
    "message.appended": ("messageId", "message.completed"),
    "reasoning.appended": ("blockId", "reasoning.completed"),
}
_COMPLETED = {ends: (type_, key) for type_, (key, ends) in PROGRESS.items()}
_TURN_ENDS = frozenset({"turn.completed", "turn.failed"})
ENDINGS = frozenset(_COMPLETED) | _TURN_ENDS

_Event = dict[str, Any]
_Block = tuple[str, str]


@dataclass(slots=True)
class _Text:
    """What a block says up to an event."""

    text: str = ""
    upto: int = -1


class Texts:
    """What the open texts of one session say so far."""

    def __init__(self) -> None:
        self._open: dict[_Block, _Text] = {}

    def __bool__(self) -> bool:
        """Tell whether a text is open."""
        return bool(self._open)

    def latest(self, events: Iterable[_Event]) -> list[_Event]:
        """Return the events with the pieces of each text as one, and none where it is complete.

        The one piece stands where the last of them stood, its ``delta`` is all of them, and its
        data has ``text``: everything so far. Events that come again add nothing to it.
        """
        merged: list[_Event | None] = []
        places: dict[_Block, int] = {}
        for event in events:
            if event["type"] in PROGRESS:
                self._piece(event, merged, places)
                continue
            for block in self._ended(event):
                self._open.pop(block, None)
                if block in places:
                    merged[places.pop(block)] = None
            merged.append(event)
        return [event for event in merged if event is not None]

    def _piece(self, event: _Event, merged: list[_Event | None], places: dict[_Block, int]) -> None:
        block, delta = block_of(event), _delta(event)
        if block is None:
            return
        known = self._open.setdefault(block, _Text())
        if event["index"] > known.upto:
            known.text, known.upto = known.text + delta, event["index"]
        before = merged[places[block]] if block in places else None
        if before is not None:
            merged[places[block]] = None
            delta = before["data"]["delta"] + delta
        places[block] = len(merged)
        merged.append(event | {"data": event["data"] | {"delta": delta, "text": known.text}})

    def _ended(self, event: _Event) -> list[_Block]:
        """Return the blocks of which no more will come."""
        if event["type"] in _TURN_ENDS:
            return list(self._open)
        block = block_of(event)
        return [block] if block is not None else []


def block_of(event: _Event) -> _Block | None:
    """Return which text a piece of it, or its end, belongs to; None for other events."""
    type_, key = event["type"], PROGRESS.get(event["type"], ("", ""))[0]
    if type_ in _COMPLETED:
        type_, key = _COMPLETED[type_]
    data = event.get("data")
    name = data.get(key) if key and isinstance(data, dict) else None
    return (type_, name) if isinstance(name, str) else None


def _delta(event: _Event) -> str:
    data = event.get("data")
    delta = data.get("delta") if isinstance(data, dict) else None
    return delta if isinstance(delta, str) else ""


class Lane:
    """Runs a session's progress beside its other handlers, always with the newest text.

    What is overtaken while the one before it runs is left out.
    """

    def __init__(
        self,
        run: Callable[[_Event], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        clock: Clock,
    ) -> None:
        self._run = run
        self._spawn = spawn
        self._clock = clock
        self._waiting: dict[_Block, _Event] = {}
        self._task: asyncio.Task[None] | None = None

    def show(self, event: _Event) -> None:
        """Run the handlers of a piece when those of the last one have returned."""
        block = block_of(event)
        if block is None:
            return
        before = self._waiting.pop(block, None)
        if before is not None:
            delta = before["data"]["delta"] + event["data"]["delta"]
            event = event | {"data": event["data"] | {"delta": delta}}
        self._waiting[block] = event
        if self._task is None or self._task.done():
            self._task = self._spawn(self._work())

    def drop(self, event: _Event) -> None:
        """Show no more of what this event ends."""
        if event["type"] in _TURN_ENDS:
            self._waiting.clear()
        elif (block := block_of(event)) is not None:
            self._waiting.pop(block, None)

    async def clear(self) -> None:
        """Drop what waits, and end what runs, before something that matters more.

        A call on its way has a moment to arrive: cut off, it might arrive behind the final text.
        """
        self._waiting.clear()
        if self._task is None or self._task.done():
            return
        if not await self._ends(self._task):
            self._task.cancel()
            log.info("progress.cut_off", task=self._task.get_name())
            # One that does not heed its cancellation holds nothing up either.
            await self._ends(self._task)

    async def _ends(self, task: asyncio.Task[None]) -> bool:
        with contextlib.suppress(TimeoutError):
            async with Deadline(self._clock, GRACE_SECONDS):
                await asyncio.wait([task])
        return task.done()

    def cancel(self) -> list[asyncio.Task[None]]:
        """End it without a grace; return the task that ends, if one runs."""
        self._waiting.clear()
        if self._task is None or self._task.done():
            return []
        self._task.cancel()
        return [self._task]

    async def _work(self) -> None:
        while self._waiting:
            await self._run(self._waiting.pop(next(iter(self._waiting))))
