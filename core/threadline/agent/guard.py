"""What surrounds each call of a tool, so that whatever it does stays its own affair."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from threadline.agent import watchdog
from threadline.agent.contained import contain
from threadline.agent.prints import close_prints, keep_prints, let_prints_go
from threadline.agent.started import Started

__all__ = ["begin", "in_call_thread"]

T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T], started: Started, name: str) -> asyncio.Task[T]:
    """Run a call's coroutine in a task, watched, until it ends."""
    loop = asyncio.get_running_loop()
    keep_prints()
    watchdog.enter(loop)
    task = contain(work, started, name)

    def ended(_: object) -> None:
        watchdog.leave(loop)
        close_prints(started)
        let_prints_go()

    task.add_done_callback(ended)
    return task


@contextlib.contextmanager
def in_call_thread(started: Started) -> Iterator[None]:
    """Run in a thread of a call; it may go on when the call has been given up."""
    keep_prints()
    try:
        with started.thread():
            yield
    finally:
        let_prints_go()
