"""A write that waits for a person, and may run again."""

from __future__ import annotations

from lib.counter import count

from threadline import ToolContext, tool


@tool(effect="write", approval=True, idempotent=True)
def stamp(ctx: ToolContext) -> str:
    """Put a stamp on it."""
    count("stamp", ctx.call_id)
    return "done"
