"""The folders of new sessions, some of them made ahead of time.

A file system takes milliseconds to make a folder durable. An accept need not wait for that when a
folder with the id that it will get is there already: it is given its identity, and the accept costs
one commit of the ledger. What is left over is removed when the store closes, or opens again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from threadline.ids import new_id
from threadline.store.log import Files

__all__ = ["Stock"]

_MOST = 128
_THREADS = 8


class Stock:
    """Makes sessions' folders durable; the ledger's thread calls ``take`` and ``make``."""

    def __init__(self, files: Files, *, workspaces: bool) -> None:
        self._files = files
        self._workspaces = workspaces
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="threadline-make")
        self._ready: deque[str] = deque()
        self._taken: set[str] = set()
        self._made = 0
        self._filling: Future[None] | None = None

    def take(self) -> str:
        """Return the id of a new session: one whose folder waits, else a fresh one."""
        if not self._ready:
            return new_id("ses")
        session_id = self._ready.popleft()
        self._taken.add(session_id)
        return session_id

    def make(self, sessions: Mapping[str, Mapping[str, Any]]) -> None:
        """Return when these sessions' folders are durable, each by its id with its identity."""
        missing = {
            session_id: wire
            for session_id, wire in sessions.items()
            if session_id not in self._taken or not self._files.name_session(session_id, wire)
        }
        self._taken.clear()
        if missing:
            self._make(missing)
        self._made += len(sessions)
        # Half of what was wanted so far: one command makes none, a busy host soon has all.
        wanted = min(_MOST, self._made // 2)
        idle = self._filling is None or self._filling.done()
        if idle and wanted and len(self._ready) <= wanted // 2:
            self._filling = self._pool.submit(self._fill, wanted)

    def close(self) -> None:
        """Remove what is left over."""
        if self._filling is not None:
            wait([self._filling])
        leaving = self._pool.submit(self._empty)
        # A disk that fails here leaves folders that the next start removes.
        leaving.exception()
        self._pool.shutdown(wait=True)

    def _fill(self, wanted: int) -> None:
        fresh = [new_id("ses") for _ in range(wanted - len(self._ready))]
        with contextlib.suppress(OSError):
            self._make(dict.fromkeys(fresh))
            self._ready.extend(fresh)

    def _empty(self) -> None:
        while self._ready:
            self._files.remove_session(self._ready.popleft())

    def _make(self, sessions: Mapping[str, Mapping[str, Any] | None]) -> None:
        files = self._files
        for session_id, wire in sessions.items():
            files.make_session(session_id, wire, workspace=self._workspaces)
        folders = (files.sessions, files.runner)
        self._together(
            [
                *(partial(files.sync_session, session_id) for session_id in sessions),
                *(partial(files.disk.sync_dir, folder) for folder in folders),
            ]
        )

    def _together(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run jobs side by side: one commit of the file system's journal then does for many."""
        first, *others = jobs
        running = [self._pool.submit(job) for job in others]
        try:
            first()
        finally:
            wait(running)
        for job in running:
            job.result()
