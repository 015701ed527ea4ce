from __future__ import annotations

from threadline import ToolContext, tool


@tool(effect="write")
async def save(text: str, ctx: ToolContext) -> dict[str, int]:
    """Save a note in the workspace."""
    assert ctx.workspace is not None
    (ctx.workspace / "note.txt").write_bytes(text.encode("utf-8", "replace"))
    return {"length": len(text)}
