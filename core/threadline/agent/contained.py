"""Keeps what a tool does with its event loop and the loop's pool of threads to its own call.

None of it is a sandbox: a tool is code of the host. It keeps a fault of one tool from ending the
host, and from holding up the calls of others.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from threadline.agent.started import Started, current, mark_processes, within
from threadline.errors import ToolFailed

__all__ = ["Contained", "Gate", "contain"]

T = TypeVar("T")

_prepared: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def contain(work: Coroutine[Any, Any, T], started: Started, name: str) -> asyncio.Task[T]:
    """Run a call's coroutine in a task; it and all that it makes tasks of is the call's."""
    loop = asyncio.get_running_loop()
    if loop not in _prepared:
        _prepared.add(loop)
        _prepare(loop)
    with within(started):
        return loop.create_task(work, name=name)


def _prepare(loop: asyncio.AbstractEventLoop) -> None:
    mark_processes()
    before = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        started = current(over=True)
        if started is not None and asyncio.iscoroutine(work):
            work = Contained(work, started)
        if before is not None:
            return before(loop, work, **options)
        return asyncio.Task(work, loop=loop, **options)

    loop.set_task_factory(make)
    # Somebody who has chosen the loop's pool has said what it is for.
    if getattr(loop, "_default_executor", None) is None:
        loop.set_default_executor(_Pool())


class Contained(Coroutine[Any, Any, T]):
    """A coroutine of a call; in each of its steps a frame on the stack names the call.

    SystemExit and KeyboardInterrupt, which end the event loop wherever a task raises them, are
    raised as ToolFailed.
    """

    def __init__(self, inner: Coroutine[Any, Any, T], started: Started) -> None:
        self._inner = inner
        self.started = started
        self.steps = 0
        self.gate = Gate() if threading.current_thread() is not threading.main_thread() else None

    def send(self, value: Any) -> Any:
        """Take the next step."""
        return self.advance(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        """Take the next step, which is an exception."""
        return self.advance(self._inner.throw, *error)

    def advance(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Take a step; the frame of this method is what says that a call is on the stack."""
        self.steps += 1
        try:
            if self.gate is None:
                return step(*arguments)
            with self.gate:
                return step(*arguments)
        except (SystemExit, KeyboardInterrupt) as error:
            text = f": {error}" if str(error) else ""
            raise ToolFailed(f"{type(error).__name__}{text}") from error

    def close(self) -> None:
        """Give it up."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        # What debuggers and the reprs of tasks ask of a coroutine: its name, its code, its frame.
        return getattr(self._inner, name)


class Gate:
    """Says for sure whether a thread is inside of a step, to another thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = False
        self.on_leave: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self.inside = True

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside = False
            if self.on_leave is not None:
                self.on_leave()


class _Pool(ThreadPoolExecutor):
    """A loop's pool: what a call hands to it goes to a pool of that call's own.

    So calls that hold their workers for ever hold up neither the host nor one another.
    """

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in a worker."""
        started = current()
        if started is None:
            return super().submit(fn, *args, **kwargs)
        # With the caller's context, which says whether the call is a dry run.
        return started.pool().submit(copy_context().run, fn, *args, **kwargs)
