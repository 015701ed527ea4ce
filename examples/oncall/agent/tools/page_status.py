"""What the status page says."""

from __future__ import annotations

from typing import Any

from lib.records import known, pause, statuses

from threadline import ToolContext, tool


@tool(effect="read", retries=2)
async def page_status(service: str, ctx: ToolContext) -> dict[str, Any]:
    """Return what the status page says about one service.

    Args:
        service: The service's name, such as "checkout".
    """
    await pause(0.8)
    name = known(service)
    status = {**statuses()[name], "checkedAt": ctx.now().isoformat(timespec="seconds")}
    restart = await ctx.kv.get(f"restarts/{name}")
    return {"service": name, **status, **({"lastRestart": restart} if restart else {})}
