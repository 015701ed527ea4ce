"""The same thing by another hook: one delivery id for all its copies.

A repository's hook and the App's hook deliver each event with an id of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
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
        async with self._lock(token):
            known = await _known(ctx, token)
            if key not in known:
                await _keep(ctx, token, known, key, delivery_id)
                return delivery_id
        return known[key]

    async def once(
        self,
        ctx: Context,
        token: str,
        key: str,
        delivery_id: str,
        work: Callable[[], Awaitable[Any]],
    ) -> None:
        """Do the work of a thing, unless a copy has had it done; that it was done is durable."""
        async with self._lock(token):
            known = await _known(ctx, token)
            if key not in known:
                await work()
                await _keep(ctx, token, known, key, delivery_id)

    def _lock(self, token: str) -> asyncio.Lock:
        return self._locks.setdefault(token, asyncio.Lock())


async def _known(ctx: Context, token: str) -> dict[str, str]:
    known: dict[str, str] | None = await ctx.kv.get(f"seen/{token}")
    return known or {}


async def _keep(
    ctx: Context, token: str, known: dict[str, str], key: str, delivery_id: str
) -> None:
    newest = dict(list(known.items())[-(_KEPT - 1) :])
    await ctx.kv.put(f"seen/{token}", {**newest, key: delivery_id})
