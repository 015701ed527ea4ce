"""The same thing by another hook: one delivery id for all its copies.

A repository's hook and the App's hook deliver each event with an id of their own.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from threadline import Context

__all__ = ["Seen"]

_KEPT = 300


class Seen:
    """Knows, for each conversation, by which delivery its newest 300 things came first."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def first(self, ctx: Context, token: str, key: str, delivery_id: str) -> str:
        """Return the id of the delivery that brought this first; durable on return."""
        lock = self._locks.setdefault(token, asyncio.Lock())
        async with lock:
            known: dict[str, str] = await ctx.kv.get(f"seen/{token}") or {}
            if key not in known:
                newest = list(known.items())[-(_KEPT - 1) :]
                await ctx.kv.put(f"seen/{token}", {**dict(newest), key: delivery_id})
                return delivery_id
        return known[key]

    async def has(self, ctx: Context, token: str, key: str) -> bool:
        """Tell whether this was brought already."""
        return key in (await ctx.kv.get(f"seen/{token}") or {})
