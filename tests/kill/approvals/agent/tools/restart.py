"""A write that waits for a person."""

from __future__ import annotations

from lib.counter import count

from threadline import ToolContext, tool


@tool(effect="write", approval=True)
def restart(ctx: ToolContext) -> str:
    """Restart it."""
    count("restart", ctx.call_id)
    return "done"
