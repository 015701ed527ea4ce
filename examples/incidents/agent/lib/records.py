"""The data that the tools read, in place of your own systems."""

from __future__ import annotations

import asyncio
import os

__all__ = ["affected", "pause", "timeline"]

_SERVICES = ["checkout", "payments", "search", "accounts"]


async def pause(seconds: float) -> None:
    """Take the time that a real system would; ``INCIDENTS_PACE=0`` takes none."""
    await asyncio.sleep(seconds * float(os.environ.get("INCIDENTS_PACE", "1")))


def timeline(incident: str) -> list[str]:
    """Return what happened so far; the same incident always has the same history."""
    service = affected(incident)[0]
    return [
        f"error rate of {service} above 2 %",
        f"alert for {service} fired",
        f"incident {incident} opened",
    ]


def affected(incident: str) -> list[str]:
    """Return the services that an incident affects, the worst first."""
    first = sum(incident.encode()) % len(_SERVICES)
    return [_SERVICES[first], _SERVICES[(first + 1) % len(_SERVICES)]]
