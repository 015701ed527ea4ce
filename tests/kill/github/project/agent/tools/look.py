"""A tool that takes a moment."""

from __future__ import annotations

import asyncio

from threadline import tool


@tool(effect="read")
async def look(number: int) -> str:
    """Look something up."""
    await asyncio.sleep(0.005 * (number + 1))
    return f"found {number}"
