"""The files of a session: its log, history and blobs; open handles are a bounded cache."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from threadline import ndjson
from threadline.store.base import Checkpoint
from threadline.store.disk import Disk

__all__ = ["Files", "Handles", "Head"]

EVENTS = "events.ndjson"
SESSION = "session.json"
WORKSPACE = "workspace"
_TAIL = 64 * 1024


@dataclass(slots=True, eq=False)
class Head:
    """What this process knows of a log: where its whole lines end, and who waits for more."""

    path: str
    size: int
    inode: int
    deleted: bool = False
    watched: bool = False
    waiters: set[asyncio.Future[None]] = field(default_factory=set)

    def wake(self) -> None:
        """Wake every follower."""
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Handles:
    """A bounded cache of open append handles; the least recently used are closed first."""

    def __init__(self, limit: int = 256) -> None:
        # Keyed by text: a Path takes longer to hash than a line takes to write.
        self._open: OrderedDict[str, int] = OrderedDict()
        self._limit = limit

    def get(self, path: Path | str) -> int:
        """Return an open handle for appending to an existing file, or a new one."""
        name = str(path)
        handle = self._open.get(name)
        if handle is not None:
            self._open.move_to_end(name)
            return handle
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags)
        self._open[name] = handle
        if len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])
        return handle

    def drop(self, path: Path) -> None:
        """Close one handle."""
        handle = self._open.pop(str(path), None)
        if handle is not None:
            os.close(handle)

    def close(self) -> None:
        """Close all handles."""
        while self._open:
            os.close(self._open.popitem()[1])


class Files:
    """Paths and plain file work under one state root."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root
        self.sessions = root / "sessions"
        self.runner = root / "runner"
        self.traces = root / "traces"
        self.calls = root / "tool-calls"
        self.channels = root / "channels"
        self.disk = disk

    def session(self, session_id: str) -> Path:
        """Return a session's folder."""
        return self.sessions / session_id

    def log(self, session_id: str) -> Path:
        """Return a session's log."""
        return self.sessions / session_id / EVENTS

    def history(self, session_id: str) -> Path:
        """Return the file that holds a session's checkpoints."""
        return self.runner / f"{session_id}.ndjson"

    def exists(self, session_id: str) -> bool:
        """Tell whether the session's folder is there, as a real folder with its identity."""
        folder = self.session(session_id)
        return not folder.is_symlink() and (folder / SESSION).is_file()

    def make_session(
        self, session_id: str, wire: Mapping[str, Any] | None, *, workspace: bool
    ) -> None:
        """Make a session's folder and files; nothing of it is synced yet."""
        folder = self.session(session_id)
        identity = b"" if wire is None else _identity(wire)
        self.disk.make_dir(folder)
        self.disk.create(folder / EVENTS, b"", sync=False)
        self.disk.create(folder / SESSION, identity, sync=False)
        # Made here, a file costs nothing: later it would wait for the commits of other sessions.
        self.disk.create(self.history(session_id), b"", sync=False)
        if workspace:
            self.disk.make_dir(folder / WORKSPACE)

    def name_session(self, session_id: str, wire: Mapping[str, Any]) -> bool:
        """Write the identity of a session whose folder waits for it; False when that is gone.

        It is not synced: the ledger has it too, and the session's first sync takes it along.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(self.session(session_id) / SESSION, flags)
        except FileNotFoundError:
            return False
        try:
            self.disk.append(handle, _identity(wire))
        finally:
            os.close(handle)
        return self.log(session_id).is_file()

    def sync_session(self, session_id: str) -> None:
        """Sync a new session's identity and its folder."""
        handle = self.reader(session_id, SESSION)
        try:
            self.disk.sync(handle)
        finally:
            os.close(handle)
        self.disk.sync_dir(self.session(session_id))

    def remove_session(self, session_id: str) -> None:
        """Remove everything that belongs to a session; the folder goes last, as it tells of it."""
        for path in (*self.beside(session_id), self.session(session_id)):
            self.disk.remove(path)

    def beside(self, session_id: str) -> tuple[Path, ...]:
        """Return the files that a session has outside of its folder."""
        return self.history(session_id), self.traces / f"{session_id}.ndjson"

    def read_session(self, session_id: str) -> dict[str, Any] | None:
        """Return what ``session.json`` holds, or None."""
        try:
            wire = orjson.loads((self.session(session_id) / SESSION).read_bytes())
        except (OSError, ValueError):
            return None
        return wire if isinstance(wire, dict) else None

    def reader(self, session_id: str, name: str = EVENTS) -> int:
        """Open a log, or another file of a session, for reading."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.session(session_id) / name, flags)

    def mend(self, path: Path, *, whole: bool, rewrite: bool = False) -> list[tuple[int, int]]:
        """Repair a log: its tail, or all of it. Return the places taken out of its middle.

        What is taken out of the middle stays beside the log in ``<name>.damaged``. ``rewrite``
        writes every byte again, because a sync of them has failed.
        """
        size = path.stat().st_size
        if not whole and not rewrite:
            self._mend_tail(path, size)
            return []
        data = path.read_bytes()
        fixed = ndjson.repair(data)
        if fixed.good == data and not rewrite:
            return []
        if fixed.damaged:
            self.disk.create(path.with_suffix(".damaged"), data)
        self.rewrite(path, fixed.good)
        return fixed.damaged

    def rewrite(self, path: Path, data: bytes) -> None:
        """Put a file's bytes on stable storage as a new file in its place."""
        fresh = path.with_suffix(".repaired")
        self.disk.create(fresh, data)
        self.disk.replace(fresh, path)
        self.disk.sync_dir(path.parent)

    def _mend_tail(self, path: Path, size: int) -> None:
        with path.open("rb") as file:
            start, window = size, _TAIL
            while True:
                start = max(0, size - window)
                file.seek(start)
                data = file.read()
                if start == 0 or b"\n" in data:
                    break
                window *= 4
        tail = data[data.rfind(b"\n") + 1 :]
        if not tail:
            return
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        try:
            if ndjson.parse(tail) is not None:
                self.disk.append(handle, b"\n")
            else:
                self.disk.truncate(handle, size - len(tail))
        finally:
            os.close(handle)

    def last_event(self, path: Path) -> dict[str, Any] | None:
        """Return the last good line's event."""
        size = path.stat().st_size
        window = _TAIL
        with path.open("rb") as file:
            while size:
                start = max(0, size - window)
                file.seek(start)
                data = file.read(size - start)
                found = None
                cut = 0 if start == 0 else data.find(b"\n") + 1
                for line in ndjson.scan(data[cut:]):
                    found = line.event if line is not None else found
                if found is not None or start == 0:
                    return found
                window *= 4
        return None

    def events(self, path: Path, offset: int) -> Iterator[dict[str, Any] | None]:
        """Yield the events from an offset on, None for each damaged line."""
        with path.open("rb") as file:
            file.seek(offset)
            for raw in file:
                if raw.endswith(b"\n"):
                    yield ndjson.parse(raw)

    def checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Return a session's history; a torn last record is left out."""
        try:
            data = self.history(session_id).read_bytes()
        except FileNotFoundError:
            return []
        found = []
        for raw in data.split(b"\n"):
            with contextlib.suppress(ValueError, KeyError):
                record = orjson.loads(raw)
                found.append(
                    Checkpoint(record["turnId"], record["messages"], record.get("nudges", []))
                )
        return found


def _identity(wire: Mapping[str, Any]) -> bytes:
    return orjson.dumps(wire, default=str) + b"\n"


def reading(handle: int) -> Callable[[int, int], bytes]:
    """Return a ``read(offset, length)`` over an open file."""
    return lambda offset, length: os.pread(handle, length, offset)
