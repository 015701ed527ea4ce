"""One attempt of a call: a function, async or not, run within its time to an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from threadline.agent.guard import begin, in_call_thread
from threadline.agent.started import Started, current

if TYPE_CHECKING:
    from threadline.clock import Clock

__all__ = ["Raised", "Returned", "TimedOut", "outcome_of", "within"]

T = TypeVar("T")

_CANCEL_GRACE = 5.0

# The event loop holds only weak references; a call that was given up must not vanish half-way.
_abandoned: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class Returned:
    """What a function returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """What a function raised, whatever it is."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time was over; a thread may still run."""


async def within(
    work: Coroutine[Any, Any, T], started: Started, seconds: float, clock: Clock, *, name: str
) -> T | Raised | TimedOut:
    """Run the work in a task of its own, so that it can be given up.

    A cancellation of the caller is passed to the work, which gets five seconds to clean up, and is
    raised. Work that is given up takes the processes that it has started along.
    """
    task = begin(work, started, f"tool-{name}")
    try:
        finished = await _finished(task, seconds, clock)
    except asyncio.CancelledError:
        await _give_up(task, started, clock, name)
        raise
    if not finished:
        await _give_up(task, started, clock, name)
        return TimedOut()
    started.leave()
    return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


async def _finished(task: asyncio.Task[Any], seconds: float, clock: Clock) -> bool:
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return task.done()


async def _give_up(task: asyncio.Task[Any], started: Started, clock: Clock, name: str) -> None:
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)
    task.cancel()
    ending = asyncio.ensure_future(started.stop())
    _abandoned.add(ending)
    ending.add_done_callback(_abandoned.discard)
    if not await _finished(task, _CANCEL_GRACE, clock) and started.log is not None:
        started.log.warning("tool_ignores_cancellation", tool=name)
    if await asyncio.shield(ending) and started.log is not None:
        started.log.warning("tool_processes_left", tool=name)


async def outcome_of(function: Callable[[], Any], name: str) -> Returned | Raised:
    """Call a function; whatever it raises is an outcome, so that nothing ends the event loop.

    That holds for a CancelledError too: when it was asked for, nobody looks at the outcome.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return Returned(await function())
        outcome = await _in_thread(function, name)
        if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):
            return Returned(await outcome.value)
        return outcome
    except BaseException as error:
        return Raised(error)


async def _in_thread(function: Callable[[], Any], name: str) -> Returned | Raised:
    """Run a function in a daemon thread of its own.

    Not in a pool: one that hangs would hold a worker for ever, and the process at its exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Returned | Raised] = loop.create_future()
    context = contextvars.copy_context()
    started = current()
    guarded = in_call_thread(started) if started is not None else nullcontext()

    def work() -> None:
        outcome: Returned | Raised
        try:
            with guarded:
                outcome = Returned(context.run(function))
        except BaseException as error:
            outcome = Raised(error)
        with suppress(RuntimeError):  # The loop is closed, nobody waits any more.
            loop.call_soon_threadsafe(_settle, future, outcome)

    threading.Thread(target=work, name=f"tool-{name}", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], outcome: Returned | Raised) -> None:
    if not future.done():
        future.set_result(outcome)
