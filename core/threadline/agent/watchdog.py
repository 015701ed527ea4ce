"""Ends what blocks the event loop, when that is a tool.

While calls run, a thread asks the loop again and again for a turn. When none comes for a while, it
looks at the stack of the loop's thread. If a step of a call is on it, it says in the log which tool
blocks and where, and interrupts it there, so that the loop goes on and the call ends in an error.

Where the loop has the main thread a signal does it, which also ends ``time.sleep`` and most waiting
for locks, files and sockets. In another thread an exception is set for the next Python instruction;
what waits outside of Python ends only by itself. Nothing can interrupt C code that does not come
back to Python; while it holds the interpreter's lock, this thread does not run either.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from threadline.agent.contained import Contained, Gate

__all__ = ["BLOCK_SECONDS", "Blocked", "dismiss", "enter", "leave"]

BLOCK_SECONDS = 5.0
SIGNAL = signal.SIGURG  # By default nothing happens at it, and hardly anybody uses it.

_LOOKS = 5
_QUIET_LOOKS = 2
_TRIES = 20
_TRY_SECONDS = 0.05

_STEP = Contained.advance.__code__
# Interrupted, these would leave something half-done that outlives the call: a module that is being
# imported, the session's log. Who has stopped in a debugger wants to look around.
_LEFT_ALONE = ("importlib", "_frozen_importlib", "bdb", "pdb", "_pydevd_bundle")
_OURS = ("threadline",)
_TOOLS = ("threadline.agent",)
_LOOP = ("asyncio", "selectors")

_watchdogs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Watchdog] = (
    weakref.WeakKeyDictionary()
)
_before: Any = signal.SIG_DFL


class Blocked(BaseException):
    """A tool has blocked the event loop and was interrupted.

    No Exception, so that a tool's own handling of errors does not take it for one.
    """


def enter(loop: asyncio.AbstractEventLoop) -> None:
    """Watch the running loop until as many calls as came in have left."""
    watchdog = _watchdogs.get(loop)
    if watchdog is None:
        watchdog = _watchdogs[loop] = _Watchdog(weakref.ref(loop))
    watchdog.enter()


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """Let one call less be watched; called in the loop's thread."""
    _watchdogs[loop].leave()


def dismiss(loop: asyncio.AbstractEventLoop) -> None:
    """End the thread now if no call runs; by itself it ends some seconds after the last one."""
    if loop in _watchdogs:
        _watchdogs[loop].dismiss()


class _Watchdog:
    """Watches one loop; all but the thread's own work happens in the loop's thread."""

    def __init__(self, loop: weakref.ref[asyncio.AbstractEventLoop]) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._calls = 0
        self._by_signal = False
        self._turned = threading.Event()
        self._struck = threading.Event()
        self._target: tuple[Contained[Any], int] | None = None

    def enter(self) -> None:
        """A call begins."""
        self._calls += 1
        if self._calls > 1:
            return
        with self._lock:
            if self._thread is None:
                self._ending.clear()
                self._thread_id = threading.get_ident()
                self._by_signal = _take_signal()
                thread = threading.Thread(target=self._watch, name="tool-watchdog", daemon=True)
                with contextlib.suppress(RuntimeError):  # None to be had: then nobody watches.
                    thread.start()
                    self._thread = thread

    def leave(self) -> None:
        """A call has ended."""
        self._calls -= 1

    def dismiss(self) -> None:
        """End the thread if no call runs."""
        with self._lock:
            thread = self._thread
            if self._calls or thread is None:
                return
            self._ending.set()
            self._turned.set()
        thread.join()
        self._rest()

    def _rest(self) -> None:
        """Give the signal back when the thread has ended."""
        if self._thread is None and self._by_signal:
            _give_signal_back()

    # In the thread

    def _watch(self) -> None:
        limit = BLOCK_SECONDS
        quiet = 0
        while not self._may_end(quiet):
            self._ending.wait(limit / _LOOKS)
            quiet = 0 if self._calls else quiet + 1
            if not quiet and not self._turns(limit):
                self._interrupt(limit)
        loop = self._loop()
        with contextlib.suppress(RuntimeError):  # It is closed.
            if loop is not None:
                loop.call_soon_threadsafe(self._rest)

    def _may_end(self, quiet: int) -> bool:
        """End the thread when it is told to, or has had nothing to do for a while."""
        with self._lock:
            if self._calls or not (self._ending.is_set() or quiet > _QUIET_LOOKS):
                return False
            self._thread = None
            return True

    def _turns(self, limit: float) -> bool:
        """Tell whether the loop takes a turn within the limit."""
        loop = self._loop()
        if loop is None:
            return True
        turned = self._turned = threading.Event()
        self._target = None
        try:
            loop.call_soon_threadsafe(turned.set)
        except RuntimeError:  # It is closed.
            return True
        looks = 0
        while looks < _LOOKS:
            began, worked = time.monotonic(), time.process_time()
            if turned.wait(limit / _LOOKS) or not self._calls:
                return True
            passed, worked = time.monotonic() - began, time.process_time() - worked
            # A process that was stopped, or a machine that slept, has not blocked anything.
            slept = passed > 2 * limit / _LOOKS and worked < passed / 2
            looks = 0 if slept else looks + 1
        return False

    def _interrupt(self, limit: float) -> None:
        frame = _frame_of(self._thread_id)
        step = _step(frame)
        if frame is None or step is None:
            return
        step.started.blocked_at = _place(frame)
        if step.started.log is not None:
            step.started.log.warning("tool_blocks_loop", at=step.started.blocked_at, seconds=limit)
        self._struck.clear()
        # Behind it there may be steps of other calls that the loop owes a turn.
        self._target = step, step.steps
        for _ in range(_TRIES):
            if self._by_signal:
                signal.pthread_kill(self._thread_id, SIGNAL)
            elif step.gate is not None:
                self._set_exception(step.gate)
            if self._turned.wait(_TRY_SECONDS) or self._target != (step, step.steps):
                return

    def _set_exception(self, gate: Gate) -> None:
        """Let the loop's thread raise at its next instruction, if that is still in the step."""
        with gate.lock:
            if gate.inside and self._may_strike(_frame_of(self._thread_id)):
                gate.on_leave = functools.partial(_raise_in, self._thread_id, None)
                _raise_in(self._thread_id, Blocked)
                self._struck.set()

    def strike(self, frame: FrameType | None) -> None:
        """End the step at this very place, if it is to be ended: called by the signal's handler."""
        if self._turned.is_set() or not self._may_strike(frame):
            return
        again = self._struck.is_set()
        self._struck.set()
        if again:
            # Nothing may be called after this: it would be what gets the exception.
            _strike_next_lines(frame)
        raise Blocked

    def _may_strike(self, frame: FrameType | None) -> bool:
        """Tell whether an exception at this very place ends the step that blocks, nothing else."""
        step = _step(frame)
        if frame is None or step is None or _is_of(frame, _LOOP):
            return False
        return self._target == (step, step.steps)


