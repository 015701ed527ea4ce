"""The embedded store with a witness: what it accepted, and a death at a chosen write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadline.store.base import (
    AcceptRequest,
    AcceptResult,
    Lease,
    OutboundRecord,
    Outcome,
    Watermark,
)
from threadline.store.embedded import EmbeddedStore
from threadline.testing.faults import Crashed, FaultyDisk

__all__ = ["WatchedStore", "Witness"]


@dataclass(slots=True)
class Witness:
    """What a store was asked to keep; outlives restarts.

    ``accepted``: every answer to an accepted delivery, duplicates too, in order of the answers.
    ``intents`` and ``receipts`` name posts. ``die_at``: die before the next ``"intent"`` or
    ``"receipt"`` is kept, or when an event of this type is in the log. ``forget_places``: keep no
    cursor and no resting place, as a crash may always have it. ``on_death`` is called at once when
    the process dies there.
    """

    accepted: list[AcceptResult] = field(default_factory=list)
    intents: list[str] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    die_at: str | None = None
    forget_places: bool = False
    on_death: Callable[[], None] = lambda: None

    @property
    def fresh(self) -> list[AcceptResult]:
        """What was accepted, without duplicates."""
        return [result for result in self.accepted if not result.duplicate]


class WatchedStore(EmbeddedStore):
    """An :class:`EmbeddedStore` on a :class:`FaultyDisk` that tells a witness."""

    def __init__(self, *args: Any, witness: Witness, disk: FaultyDisk, **options: Any) -> None:
        super().__init__(*args, disk=disk, **options)
        self._witness = witness
        self._faulty = disk

    async def accept(self, request: AcceptRequest) -> AcceptResult:
        """Accept, and note it."""
        result = await super().accept(request)
        self._witness.accepted.append(result)
        return result

    async def append(
        self, lease: Lease, lines: Sequence[bytes], outcomes: Sequence[Outcome] = ()
    ) -> int:
        """Append, unless the process dies right after."""
        size = await super().append(lease, lines, outcomes)
        sought = f'"type":"{self._witness.die_at}"'.encode()
        if self._witness.die_at is not None and any(sought in line for line in lines):
            self._die_at(self._witness.die_at)
        return size

    async def intent(self, record: OutboundRecord) -> tuple[OutboundRecord, bool]:
        """Keep an intent, unless this is where the process dies."""
        self._die_at("intent")
        self._witness.intents.append(record.post_id)
        return await super().intent(record)

    async def receipt(self, record: OutboundRecord) -> None:
        """Keep a receipt, unless this is where the process dies."""
        self._die_at("receipt")
        self._witness.receipts.append(record.post_id)
        await super().receipt(record)

    def set_cursor(self, session_id: str, subscriber: str, next_index: int) -> None:
        """Move a cursor, unless it is to be lost."""
        if not self._witness.forget_places:
            super().set_cursor(session_id, subscriber, next_index)

    def rest(self, lease: Lease, watermark: Watermark) -> None:
        """Note a resting place, unless it is to be lost."""
        if not self._witness.forget_places:
            super().rest(lease, watermark)

    def _connect(self, database: Path) -> sqlite3.Connection:
        """Let the ledger, like the disk, only note its syncs: a real power cut is not at hand."""
        connection = super()._connect(database)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def _die_at(self, write: str) -> None:
        if self._witness.die_at == write:
            self._witness.die_at = None
            self._faulty.die()
            self._witness.on_death()
            raise Crashed
