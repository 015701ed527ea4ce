"""Artifacts in the embedded store: a row for each, and a file for what it holds.

A content is a new file with a name of its own, durable before the row that names it commits, so
that no reader, crash or power cut ever meets half of one. What no row names any more is removed
after the commit, or when the store opens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from threadline.errors import NotFound, StoreUnavailable, TooLarge
from threadline.principal import Principal
from threadline.store.base import Artifact, ArtifactRecord, Tag

if TYPE_CHECKING:
    from threadline.store.disk import Disk

__all__ = ["ArtifactFiles", "ArtifactTable", "EmbeddedArtifacts"]

_CHUNK = 1024 * 1024
_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS artifacts (
  id TEXT PRIMARY KEY, owner_key TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
  rank INTEGER NOT NULL UNIQUE, owner BLOB NOT NULL, created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL, title TEXT, data BLOB, session_id TEXT, content TEXT, size INTEGER,
  content_type TEXT, filename TEXT, told INTEGER NOT NULL DEFAULT 1,
  UNIQUE (owner_key, kind, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS artifacts_by_session ON artifacts (session_id);
CREATE INDEX IF NOT EXISTS artifacts_untold ON artifacts (rank) WHERE told = 0;
"""
_COLUMNS = (
    "id, kind, key, created_at, updated_at, title, data, session_id, size, content_type, filename,"
    " owner, rank, content"
)
_GENERATION = "artifacts"


