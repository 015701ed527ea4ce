"""What happened in an incident so far."""

from __future__ import annotations

from typing import Any

from lib.records import pause, timeline

from threadline import tool


@tool(effect="read", retries=2)
async def incident_timeline(incident: str) -> dict[str, Any]:
    """Return what happened in an incident so far, oldest first.

    Args:
        incident: The incident's id, such as "INC-7".
    """
    await pause(6.0)
    return {"incident": incident, "events": timeline(incident)}
