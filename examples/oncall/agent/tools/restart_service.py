"""The one thing here that changes something, so a person has to agree."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lib.records import known, pause

from threadline import Approval, ToolContext, tool


def would_restart(service: str, reason: str) -> dict[str, Any]:
    """Say what a dry run leaves undone."""
    return {"service": service, "restarted": False, "note": f"A dry run: {reason}"}


@tool(
    effect="write",
    approval=Approval(expires=timedelta(hours=1)),
    dry_run=would_restart,
    max_calls=3,
)
async def restart_service(service: str, reason: str, ctx: ToolContext) -> dict[str, Any]:
    """Restart one service. A person must approve it first.

    Args:
        service: The service's name, such as "checkout".
        reason: Why, in one sentence; whoever approves reads it.
    """
    name = known(service)
    await pause(1.5)
    by = ctx.approved_by or ctx.principal
    restart = {"at": ctx.now().isoformat(timespec="seconds"), "by": by.name or by.id}
    await ctx.kv.put(f"restarts/{name}", restart)
    return {"service": name, "restarted": True, **restart}