class ArtifactTable:
    """SQL over one connection, inside the caller's transaction where it writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.sql = connection

    def create(self) -> str:
        """Make the table if it is missing; return what the names of this ledger's files begin with.

        A ledger that is made anew has another beginning, so that it never removes the files of one
        that was lost.
        """
        self.sql.executescript(_SCHEMA)
        self.sql.execute(
            "INSERT OR IGNORE INTO meta VALUES (?, ?)", (_GENERATION, secrets.token_hex(4).encode())
        )
        row = self.sql.execute("SELECT value FROM meta WHERE key = ?", (_GENERATION,)).fetchone()
        return bytes(row[0]).decode()

    def put(
        self, tag: Tag, content: str | None, size: int | None
    ) -> tuple[ArtifactRecord, list[str]]:
        """Make or replace an artifact's row; return it, and the contents that are unused now."""
        if tag.session_id is not None and not self._session_exists(tag.session_id):
            raise NotFound(f"Session {tag.session_id} is gone, so nothing of it is tagged.")
        before = self.find(tag.owner.key, tag.kind, tag.key)
        rank = self.sql.execute("SELECT coalesce(max(rank), 0) + 1 FROM artifacts").fetchone()[0]
        artifact = tag.applied(before.artifact if before else None, size)
        self.sql.execute(
            "INSERT OR REPLACE INTO artifacts (id, kind, key, created_at, updated_at, title, data,"
            " session_id, size, content_type, filename, owner, rank, content, owner_key, told)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                artifact.id,
                artifact.kind,
                artifact.key,
                artifact.created_at,
                artifact.updated_at,
                artifact.title,
                None if artifact.data is None else orjson.dumps(artifact.data),
                artifact.session_id,
                artifact.size,
                artifact.content_type,
                artifact.filename,
                orjson.dumps(tag.owner.to_wire(), default=str),
                rank,
                content,
                tag.owner.key,
                tag.session_id is None,
            ),
        )
        unused = self._evict(tag.keep)
        if before is not None and before.content is not None:
            unused.append(before.content)
        return ArtifactRecord(artifact, tag.owner, rank, content), unused

    def _session_exists(self, session_id: str) -> bool:
        row = self.sql.execute(
            "SELECT 1 FROM sessions WHERE id = ? AND deleted_at IS NULL", (session_id,)
        ).fetchone()
        return row is not None

    def _evict(self, keep: int) -> list[str]:
        """Remove the oldest-updated rows beyond a number; return the contents they named."""
        rows = self.sql.execute(
            "DELETE FROM artifacts WHERE id IN"
            " (SELECT id FROM artifacts ORDER BY rank DESC LIMIT -1 OFFSET ?) RETURNING content",
            (keep,),
        ).fetchall()
        return [row[0] for row in rows if row[0] is not None]

    def delete(self, artifact_id: str) -> tuple[bool, list[str]]:
        """Remove a row; return whether there was one, and the contents it named."""
        rows = self.sql.execute(
            "DELETE FROM artifacts WHERE id = ? RETURNING content", (artifact_id,)
        ).fetchall()
        return bool(rows), [row[0] for row in rows if row[0] is not None]

    def get(self, artifact_id: str) -> ArtifactRecord | None:
        """Return an artifact by its id."""
        return next(iter(self._select("id = ?", (artifact_id,))), None)

    def find(self, owner: str, kind: str, key: str) -> ArtifactRecord | None:
        """Return an artifact by what names it."""
        where = "owner_key = ? AND kind = ? AND key = ?"
        return next(iter(self._select(where, (owner, kind, key))), None)

    def select(
        self, owner: str | None, kind: str | None, session_id: str | None, limit: int | None
    ) -> list[ArtifactRecord]:
        """Return artifacts, newest-updated first."""
        wanted = {"owner_key": owner, "kind": kind, "session_id": session_id}
        given = {column: value for column, value in wanted.items() if value is not None}
        where = " AND ".join(f"{column} = ?" for column in given) or "1"
        tail = f"ORDER BY rank DESC LIMIT {-1 if limit is None else limit}"
        return self._select(where, tuple(given.values()), tail)

    def untold(self) -> list[ArtifactRecord]:
        """Return the artifacts whose session's log may not name their last tag."""
        return self._select("told = 0", (), "ORDER BY rank")

    def told(self, record: ArtifactRecord) -> None:
        """Note that the log names this tag; one that came later is another."""
        self.sql.execute(
            "UPDATE artifacts SET told = 1 WHERE id = ? AND rank = ?",
            (record.artifact.id, record.rank),
        )

    def contents(self) -> set[str]:
        """Return the names of all contents."""
        rows = self.sql.execute("SELECT content FROM artifacts WHERE content IS NOT NULL")
        return {row[0] for row in rows}

    def names(self, content: str) -> bool:
        """Tell whether a row names a content; a closed ledger names it, until it opens again."""
        try:
            row = self.sql.execute("SELECT 1 FROM artifacts WHERE content = ?", (content,))
            return row.fetchone() is not None
        except sqlite3.ProgrammingError:
            return True

    def _select(self, where: str, values: Sequence[Any], tail: str = "") -> list[ArtifactRecord]:
        rows = self.sql.execute(f"SELECT {_COLUMNS} FROM artifacts WHERE {where} {tail}", values)
        return [_record(row) for row in rows]


def _record(row: Sequence[Any]) -> ArtifactRecord:
    artifact = Artifact(
        id=row[0],
        kind=row[1],
        key=row[2],
        created_at=row[3],
        updated_at=row[4],
        title=row[5],
        data=None if row[6] is None else orjson.loads(row[6]),
        session_id=row[7],
        size=row[8],
        content_type=row[9],
        filename=row[10],
    )
    return ArtifactRecord(artifact, Principal.from_wire(orjson.loads(row[11])), row[12], row[13])


