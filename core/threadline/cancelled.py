"""Whether this very task is to end."""

from __future__ import annotations

import asyncio

__all__ = ["is_cancelled"]


def is_cancelled() -> bool:
    """Tell whether somebody has asked the current task to end, whatever it has raised since."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
