"""The ledger: what must be one transaction, in SQLite.

Functions here take an open connection and run inside the caller's transaction; the thread that
commits is :mod:`threadline.store.writer`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson

from threadline.errors import (
    ApprovalClosed,
    Conflict,
    DeliveryConflict,
    Forbidden,
    NotFound,
    StaleToken,
    TaskSession,
)
from threadline.ids import new_id
from threadline.principal import Principal
from threadline.store.base import (
    AcceptRequest,
    AcceptResult,
    DecisionRecord,
    DeliveryRecord,
    OutboundRecord,
    Outcome,
    SessionRecord,
    StopRecord,
    Watermark,
)

__all__ = ["SUSPECT", "Ledger", "connect"]

SCHEMA_VERSION = 1
SUSPECT = "!"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
  id TEXT PRIMARY KEY, channel TEXT NOT NULL, mode TEXT NOT NULL, owner_key TEXT NOT NULL,
  record BLOB NOT NULL, created_at TEXT NOT NULL, last_seq INTEGER NOT NULL DEFAULT 0,
  rotation INTEGER NOT NULL DEFAULT 0, open_boot TEXT, deleted_at TEXT,
  floor INTEGER NOT NULL DEFAULT 0,
  mark_offset INTEGER, mark_index INTEGER, mark_at TEXT, mark_state BLOB
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_owner ON sessions (owner_key, created_at);
CREATE INDEX IF NOT EXISTS sessions_open ON sessions (id) WHERE open_boot IS NOT NULL;
CREATE TABLE IF NOT EXISTS tokens (
  channel TEXT NOT NULL, hash BLOB NOT NULL, session_id TEXT NOT NULL, token TEXT,
  rotation INTEGER, PRIMARY KEY (channel, hash)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tokens_by_session ON tokens (session_id);
CREATE TABLE IF NOT EXISTS deliveries (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, owner_key TEXT NOT NULL,
  delivery_id TEXT NOT NULL, session_id TEXT NOT NULL, target BLOB NOT NULL, text TEXT NOT NULL,
  admission TEXT NOT NULL, at TEXT NOT NULL, body BLOB NOT NULL, rotation INTEGER,
  state TEXT NOT NULL DEFAULT 'accepted', event_index INTEGER, turn_id TEXT,
  UNIQUE (channel, owner_key, delivery_id)
);
CREATE INDEX IF NOT EXISTS deliveries_by_session ON deliveries (session_id, seq);
CREATE INDEX IF NOT EXISTS deliveries_by_id ON deliveries (delivery_id);
CREATE INDEX IF NOT EXISTS deliveries_pending ON deliveries (session_id) WHERE state = 'accepted';
CREATE TABLE IF NOT EXISTS stops (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, after_seq INTEGER NOT NULL,
  at TEXT NOT NULL, clear_pending INTEGER NOT NULL, before TEXT, done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS stops_open ON stops (session_id) WHERE done = 0;
CREATE TABLE IF NOT EXISTS decisions (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, call_id TEXT NOT NULL,
  decision TEXT NOT NULL, principal BLOB NOT NULL, at TEXT NOT NULL, reason TEXT,
  UNIQUE (session_id, call_id)
);
CREATE TABLE IF NOT EXISTS cursors (
  session_id TEXT NOT NULL, subscriber TEXT NOT NULL, next_index INTEGER NOT NULL,
  PRIMARY KEY (session_id, subscriber)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbound (
  post_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, channel TEXT NOT NULL, turn_id TEXT,
  at TEXT NOT NULL, ref TEXT, failure TEXT, settled_at TEXT, digest TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outbound_by_session ON outbound (session_id, turn_id);
CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""

_ADOPTED = b"adopted"
_OUTBOUND = "post_id, session_id, channel, turn_id, at, ref, failure, settled_at, digest"
_DELIVERY = (
    "seq, delivery_id, session_id, channel, text, admission, at, body, state, event_index, turn_id"
)


def connect(path: Path) -> sqlite3.Connection:
    """Open the database: WAL, FULL, transactions by hand, usable from the thread that owns it."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "wal_autocheckpoint=500",
        "busy_timeout=10000",
        "temp_store=MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def token_hash(token: str) -> bytes:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class Ledger:
    """SQL over one connection, for one agent's sessions, deliveries, stops, tokens and values."""

    def __init__(self, connection: sqlite3.Connection, secret: bytes = b"", boot: str = "") -> None:
        self.sql = connection
        self.secret = secret
        self.boot = boot
        self.new_session: Callable[[], str] = lambda: new_id("ses")

    def create(self) -> None:
        """Make the tables that are missing."""
        self.sql.executescript(_SCHEMA)

    def meta(self, key: str) -> bytes | None:
        """Return a value of the database about itself."""
        row = self.sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_meta(self, key: str, value: bytes) -> None:
        """Keep a value of the database about itself."""
        self.sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    # Accept

    def accept(self, request: AcceptRequest) -> AcceptResult:
        """Decide on a delivery, in the contract's order, and journal it."""
        session = self._target(request)
        if session is not None and not request.may(session):
            raise Forbidden("This session belongs to another principal.")
        owner = session.owner if session is not None else request.owner
        delivery_id = request.delivery_id or new_id("dlv")
        if request.delivery_id is not None:
            first = self._first(request, owner.key, delivery_id, session)
            if first is not None:
                return first
        if session is not None and (session.mode == "task" or request.mode == "task"):
            raise TaskSession(
                f"Session {session.id} is not open to follow-ups: it is a task, or this is one. "
                "Start a new session instead."
            )
        if session is not None and request.session_id is not None:
            self._check_token(session, request)
        elif session is None and request.rotating and request.token is not None:
            raise StaleToken("The continuation token names no session. Use the newest one.")
        if session is not None:
            self._check_unused(session, delivery_id)
            _check_options(session, request)
        created = session is None
        if session is None:
            session = self._create(request)
        return self._journal(request, session, owner, delivery_id, created)

    def _target(self, request: AcceptRequest) -> SessionRecord | None:
        if request.session_id is not None:
            session = self.session(request.session_id)
            if session is None:
                raise NotFound(f"There is no session {request.session_id}.")
            return session
        if request.token is not None:
            return self.session_by_token(request.channel, request.token)
        return None

    def _first(
        self, request: AcceptRequest, owner: str, delivery_id: str, session: SessionRecord | None
    ) -> AcceptResult | None:
        row = self.sql.execute(
            f"SELECT {_DELIVERY}, target, rotation FROM deliveries"
            " WHERE channel = ? AND owner_key = ? AND delivery_id = ?",
            (request.channel, owner, delivery_id),
        ).fetchone()
        if row is None:
            return None
        delivery = _delivery(row)
        same_session = (
            delivery.session_id == session.id
            if session
            else row[11] in (_target_key(request), _ADOPTED)
        )
        if not same_session or delivery.text != request.text:
            raise DeliveryConflict(
                f"Delivery id {delivery_id} was already used with "
                + ("another text." if same_session else "another session.")
                + " Use a new id for a new message."
            )
        record = self.session(delivery.session_id, deleted=True)
        if record is None:
            raise NotFound(f"The session of delivery {delivery_id} is gone.")
        return AcceptResult(
            record, delivery, self._first_token(request, record, delivery, row[12]), duplicate=True
        )

    def _first_token(
        self,
        request: AcceptRequest,
        session: SessionRecord,
        delivery: DeliveryRecord,
        rotation: int | None,
    ) -> str:
        """Return the token that the first answer had; an adopted log has none, so make one."""
        if rotation is not None:
            return self.rotated(session.id, request.channel, rotation)
        if not request.rotating:
            return request.token or self.token(session.id, request.channel) or ""
        if request.token and self.session_by_token(request.channel, request.token) == session:
            return request.token
        token, granted = self._grant(request, session, False)
        self.sql.execute(
            "UPDATE deliveries SET rotation = ? WHERE seq = ?", (granted, delivery.seq)
        )
        return token

    def _check_unused(self, session: SessionRecord, delivery_id: str) -> None:
        """An id names one delivery of a session, whichever channel it came through."""
        row = self.sql.execute(
            "SELECT channel FROM deliveries WHERE delivery_id = ? AND session_id = ?",
            (delivery_id, session.id),
        ).fetchone()
        if row is not None:
            raise DeliveryConflict(
                f"Delivery id {delivery_id} came to this session through channel {row[0]} before. "
                "Use a new id for a new message."
            )

    def _check_token(self, session: SessionRecord, request: AcceptRequest) -> None:
        given = token_hash(request.token or "")
        rows = self.sql.execute(
            "SELECT hash FROM tokens WHERE session_id = ? AND channel IN (?, ?)",
            (session.id, request.channel, session.channel),
        ).fetchall()
        current = False
        for (stored,) in rows:
            current |= hmac.compare_digest(stored, given)
        if not current:
            raise StaleToken(
                "The continuation token is not the session's current one. Each accepted follow-up "
                "returns a new token; use the newest."
            )

    def _create(self, request: AcceptRequest) -> SessionRecord:
        session = SessionRecord(
            id=self.new_session(),
            channel=request.channel,
            mode=request.mode,
            owner=request.owner,
            created_at=request.at,
            title=request.title,
            purpose=request.purpose,
            cwd=request.cwd,
            parent=request.parent,
            dry_run=request.dry_run,
            as_of=request.as_of,
        )
        self.add_session(session)
        return session

    def add_session(self, session: SessionRecord) -> None:
        """Add a session's row."""
        self.sql.execute(
            "INSERT INTO sessions (id, channel, mode, owner_key, record, created_at, open_boot)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                session.id,
                session.channel,
                session.mode,
                session.owner.key,
                orjson.dumps(session.to_wire(), default=str),
                session.created_at,
                self.boot,
            ),
        )

    def _journal(
        self,
        request: AcceptRequest,
        session: SessionRecord,
        owner: Principal,
        delivery_id: str,
        created: bool,
    ) -> AcceptResult:
        token, rotation = self._grant(request, session, created)
        cursor = self.sql.execute(
            "INSERT INTO deliveries (channel, owner_key, delivery_id, session_id, target, text,"
            " admission, at, body, rotation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                request.channel,
                owner.key,
                delivery_id,
                session.id,
                _target_key(request),
                request.text,
                request.admission,
                request.at,
                _body(request),
                rotation,
            ),
        )
        seq = cursor.lastrowid or 0
        self.sql.execute(
            "UPDATE sessions SET last_seq = ?, open_boot = coalesce(open_boot, ?) WHERE id = ?",
            (seq, self.boot, session.id),
        )
        delivery = DeliveryRecord(
            seq=seq,
            delivery_id=delivery_id,
            session_id=session.id,
            channel=request.channel,
            text=request.text,
            admission=request.admission,
            at=request.at,
            sender=request.sender,
            context=request.context,
            attachments=request.attachments,
            files=request.files,
            metadata=request.metadata,
            cwd=request.cwd,
            steers=request.steers,
        )
        return AcceptResult(session, delivery, token, created, rotating=request.rotating)

    def _grant(
        self, request: AcceptRequest, session: SessionRecord, created: bool
    ) -> tuple[str, int | None]:
        """Rotate, or bind, the token that answers this delivery."""
        if not request.rotating:
            token = request.token or ""
            if created:
                token = token or new_id("tok")
                self.sql.execute(
                    "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, NULL)",
                    (request.channel, token_hash(token), session.id, token),
                )
            return token, None
        row = self.sql.execute(
            "UPDATE sessions SET rotation = rotation + 1 WHERE id = ? RETURNING rotation",
            (session.id,),
        ).fetchone()
        rotation = int(row[0])
        token = self.rotated(session.id, request.channel, rotation)
        self.sql.execute(
            "DELETE FROM tokens WHERE session_id = ? AND channel = ? AND rotation IS NOT NULL",
            (session.id, request.channel),
        )
        self.sql.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, NULL, ?)",
            (request.channel, token_hash(token), session.id, rotation),
        )
        return token, rotation

    def rotated(self, session_id: str, channel: str, rotation: int) -> str:
        """Return a session's n-th rotating token; derived, so that only its hash is stored."""
        message = f"{session_id}\n{channel}\n{rotation}".encode()
        digest = hmac.new(self.secret, message, hashlib.sha256).digest()
        return f"{channel}:" + base64.urlsafe_b64encode(digest[:24]).decode()

    # Stops

    def stop(self, session_id: str, at: str, clear_pending: bool, before: str | None) -> StopRecord:
        """Journal a stop of what was accepted so far."""
        if self.session(session_id) is None:
            raise NotFound(f"There is no session {session_id}.")
        after = self.sql.execute("SELECT max(seq) FROM deliveries").fetchone()[0] or 0
        cursor = self.sql.execute(
            "INSERT INTO stops (session_id, after_seq, at, clear_pending, before)"
            " VALUES (?, ?, ?, ?, ?)",
            (session_id, after, at, int(clear_pending), before),
        )
        self.sql.execute(
            "UPDATE sessions SET open_boot = coalesce(open_boot, ?) WHERE id = ?",
            (self.boot, session_id),
        )
        return StopRecord(cursor.lastrowid or 0, session_id, after, at, clear_pending, before)

    def stop_done(self, seq: int) -> None:
        """Forget a stop that the log shows."""
        self.sql.execute("DELETE FROM stops WHERE seq = ?", (seq,))

    def stops(self, session_id: str) -> list[StopRecord]:
        """Return the stops that are not known to be done."""
        rows = self.sql.execute(
            "SELECT seq, session_id, after_seq, at, clear_pending, before FROM stops"
            " WHERE session_id = ? AND done = 0 ORDER BY seq",
            (session_id,),
        )
        return [
            StopRecord(seq, session, after, at, bool(clear), before)
            for seq, session, after, at, clear, before in rows
        ]

    def decide(
        self,
        session_id: str,
        call_id: str,
        decision: Literal["approved", "denied"],
        by: Mapping[str, Any],
        at: str,
        reason: str | None,
    ) -> DecisionRecord:
        """Journal the first decision on a call."""
        if self.session(session_id) is None:
            raise NotFound(f"There is no session {session_id}.")
        if call_id in self.decisions(session_id, [call_id]):
            raise ApprovalClosed(f"Call {call_id} was decided before.")
        cursor = self.sql.execute(
            "INSERT INTO decisions (session_id, call_id, decision, principal, at, reason)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (session_id, call_id, decision, orjson.dumps(dict(by), default=str), at, reason),
        )
        self.sql.execute(
            "UPDATE sessions SET open_boot = coalesce(open_boot, ?) WHERE id = ?",
            (self.boot, session_id),
        )
        seq = cursor.lastrowid or 0
        return DecisionRecord(seq, session_id, call_id, decision, by, at, reason)

    def decisions(self, session_id: str, call_ids: Sequence[str]) -> dict[str, DecisionRecord]:
        """Return the journaled decisions on these calls."""
        places = ", ".join("?" for _ in call_ids)
        rows = self.sql.execute(
            "SELECT seq, session_id, call_id, decision, principal, at, reason FROM decisions"
            f" WHERE session_id = ? AND call_id IN ({places})",
            (session_id, *call_ids),
        )
        return {
            call: DecisionRecord(seq, session, call, decision, orjson.loads(by), at, reason)
            for seq, session, call, decision, by, at, reason in rows
        }

    # Sessions

    def session(self, session_id: str, *, deleted: bool = False) -> SessionRecord | None:
        """Return a session by its id."""
        row = self.sql.execute(
            "SELECT record FROM sessions WHERE id = ?"
            + ("" if deleted else " AND deleted_at IS NULL"),
            (session_id,),
        ).fetchone()
        return session_from_wire(orjson.loads(row[0])) if row else None

    def session_by_token(self, channel: str, token: str) -> SessionRecord | None:
        """Return the session that a token names in its channel."""
        row = self.sql.execute(
            "SELECT session_id FROM tokens WHERE channel = ? AND hash = ?",
            (channel, token_hash(token)),
        ).fetchone()
        return self.session(row[0]) if row else None

    def token(self, session_id: str, channel: str) -> str | None:
        """Return a session's current token in a channel."""
        row = self.sql.execute(
            "SELECT token, rotation FROM tokens WHERE session_id = ? AND channel = ?"
            " ORDER BY rotation DESC LIMIT 1",
            (session_id, channel),
        ).fetchone()
        if row is None:
            return None
        return row[0] if row[1] is None else self.rotated(session_id, channel, row[1])

    def sessions(self, owner: str | None, limit: int) -> list[SessionRecord]:
        """Return sessions, newest first."""
        where = "deleted_at IS NULL" + ("" if owner is None else " AND owner_key = ?")
        rows = self.sql.execute(
            f"SELECT record FROM sessions WHERE {where} ORDER BY created_at DESC, id LIMIT ?",
            (limit,) if owner is None else (owner, limit),
        )
        return [session_from_wire(orjson.loads(row[0])) for row in rows]

    def session_ids(self) -> set[str]:
        """Return the ids of all sessions that are not deleted."""
        rows = self.sql.execute("SELECT id FROM sessions WHERE deleted_at IS NULL")
        return {row[0] for row in rows}

    def unrested(self) -> list[str]:
        """Return the sessions that a crash may have left with something to do."""
        rows = self.sql.execute(
            "SELECT id FROM sessions WHERE deleted_at IS NULL AND (open_boot IS NOT NULL"
            " OR id IN (SELECT session_id FROM deliveries WHERE state = 'accepted')"
            " OR id IN (SELECT session_id FROM stops WHERE done = 0)) ORDER BY last_seq"
        )
        return [row[0] for row in rows]

    def reserve(self, session_id: str, next_index: int) -> None:
        """Note that a log goes on there in this boot: no index from there on is fresh again."""
        self.sql.execute(
            "UPDATE sessions SET open_boot = ?, floor = ? WHERE id = ? AND deleted_at IS NULL",
            (self.boot, next_index, session_id),
        )

    def suspect(self, session_id: str) -> None:
        """Note that a sync of the log failed, so that whoever opens it next writes it anew."""
        self.sql.execute(
            "UPDATE sessions SET open_boot = ? WHERE id = ? AND deleted_at IS NULL",
            (self.boot + SUSPECT, session_id),
        )

    def floor(self, session_id: str) -> int:
        """Return where the log went on after the last power cut, though nothing may be left."""
        row = self.sql.execute("SELECT floor FROM sessions WHERE id = ?", (session_id,)).fetchone()
        return int(row[0]) if row else 0

    def open_boot(self, session_id: str) -> str | None:
        """Return the boot in which the session's log may have unsynced events."""
        row = self.sql.execute(
            "SELECT open_boot FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        return row[0] if row else None

    def forget(self, session_id: str, at: str) -> list[str]:
        """Mark a session deleted; its tokens go, its dedupe keys stay. Return what was pending."""
        rows = self.sql.execute(
            "UPDATE deliveries SET state = 'cleared' WHERE session_id = ? AND state = 'accepted'"
            " RETURNING delivery_id",
            (session_id,),
        ).fetchall()
        self.sql.execute("UPDATE deliveries SET body = '{}' WHERE session_id = ?", (session_id,))
        self.sql.execute("DELETE FROM tokens WHERE session_id = ?", (session_id,))
        self.sql.execute("DELETE FROM cursors WHERE session_id = ?", (session_id,))
        self.sql.execute("DELETE FROM stops WHERE session_id = ?", (session_id,))
        self.sql.execute("DELETE FROM decisions WHERE session_id = ?", (session_id,))
        self.sql.execute("DELETE FROM outbound WHERE session_id = ?", (session_id,))
        self.sql.execute(
            "UPDATE sessions SET deleted_at = ?, open_boot = NULL, mark_state = NULL WHERE id = ?",
            (at, session_id),
        )
        return [row[0] for row in rows]

    def purge(self, before: str) -> None:
        """Remove dedupe keys of deleted sessions that are older than a moment."""
        self.sql.execute(
            "DELETE FROM deliveries WHERE at < ? AND session_id IN"
            " (SELECT id FROM sessions WHERE deleted_at IS NOT NULL)",
            (before,),
        )
        self.sql.execute(
            "DELETE FROM sessions WHERE deleted_at IS NOT NULL AND deleted_at < ?"
            " AND NOT EXISTS (SELECT 1 FROM deliveries WHERE session_id = sessions.id)",
            (before,),
        )

    def idle_since(self, before: str) -> list[str]:
        """Return sessions at rest whose last event is older than a moment."""
        rows = self.sql.execute(
            "SELECT id FROM sessions WHERE deleted_at IS NULL AND open_boot IS NULL"
            " AND mark_at < ?",
            (before,),
        )
        return [row[0] for row in rows]

    # Deliveries

    def delivery(
        self, delivery_id: str, channel: str | None, owner: str | None
    ) -> list[DeliveryRecord]:
        """Return the deliveries with an id, newest first."""
        where, values = "delivery_id = ?", [delivery_id]
        for column, value in (("channel", channel), ("owner_key", owner)):
            if value is not None:
                where += f" AND {column} = ?"
                values.append(value)
        rows = self.sql.execute(
            f"SELECT {_DELIVERY} FROM deliveries WHERE {where} ORDER BY seq DESC", values
        )
        return [_delivery(row) for row in rows]

    def unsettled(self, session_id: str, next_index: int) -> list[DeliveryRecord]:
        """Return deliveries without an outcome that the log can hold, in order."""
        rows = self.sql.execute(
            f"SELECT {_DELIVERY} FROM deliveries WHERE session_id = ? AND"
            " (state = 'accepted' OR event_index >= ?) ORDER BY seq",
            (session_id, next_index),
        )
        return [_delivery(row) for row in rows]

    def sequence_of(self, session_id: str, delivery_ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers of deliveries."""
        marks = ",".join("?" * len(delivery_ids))
        rows = self.sql.execute(
            "SELECT delivery_id, max(seq) FROM deliveries WHERE session_id = ?"
            f" AND delivery_id IN ({marks}) GROUP BY delivery_id",
            (session_id, *delivery_ids),
        )
        return dict(rows.fetchall())

    def settle(self, session_id: str, outcomes: Sequence[Outcome]) -> None:
        """Cache outcomes that the log holds durably."""
        self.sql.executemany(
            "UPDATE deliveries SET state = ?, event_index = ?, turn_id = ?"
            " WHERE session_id = ? AND delivery_id = ?",
            [(o.state, o.event_index, o.turn_id, session_id, o.delivery_id) for o in outcomes],
        )

    def adopt_deliveries(
        self, session: SessionRecord, outcomes: Sequence[tuple[Outcome, str, str]]
    ) -> None:
        """Take dedupe keys from an adopted log; ``(outcome, text, at)`` each."""
        self.sql.executemany(
            "INSERT OR IGNORE INTO deliveries (channel, owner_key, delivery_id, session_id, target,"
            " text, admission, at, body, state, event_index, turn_id)"
            " VALUES (?, ?, ?, ?, ?, ?, 'preempt', ?, '{}', ?, ?, ?)",
            [
                (
                    session.channel,
                    session.owner.key,
                    outcome.delivery_id,
                    session.id,
                    _ADOPTED,
                    text,
                    at,
                    outcome.state,
                    outcome.event_index,
                    outcome.turn_id,
                )
                for outcome, text, at in outcomes
            ],
        )

    def bind_token(self, session: SessionRecord, token: str, *, rotates: bool) -> None:
        """Bind an adopted session's token; a rotating one is good until the first follow-up."""
        kept, rotation = (None, 0) if rotates else (token, None)
        self.sql.execute(
            "INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?, ?)",
            (session.channel, token_hash(token), session.id, kept, rotation),
        )

    # Rest

    def rest(self, session_id: str, last_seq: int, mark: Watermark) -> None:
        """Note that a session rests at a place, unless something newer was accepted meanwhile.

        What has no outcome here must be found by folding, so the place never moves past it.
        """
        self.sql.execute(
            "UPDATE sessions SET open_boot = NULL, mark_offset = ?, mark_index = ?, mark_at = ?,"
            " mark_state = ? WHERE id = ? AND last_seq <= ? AND deleted_at IS NULL AND NOT EXISTS"
            " (SELECT 1 FROM deliveries WHERE session_id = sessions.id AND state = 'accepted')",
            (
                mark.offset,
                mark.next_index,
                mark.at,
                orjson.dumps(dict(mark.state)),
                session_id,
                last_seq,
            ),
        )

    def watermark(self, session_id: str) -> Watermark | None:
        """Return where a session last came to rest."""
        row = self.sql.execute(
            "SELECT mark_offset, mark_index, mark_at, mark_state FROM sessions WHERE id = ?",
            (session_id,),
        ).fetchone()
        if row is None or row[3] is None:
            return None
        return Watermark(row[0], row[1], row[2], orjson.loads(row[3]))

    def intent(self, record: OutboundRecord) -> tuple[OutboundRecord, bool]:
        """Keep an intent; return what is kept, and whether it is new."""
        if self.session(record.session_id) is None:
            raise NotFound(f"Session {record.session_id} is gone, so nothing of it is posted.")
        added = self.sql.execute(
            "INSERT OR IGNORE INTO outbound (post_id, session_id, channel, turn_id, at, digest)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                record.post_id,
                record.session_id,
                record.channel,
                record.turn_id,
                record.at,
                record.digest,
            ),
        ).rowcount
        if not added:
            self.sql.execute(
                "UPDATE outbound SET digest = NULL"
                " WHERE post_id = ? AND settled_at IS NULL AND digest IS NOT ?",
                (record.post_id, record.digest),
            )
        row = self.sql.execute(
            f"SELECT {_OUTBOUND} FROM outbound WHERE post_id = ?", (record.post_id,)
        ).fetchone()
        return OutboundRecord(*row), added > 0

    def receipt(self, record: OutboundRecord) -> None:
        """Keep what came of an intent."""
        self.sql.execute(
            "UPDATE outbound SET ref = ?, failure = ?, settled_at = ?, digest = ?"
            " WHERE post_id = ?",
            (record.ref, record.failure, record.settled_at, record.digest, record.post_id),
        )

    def outbound(self, session_id: str, turn_id: str | None) -> list[OutboundRecord]:
        """Return the posts of a session, or of one of its turns."""
        where = "session_id = ?" + ("" if turn_id is None else " AND turn_id = ?")
        values = (session_id,) if turn_id is None else (session_id, turn_id)
        rows = self.sql.execute(
            f"SELECT {_OUTBOUND} FROM outbound WHERE {where} ORDER BY at, post_id", values
        )
        return [OutboundRecord(*row) for row in rows]

    def cursor(self, session_id: str, subscriber: str) -> int:
        """Return a subscriber's place."""
        row = self.sql.execute(
            "SELECT next_index FROM cursors WHERE session_id = ? AND subscriber = ?",
            (session_id, subscriber),
        ).fetchone()
        return int(row[0]) if row else 0

    def set_cursor(self, session_id: str, subscriber: str, next_index: int) -> None:
        """Move a subscriber's place; a deleted session has none."""
        self.sql.execute(
            "INSERT OR REPLACE INTO cursors SELECT id, ?, ? FROM sessions"
            " WHERE id = ? AND deleted_at IS NULL",
            (subscriber, next_index, session_id),
        )


def _check_options(session: SessionRecord, request: AcceptRequest) -> None:
    """A message that asks for a dry run, or for another time, must not run for real."""
    if request.dry_run and not session.dry_run:
        raise Conflict(
            f"Session {session.id} is no dry run, so this message was not taken. Start a new "
            "session with dryRun."
        )
    if request.as_of is not None and request.as_of != session.as_of:
        raise Conflict(
            f"Session {session.id} runs as of {session.as_of or 'now'}, so this message was not "
            "taken. Start a new session with asOf."
        )


def _target_key(request: AcceptRequest) -> bytes:
    """Return what tells a repeated first message from another one."""
    if request.session_id is not None:
        return request.session_id.encode()
    return token_hash(request.token) if request.token is not None else b"start"


def _body(request: AcceptRequest) -> bytes:
    body: dict[str, Any] = {
        "sender": request.sender,
        "context": list(request.context),
        "attachments": [dict(item) for item in request.attachments],
        "metadata": dict(request.metadata),
        "cwd": request.cwd,
        "files": {path: base64.b64encode(data).decode() for path, data in request.files.items()},
        "waits": not request.steers,
    }
    return orjson.dumps({key: value for key, value in body.items() if value}, default=str)


def _delivery(row: Sequence[Any]) -> DeliveryRecord:
    body: Mapping[str, Any] = orjson.loads(row[7])
    return DeliveryRecord(
        seq=row[0],
        delivery_id=row[1],
        session_id=row[2],
        channel=row[3],
        text=row[4],
        admission=row[5],
        at=row[6],
        sender=body.get("sender"),
        context=body.get("context", ()),
        attachments=body.get("attachments", ()),
        files={path: base64.b64decode(data) for path, data in body.get("files", {}).items()},
        metadata=body.get("metadata", {}),
        cwd=body.get("cwd"),
        steers=not body.get("waits", False),
        state=row[8],
        event_index=row[9],
        turn_id=row[10],
    )


def session_from_wire(wire: Mapping[str, Any]) -> SessionRecord:
    """Read what :meth:`SessionRecord.to_wire` wrote."""
    return SessionRecord(
        id=wire["id"],
        channel=wire["channel"],
        mode=wire["mode"],
        owner=Principal.from_wire(wire["principal"]),
        created_at=wire["createdAt"],
        title=wire.get("title"),
        purpose=wire.get("purpose"),
        cwd=wire.get("cwd"),
        parent=wire.get("parent"),
        dry_run=bool(wire.get("dryRun")),
        as_of=wire.get("asOf"),
    )
