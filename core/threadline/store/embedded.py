"""The embedded store: one host, one folder; SQLite for transactions, plain files for logs.

Layout under the state root::

    lock                        held by the running host; names its address
    threadline.db               the ledger (SQLite, WAL)
    sessions/.root              the root's identity, as in the ledger
    sessions/<id>/              session.json, events.ndjson, workspace/, blobs/
    runner/<id>.ndjson          checkpoints: the harness's history
    traces/  tool-calls/
    artifacts/                  what artifacts hold, a file each
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import re
import resource
import secrets
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import orjson

from threadline import ndjson
from threadline.clock import Clock, SystemClock, iso
from threadline.errors import LeaseLost, NotFound, StateRootError, StoreUnavailable
from threadline.ids import is_session_id
from threadline.principal import LOCAL
from threadline.store.adopt import adopted_outcomes, adopted_session
from threadline.store.artifacts import ArtifactFiles, EmbeddedArtifacts
from threadline.store.base import (
    AcceptRequest,
    AcceptResult,
    BlobKind,
    Checkpoint,
    DecisionRecord,
    DeliveryRecord,
    InboxItem,
    Lease,
    OutboundRecord,
    Outcome,
    SessionDeleted,
    SessionRecord,
    StopRecord,
    Watermark,
)
from threadline.store.disk import Disk
from threadline.store.ledger import SUSPECT, Ledger, connect
from threadline.store.log import SESSION, WORKSPACE, Files, Handles, Head, reading
from threadline.store.stock import Stock
from threadline.store.writer import Writer

__all__ = ["EmbeddedStore"]

RECOVERY_GAP = 20_000
KEEP_KEYS = timedelta(days=30)
_CHUNK = 32 * 1024
_AHEAD = 512 * 1024
_PROBE = 64 * 1024
_REMEMBERED = 10_000
_SYNC_THREADS = 8
_LOOK_SECONDS = 1.0


class EmbeddedStore:
    """A :class:`~threadline.store.base.Store` in one folder of one machine.

    ``workspaces`` makes each session's workspace with its folder, for agents whose workspaces start
    empty.
    """

    def __init__(
        self,
        root: Path,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        boot: str | None = None,
        address: str = "",
        workspaces: bool = False,
    ) -> None:
        self.root = root
        self._workspaces = workspaces
        self.address = address
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._files = Files(root, self._disk)
        self._boot = boot or _boot_id()
        self._handles = Handles()
        self._histories = Handles(128)
        self._heads: dict[str, Head] = {}
        self._leases: dict[str, Lease] = {}
        self._epoch = 0
        self._dirty: dict[str, int] = {}
        self._outcomes: dict[str, list[Outcome]] = {}
        self._told: OrderedDict[tuple[str, str], Outcome] = OrderedDict()
        self._syncing: dict[str, asyncio.Task[None]] = {}
        self._suspect: set[str] = set()
        self._sync_places = asyncio.Semaphore(_SYNC_THREADS)
        self._unsynced_histories: set[str] = set()
        self._unsynced_identities: set[str] = set()
        self._new_histories: set[str] = set()
        self._connections: list[sqlite3.Connection] = []
        self._damage: list[str] = []
        self._listener: Callable[[InboxItem], None] = lambda _: None
        self._lock: int | None = None
        self._full = False
        self._closed = True

    # Opening and closing

    async def open(self) -> None:
        """Take the folder, mend what a crash left, adopt and forget sessions."""
        self._loop = asyncio.get_running_loop()
        self._handles = Handles(_open_files())
        try:
            self._make_folders()
            self._take_lock()
            self._open_ledger()
            self._match_tree()
            self._open_artifacts()
        except OSError as error:
            self._let_go()
            raise StateRootError(
                f"The state root {self.root} cannot be used: {error.strerror or error}. "
                "Give --state-root a folder that this user may write."
            ) from error
        except BaseException:
            self._let_go()
            raise
        self._pool = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="threadline-sync")
        self._stock = Stock(self._files, workspaces=self._workspaces)
        self._ledger.new_session = self._stock.take
        self._writer = Writer(self._sql, self._disk)
        self._writer.start(self._before_commit)
        self._closed = False

    def _make_folders(self) -> None:
        for folder in (self._files.sessions, self._files.runner, self._files.traces):
            self._disk.make_dir(folder)

    def _open_ledger(self) -> None:
        database = self.root / "threadline.db"
        fresh = not database.exists()
        try:
            # SQLite gives its side files the mode of the database, so that is made first.
            os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._sql = self._connect(database)
            ledger = Ledger(self._sql)
            ledger.create()
            self._check_identity(ledger, fresh)
            secret = ledger.meta("secret") or b""
            self._ledger = Ledger(self._sql, secret, self._boot)
            self._reads = Ledger(self._connect(database), secret, self._boot)
        except StateRootError:
            raise
        except Exception as error:
            raise StateRootError(
                f"The ledger {database} cannot be opened: {error}. Restore it from a backup, or "
                "move it away to rebuild it from the logs."
            ) from error

    def _open_artifacts(self) -> None:
        self.artifacts = EmbeddedArtifacts(
            ArtifactFiles(self.root, self._disk),
            writes=self._sql,
            reads=self._reads.sql,
            run=lambda job: self._writer.run(job, lambda _: None),
            later=self._later,
            ready=self._check_ready,
            failed=self._disk_failed,
        )

    def _connect(self, database: Path) -> sqlite3.Connection:
        connection = connect(database)
        self._connections.append(connection)
        return connection

    def _let_go(self) -> None:
        """Close every file and give up the folder."""
        self._handles.close()
        self._histories.close()
        while self._connections:
            self._connections.pop().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_identity(self, ledger: Ledger, fresh: bool) -> None:
        marker = self._files.sessions / ".root"
        in_tree = marker.read_text().strip() if marker.exists() else None
        stored = ledger.meta("root")
        in_ledger = stored.decode() if stored else None
        if in_ledger is not None and in_ledger != in_tree:
            raise StateRootError(
                f"{self._files.sessions} is not the folder that {self.root}/threadline.db belongs "
                "to: its .root is missing or different. Is a volume not mounted? Nothing was "
                "changed."
            )
        if in_ledger is None:
            root = in_tree or secrets.token_hex(16)
            # Durable before the ledger names it: a ledger must never outlive its tree.
            self._files.rewrite(marker, root.encode() + b"\n")
            self._disk.sync_dir(self.root)
            self._disk.sync_dir(self.root.parent)
            self._sql.execute("BEGIN IMMEDIATE")
            ledger.set_meta("root", root.encode())
            ledger.set_meta("secret", secrets.token_bytes(32))
            self._disk.commit(self._sql)
            if fresh and in_tree is not None:
                self._damage.append(
                    "The ledger was missing and is rebuilt from the logs; deliveries that no log "
                    "names are lost with it."
                )

    def _match_tree(self) -> None:
        """Forget rows whose folder is gone; adopt or remove folders that have no row."""
        with os.scandir(self._files.sessions) as entries:
            found = {e.name for e in entries if e.is_dir(follow_symlinks=False)}
        known = self._ledger.session_ids()
        now = iso(self._clock.now())
        self._sql.execute("BEGIN IMMEDIATE")
        for session_id in known - found:
            self._ledger.forget(session_id, now)
        for name in sorted(found - known):
            self._adopt(name)
        self._ledger.purge(iso(self._clock.now() - KEEP_KEYS))
        self._disk.commit(self._sql)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """What a deleted session had beside its folder must not outlive it."""
        known = self._ledger.session_ids()
        for folder in (self._files.runner, self._files.traces):
            for path in folder.glob("*.ndjson"):
                if is_session_id(path.stem) and path.stem not in known:
                    self._disk.remove(path)

    def _adopt(self, name: str) -> None:
        log = self._files.log(name)
        deleted = self._ledger.session(name, deleted=True) is not None
        if deleted or not is_session_id(name) or not log.is_file() or log.stat().st_size == 0:
            if is_session_id(name):
                self._files.remove_session(name)
            return
        self._mend(name, whole=True)
        events = [event for event in self._files.events(log, 0) if event is not None]
        wire = self._files.read_session(name) or {}
        session = adopted_session(name, wire, events, LOCAL)
        if not self._files.exists(name):
            self._disk.create(self._files.session(name) / "session.json", _line(session))
        self._ledger.add_session(session)
        self._ledger.adopt_deliveries(session, adopted_outcomes(events))
        if isinstance(token := wire.get("continuationToken"), str) and token:
            self._ledger.bind_token(session, token, rotates=wire.get("tokenRotates", True))

    def _take_lock(self) -> None:
        path = self.root / "lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held = os.pread(handle, 4096, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise StateRootError(
                f"The state root {self.root} is in use by another host ({held or 'unknown'}). "
                "Stop it, or give this one its own --state-root.",
                holder=held,
            ) from None
        self._lock = handle
        self.announce(self.address)

    def announce(self, address: str) -> None:
        """Write the running host's address into the lock, for commands that look for it."""
        self.address = address
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, orjson.dumps({"pid": os.getpid(), "url": address}), 0)

    async def close(self) -> None:
        """End followers, commit what is queued, close every file, release the folder."""
        if self._closed:
            return
        self._closed = True
        for head in self._heads.values():
            head.wake()
        await asyncio.gather(*self._syncing.values(), return_exceptions=True)
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._stock.close)
        self._pool.shutdown(wait=True)
        self._let_go()

    async def check(self) -> None:
        """Raise StoreUnavailable when a write would fail now."""
        self._check_ready()

    def _check_ready(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        self._check_space()

    def _disk_failed(self, error: OSError) -> None:
        """A disk that is full is asked before anything new is promised."""
        self._full = self._full or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

    def _check_space(self) -> None:
        """After a failed write, try a small one before anything new is promised."""
        if not self._full:
            return
        probe = self.root / ".probe"
        try:
            self._disk.create(probe, bytes(_PROBE), sync=False)
        except OSError as error:
            raise StoreUnavailable(f"The state root cannot be written: {error}.") from error
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)
        self._full = False

    def listen(self, callback: Callable[[InboxItem], None]) -> None:
        """Set who is told of deliveries, stops and deletions."""
        self._listener = callback

    @property
    def damage(self) -> Sequence[str]:
        """What repairs found, a sentence each."""
        return self._damage

    # Deliveries

    async def accept(self, request: AcceptRequest) -> AcceptResult:
        """Journal a delivery durably."""
        self._check_space()
        if request.session_id is not None and self.session(request.session_id) is None:
            raise NotFound(f"There is no session {request.session_id}.")
        self._forget_if_gone(request)

        def told(result: AcceptResult) -> None:
            if not result.duplicate:
                if result.created:
                    self._unsynced_identities.add(result.session.id)
                    with contextlib.suppress(FileNotFoundError):
                        self._heads[result.session.id] = self._new_head(result.session.id)
                self._listener(result.delivery)

        result: AcceptResult = await self._writer.run(lambda: self._ledger.accept(request), told)
        return result

    def _forget_if_gone(self, request: AcceptRequest) -> None:
        """A token whose session was deleted by hand must open a fresh one."""
        if request.session_id is None and request.token is not None:
            self.session_by_token(request.channel, request.token)

    def _before_commit(self, results: list[Any]) -> None:
        """Make new sessions' folders durable before the rows that name them."""
        made = [r for r in results if isinstance(r, AcceptResult) and r.created]
        if made:
            self._stock.make({result.session.id: _identity(result) for result in made})

    async def stop(
        self, session_id: str, *, at: str, clear_pending: bool = False, before: str | None = None
    ) -> StopRecord:
        """Journal a stop durably."""
        self._check_space()
        stop: StopRecord = await self._writer.run(
            lambda: self._ledger.stop(session_id, at, clear_pending, before), self._listener
        )
        return stop

    def stop_done(self, stop: StopRecord) -> None:
        """Forget a stop soon."""
        self._later(lambda: self._ledger.stop_done(stop.seq))

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
        """Journal a decision durably."""
        self._check_space()
        record: DecisionRecord = await self._writer.run(
            lambda: self._ledger.decide(session_id, call_id, decision, by, at, reason),
            self._listener,
        )
        return record

    def decisions(self, session_id: str, call_ids: Sequence[str]) -> dict[str, DecisionRecord]:
        """Return the journaled decisions on these calls."""
        return self._reads.decisions(session_id, call_ids) if call_ids else {}

    def delivery(
        self, delivery_id: str, *, channel: str | None = None, owner: str | None = None
    ) -> list[DeliveryRecord]:
        """Return deliveries by id, with what the log says of them by now."""
        found = self._reads.delivery(delivery_id, channel, owner)
        return [self._with_outcome(record) for record in found]

    def _with_outcome(self, record: DeliveryRecord) -> DeliveryRecord:
        """The ledger learns an outcome late; until then this process remembers it."""
        outcome = self._told.get((record.session_id, record.delivery_id))
        if outcome is None:
            return record
        return replace(
            record,
            state=outcome.state,
            event_index=outcome.event_index,
            turn_id=outcome.turn_id,
        )

    def unsettled(self, session_id: str, next_index: int) -> list[DeliveryRecord]:
        """Return deliveries without a cached outcome."""
        return self._reads.unsettled(session_id, next_index)

    def stops(self, session_id: str) -> list[StopRecord]:
        """Return stops that may still have to be applied."""
        return self._reads.stops(session_id)

    def sequence_of(self, session_id: str, delivery_ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers of deliveries."""
        return self._reads.sequence_of(session_id, delivery_ids) if delivery_ids else {}

    # Sessions

    def session(self, session_id: str) -> SessionRecord | None:
        """Return a session; one whose folder was removed by hand is forgotten on the way."""
        if not is_session_id(session_id):
            return None
        record = self._reads.session(session_id)
        if record is not None and not self._files.exists(session_id):
            self._gone(session_id)
            return None
        return record

    def session_by_token(self, channel: str, token: str) -> SessionRecord | None:
        """Return the session that a token names."""
        record = self._reads.session_by_token(channel, token)
        return self.session(record.id) if record is not None else None

    def token(self, session_id: str, channel: str) -> str | None:
        """Return a session's current token in a channel."""
        return self._reads.token(session_id, channel)

    def sessions(self, owner: str | None = None, *, limit: int = 1000) -> list[SessionRecord]:
        """Return sessions that still exist, newest first."""
        found = self._reads.sessions(owner, limit)
        return [record for record in found if self._files.exists(record.id)]

    def unrested(self) -> list[str]:
        """Return the sessions that a crash may have left with something to do."""
        return self._reads.unrested()

    def rested_status(self, session_id: str) -> str | None:
        """Return the status that the last rest noted."""
        mark = self._reads.watermark(session_id)
        return str(mark.state.get("status")) if mark is not None else None

    def idle_since(self, before: datetime) -> list[str]:
        """Return sessions at rest whose last event is older than a moment."""
        return self._reads.idle_since(iso(before))

    async def delete(self, session_id: str) -> bool:
        """Remove a session durably and tell the listener."""
        if self.session(session_id) is None:
            return False
        await self._writer.run(
            lambda: self._forget(session_id), lambda _: self._dismiss(session_id)
        )
        await asyncio.to_thread(self._files.remove_session, session_id)
        return True

    def _forget(self, session_id: str) -> None:
        """Forget a session in the ledger, where what its log said last must not become cleared."""
        outcomes = self._outcomes.pop(session_id, [])
        if outcomes:
            self._ledger.settle(session_id, outcomes)
        self._ledger.forget(session_id, iso(self._clock.now()))

    def _gone(self, session_id: str) -> None:
        """A session's folder was removed by hand: let everything of it go."""
        self._later(lambda: self._forget(session_id))
        self._dismiss(session_id)
        self._files.remove_session(session_id)

    def _dismiss(self, session_id: str) -> None:
        self._leases.pop(session_id, None)
        self._handles.drop(self._files.log(session_id))
        self._histories.drop(self._files.history(session_id))
        head = self._heads.pop(session_id, None)
        if head is not None:
            head.deleted = True
            head.wake()
        self._listener(SessionDeleted(session_id))

    # The log

    async def lease(self, session_id: str) -> Lease | None:
        """Take the right to write; mends the log's tail, and all of it when it may be damaged."""
        session = self.session(session_id)
        if session is None:
            return None
        path = self._files.log(session_id)
        boot = self._reads.open_boot(session_id)
        rebooted = boot is not None and boot.removesuffix(SUSPECT) != self._boot
        suspect = session_id in self._suspect or (boot or "").endswith(SUSPECT)
        self._mend(session_id, whole=rebooted, rewrite=suspect)
        if suspect:
            self._rewrite_history(session_id)
            self._suspect.discard(session_id)
        if boot is not None:
            # What an earlier process wrote may still wait for its sync.
            self._dirty[session_id] = self._dirty.get(session_id, 0) + 1
            self._unsynced_histories.add(session_id)
        mark = None if rebooted else self._watermark(session_id)
        if any(event is None for event in self._files.events(path, mark.offset if mark else 0)):
            self._mend(session_id, whole=True)
            mark = None
        last = self._files.last_event(path)
        next_index = int(last["index"]) + 1 if last else 0
        recovered = None
        if rebooted:
            recovered = await self._jump(session_id, next_index)
            next_index = recovered[1] + 1
            if self.session(session_id) is None:
                return None
        self._epoch += 1
        at = str(last["at"]) if last else ""
        lease = Lease(session, self._epoch, next_index, at, mark, recovered)
        self._leases[session_id] = lease
        self._handles.drop(path)
        self._renew_head(session_id)
        self._later(lambda: self._reopen(session_id))
        return lease

    async def _jump(self, session_id: str, next_index: int) -> tuple[int, int]:
        """Return the indices that readers may have seen before the power failed.

        An empty log has some too. What follows is noted before anybody sees it, so that a second
        power cut, which takes that along, leads to other indices again.
        """
        start = max(next_index, self._reads.floor(session_id)) + RECOVERY_GAP
        await self._writer.run(lambda: self._ledger.reserve(session_id, start), lambda _: None)
        return next_index, start - 1

    def _reopen(self, session_id: str) -> None:
        self._sql.execute(
            "UPDATE sessions SET open_boot = ? WHERE id = ? AND deleted_at IS NULL",
            (self._boot, session_id),
        )

    def _rewrite_history(self, session_id: str) -> None:
        path = self._files.history(session_id)
        self._histories.drop(path)
        with contextlib.suppress(FileNotFoundError):
            self._files.rewrite(path, path.read_bytes())

    def _mend(self, session_id: str, *, whole: bool, rewrite: bool = False) -> None:
        path = self._files.log(session_id)
        for offset, length in self._files.mend(path, whole=whole, rewrite=rewrite):
            self._damage.append(
                f"{path}: {length} damaged bytes at {offset} were taken out; they are kept in "
                "events.damaged."
            )

    def rest(self, lease: Lease, watermark: Watermark) -> None:
        """Note where a session rests; the lease stays."""
        last_seq = int(watermark.state.get("lastSeq", 0))
        session_id = lease.session.id
        self._later(lambda: self._ledger.rest(session_id, last_seq, watermark))

    def release(self, lease: Lease) -> None:
        """Give the right back."""
        if self._leases.get(lease.session.id) is lease:
            del self._leases[lease.session.id]

    def _watermark(self, session_id: str) -> Watermark | None:
        """Return the last resting place if the log still has it."""
        mark = self._reads.watermark(session_id)
        if mark is None:
            return None
        handle = self._files.reader(session_id)
        try:
            if mark.offset and os.pread(handle, 1, mark.offset - 1) != b"\n":
                return None
        finally:
            os.close(handle)
        following = next(iter(self._files.events(self._files.log(session_id), mark.offset)), None)
        agrees = following is None or int(following["index"]) >= mark.next_index
        return mark if agrees else None

    def replay(self, session_id: str, offset: int) -> Iterator[Mapping[str, Any]]:
        """Yield decoded events from a byte offset on."""
        for event in self._files.events(self._files.log(session_id), offset):
            if event is not None:
                yield event

    async def append(
        self, lease: Lease, lines: Sequence[bytes], outcomes: Sequence[Outcome] = ()
    ) -> int:
        """Append whole lines; all of them or none."""
        session_id = lease.session.id
        if self._leases.get(session_id) is not lease:
            raise LeaseLost(f"Session {session_id} has another owner, or none.")
        head = self._head(session_id)
        try:
            handle = self._handles.get(head.path)
            size, inode = _size_and_inode(head.path)
            if inode != head.inode:
                raise FileNotFoundError(head.path)
        except (FileNotFoundError, NotADirectoryError):
            self._gone(session_id)
            raise LeaseLost(f"Session {session_id} was deleted.") from None
        data = lines[0] if len(lines) == 1 else b"".join(lines)
        try:
            if size > head.size:
                # A failed write could not be taken back at the time.
                self._disk.truncate(handle, head.size)
            if data:
                self._disk.append(handle, data)
        except OSError as error:
            self._disk_failed(error)
            with contextlib.suppress(OSError):
                self._disk.truncate(handle, head.size)
            raise StoreUnavailable(f"The log cannot be written: {error}.") from error
        head.size += len(data)
        self._dirty[session_id] = self._dirty.get(session_id, 0) + 1
        head.wake()
        if outcomes:
            self._outcomes.setdefault(session_id, []).extend(outcomes)
            self._told.update({(session_id, o.delivery_id): o for o in outcomes})
            while len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)
        return head.size

    async def sync(self, lease: Lease) -> None:
        """Sync history, then log; outcomes that are durable now may be cached in the ledger."""
        session_id = lease.session.id
        running = self._syncing.get(session_id)
        if running is not None:
            # It may have begun before the newest append; the next one has not.
            await asyncio.shield(running)
        if self._dirty.get(session_id) or session_id in self._syncing:
            await asyncio.shield(self._start_sync(session_id))

    def _start_sync(self, session_id: str) -> asyncio.Task[None]:
        running = self._syncing.get(session_id)
        if running is None:
            running = self._syncing[session_id] = self._loop.create_task(self._sync(session_id))
            running.add_done_callback(_retrieve)
        return running

    async def _sync(self, session_id: str) -> None:
        try:
            # What is written while this waits for its place is synced with it.
            async with self._sync_places:
                await self._sync_files(session_id)
        finally:
            del self._syncing[session_id]

    async def _sync_files(self, session_id: str) -> None:
        self._dirty.pop(session_id, None)
        outcomes = self._outcomes.pop(session_id, [])
        fresh = session_id in self._new_histories
        self._new_histories.discard(session_id)
        files = [(self._handles, self._files.log(session_id))]
        if session_id in self._unsynced_histories:
            self._unsynced_histories.discard(session_id)
            files.insert(0, (self._histories, self._files.history(session_id)))
        handles = []
        with contextlib.suppress(FileNotFoundError):
            if session_id in self._unsynced_identities:
                self._unsynced_identities.discard(session_id)
                handles.append(self._files.reader(session_id, SESSION))
        for cache, path in files:
            with contextlib.suppress(FileNotFoundError):
                handles.append(os.dup(cache.get(path)))
        try:
            await self._loop.run_in_executor(self._pool, self._sync_all, handles, fresh)
        except OSError as error:
            # The system may have forgotten the lost pages: they must be written again, be it by
            # another process.
            self._suspect.add(session_id)
            lease = self._leases.pop(session_id, None)
            self._handles.drop(self._files.log(session_id))
            if lease is not None:
                self._damage.append(f"Session {session_id}: a sync failed: {error}.")
            with contextlib.suppress(StoreUnavailable):
                await self._writer.run(lambda: self._ledger.suspect(session_id), lambda _: None)
            raise StoreUnavailable(f"The log cannot be synced: {error}.") from error
        if outcomes:
            self._later(lambda: self._ledger.settle(session_id, outcomes))

    def _sync_all(self, handles: list[int], fresh: bool) -> None:
        try:
            if fresh:
                self._disk.sync_dir(self._files.runner)
            for handle in handles:
                self._disk.sync(handle)
        finally:
            for handle in handles:
                os.close(handle)

    def size(self, session_id: str) -> int:
        """Return where the log's whole lines end."""
        return self._head(session_id).size

    async def next_index(self, session_id: str) -> int | None:
        """Return the index that the next event of a log will have, at least."""
        if self.session(session_id) is None:
            return None
        lease = self._leases.get(session_id)
        if lease is not None:
            return lease.next_index
        self._head(session_id)
        last = self._files.last_event(self._files.log(session_id))
        return int(last["index"]) + 1 if last else 0

    async def read(
        self, session_id: str, start: int = 0, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield stored bytes from an index on; with ``follow``, go on as the log grows."""
        try:
            head = self._head(session_id)
            handle = self._files.reader(session_id)
        except FileNotFoundError:
            return
        try:
            offset = ndjson.bisect(reading(handle), head.size, start) if start else 0
            while not head.deleted:
                while offset < head.size and not head.deleted:
                    chunk = _chunk(handle, offset, head.size)
                    if not chunk:
                        return
                    offset += len(chunk)
                    yield chunk
                if not follow or self._closed or head.deleted:
                    return
                yield b""
                if offset == head.size and not self._closed and not head.deleted:
                    await self._more(session_id, head)
        finally:
            os.close(handle)

    async def _more(self, session_id: str, head: Head) -> None:
        """Wait until the log grows, or is gone."""
        waiter = self._loop.create_future()
        head.waiters.add(waiter)
        if not head.watched:
            head.watched = True
            self._loop.call_later(_LOOK_SECONDS, self._look, session_id, head)
        try:
            await waiter
        finally:
            head.waiters.discard(waiter)

    def _look(self, session_id: str, head: Head) -> None:
        """Look now and then whether a log that is followed was removed by hand."""
        head.watched = bool(head.waiters) and not self._closed
        if head.watched:
            if not self._files.exists(session_id):
                self.session(session_id)
            self._loop.call_later(_LOOK_SECONDS, self._look, session_id, head)

    def _head(self, session_id: str) -> Head:
        head = self._heads.get(session_id)
        if head is None:
            path = self._files.log(session_id)
            self._files.mend(path, whole=False)
            head = self._heads[session_id] = self._new_head(session_id)
        return head

    def _renew_head(self, session_id: str) -> None:
        """Measure the log again; readers of one that was replaced or cut must come back."""
        fresh = self._new_head(session_id)
        head = self._head(session_id)
        if head.inode == fresh.inode and head.size <= fresh.size:
            head.size = fresh.size
            return
        self._heads[session_id] = fresh
        head.deleted = True
        head.wake()

    def _new_head(self, session_id: str) -> Head:
        path = str(self._files.log(session_id))
        return Head(path, *_size_and_inode(path))

    # History, blobs, cursors, values

    def save_checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> None:
        """Append one record to the session's history."""
        session_id = lease.session.id
        if self._leases.get(session_id) is not lease:
            raise LeaseLost(f"Session {session_id} has another owner, or none.")
        path = self._files.history(session_id)
        record = {
            "turnId": checkpoint.turn_id,
            "messages": list(checkpoint.messages),
            "nudges": [dict(nudge) for nudge in checkpoint.nudges],
        }
        line = ndjson.encode(record)
        if not self._files.exists(session_id):
            self._gone(session_id)
            raise LeaseLost(f"Session {session_id} was deleted.")
        try:
            if not path.exists():
                self._new_history(session_id, path)
            handle = self._histories.get(path)
            self._end_line(path, handle)
            self._unsynced_histories.add(session_id)
            self._disk.append(handle, line)
        except OSError as error:
            raise StoreUnavailable(f"The history cannot be written: {error}.") from error
        self._dirty[session_id] = self._dirty.get(session_id, 0) + 1

    def _new_history(self, session_id: str, path: Path) -> None:
        self._disk.create(path, b"", sync=False)
        self._histories.drop(path)
        self._new_histories.add(session_id)

    def _end_line(self, path: Path, handle: int) -> None:
        """A record torn by a crash must not swallow the next one."""
        size = os.fstat(handle).st_size
        if size:
            with path.open("rb") as file:
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    self._disk.append(handle, b"\n")

    def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Return the session's history."""
        return self._files.checkpoints(session_id)

    def put_blob(self, lease: Lease, data: bytes, kind: BlobKind = "blob") -> str:
        """Keep bytes beside the log; durable before the event that names them is."""
        blob_id = f"{kind}_{secrets.token_hex(12)}"
        session = self._files.session(lease.session.id)
        folder = session / "blobs"
        try:
            if not folder.is_dir():
                # Without parents: nothing may make a deleted session's folder again.
                self._disk.make_dir(folder, parents=False)
                self._disk.sync_dir(session)
            self._disk.create(folder / blob_id, data)
            self._disk.sync_dir(folder)
        except FileNotFoundError:
            raise LeaseLost(f"Session {lease.session.id} was deleted.") from None
        except OSError as error:
            raise StoreUnavailable(f"The output cannot be kept: {error}.") from error
        return blob_id

    def blob(self, session_id: str, blob_id: str) -> Path | None:
        """Return a blob's file."""
        if re.fullmatch(r"(blob|file)_[0-9a-z]+", blob_id) is None:
            return None
        path = self._files.session(session_id) / "blobs" / blob_id
        return path if path.is_file() and not path.is_symlink() else None

    def workspace(self, session_id: str) -> Path:
        """Return the folder of a session's workspace."""
        return self._files.session(session_id) / WORKSPACE

    def scratch(self, name: str) -> Path:
        """Return the folder of one direct call."""
        return self._files.calls / name

    def folder(self, channel: str) -> Path:
        """Return the folder of a channel's own files."""
        return self._files.channels / channel

    def trace(self, session_id: str) -> Path:
        """Return the path of a session's trace."""
        return self._files.traces / f"{session_id}.ndjson"

    def cursor(self, session_id: str, subscriber: str) -> int:
        """Return a subscriber's place."""
        return self._reads.cursor(session_id, subscriber)

    def set_cursor(self, session_id: str, subscriber: str, next_index: int) -> None:
        """Move a subscriber's place soon."""
        self._later(lambda: self._ledger.set_cursor(session_id, subscriber, next_index))

    async def intent(self, record: OutboundRecord) -> tuple[OutboundRecord, bool]:
        """Keep an intent durably."""
        kept: tuple[OutboundRecord, bool] = await self._writer.run(
            lambda: self._ledger.intent(record), lambda _: None
        )
        return kept

    async def receipt(self, record: OutboundRecord) -> None:
        """Keep what came of an intent durably."""
        await self._writer.run(lambda: self._ledger.receipt(record), lambda _: None)

    def outbound(self, session_id: str, turn_id: str | None = None) -> list[OutboundRecord]:
        """Return the posts of a session, or of one of its turns."""
        return self._reads.outbound(session_id, turn_id)

    async def kv_get(self, key: str) -> Any:
        """Return a kept value, or None."""
        row = self._reads.sql.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        return orjson.loads(row[0]) if row else None

    async def kv_put(self, key: str, value: Any) -> None:
        """Keep a JSON value durably."""
        data = orjson.dumps(value)
        await self._writer.run(
            lambda: self._sql.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, data)),
            lambda _: None,
        )

    async def kv_delete(self, key: str) -> bool:
        """Forget a value durably."""
        count: int = await self._writer.run(
            lambda: self._sql.execute("DELETE FROM kv WHERE key = ?", (key,)).rowcount,
            lambda _: None,
        )
        return count > 0

    def _later(self, job: Callable[[], Any]) -> None:
        with contextlib.suppress(StoreUnavailable):
            self._writer.later(job)


