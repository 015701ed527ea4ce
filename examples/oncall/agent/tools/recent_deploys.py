"""What was deployed lately."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lib.records import deploys, pause

from threadline import ToolContext, tool


@tool(effect="read", retries=2)
async def recent_deploys(
    ctx: ToolContext, service: str | None = None, hours: int = 24
) -> dict[str, Any]:
    """Return the deploys of the last hours, newest first.

    Args:
        service: Only this service; without it, all of them.
        hours: How far to look back.
    """
    await pause(1.2)
    name = service.strip().lower() if service else None
    found = [
        {
            **deploy,
            "at": (ctx.now() - timedelta(minutes=deploy["minutesAgo"])).isoformat(
                timespec="seconds"
            ),
        }
        for deploy in sorted(deploys(), key=lambda deploy: int(deploy["minutesAgo"]))
        if deploy["minutesAgo"] <= hours * 60 and name in (None, deploy["service"])
    ]
    return {"service": name, "hours": hours, "deploys": found}
