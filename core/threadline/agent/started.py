"""What a call has started: its processes are found wherever they went, and ended.

A process that a call starts gets a mark in its environment, and so has everything that it starts
in turn, also what daemonises. A scope is a path such as ``host_…/call_…/1``: whoever ends it ends
all that lies below. What is started without a mark, such as by ``os.fork``, is found as a child of
the call's own threads, where the system tells (Linux).

Not found is a process that has both left the tree of its parents and dropped its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from threadline.errors import ToolFailed
from threadline.ids import new_id

if TYPE_CHECKING:
    import psutil

    from threadline.agent.context import Log

__all__ = [
    "CALL_ID",
    "SCOPE",
    "Started",
    "current",
    "end_all",
    "in_thread",
    "mark_processes",
    "within",
]

CALL_ID = "THREADLINE_CALL_ID"
SCOPE = "THREADLINE_SCOPE"

GRACE = 1.0
_PATIENCE = 3.0
_SHORTEST_PAUSE = 0.002
_LONGEST_PAUSE = 0.1
# The wall clock may be set between the start of a call and that of its process.
_SLACK = 60.0

PROCESS = new_id("host")
"""The scope of all calls of this process."""

T = TypeVar("T")

_current: ContextVar[Started | None] = ContextVar("threadline_started", default=None)
_installing = threading.Lock()
_marking = False


class Started:
    """What one call starts.

    ``over``: the call has returned, and what its context does from now on is not the call's.
    ``refusing``: the call was given up, and may start nothing more. ``blocked_at``: where it has
    blocked the event loop, as ``file:line``.
    """

    def __init__(self, call_id: str, scope: str | None = None, log: Log | None = None) -> None:
        self.call_id = call_id
        self.scope = scope or f"{PROCESS}/{new_id('call')}"
        self.log = log
        self.over = False
        self.refusing = False
        self.blocked_at: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._began = time.time()
        self._marked = False
        self._runs = 0
        self._threads: set[int] = set()
        self._leaders: set[int] = set()

    def below(self) -> Started:
        """Return what one of the call's own commands starts.

        Raises ToolFailed once the call was given up.
        """
        self._check()
        self._runs += 1
        self._marked = True
        return Started(self.call_id, f"{self.scope}/{self._runs}")

    def marks(self, environment: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return an environment with the call's mark; one that has a mark of its own keeps that.

        Raises ToolFailed once the call was given up.
        """
        self._check()
        self._marked = True
        if str(environment.get(SCOPE, "")).startswith(f"{self.scope}/"):
            return dict(environment)
        return {**environment, CALL_ID: self.call_id, SCOPE: self.scope}

    def _check(self) -> None:
        if self.refusing:
            raise ToolFailed(f"Call {self.call_id} was stopped: it may start no more processes.")

    def led_by(self, pid: int) -> None:
        """Count all of a process's session as the call's; the process has begun the session."""
        self._leaders.add(pid)
        self._marked = True

    @contextlib.contextmanager
    def thread(self) -> Iterator[None]:
        """Count as the call's what this thread starts, and what it prints."""
        number = threading.get_native_id()
        token = _current.set(self)
        self._threads.add(number)
        try:
            yield
        finally:
            self._threads.discard(number)
            _current.reset(token)

    def pool(self) -> ThreadPoolExecutor:
        """Return the call's own pool of threads."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                thread_name_prefix=f"pool-{self.call_id}", initializer=self._enter_thread
            )
        return self._pool

    def _enter_thread(self) -> None:
        self._threads.add(threading.get_native_id())
        _current.set(self)

    def leave(self) -> None:
        """The call has returned: what it has left running goes on, and is no longer watched."""
        self.over = True
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    # Finding and ending

    def alive(self) -> list[psutil.Process]:
        """Return the processes that live, in no order."""
        roots = [pid for thread in tuple(self._threads) for pid in _children(thread)]
        if not self._marked and not roots:
            return []
        return _find(self.scope, self._began - _SLACK, roots, self._leaders)

    def end(self, grace: float = GRACE) -> int:
        """End every process: SIGTERM, after ``grace`` seconds SIGKILL; return how many still live.

        It blocks until they are gone. Some may not be ours to end, or hang in the kernel: those are
        given up after a few seconds.
        """
        return _end(self.alive, grace, self._leaders)

    async def stop(self, grace: float = GRACE) -> int:
        """Refuse to start more and end what lives; return how many processes still live.

        The work is done in a thread that outlives a cancellation and the event loop.
        """
        self.refusing = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if not self._marked and not any(_children(thread) for thread in tuple(self._threads)):
            return 0
        return await in_thread(functools.partial(self.end, grace), "end-processes", daemon=False)


async def end_all(grace: float = GRACE) -> int:
    """End what calls of this process have left running; return how many processes still live."""
    if not _marking:
        return 0
    find = functools.partial(_find, PROCESS, 0.0, (), ())
    return await in_thread(functools.partial(_end, find, grace, ()), "end-processes", daemon=False)


def _end(find: Callable[[], list[psutil.Process]], grace: float, leaders: Collection[int]) -> int:
    told: set[psutil.Process] = set()
    began, pause = time.monotonic(), _SHORTEST_PAUSE
    while found := find():
        passed = time.monotonic() - began
        if passed > grace + _PATIENCE:
            return len(found)
        if passed >= grace:
            _signal_groups(found, leaders)
        for process in found:
            if passed >= grace:
                _signal(process, kill=True)
            elif process not in told:
                told.add(process)
                _signal(process, kill=False)
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
    return 0


def _signal(process: psutil.Process, *, kill: bool) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        if kill:
            process.kill()
        else:
            process.terminate()


def _signal_groups(found: Collection[psutil.Process], leaders: Collection[int]) -> None:
    """Kill whole groups at once: what forks faster than it is found has no other end."""
    import signal

    for process in found:
        with contextlib.suppress(OSError):
            group = os.getpgid(process.pid)
            if group in leaders:
                os.killpg(group, signal.SIGKILL)


def _find(
    scope: str,
    since: float,
    roots: Collection[int],
    leaders: Collection[int],
) -> list[psutil.Process]:
    """Return what lives of a scope: what is marked, is a root or in a session, and all below."""
    import psutil

    below: dict[int, list[psutil.Process]] = defaultdict(list)
    found: list[psutil.Process] = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.create_time() < since or process.status() == psutil.STATUS_ZOMBIE:
                continue
            below[process.ppid()].append(process)
            if pid in roots or _session(pid) in leaders or _is_marked(process, scope):
                found.append(process)
    known = {process.pid for process in found} | {os.getpid()}
    for process in found:  # It grows meanwhile.
        fresh = [child for child in below[process.pid] if child.pid not in known]
        known.update(child.pid for child in fresh)
        found += fresh
    return [process for process in found if process.pid != os.getpid()]


def _is_marked(process: psutil.Process, scope: str) -> bool:
    import psutil

    try:
        mark = process.environ().get(SCOPE, "")
    except psutil.Error:
        return False
    return f"{mark}/".startswith(f"{scope}/")


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def _children(thread: int) -> list[int]:
    """Return the processes that a thread of ours has started and that are not reaped."""
    with contextlib.suppress(OSError, ValueError):
        return [int(pid) for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()]
    return []


# The call that runs


def current(*, over: bool = False) -> Started | None:
    """Return what the running code's call has started; None outside of calls.

    ``over``: also for what a call that has returned has left running.
    """
    started = _current.get()
    return None if started is None or (started.over and not over) else started


@contextlib.contextmanager
def within(started: Started) -> Iterator[None]:
    """Count what is done inside as the call's."""
    token = _current.set(started)
    try:
        yield
    finally:
        _current.reset(token)


