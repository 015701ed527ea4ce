"""A write that runs once: after a crash in its middle nobody knows."""

from __future__ import annotations

import asyncio

from threadline import tool


@tool(effect="write")
async def note(item: str) -> str:
    """Note one item."""
    await asyncio.sleep(0.003)
    return f"noted {item}"