class ArtifactFiles:
    """The folder of contents; each is written once, under a name that was never used before."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.folder = root / "artifacts"
        self._disk = disk
        self._durable = False

    def path(self, name: str) -> Path:
        """Return where a content is."""
        return self.folder / name

    def write(self, name: str, source: BinaryIO, limit: int) -> int:
        """Copy a stream into a new file, durably; return its size.

        Raises TooLarge when it has more than ``limit`` bytes; then nothing is left.
        """
        self._make_folder()
        path = self.path(name)
        try:
            self._disk.create(path, b"", sync=False)
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                size = self._copy(handle, source, limit)
                self._disk.sync(handle)
            finally:
                os.close(handle)
            self._disk.sync_dir(self.folder)
        except Exception:
            with contextlib.suppress(OSError):
                self._disk.remove(path)
            raise
        return size

    def _copy(self, handle: int, source: BinaryIO, limit: int) -> int:
        size = 0
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise TooLarge(
                    f"An artifact's content has at most {limit:,} bytes. Store less, or raise "
                    "Artifacts(max_bytes=…)."
                )
            self._disk.append(handle, chunk)
        return size

    def _make_folder(self) -> None:
        """Make the folder, once a process: an earlier one may have died before it was durable."""
        if not self._durable:
            self._disk.make_dir(self.folder)
            self._disk.sync_dir(self.folder.parent)
            self._durable = True

    def remove(self, names: Sequence[str]) -> None:
        """Remove contents; what a failing disk leaves goes when the store opens again."""
        for name in names:
            with contextlib.suppress(OSError):
                self._disk.remove(self.path(name))

    def orphans(self, generation: str, known: set[str]) -> list[str]:
        """Return the names of files of this ledger that no row names."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            names = {entry.name for entry in entries if _NAME.fullmatch(entry.name)}
            return sorted(n for n in names - known if n.startswith(f"{generation}-"))
        return []


class EmbeddedArtifacts:
    """An :class:`~threadline.store.base.ArtifactStore` beside the ledger.

    ``run`` and ``later`` run a job in a transaction of the connection ``writes``, now or some time.
    ``ready`` raises when nothing may be written now; ``failed`` hears of a disk's error.
    """

    def __init__(
        self,
        files: ArtifactFiles,
        *,
        writes: sqlite3.Connection,
        reads: sqlite3.Connection,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        later: Callable[[Callable[[], Any]], None],
        ready: Callable[[], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._files = files
        self._table = ArtifactTable(writes)
        self._reads = ArtifactTable(reads)
        self._run = run
        self._later = later
        self._ready = ready
        self._failed = failed
        self._generation = self._table.create()
        files.remove(files.orphans(self._generation, self._table.contents()))

    async def tag(self, tag: Tag) -> ArtifactRecord:
        """Make or replace an artifact durably."""
        self._ready()
        content, size = None, None
        if tag.content is not None:
            content = f"{self._generation}-{secrets.token_hex(16)}"
            size = await asyncio.to_thread(self._write, content, tag.content, tag.max_bytes)
        try:
            record, unused = await self._run(lambda: self._table.put(tag, content, size))
        except (NotFound, StoreUnavailable):
            if content is not None and not self._reads.names(content):
                await asyncio.to_thread(self._files.remove, [content])
            raise
        await asyncio.to_thread(self._files.remove, unused)
        kept: ArtifactRecord = record
        return kept

    def _write(self, name: str, source: BinaryIO, limit: int) -> int:
        try:
            return self._files.write(name, source, limit)
        except OSError as error:
            self._failed(error)
            raise StoreUnavailable(f"The artifact cannot be kept: {error}.") from error

    def get(self, artifact_id: str) -> ArtifactRecord | None:
        """Return an artifact."""
        return self._reads.get(artifact_id)

    def find(self, owner: str, kind: str, key: str) -> ArtifactRecord | None:
        """Return the artifact that a tag would replace."""
        return self._reads.find(owner, kind, key)

    def list(
        self,
        *,
        owner: str | None = None,
        kind: str | None = None,
        session_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[ArtifactRecord]:
        """Return artifacts, newest-updated first."""
        return self._reads.select(owner, kind, session_id, limit)

    def path(self, record: ArtifactRecord) -> Path | None:
        """Return the file that holds the content."""
        if record.content is None:
            return None
        path = self._files.path(record.content)
        return path if path.is_file() and not path.is_symlink() else None

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact durably, then its content."""
        self._ready()
        found, unused = await self._run(lambda: self._table.delete(artifact_id))
        await asyncio.to_thread(self._files.remove, unused)
        return bool(found)

    def untold(self) -> Sequence[ArtifactRecord]:
        """Return the artifacts whose session's log may not say so yet."""
        return self._reads.untold()

    def told(self, record: ArtifactRecord) -> None:
        """Note soon that the log says so."""
        self._later(lambda: self._table.told(record))
