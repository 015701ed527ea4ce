"""Progress is best effort: a handler gets the latest text, not each piece; a pure merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["PROGRESS", "latest"]

PROGRESS: Mapping[str, tuple[str, str]] = {
    "message.appended": ("messageId", "message.completed"),
    "reasoning.appended": ("blockId", "reasoning.completed"),
}
_ENDS = {ends: key for key, ends in PROGRESS.values()}


def latest(events: Iterable[dict[str, Any]], texts: dict[str, str]) -> list[dict[str, Any]]:
    """Return the events with the pieces of each text as one, and none where the text is complete.

    The one piece stands where the last of them stood, its ``delta`` is all of them, and its data has
    ``text``: everything so far, as ``texts`` remembers it from call to call.
    """
    merged: list[dict[str, Any] | None] = []
    places: dict[str, int] = {}
    for event in events:
        data = event["data"]
        if event["type"] in PROGRESS:
            block = str(data.get(PROGRESS[event["type"]][0]))
            texts[block] = texts.get(block, "") + data.get("delta", "")
            delta = data.get("delta", "")
            if block in places:
                before = merged[places[block]]
                merged[places[block]] = None
                delta = (before["data"]["delta"] if before is not None else "") + delta
            places[block] = len(merged)
            merged.append(event | {"data": data | {"delta": delta, "text": texts[block]}})
            continue
        if event["type"] in _ENDS:
            block = str(data.get(_ENDS[event["type"]]))
            texts.pop(block, None)
            if block in places:
                merged[places.pop(block)] = None
        merged.append(event)
    return [event for event in merged if event is not None]
