"""The store: the only way the core keeps anything.

The protocol is written for many hosts. One process at a time holds a session's :class:`Lease` and
appends to its log; any process may accept deliveries for it. What a store owes:

- ``accept``, ``stop`` and ``decide`` are durable when they return, each in one transaction. Their
  records reach the callback given to ``listen`` in commit order, before the awaiting caller goes
  on, and also when that caller was cancelled.
- ``append`` fails with :class:`~threadline.errors.LeaseLost` when the lease is stale.
- Readers see whole lines only, in order, and only what was appended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from threadline.ids import new_id
from threadline.principal import Principal

__all__ = [
    "AcceptRequest",
    "AcceptResult",
    "Admission",
    "Artifact",
    "ArtifactRecord",
    "ArtifactStore",
    "BlobKind",
    "Checkpoint",
    "DecisionRecord",
    "DeliveryRecord",
    "DeliveryState",
    "InboxItem",
    "Lease",
    "Mode",
    "OutboundRecord",
    "Outcome",
    "SessionDeleted",
    "SessionRecord",
    "StopRecord",
    "Store",
    "Tag",
    "Watermark",
]

Admission = Literal["preempt", "coalesce"]
Mode = Literal["chat", "task"]
BlobKind = Literal["blob", "file"]
"""A tool's output as JSON, or a file or image that it gave."""
DeliveryState = Literal["accepted", "steered", "prompted", "cleared"]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session's identity, written once."""

    id: str
    channel: str
    mode: Mode
    owner: Principal
    created_at: str
    title: str | None = None
    purpose: str | None = None
    cwd: str | None = None
    parent: str | None = None
    dry_run: bool = False
    as_of: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the object that ``session.json`` holds."""
        wire: dict[str, Any] = {
            "id": self.id,
            "channel": self.channel,
            "mode": self.mode,
            "principal": self.owner.to_wire(),
            "createdAt": self.created_at,
        }
        optional = {
            "title": self.title,
            "purpose": self.purpose,
            "cwd": self.cwd,
            "parent": self.parent,
            "dryRun": self.dry_run or None,
            "asOf": self.as_of,
        }
        return wire | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """One accepted ``send()``; ``seq`` orders all deliveries of the agent.

    One that does not steer waits, with all behind it, for the next turn.
    """

    seq: int
    delivery_id: str
    session_id: str
    channel: str
    text: str
    admission: Admission
    at: str
    sender: Mapping[str, Any] | None = None
    context: Sequence[str] = ()
    attachments: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    steers: bool = True
    state: DeliveryState = "accepted"
    event_index: int | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A journaled stop: it concerns what was accepted up to delivery ``after_seq``."""

    seq: int
    session_id: str
    after_seq: int
    at: str
    clear_pending: bool = False
    before: str | None = None

    def concerns(self, seq: int, at: str) -> bool:
        """Tell whether a delivery, by its number and time, is older than the stop."""
        return seq <= self.after_seq and (self.before is None or at < self.before)


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A journaled decision on a parked tool call, by the principal ``by`` (as events have it)."""

    seq: int
    session_id: str
    call_id: str
    decision: Literal["approved", "denied"]
    by: Mapping[str, Any]
    at: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SessionDeleted:
    """The session is gone; nothing of it may be written again."""

    session_id: str


InboxItem = DeliveryRecord | StopRecord | DecisionRecord | SessionDeleted


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """What ``accept`` decides on.

    The target is ``session_id`` (checked against ``token``), or the session that ``token`` names in
    the channel (created when there is none), or, with neither, a new session with a fresh token.
    ``owner`` would own a new session; ``may`` decides whether ``principal`` may speak in an
    existing one; both are applied inside the transaction, so ``may`` must be pure. A message with
    ``dry_run`` or ``as_of`` for a session that is without, or as of another time, is a Conflict.
    """

    channel: str
    principal: Principal
    owner: Principal
    may: Callable[[SessionRecord], bool]
    text: str
    admission: Admission
    at: str
    delivery_id: str | None = None
    session_id: str | None = None
    token: str | None = None
    rotating: bool = False
    mode: Mode = "chat"
    title: str | None = None
    purpose: str | None = None
    cwd: str | None = None
    parent: str | None = None
    dry_run: bool = False
    as_of: str | None = None
    sender: Mapping[str, Any] | None = None
    context: Sequence[str] = ()
    attachments: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    steers: bool = True


@dataclass(frozen=True, slots=True)
class AcceptResult:
    """The answer to an accepted delivery; a duplicate gets the first one's, token included."""

    session: SessionRecord
    delivery: DeliveryRecord
    token: str
    created: bool = False
    duplicate: bool = False
    rotating: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a delivery, by the event that says so."""

    delivery_id: str
    state: DeliveryState
    event_index: int
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutboundRecord:
    """One post to an outside API: an intent at ``at``, settled by ``ref`` or ``failure``.

    ``digest`` is of the text that was posted last; None says that it may be one of several. An
    intent that is not settled may have been sent: it is looked up before it is sent again.
    """

    post_id: str
    session_id: str
    channel: str
    turn_id: str | None
    at: str
    ref: str | None = None
    failure: str | None = None
    settled_at: str | None = None
    digest: str | None = None

    @property
    def settled(self) -> bool:
        """True when there is a receipt or a final failure."""
        return self.settled_at is not None

    def to_wire(self) -> dict[str, Any]:
        """Return ``{channel, ref, at}``, ``{channel, failure, at}`` or ``{channel, intentAt}``."""
        if self.failure is not None:
            return {"channel": self.channel, "failure": self.failure, "at": self.settled_at}
        if self.ref is not None:
            return {"channel": self.channel, "ref": self.ref, "at": self.settled_at}
        return {"channel": self.channel, "intentAt": self.at}


@dataclass(frozen=True, slots=True)
class Watermark:
    """Where a session came to rest: folding may start there, with this state."""

    offset: int
    next_index: int
    at: str
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """History records that one checkpoint stored, and the nudges they were confirmed to hold."""

    turn_id: str
    messages: Sequence[Any]
    nudges: Sequence[Mapping[str, Any]] = ()


@dataclass(slots=True)
class Lease:
    """The right to write one session's log, from ``next_index`` on.

    ``mark`` is the last resting place that the log still has; ``recovered`` names the indices that
    a power cut may have taken.
    """

    session: SessionRecord
    epoch: int
    next_index: int
    last_at: str
    mark: Watermark | None = None
    recovered: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A durable thing that an agent made, as its last tag said.

    ``size`` (bytes), ``content_type``, ``filename`` and ``content_url`` are there when it has
    content. ``session_id`` is the session that tagged it last. ``dry_run``: nothing was stored.
    """

    id: str
    kind: str
    key: str
    created_at: str
    updated_at: str
    title: str | None = None
    data: Any = None
    session_id: str | None = None
    size: int | None = None
    content_type: str | None = None
    filename: str | None = None
    content_url: str | None = None
    dry_run: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the record as HTTP shows it; what it has not is left out."""
        wire: dict[str, Any] = {"id": self.id, "kind": self.kind, "key": self.key}
        optional = {
            "title": self.title,
            "data": self.data,
            "sessionId": self.session_id,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
            "size": self.size,
            "contentType": self.content_type,
            "filename": self.filename,
            "contentUrl": self.content_url,
            "dryRun": self.dry_run or None,
        }
        return wire | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """An artifact, whose it is, and the name of its content; ``rank`` grows with every tag."""

    artifact: Artifact
    owner: Principal
    rank: int
    content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """What an artifact becomes: nothing of an earlier tag stays, but its id and its session.

    ``content`` is read to its end, at most ``max_bytes``. ``keep`` is how many artifacts stay.
    """

    kind: str
    key: str
    owner: Principal
    at: str
    keep: int
    max_bytes: int
    title: str | None = None
    data: Any = None
    session_id: str | None = None
    content: BinaryIO | None = None
    content_type: str | None = None
    filename: str | None = None

    def applied(self, before: Artifact | None, size: int | None) -> Artifact:
        """Return the artifact that this makes of an earlier one; ``size`` is the content's."""
        described = size is not None
        return Artifact(
            id=before.id if before else new_id("art"),
            kind=self.kind,
            key=self.key,
            created_at=before.created_at if before else self.at,
            # A clock that was set back must not make the newest look older.
            updated_at=max(self.at, before.updated_at) if before else self.at,
            title=self.title,
            data=self.data,
            session_id=self.session_id or (before.session_id if before else None),
            size=size,
            content_type=self.content_type if described else None,
            filename=self.filename if described else None,
        )


