"""Time that passes while something else does: no test counts how many moments that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from threadline.testing import ManualClock

__all__ = ["passing"]

T = TypeVar("T")

_TICK = 0.01  # real seconds, for disk and network; only their ratio to a step matters


async def passing(clock: ManualClock, work: Awaitable[T], *, step: float = 0.1) -> T:
    """Await something for which time must pass: a step of the clock each hundredth of a second.

    Choose steps so small that what takes real time, as a call does, meets no time limit meanwhile.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_TICK)
            if not task.done():
                await clock.elapse(step)
    finally:
        task.cancel()
    return await task
