from __future__ import annotations

from threadline import tool


@tool(effect="read")
async def broken(code: int = 0) -> None:
    """Fail, always."""
    raise RuntimeError(f"code {code}: nothing here works")