class ArtifactStore(Protocol):
    """Keeps artifacts, one for each owner, kind and key; they outlive their sessions."""

    async def tag(self, tag: Tag) -> ArtifactRecord:
        """Make or replace an artifact, whole and durably, and evict the oldest beyond ``keep``.

        Raises NotFound when its session is gone, TooLarge when there is too much content.
        """

    def get(self, artifact_id: str) -> ArtifactRecord | None:
        """Return an artifact."""

    def find(self, owner: str, kind: str, key: str) -> ArtifactRecord | None:
        """Return the artifact that a tag would replace; ``owner`` is a principal's key."""

    def list(
        self,
        *,
        owner: str | None = None,
        kind: str | None = None,
        session_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[ArtifactRecord]:
        """Return artifacts, newest-updated first."""

    def path(self, record: ArtifactRecord) -> Path | None:
        """Return the file that holds the content; None when there is none, or none any more."""

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact durably; False when there is none."""

    def untold(self) -> Sequence[ArtifactRecord]:
        """Return the artifacts whose session's log may not say so yet, oldest first."""

    def told(self, record: ArtifactRecord) -> None:
        """Note that the session's log says so durably; need not be durable at once."""


class Store(Protocol):
    """Keeps sessions, deliveries, logs, checkpoints, blobs, cursors and values of one agent."""

    @property
    def artifacts(self) -> ArtifactStore:
        """What keeps the agent's artifacts, once the store is open."""

    async def open(self) -> None:
        """Take the state root, repair what a crash left, and be ready.

        Raises :class:`~threadline.errors.StateRootError`.
        """

    async def close(self) -> None:
        """Write what is buffered and release everything."""

    async def check(self) -> None:
        """Raise :class:`~threadline.errors.StoreUnavailable` when a write would fail now."""

    def listen(self, callback: Callable[[InboxItem], None]) -> None:
        """Call back for every accepted delivery, journaled stop and deleted session."""

    # Deliveries

    async def accept(self, request: AcceptRequest) -> AcceptResult:
        """Check, dedupe, rotate the token and journal the delivery, in one transaction."""

    async def stop(
        self, session_id: str, *, at: str, clear_pending: bool = False, before: str | None = None
    ) -> StopRecord:
        """Journal a stop."""

    def stop_done(self, stop: StopRecord) -> None:
        """Note that the log shows the stop's effect; need not be durable at once."""

    async def decide(
        self,
        session_id: str,
        call_id: str,
        decision: Literal["approved", "denied"],
        *,
        by: Mapping[str, Any],
        at: str,
        reason: str | None = None,
    ) -> DecisionRecord:
        """Journal a decision on a parked call, the first one only.

        Raises ApprovalClosed when there is one.
        """

    def decisions(self, session_id: str, call_ids: Sequence[str]) -> dict[str, DecisionRecord]:
        """Return the journaled decisions on these calls, by call id."""

    def delivery(
        self, delivery_id: str, *, channel: str | None = None, owner: str | None = None
    ) -> list[DeliveryRecord]:
        """Return the deliveries with this id, newest first, of one channel or owner if given."""

    def unsettled(self, session_id: str, next_index: int) -> list[DeliveryRecord]:
        """Return, in order, deliveries with no outcome cached from below ``next_index``."""

    def stops(self, session_id: str) -> list[StopRecord]:
        """Return journaled stops that are not known to be done, in order."""

    def sequence_of(self, session_id: str, delivery_ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers of these deliveries."""

    # Sessions

    def session(self, session_id: str) -> SessionRecord | None:
        """Return a session that exists and is not deleted."""

    def session_by_token(self, channel: str, token: str) -> SessionRecord | None:
        """Return the session that a current token names."""

    def token(self, session_id: str, channel: str) -> str | None:
        """Return the session's current token in a channel."""

    def sessions(self, owner: str | None = None, *, limit: int = 1000) -> list[SessionRecord]:
        """Return sessions, newest first, of one owner key if given."""

    def unrested(self) -> list[str]:
        """Return the sessions that a crash may have left with something to do."""

    def rested_status(self, session_id: str) -> str | None:
        """Return the status that the last rest noted."""

    def idle_since(self, before: datetime) -> list[str]:
        """Return sessions at rest whose last event is older than a moment."""

    async def delete(self, session_id: str) -> bool:
        """Remove log, history, blobs, traces and rows of a session; False when there is none."""

    # The log

    async def lease(self, session_id: str) -> Lease | None:
        """Take the right to write; None when the session is gone."""

    def rest(self, lease: Lease, watermark: Watermark) -> None:
        """Note that all is synced and nothing is left to do at this place, unless more came."""

    def release(self, lease: Lease) -> None:
        """Give the right back."""

    def replay(self, session_id: str, offset: int) -> Iterator[Mapping[str, Any]]:
        """Yield the stored events from a byte offset on, decoded."""

    async def append(
        self, lease: Lease, lines: Sequence[bytes], outcomes: Sequence[Outcome] = ()
    ) -> int:
        """Append whole lines in one fenced step; return the log's size in bytes."""

    async def sync(self, lease: Lease) -> None:
        """Return when all that was appended and checkpointed is on stable storage."""

    def size(self, session_id: str) -> int:
        """Return the log's size in bytes."""

    async def next_index(self, session_id: str) -> int | None:
        """Return the next index of a log, or None when there is no such session."""

    def read(
        self, session_id: str, start: int = 0, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield stored bytes, whole lines, from index ``start`` on.

        With ``follow``, an empty chunk says that the reader has all there is; it then goes on when
        more is appended, and ends when the session is deleted or the store closes.
        """

    # History, blobs, cursors, values

    def save_checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> None:
        """Append to the session's history; survives the process at once, a power cut after sync."""

    def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Return the session's history, oldest first."""

    def put_blob(self, lease: Lease, data: bytes, kind: BlobKind = "blob") -> str:
        """Keep bytes beside the log and return their id, which begins with their kind."""

    def blob(self, session_id: str, blob_id: str) -> Path | None:
        """Return the file that holds a blob."""

    def workspace(self, session_id: str) -> Path:
        """Return the folder of the session's own workspace; it may not exist yet."""

    def folder(self, channel: str) -> Path:
        """Return the folder of a channel's own files on this host; it may not exist yet."""

    def scratch(self, name: str) -> Path:
        """Return a folder path for one direct call; the caller makes and removes it."""

    def trace(self, session_id: str) -> Path:
        """Return the path of a session's trace file."""

    def cursor(self, session_id: str, subscriber: str) -> int:
        """Return the next index that a subscriber has not handled."""

    def set_cursor(self, session_id: str, subscriber: str, next_index: int) -> None:
        """Move a cursor; need not be durable at once."""

    async def intent(self, record: OutboundRecord) -> tuple[OutboundRecord, bool]:
        """Keep an intent durably before the first call; return what is kept, and whether it is new.

        One that is kept without a receipt, and with another ``digest``, loses its own: nobody knows
        which text arrived. Raises NotFound when the session is gone.
        """

    async def receipt(self, record: OutboundRecord) -> None:
        """Keep what came of an intent durably."""

    def outbound(self, session_id: str, turn_id: str | None = None) -> list[OutboundRecord]:
        """Return the posts of a session, or of one of its turns, oldest first."""

    async def kv_get(self, key: str) -> Any:
        """Return a kept JSON value, or None."""

    async def kv_put(self, key: str, value: Any) -> None:
        """Keep a JSON value."""

    async def kv_delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""

    @property
    def damage(self) -> Sequence[str]:
        """What repairs found, a sentence each, since the store was opened."""
