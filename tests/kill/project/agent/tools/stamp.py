"""A write that may run again."""

from __future__ import annotations

from threadline import ToolContext, tool


@tool(effect="write", idempotent=True)
async def stamp(item: str, ctx: ToolContext) -> str:
    """Put a stamp on one item."""
    await ctx.kv.put(f"stamp/{item}", ctx.call_id)
    return f"stamped {item}"
