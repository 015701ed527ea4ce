"""Every physical write of the embedded store, in one place.

A test replaces this object to crash, fail or lose unsynced bytes between any two writes.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

__all__ = ["Disk"]


class Disk:
    """The real disk. Files are made 0600 and folders 0700."""

    def make_dir(self, path: Path, *, parents: bool = True) -> None:
        """Make a folder, and its parents unless they must be there; one that exists is fine."""
        for parent in reversed(path.parents) if parents else ():
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)

    def create(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Write a new file whole."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            write_all(handle, data)
            if sync:
                os.fsync(handle)
        finally:
            os.close(handle)

    def append(self, handle: int, data: bytes) -> None:
        """Write at the end of an open file."""
        write_all(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        """Cut an open file."""
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        """Put an open file's bytes on stable storage."""
        os.fdatasync(handle)

    def sync_dir(self, path: Path) -> None:
        """Put a folder's entries on stable storage."""
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        """Move a file over another in one step."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file, a link or a whole folder, never a link's target; none is fine."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit the open transaction durably."""
        connection.execute("COMMIT")


def write_all(handle: int, data: bytes) -> None:
    """Write all the bytes; the system may take them in pieces."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
