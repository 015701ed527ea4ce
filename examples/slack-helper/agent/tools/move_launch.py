"""The one thing here that changes something, so a person has to agree."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lib.launch import DAY, pause

from threadline import Approval, ToolContext, tool


def would_move(day: str, reason: str) -> dict[str, Any]:
    """Say what a dry run leaves undone."""
    return {"moved": False, "day": day, "note": f"A dry run: {reason}"}


@tool(effect="write", approval=Approval(expires=timedelta(hours=1)), dry_run=would_move)
async def move_launch(day: str, reason: str, ctx: ToolContext) -> dict[str, Any]:
    """Move the launch to another day. A person must approve it first.

    Args:
        day: The new day, such as "Friday" or "2026-12-04".
        reason: Why, in one sentence; whoever approves reads it.
    """
    await pause(0.5)
    before = await ctx.kv.get("launch/day") or DAY
    await ctx.kv.put("launch/day", day)
    by = ctx.approved_by or ctx.principal
    return {"moved": True, "from": before, "day": day, "by": by.name or by.id}
