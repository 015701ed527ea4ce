"""The turn that carries a message: which events are its own, and when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Awaited"]


class Awaited:
    """Follows a session's events until the turn of one delivery has ended.

    A turn that was only interrupted may be continued by another one, which then is the message's
    turn too; it has ended for good when the session rests.
    """

    def __init__(self, delivery_id: str) -> None:
        self.delivery_id = delivery_id
        self.turns: set[str] = set()
        self.status: str | None = None
        self.done = False

    def see(self, event: Mapping[str, Any]) -> bool:
        """Take in an event; return True while there is more to wait for."""
        kind, data = event["type"], event.get("data") or {}
        turn_id = event.get("turnId")
        if self._carries(kind, data) or data.get("resumes") in self.turns:
            self.turns.add(str(turn_id))
            self.status = "running"
        elif kind == "deliveries.cleared" and self.delivery_id in data.get("deliveryIds", ()):
            self.status, self.done = "cleared", True
        if turn_id in self.turns:
            self._end(kind, data)
        elif self.status is not None and kind.startswith("session."):
            self.done = True
        return not self.done

    def _carries(self, kind: str, data: Mapping[str, Any]) -> bool:
        if kind == "message.received":
            return self.delivery_id in data.get("deliveryIds", ())
        return kind == "nudge.delivered" and data.get("deliveryId") == self.delivery_id

    def _end(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "turn.completed":
            self.status, self.done = "completed", True
        elif kind == "turn.failed":
            self.status = str(data.get("status") or "failed")
            self.done = self.status != "interrupted"

    def owns(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event is the turn's, or the session's own."""
        return event.get("turnId") is None or event["turnId"] in self.turns