# The signal: all of it in the main thread


def _take_signal() -> bool:
    """Handle the signal, unless this is not the main thread or C code handles it."""
    global _before
    now = signal.getsignal(SIGNAL)
    if now is None or threading.current_thread() is not threading.main_thread():
        return False
    if now is not _on_signal:
        _before = now
        signal.signal(SIGNAL, _on_signal)
    return True


def _give_signal_back() -> None:
    if signal.getsignal(SIGNAL) is _on_signal:
        signal.signal(SIGNAL, _before)


def _on_signal(number: int, frame: FrameType | None) -> None:
    try:
        watchdog = _watchdogs.get(asyncio.get_running_loop())
    except RuntimeError:
        watchdog = None
    if watchdog is not None:
        watchdog.strike(frame)
    if callable(_before):
        _before(number, frame)


def _strike_next_lines(frame: FrameType | None) -> None:
    """Raise at the next line as well: the step has caught the exception and gone on blocking."""
    if sys.gettrace() is not None:
        return

    def trace(place: FrameType, event: str, argument: Any) -> Any:
        if _step(place) is None:
            sys.settrace(None)
            return None
        if event in ("call", "line"):
            raise Blocked
        return trace

    for place in itertools.takewhile(lambda place: place.f_code is not _STEP, _stack(frame)):
        place.f_trace = trace
    sys.settrace(trace)


# Stacks


def _step(frame: FrameType | None) -> Contained[Any] | None:
    """Return the step of a call that a stack is in; None for what must not be interrupted."""
    for place in _stack(frame):
        if place.f_code is _STEP:
            step: Contained[Any] = place.f_locals["self"]
            return step
        if _is_of(place, _LEFT_ALONE) or (_is_of(place, _OURS) and not _is_of(place, _TOOLS)):
            return None
    return None


def _place(frame: FrameType) -> str:
    """Return where in its own file a tool is: ``file:line in function``."""
    inner = list(itertools.takewhile(lambda place: place.f_code is not _STEP, _stack(frame)))
    own = [place for place in inner if not _is_of(place, _OURS)] or inner
    file = own[-1].f_code.co_filename
    place = next(place for place in own if place.f_code.co_filename == file)
    return f"{file}:{place.f_lineno} in {place.f_code.co_name}"


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frame_of(thread_id: int) -> FrameType | None:
    frames: dict[int, FrameType] = sys._current_frames()  # noqa: SLF001 - there is no other way
    return frames.get(thread_id)


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), None if error is None else ctypes.py_object(error)
    )


def _is_of(frame: FrameType, packages: tuple[str, ...]) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return any(name == package or name.startswith(f"{package}.") for package in packages)
