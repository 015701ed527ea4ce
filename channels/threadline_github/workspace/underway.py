"""Whether a turn that was interrupted by a restart is to go on: its working folder stays as it is.

Such a turn may have to wait for its slot, and a session that waits does not tell why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from threadline import Session

__all__ = ["is_under_way", "under_way"]

_TYPES = (
    "session.completed",
    "session.failed",
    "session.started",
    "session.waiting",
    "turn.completed",
    "turn.failed",
    "turn.started",
)
_RESTARTS = ("host_restarted", "host_shutdown")
_REACH = 256  # events


async def is_under_way(session: Session) -> bool:
    """Tell whether a session's log ends in a turn that is to go on; read from the log's end."""
    end, reach = await session.next_index(), _REACH
    while True:
        start = max(0, end - reach)
        found = under_way([one async for one in session.recorded(*_TYPES, start=start)])
        if found is not None or start == 0:
            return bool(found)
        reach *= 8


def under_way(events: Iterable[Mapping[str, Any]]) -> bool | None:
    """Tell whether events end in a turn that is to go on; None when they say nothing of turns."""
    found = None
    for event in events:
        data = event.get("data") or {}
        if event["type"] == "turn.started":
            found = True
        elif event["type"] == "turn.failed":
            restarted = data.get("status") == "interrupted" and data.get("code") in _RESTARTS
            found = restarted and not data.get("asks")
        elif event["type"] in _TYPES:
            found = False
    return found
