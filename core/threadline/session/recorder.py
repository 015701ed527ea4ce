"""How a session's events get into its log: encoded and buffered at once, written once a tick.

One flush writes all that is ready. Whoever has to know waits for :meth:`Recorder.flush` (the log
has it) or :meth:`Recorder.synced` (stable storage has it).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import structlog

from threadline import ndjson
from threadline.errors import LeaseLost, StoreUnavailable
from threadline.session.fold import FOLDED, State, apply
from threadline.store.base import BlobKind, Checkpoint, Lease, Outcome

if TYPE_CHECKING:
    from threadline.session.core import Services

__all__ = ["Recorder"]

log = structlog.get_logger("threadline.session")

SYNC_BEHIND = 5_000
MAX_BEHIND = 10_000
_DELTA_LIMIT = 64 * 1024
_RETRY_SECONDS = 0.5


@dataclass(slots=True)
class _Buffered:
    """An event on its way to the log; the data of a delta may still grow."""

    type: str
    index: int
    turn_id: str | None
    at: str
    data: dict[str, Any]


@dataclass(slots=True)
class _Buffer:
    """What was emitted since the last write."""

    events: list[_Buffered] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)


class Recorder:
    """Appends one session's events; ``state`` is their fold.

    ``failed`` is called when the log cannot be written for now, ``lost`` (with ``"store_failed"``
    or ``"session_deleted"``) when this process may not write it any more.
    """

    def __init__(
        self,
        services: Services,
        lease: Lease,
        *,
        failed: Callable[[], None],
        lost: Callable[[Literal["session_deleted", "store_failed"]], None],
    ) -> None:
        self.state = State()
        self.closed = False
        self._services = services
        self._lease = lease
        self._session = lease.session
        self._failed = failed
        self._lost = lost
        self._buffer = _Buffer()
        self._unwritten = False
        self._flushing: asyncio.Task[None] | None = None
        self._behind = 0
        self._written = lease.next_index
        self._catching: asyncio.Task[None] | None = None

    def emit(self, type_: str, data: dict[str, Any], turn_id: str | None = None) -> int:
        """Record an event: it is encoded and written within this tick of the event loop."""
        index = self._lease.next_index
        self._lease.next_index = index + 1
        at = max(self._services.stamp(), self._lease.last_at)
        self._lease.last_at = at
        self._buffer.events.append(_Buffered(type_, index, turn_id, at, data))
        if type_ in FOLDED:
            event = {"type": type_, "index": index, "turnId": turn_id, "at": at, "data": data}
            apply(self.state, event)
        self.schedule_flush()
        return index

    def emit_delta(self, type_: str, key: str, block: str, delta: str, turn_id: str) -> None:
        """Record a piece of text; it joins the last one while that is not written yet."""
        events = self._buffer.events
        if events:
            last = events[-1]
            if (
                last.type == type_
                and last.turn_id == turn_id
                and last.data[key] == block
                and len(last.data["delta"]) < _DELTA_LIMIT
            ):
                last.data["delta"] += delta
                return
        self.emit(type_, {key: block, "delta": delta}, turn_id)

    def schedule_flush(self) -> None:
        # With nothing to write there is nothing to wait for, and who waits would never yield.
        if self._flushing is None and (self._buffer.events or self._buffer.outcomes):
            self._flushing = self._services.spawn(self._flush(), "flush")

    async def _flush(self) -> None:
        """Write what is buffered until nothing is; one write for all that is ready."""
        try:
            while (self._buffer.events or self._buffer.outcomes) and not self.closed:
                if self._behind >= MAX_BEHIND:
                    await self._sync_behind()
                buffer, self._buffer = self._buffer, _Buffer()
                self._unwritten = not await self._write(buffer)
                if self._unwritten:
                    if self._services.draining:
                        return
                    await self._services.clock.sleep(_RETRY_SECONDS)
        except Exception as error:
            # What was on its way is lost: only opening the session again gets the indices right.
            log.error("log.flush_failed", session=self._session.id, exc_info=error)
            self._lost("store_failed")
        finally:
            self._flushing = None

    async def _sync_behind(self) -> None:
        """Let the disk catch up; unlike ``synced`` this is for the one who flushes."""
        self._behind = 0
        with contextlib.suppress(StoreUnavailable):
            await self._sync_store()

    async def _write(self, buffer: _Buffer) -> bool:
        """Append a buffer; on failure put it back and end the turn. Returns whether it worked."""
        events = buffer.events
        lines = [self._services.mask(ndjson.encode(self._wire(event))) for event in events]
        try:
            await self._services.store.append(self._lease, lines, buffer.outcomes)
        except StoreUnavailable as error:
            log.error("log.write_failed", session=self._session.id, error=error.message)
            buffer.events.extend(self._buffer.events)
            buffer.outcomes.extend(self._buffer.outcomes)
            self._buffer = buffer
            self._failed()
            return False
        except LeaseLost:
            self._gone()
            return True
        self._behind += len(lines)
        self._services.counts["events", "appended"] += len(lines)
        if self._behind >= SYNC_BEHIND and (self._catching is None or self._catching.done()):
            self._catching = self._services.spawn(self.sync_quietly(), "sync")
        if events:
            self._written = events[-1].index + 1
            self._services.appended(self._session, {event.type for event in events})
        return True

    def _wire(self, event: _Buffered) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "type": event.type,
            "index": event.index,
            "sessionId": self._session.id,
        }
        if event.turn_id is not None:
            wire["turnId"] = event.turn_id
        wire["at"] = event.at
        wire["data"] = event.data
        return wire

    @property
    def unwritten(self) -> bool:
        """True when the last write failed, so that events wait for the disk."""
        return self._unwritten

    @property
    def flushing(self) -> bool:
        """True while a flush is under way."""
        return self._flushing is not None

    @property
    def waiting(self) -> bool:
        """True when events wait to be written."""
        return bool(self._buffer.events)

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Pass on what became of deliveries, with the next write."""
        self._buffer.outcomes.extend(outcomes)

    def drop(self) -> None:
        """Forget what is buffered, and take nothing more."""
        self.closed = True
        self._buffer = _Buffer()

    def _gone(self) -> None:
        """The lease is gone: with the session, or because the store closed it after a failure."""
        gone = self._services.store.session(self._session.id) is None
        self._lost("session_deleted" if gone else "store_failed")

    async def flush(self) -> None:
        """Return when everything emitted so far is in the log, whatever is emitted meanwhile."""
        wanted = self._lease.next_index
        while self._flushing is not None and (self._written < wanted or self._buffer.outcomes):
            await asyncio.shield(self._flushing)

    async def synced(self) -> None:
        """Return when everything emitted so far is on stable storage."""
        await self.flush()
        self._behind = 0
        await self._sync_store()

    async def _sync_store(self) -> None:
        """Sync; a session whose sync failed is closed, and opened again from what the log has."""
        try:
            await self._services.store.sync(self._lease)
        except StoreUnavailable as error:
            log.error("log.sync_failed", session=self._session.id, error=error.message)
            self._lost("store_failed")
            raise

    async def sync_quietly(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self.synced()

    def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Store history; a store that cannot is a reason to end the turn. Tell whether it could."""
        try:
            self._services.store.save_checkpoint(self._lease, checkpoint)
        except StoreUnavailable as error:
            log.error("history.write_failed", session=self._session.id, error=error.message)
            self._failed()
            return False
        except LeaseLost:
            self._gone()
            return False
        return True

    async def put_blob(self, data: bytes, kind: BlobKind = "blob") -> str:
        """Keep a large output beside the log, without holding up the event loop."""
        return await asyncio.to_thread(self._services.store.put_blob, self._lease, data, kind)
