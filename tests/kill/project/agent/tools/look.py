"""A read."""

from __future__ import annotations

import asyncio

from threadline import ToolContext, TransientToolError, tool


@tool(effect="read", retries=2)
async def look(item: str, ctx: ToolContext) -> dict[str, str]:
    """Look at one item; now and then the first look fails."""
    await asyncio.sleep(0.002)
    seen = await ctx.kv.get(f"look/{ctx.call_id}")
    if item.endswith("2") and seen is None:
        await ctx.kv.put(f"look/{ctx.call_id}", True)
        raise TransientToolError("not yet", retry_after=0.005)
    return {"item": item, "state": "fine"}
