"""What a session's log says, as its handlers need it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson

from threadline import Session

__all__ = ["recorded"]


async def recorded(session: Session, *types: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of some types, in order, as the log has them."""
    marks = [f'"{type_}"'.encode() for type_ in types]
    async for chunk in session.events():
        for line in chunk.split(b"\n"):
            if any(mark in line for mark in marks):
                event: dict[str, Any] = orjson.loads(line)
                if event.get("type") in types:
                    yield event
