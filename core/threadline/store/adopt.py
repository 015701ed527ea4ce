"""What a session folder without a row says about itself; pure functions over its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadline.principal import Principal
from threadline.store.base import Outcome, SessionRecord

__all__ = ["adopted_outcomes", "adopted_session"]


def adopted_session(
    session_id: str,
    wire: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    nobody: Principal,
) -> SessionRecord:
    """Return the session's identity from ``session.json``, else from ``session.started``.

    A session that names no principal belongs to ``nobody``: whoever may place files in the state
    root.
    """
    first = events[0] if events and events[0].get("type") == "session.started" else {}
    data: Mapping[str, Any] = first.get("data") or {}
    principal = wire.get("principal") or data.get("principal")
    mode = wire.get("mode") or data.get("mode")
    return SessionRecord(
        id=session_id,
        channel=str(wire.get("channel") or data.get("channel") or "http"),
        mode="task" if mode == "task" else "chat",
        owner=Principal.from_wire(principal) if principal else nobody,
        created_at=str(wire.get("createdAt") or (events[0].get("at") if events else "")),
        title=wire.get("title") or data.get("title"),
        purpose=wire.get("purpose") or data.get("purpose"),
        cwd=wire.get("cwd"),
        parent=wire.get("parent") or data.get("parent"),
        dry_run=bool(wire.get("dryRun") or data.get("dryRun")),
        as_of=wire.get("asOf") or data.get("asOf"),
    )


def adopted_outcomes(
    events: Sequence[Mapping[str, Any]],
) -> list[tuple[Outcome, str, str]]:
    """Return each delivery that the events name, with its text and time."""
    found: list[tuple[Outcome, str, str]] = []
    for event in events:
        data = event.get("data") or {}
        index, turn, at = int(event["index"]), event.get("turnId"), str(event.get("at", ""))
        if event["type"] == "message.received":
            texts = {part["deliveryId"]: part.get("text", "") for part in data.get("parts", [])}
            for delivery_id in data.get("deliveryIds", []):
                text = texts.get(delivery_id, data.get("text", ""))
                found.append((Outcome(delivery_id, "prompted", index, turn), text, at))
        elif event["type"] == "nudge.delivered" and data.get("deliveryId"):
            outcome = Outcome(data["deliveryId"], "steered", index, turn)
            found.append((outcome, data.get("text", ""), at))
        elif event["type"] == "deliveries.cleared":
            cleared = data.get("deliveryIds", [])
            found.extend((Outcome(i, "cleared", index, turn), "", at) for i in cleared)
    return found