def mark_processes() -> None:
    """Let every process that a call starts by ``subprocess`` or asyncio carry the call's mark.

    Done once for the interpreter, as tracing libraries do it; outside of calls nothing changes.
    """
    global _marking
    with _installing:
        if _marking:
            return
        original = subprocess.Popen.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def start(*args: Any, **kwargs: Any) -> None:
            started = current()
            if started is not None:
                bound = signature.bind(*args, **kwargs)
                given = bound.arguments.get("env")
                bound.arguments["env"] = started.marks(os.environ if given is None else given)
                args, kwargs = bound.args, bound.kwargs
            original(*args, **kwargs)

        subprocess.Popen.__init__ = start  # type: ignore[method-assign]
        _marking = True


async def in_thread(function: Callable[[], T], name: str, *, daemon: bool) -> T:
    """Run a blocking function in a thread of its own, and wait for it.

    Not in the loop's pool, whose workers others may hold for ever. A cancellation leaves the thread
    running. Where no thread can be had, the function blocks the event loop.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        failure: BaseException | None = None
        try:
            value = function()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed, nobody waits any more.
            loop.call_soon_threadsafe(settle, value, failure)

    try:
        threading.Thread(target=work, name=name, daemon=daemon).start()
    except RuntimeError:
        return function()
    return await future
