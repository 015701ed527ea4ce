"""What a session's log says of its turns: how one goes, and how the last one ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson

from threadline.channel.context import Session, closing
from threadline_mcp.surface import as_text

__all__ = ["End", "follow", "last_end", "reply_of", "sentence"]

_LONGEST = 300
_ENDS = ("turn.completed", "turn.failed")


@dataclass(frozen=True, slots=True)
class End:
    """The event that ended a turn."""

    type: str
    data: dict[str, Any]


async def follow(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield a sentence for each event that a person who waits would like to hear of."""
    async for chunk in chunks:
        for line in chunk.split(b"\n"):
            said = sentence(orjson.loads(line)) if line else None
            if said is not None:
                yield said


def sentence(event: dict[str, Any]) -> str | None:
    """Return what an event says to a person who waits, or None."""
    data = event["data"]
    match event["type"]:
        case "turn.queued":
            return f"Waiting for a free place, at position {data.get('position')}."
        case "turn.started":
            return "The agent has begun."
        case "actions.requested":
            names = dict.fromkeys(str(call.get("toolName")) for call in data.get("calls", ()))
            return f"Calling {', '.join(names)}."
        case "action.approval_requested":
            return f"{data.get('toolName')} waits for a person to approve it."
        case "message.completed" if data.get("finishReason") != "stop":
            return _short(str(data.get("text") or "")) or None
    return None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


async def last_end(session: Session) -> End | None:
    """Return how the newest turn that has ended did so; None when none has."""
    last: bytes | None = None
    async with closing(session.events()) as chunks:
        async for chunk in chunks:
            for line in chunk.split(b"\n") if b'"turn.' in chunk else ():
                if b'"turn.' in line and _type(line) in _ENDS:
                    last = line
    if last is None:
        return None
    event = orjson.loads(last)
    return End(event["type"], event["data"])


def _type(line: bytes) -> Any:
    return orjson.loads(line).get("type")


def reply_of(result: Any) -> str | None:
    """Return a turn's result as text; one that is no text is JSON."""
    return None if result is None else as_text(result)