def _boot_id() -> str:
    """Return what changes when the machine starts again (Linux), or a constant elsewhere."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _open_files() -> int:
    """Return how many logs may be kept open: a quarter of what the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(2048, soft // 4)) if soft != resource.RLIM_INFINITY else 2048


def _retrieve(task: asyncio.Task[None]) -> None:
    """Whoever waits gets the error; when nobody does any more, it must not be reported as lost."""
    if not task.cancelled():
        task.exception()


def _chunk(handle: int, offset: int, size: int) -> bytes:
    """Read whole lines: little at a time, so that a reader who stalls holds little.

    The system is told what comes next, so that the event loop does not wait for a disk.
    """
    length = min(_CHUNK, size - offset)
    if offset % _AHEAD < _CHUNK and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, offset, 2 * _AHEAD, os.POSIX_FADV_WILLNEED)
    while True:
        data = os.pread(handle, length, offset)
        cut = data.rfind(b"\n") + 1
        if cut or length >= size - offset:
            return data[:cut]
        length = min(length * 4, size - offset)


def _size_and_inode(path: str) -> tuple[int, int]:
    status = os.stat(path)  # noqa: PTH116  (each append asks; a Path costs more than the call)
    return status.st_size, status.st_ino


def _identity(made: AcceptResult) -> dict[str, Any]:
    """Return what ``session.json`` says of a new session."""
    wire = made.session.to_wire()
    if not made.rotating:
        wire |= {"continuationToken": made.token, "tokenRotates": False}
    return wire


def _line(session: SessionRecord) -> bytes:
    return orjson.dumps(session.to_wire(), default=str) + b"\n"
