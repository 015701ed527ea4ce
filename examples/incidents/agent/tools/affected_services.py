"""What an incident affects."""

from __future__ import annotations

from typing import Any

from lib.records import affected, pause

from threadline import tool


@tool(effect="read", retries=2)
async def affected_services(incident: str) -> dict[str, Any]:
    """Return the services that an incident affects, the worst first.

    Args:
        incident: The incident's id, such as "INC-7".
    """
    await pause(6.0)
    return {"incident": incident, "services": affected(incident)}
