"""One area at a time, so that a turn has several steps to watch, and to steer between."""

from __future__ import annotations

from typing import Any

from lib.launch import AREAS, area_of, pause

from threadline import tool


@tool(effect="read", retries=2)
async def run_check(area: str) -> dict[str, Any]:
    """Check whether one area is ready for the launch.

    Args:
        area: "build", "docs", "pricing", "security" or "support".
    """
    name = area_of(area)
    await pause(2.5)
    return {"area": name, **AREAS[name]}
