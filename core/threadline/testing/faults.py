"""A disk that dies, fills up, fails to sync, or loses what was not synced.

``FaultyDisk`` counts every physical operation of the embedded store. A test runs a scenario once to
learn how many there are, then again and again, dying at each of them in turn::

    disk = FaultyDisk(crash_at=17, when="torn")
    core = SessionCore(Services(EmbeddedStore(root, disk=disk), harness=harness))
    ...                      # raises Crashed somewhere, and everywhere from then on
    await crash(core, disk)  # what the operating system does when a process dies
    disk.lose_unsynced(root) # a power cut on top
    disk.revive()            # the next process finds a healthy disk
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from threadline.store.disk import Disk

if TYPE_CHECKING:
    from threadline.session.core import SessionCore

__all__ = ["Crashed", "FaultyDisk", "When", "crash"]

When = Literal["before", "after", "torn"]


class Crashed(BaseException):
    """The process is dead: nothing catches this by accident, as nothing survives a SIGKILL."""


@dataclass(slots=True)
class _File:
    """What a power cut leaves of a file: its first ``size`` bytes, NUL where pages were lost."""

    size: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)


class FaultyDisk(Disk):
    """The real disk, until operation number ``crash_at`` (from 1).

    There it dies ``before`` the operation, ``after`` it, or ``torn``: after half of an append's or
    new file's bytes (other operations are then not done at all). Every later operation raises
    :class:`Crashed` too. Thread-safe.

    ``full`` makes every write fail with ENOSPC while it is set; ``failing_syncs`` counts the syncs
    of files with unsynced bytes that will fail with EIO. Like Linux, the disk forgets that the
    bytes of a failed sync were ever dirty: a later sync does not save them. Syncs themselves are
    only noted, which makes tests fast: what counts is what :meth:`lose_unsynced` leaves.

    ``delay`` is how many seconds every operation takes longer, or only those named in ``slow``
    (``append``, ``commit``, ``create``, ``make_dir``, ``remove``, ``replace``, ``sync``,
    ``sync_dir``, ``truncate``); both may be changed at any time. :meth:`crash_next` dies at the
    next operation of a name.
    """

    def __init__(
        self,
        crash_at: int | None = None,
        when: When = "before",
        *,
        delay: float = 0.0,
        slow: Collection[str] = (),
    ) -> None:
        self.crash_at = crash_at
        self.when = when
        self.delay = delay
        self.slow = slow
        self._crash_next: str | None = None
        self.operations = 0
        self.journal: list[str] = []
        self.full = False
        self.failing_syncs = 0
        self._dead = False
        self._lock = threading.RLock()
        self._files: dict[tuple[int, int], _File] = {}
        self._unsynced_entries: dict[Path, set[Path]] = {}
        self._replaced: dict[Path, bytes | None] = {}

    @property
    def dead(self) -> bool:
        """True from the crash on, until :meth:`revive`."""
        return self._dead

    def die(self) -> None:
        """Crash now, between two operations."""
        with self._lock:
            self._dead = True

    def revive(self, crash_at: int | None = None, when: When = "before") -> None:
        """Be healthy again, or until another crash; what is not synced stays so."""
        with self._lock:
            self._dead = False
            self.operations = 0
            self.journal = []
            self.crash_at, self.when = crash_at, when
            self._crash_next = None

    def crash_next(self, operation: str, when: When = "before") -> None:
        """Die at the next operation of this name, such as ``"commit"``."""
        with self._lock:
            self._crash_next, self.when = operation, when

    # The operations

    def make_dir(self, path: Path, *, parents: bool = True) -> None:
        """Make a folder; its entry survives a power cut once its parent was synced."""

        def act() -> None:
            fresh = [p for p in (path, *path.parents) if not p.exists()]
            super(FaultyDisk, self).make_dir(path, parents=parents)
            for made in fresh:
                self._unsynced_entries.setdefault(made.parent, set()).add(made)

        self._perform("make_dir", path.name, act)

    def create(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Write a new file whole."""

        def act(part: bytes) -> None:
            fresh = not path.exists()
            super(FaultyDisk, self).create(path, part, sync=False)
            if fresh:
                self._unsynced_entries.setdefault(path.parent, set()).add(path)
            status = path.stat()
            self._files[status.st_dev, status.st_ino] = _File()
            if sync and len(part) == len(data):
                self._sync_path(path)

        self._perform("create", path.name, lambda: act(data), torn=lambda: act(_half(data)))

    def append(self, handle: int, data: bytes) -> None:
        """Write at the end of an open file."""
        write = super().append
        self._file(handle)
        self._perform(
            "append", "", lambda: write(handle, data), torn=lambda: write(handle, _half(data))
        )

    def truncate(self, handle: int, size: int) -> None:
        """Cut an open file."""

        def act() -> None:
            super(FaultyDisk, self).truncate(handle, size)
            file = self._file(handle)
            file.size = min(file.size, size)
            file.lost = [(a, min(b, size)) for a, b in file.lost if a < size]

        self._perform("truncate", "", act)

    def sync(self, handle: int) -> None:
        """Put an open file's bytes on stable storage."""
        self._perform("sync", "", lambda: self._sync(handle))

    def sync_dir(self, path: Path) -> None:
        """Put a folder's entries on stable storage."""

        def act() -> None:
            self._unsynced_entries.pop(path, None)
            for target in [p for p in self._replaced if p.parent == path]:
                del self._replaced[target]

        self._perform("sync_dir", path.name, act)

    def replace(self, source: Path, target: Path) -> None:
        """Move a file over another in one step; a power cut undoes it until ``sync_dir``."""

        def act() -> None:
            before = target.read_bytes() if target.exists() else None
            super(FaultyDisk, self).replace(source, target)
            self._replaced.setdefault(target, before)
            entries = self._unsynced_entries.get(source.parent, set())
            entries.discard(source)

        self._perform("replace", target.name, act)

    def remove(self, path: Path) -> None:
        """Remove a file, a link or a whole folder."""

        def act() -> None:
            for place in (path, *(path.rglob("*") if path.is_dir() else ())):
                with contextlib.suppress(OSError):
                    status = place.lstat()
                    self._files.pop((status.st_dev, status.st_ino), None)
                self._replaced.pop(place, None)
                self._unsynced_entries.pop(place, None)
            super(FaultyDisk, self).remove(path)

        self._perform("remove", path.name, act)

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit the open transaction durably."""
        self._perform("commit", "", lambda: super(FaultyDisk, self).commit(connection))

    # Faults

    def _perform(
        self,
        name: str,
        detail: str,
        act: Callable[[], None],
        torn: Callable[[], None] | None = None,
    ) -> None:
        if self.delay > 0 and (not self.slow or name in self.slow):
            time.sleep(self.delay)
        with self._lock:
            if self._dead:
                raise Crashed
            self.operations += 1
            self.journal.append(f"{name} {detail}".strip())
            dying = self.operations == self.crash_at or name == self._crash_next
            if dying and self.when != "after":
                self._dead = True
                if self.when == "torn" and torn is not None:
                    torn()
                raise Crashed
            if self.full and name in ("make_dir", "create", "append", "commit"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            act()
            if dying:
                self._dead = True
                raise Crashed

    def _file(self, handle: int) -> _File:
        """Return what is known of an open file; one that was there before counts as synced."""
        with self._lock:
            status = os.fstat(handle)
            key = status.st_dev, status.st_ino
            return self._files.setdefault(key, _File(status.st_size))

    def _sync_path(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            self._sync(handle)
        finally:
            os.close(handle)

    def _sync(self, handle: int) -> None:
        file = self._file(handle)
        size = os.fstat(handle).st_size
        if self.failing_syncs > 0 and size > file.size:
            self.failing_syncs -= 1
            file.lost.append((file.size, size))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        file.size = size

    # Power cuts

    def lose_unsynced(self, root: Path) -> None:
        """Leave below a folder only what was on stable storage, as if the power had failed.

        Files are cut to what was synced, and files and folders whose entry was never synced vanish.
        The database is as its last commit left it.
        """
        with self._lock:
            for target, before in self._replaced.items():
                if before is not None:
                    self._restore(target, before)
            for entries in self._unsynced_entries.values():
                for path in entries:
                    _vanish(path)
            self._replaced.clear()
            self._unsynced_entries.clear()
            for path in root.rglob("*"):
                self._cut(path)
            self._files.clear()

    def _restore(self, target: Path, before: bytes) -> None:
        target.unlink(missing_ok=True)
        super().create(target, before, sync=False)
        status = target.stat()
        self._files[status.st_dev, status.st_ino] = _File(len(before))

    def _cut(self, path: Path) -> None:
        if not path.is_file() or path.is_symlink():
            return
        status = path.stat()
        file = self._files.get((status.st_dev, status.st_ino))
        if file is None:
            return
        with path.open("r+b") as opened:
            opened.truncate(min(file.size, status.st_size))
            for start, end in file.lost:
                if end <= file.size:
                    opened.seek(start)
                    opened.write(bytes(end - start))


def _half(data: bytes) -> bytes:
    return data[: max(1, len(data) // 2)] if data else data


def _vanish(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


async def crash(core: SessionCore, disk: FaultyDisk) -> None:
    """Kill the process that a core stands for: nothing more is written, every file is closed."""
    disk.die()
    tasks = [task for task in core.services.tasks if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await core.store.close()
