"""What a session's turns took, from its events; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Account"]

_ENDS = ("turn.completed", "turn.failed")


class Account:
    """Adds up the ends of turns."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any]] = []
        self._models: dict[str, str] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one event, whatever it is."""
        kind, turn_id = event.get("type"), str(event.get("turnId"))
        data: Mapping[str, Any] = event.get("data") or {}
        if kind == "turn.started" and data.get("model"):
            self._models[turn_id] = str(data["model"])
        usage = data.get("usage")
        if kind not in _ENDS or not isinstance(usage, dict):
            return
        turn = {
            "turnId": event.get("turnId"),
            "usage": {key: value for key, value in usage.items() if isinstance(value, int)},
            "costUsd": data.get("costUsd"),
        }
        if turn_id in self._models:
            turn["model"] = self._models[turn_id]
        self.turns.append(turn)

    def to_wire(self) -> dict[str, Any]:
        """Return ``{turns, total, unknownModels}``; the total of what is not all known is null."""
        usage: dict[str, int] = {}
        for turn in self.turns:
            for key, value in turn["usage"].items():
                usage[key] = usage.get(key, 0) + value
        unknown = [turn for turn in self.turns if turn["costUsd"] is None]
        known = bool(self.turns) and not unknown
        cost = sum(turn["costUsd"] for turn in self.turns) if known else None
        names = sorted({str(turn.get("model", "unknown")) for turn in unknown})
        return {
            "turns": self.turns,
            "total": {"usage": usage, "costUsd": cost},
            "unknownModels": names,
        }
