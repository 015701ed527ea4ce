"""The one thread that writes the ledger.

It commits whatever has gathered while the last commit ran: no window, no timer for what somebody
waits for. Work that nobody waits for rides along with the next commit, or goes half a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from threadline.errors import StoreUnavailable, ThreadlineError
from threadline.store.disk import Disk

__all__ = ["Writer"]

LAZY_SECONDS = 0.5
_BATCH = 512


@dataclass(slots=True)
class _Job:
    run: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None] | None = None
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Runs jobs in transactions of one SQLite connection, and answers on the event loop."""

    def __init__(self, connection: sqlite3.Connection, disk: Disk) -> None:
        self._sql = connection
        self._disk = disk
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._before_commit: Callable[[list[Any]], None] = lambda _: None
        self._thread = threading.Thread(target=self._work, name="threadline-ledger", daemon=True)
        self._broken: BaseException | None = None
        self._lazy_since: float | None = None

    def start(self, before_commit: Callable[[list[Any]], None]) -> None:
        """Start; ``before_commit`` gets each batch's results and may still fail the batch."""
        self._before_commit = before_commit
        self._thread.start()

    async def run(self, job: Callable[[], Any], on_commit: Callable[[Any], None]) -> Any:
        """Run a job in the next transaction; ``on_commit`` is called on the loop, in commit order.

        ``on_commit`` runs even when the awaiting task was cancelled meanwhile.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            try:
                if error is None:
                    on_commit(result)
            finally:
                if not future.cancelled():
                    _resolve(future, result, error)

        self._put(_Job(job, done=done))
        return await future

    def later(self, job: Callable[[], Any]) -> None:
        """Run a job in some later transaction, in order; one that fails whole is tried again."""
        self._put(_Job(job))

    def close(self) -> None:
        """Commit what is queued and end the thread; what comes later is refused."""
        self._broken = self._broken or StoreUnavailable("the store was closed")
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()

    def _put(self, job: _Job) -> None:
        if self._broken is not None:
            raise StoreUnavailable(f"The ledger is closed: {self._broken}.")
        self._jobs.put(job)

    def _work(self) -> None:
        lazy: list[_Job] = []
        open_ = True
        while open_:
            batch, open_ = self._gather(lazy)
            if not batch:
                continue
            lazy, self._lazy_since = [], None
            try:
                if not self._transact(batch):
                    lazy = [job for job in batch if job.done is None]
                    self._lazy_since = time.monotonic() if lazy else None
            except BaseException as error:
                self._broken = error
                self._refuse([*batch, *self._left()])
                return
            self._answer(batch)

    def _left(self) -> list[_Job]:
        """Return what is queued and will never run."""
        left = []
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._jobs.get_nowait()
                left += [job] if job is not None else []
        return left

    def _refuse(self, jobs: list[_Job]) -> None:
        for job in jobs:
            job.error = job.error or self._broken
        self._answer(jobs)

    def _gather(self, lazy: list[_Job]) -> tuple[list[_Job], bool]:
        """Return the next batch, lazy work first, and whether to go on; may fill ``lazy``."""
        try:
            job = self._jobs.get(timeout=self._patience(lazy))
        except queue.Empty:
            return list(lazy), True
        urgent: list[_Job] = []
        while True:
            if job is None:
                return [*lazy, *urgent], False
            (lazy if job.done is None else urgent).append(job)
            if len(urgent) >= _BATCH:
                break
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
        if lazy and self._lazy_since is None:
            self._lazy_since = time.monotonic()
        return ([*lazy, *urgent], True) if urgent else ([], True)

    def _patience(self, lazy: list[_Job]) -> float | None:
        if not lazy or self._lazy_since is None:
            return None
        return max(0.0, self._lazy_since + LAZY_SECONDS - time.monotonic())

    def _transact(self, batch: list[_Job]) -> bool:
        """Commit a batch whole; False when none of it is stored."""
        try:
            self._sql.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._run(job)
            self._before_commit([job.result for job in batch if job.error is None])
            self._disk.commit(self._sql)
        except Exception as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            failure = StoreUnavailable(f"The delivery could not be stored: {error}.")
            failure.__cause__ = error
            for job in batch:
                job.error = failure
            return False
        return True

    def _run(self, job: _Job) -> None:
        job.result = job.error = None
        self._sql.execute("SAVEPOINT job")
        try:
            job.result = job.run()
        except (sqlite3.OperationalError, sqlite3.DatabaseError):
            raise
        except Exception as error:
            self._sql.execute("ROLLBACK TO job")
            job.error = (
                error
                if isinstance(error, ThreadlineError)
                else StoreUnavailable(f"The ledger failed: {error!r}.")
            )
        self._sql.execute("RELEASE job")

    def _answer(self, batch: list[_Job]) -> None:
        waiting = [job for job in batch if job.done is not None]
        if waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_tell, waiting)


def _tell(jobs: list[_Job]) -> None:
    """Answer each job; a listener that raises must not keep the others from their answers."""
    for job in jobs:
        assert job.done is not None
        try:
            job.done(job.result, job.error)
        except Exception as error:
            context = {"message": "A listener of the store raised.", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
