"""The commit that a turn works on, as it was when the turn was prepared."""

from __future__ import annotations

from typing import Any

from threadline import Context
from threadline_github.outbound.turns import Asked

__all__ = ["head_of"]


async def head_of(ctx: Context, session_id: str, turn: Asked) -> str | None:
    """Return the commit's SHA; None when it is not known.

    A post may be late, when the next turn works on another commit already; so what was prepared
    for the turn's own messages counts first.
    """
    kept: dict[str, Any] = await ctx.kv.get(f"head/{session_id}") or {}
    prepared = kept.get("of") or {}
    for delivery_id in reversed(turn.delivery_ids):
        if isinstance(prepared.get(delivery_id), str):
            return str(prepared[delivery_id])
    sha = kept.get("sha")
    return str(sha) if isinstance(sha, str) else turn.head
