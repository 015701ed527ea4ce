"""What belongs to a message of a pull request or an issue, fetched before the model reads it.

The messages of one coming turn share what is read: one of them carries it, and the others nothing.
What was told is kept by session, so that a turn is told what is new since the last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from threadline import Context, Prepared, Session
from threadline.store.base import DeliveryRecord
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.workspace.reading import Folders, Reader
from threadline_github.workspace.render import DIFF_FILE, Reading, news
from threadline_github.workspace.told import SETTLING, Ledger, Telling

__all__ = ["Prompter"]

_ROOMS = 1_000
_HEADS = 100


@dataclass(slots=True)
class _Room:
    """One session's messages that are being prepared: who came when, and what was read last."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    came: int = 0
    asked: list[str] = field(default_factory=list)
    reading: Reading | None = None
    seen: int = 0  # how many had come when it was begun
    began: datetime | None = None
    read_at: datetime | None = None  # when what was read last was begun
    index: int = 0
    running: bool = False
    named: bool = False  # whether the coming turn was told which commit the head is

    def serves(
        self, number: int, delivery: DeliveryRecord, index: int, *, running: bool
    ) -> Reading | None:
        """Return what was read, if it was begun behind the message, for the same coming turn."""
        if self.reading is None or (self.index, self.running) != (index, running):
            return None
        fresh = number <= self.seen
        if not fresh and self.began is not None:
            fresh = datetime.fromisoformat(delivery.at) < self.began
        head = delivery.metadata.get("head")
        if not fresh and delivery.metadata.get("comment") is None and head is not None:
            fresh = head == self.reading.head
        return self.reading if fresh else None


class Prompter:
    """Gathers for one channel.

    ``worktrees`` gives the working folders, None where code is not checked out; ``seconds`` is how
    long one may take to be moved.
    """

    def __init__(
        self, hub: Hub, worktrees: Callable[[], Folders | None], *, seconds: float = 300.0
    ) -> None:
        self._reader = Reader(hub, worktrees, seconds)
        self._rooms: OrderedDict[str, _Room] = OrderedDict()

    async def gather(
        self, ctx: Context, delivery: DeliveryRecord, thread: Thread, *, running: bool
    ) -> Prepared:
        """Return context and files for a message; never raises for GitHub or git.

        ``running`` tells that a turn runs now: its working folder stays as it is. Keeps which
        commit the coming turn works on as ``head/<session id>``.
        """
        session = ctx.session(delivery.session_id)
        if session is None:
            return Prepared()
        room = self._room(session.id)
        room.came += 1
        number = room.came
        if (name := _name(delivery)) is not None:
            room.asked.append(name)
        async with room.turn:
            ledger = await self._ledger(ctx, session, delivery, room)
            index = await session.next_index()
            # The messages of one turn are prepared in one pass of the event loop: let all come.
            await asyncio.sleep(0)
            reading = shared = room.serves(number, delivery, index, running=running)
            if reading is None:
                room.seen, room.began, room.index = room.came, ctx.clock.now(), index
                room.running, room.named = running, False
                reading = await self._reader.read(ctx, thread, ledger.told, running=running)
            spoke_of = delivery.metadata.get("head")
            if shared is not None and _name(delivery) is None and room.named:
                # Of many pushes the newest counts, and it is enough that one says which.
                spoke_of = None
            prepared = await self._told(ctx, delivery, thread, room, ledger, reading, spoke_of)
            room.named |= any(str(reading.head) in block for block in prepared.context)
            return prepared

    def standing(self, session_id: str) -> tuple[str, datetime] | None:
        """Return how it stood when it was read last, as ``closed``, and when that was begun.

        None when it could not be read.
        """
        room = self._rooms.get(session_id)
        subject = room.reading.subject if room is not None and room.reading is not None else None
        if room is None or subject is None or room.read_at is None:
            return None
        return subject.standing, room.read_at

    async def _told(
        self,
        ctx: Context,
        delivery: DeliveryRecord,
        thread: Thread,
        room: _Room,
        ledger: Ledger,
        reading: Reading,
        spoke_of: Any,
    ) -> Prepared:
        """Keep what this message tells, and return it."""
        ledger = ledger.asks(room.asked)
        blocks, told = news(
            reading,
            ledger.told,
            asked=frozenset(ledger.asked),
            place=thread.repository.name,
            spoke_of=spoke_of if isinstance(spoke_of, str) else None,
        )
        if blocks and told is not None and told != ledger.told:
            ledger = ledger.telling(Telling(delivery.delivery_id, room.index, told))
        if thread.is_pull:
            await _keep_head(ctx, delivery, reading, running=room.running)
        await ctx.kv.put(_key(delivery.session_id), ledger.to_json())
        room.asked.clear()
        room.reading, room.read_at = reading.spent(), room.began
        return Prepared(blocks, {DIFF_FILE: reading.whole} if reading.whole else {})

    async def _ledger(
        self, ctx: Context, session: Session, delivery: DeliveryRecord, room: _Room
    ) -> Ledger:
        """Return what the session was told, by what was kept and what its log says.

        What a message carried that is prepared again, as after a crash, is told again.
        """
        kept = Ledger.of(await ctx.kv.get(_key(session.id)))
        ledger, since = kept, kept.unsettled
        if since is not None:
            ledger = kept.settled(
                [event async for event in session.recorded(*SETTLING, start=since)]
            )
        ledger = ledger.without(delivery.delivery_id)
        if len(ledger.tellings) < len(kept.tellings):
            room.reading = None
        return ledger

    def _room(self, session_id: str) -> _Room:
        room = self._rooms.setdefault(session_id, _Room())
        self._rooms.move_to_end(session_id)
        if len(self._rooms) > _ROOMS:
            idle = (one for one, other in self._rooms.items() if not other.turn.locked())
            del self._rooms[next(idle)]
        return room


async def _keep_head(
    ctx: Context, delivery: DeliveryRecord, reading: Reading, *, running: bool
) -> None:
    """Keep the commit that the coming turn works on, and which one each message was told of."""
    key = f"head/{delivery.session_id}"
    kept: dict[str, Any] = await ctx.kv.get(key) or {}
    known = {name: kept.get(name) for name in ("sha", "fork", "base")}
    if reading.subject is not None and reading.head is not None and not running:
        subject = reading.subject
        known = {"sha": reading.head, "fork": subject.fork, "base": subject.base}
    elif known["sha"] is None:
        about = delivery.metadata
        known = {"sha": about.get("head"), "fork": about.get("fork", True), "base": None}
    if known["sha"] is None:
        return
    of = {**kept.get("of", {}), delivery.delivery_id: known["sha"]}
    await ctx.kv.put(key, {**known, "of": dict(list(of.items())[-_HEADS:])})


def _name(delivery: DeliveryRecord) -> str | None:
    """Return the comment that a message is, as comments are named when they are read."""
    about = delivery.metadata
    if isinstance(about.get("review"), int):
        return f"review/{about['review']}"
    kind = "review_comment" if "review_comment" in about else "comment"
    return f"{kind}/{about['comment']}" if isinstance(about.get("comment"), int) else None


def _key(session_id: str) -> str:
    return f"told/{session_id}"
