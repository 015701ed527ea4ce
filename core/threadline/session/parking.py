"""Calls that wait for a person: asked for, decided once, and never forgotten by a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from threadline.clock import iso
from threadline.harness.base import ToolCall, ToolResult

if TYPE_CHECKING:
    from threadline.session.core import Services
    from threadline.session.turn import Gate

__all__ = ["ParkedCall", "Parking", "Resolution"]

Emit = Callable[[str, dict[str, Any], str | None], Any]


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a parked call was decided, and by whom, as events have it."""

    decision: Literal["approved", "denied", "expired", "superseded"]
    by: Mapping[str, Any] | None = None
    reason: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return ``{decision, by?, reason?}``."""
        more = {"by": dict(self.by) if self.by else None, "reason": self.reason}
        return {"decision": self.decision} | {k: v for k, v in more.items() if v is not None}

    def result(self, call: ToolCall) -> ToolResult:
        """Return what the model reads of a call that was not approved."""
        code = f"approval_{self.decision}"
        return ToolResult(call.call_id, call.tool_name, self._sentence(), True, code)

    def _sentence(self) -> str:
        if self.decision == "expired":
            return "Nobody approved this call in time, so it did not run."
        by = self.by or {}
        who = by.get("name") or by.get("id") or "Somebody"
        why = f": {self.reason}" if self.reason else ""
        return f"{who} denied this call{why}. It did not run."


@dataclass(slots=True, eq=False)
class ParkedCall:
    """A call that waits until ``expires_at``; ``resolved`` says how it ended."""

    call: ToolCall
    turn_id: str
    requested_at: str
    expires_at: str
    approvers: list[str] | None = None
    resolved: asyncio.Future[Resolution] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    timer: asyncio.Task[None] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return ``{callId, toolName, input, turnId, requestedAt, expiresAt, approvers?}``."""
        wire = {
            "callId": self.call.call_id,
            "toolName": self.call.tool_name,
            "input": self.call.input,
            "turnId": self.turn_id,
            "requestedAt": self.requested_at,
            "expiresAt": self.expires_at,
        }
        return wire | ({} if self.approvers is None else {"approvers": self.approvers})


class Parking:
    """The calls of one session's open turn that wait for a decision.

    ``emit`` records an event; ``decided`` hears of each call that was decided by a person or by
    time, after that is recorded.
    """

    def __init__(self, services: Services, emit: Emit, decided: Callable[[], None]) -> None:
        self.calls: dict[str, ParkedCall] = {}
        self._services = services
        self._emit = emit
        self._decided = decided

    def park(self, call: ToolCall, turn_id: str, gate: Gate) -> ParkedCall:
        """Ask for an approval."""
        now = self._services.clock.now()
        approvers = None if gate.approvers is None else list(gate.approvers)
        parked = ParkedCall(call, turn_id, iso(now), iso(now + gate.expires), approvers)
        data: dict[str, Any] = {
            "callId": call.call_id,
            "toolName": call.tool_name,
            "input": call.input,
        }
        if approvers is not None:
            data["approvers"] = approvers
        self._emit(
            "action.approval_requested", data | {"expiresAt": parked.expires_at}, parked.turn_id
        )
        self._wait(parked)
        return parked

    def restore(self, turn_id: str, request: Mapping[str, Any]) -> None:
        """Go on waiting, after a restart, for what was asked for before; by the event's data."""
        call = ToolCall(
            str(request["callId"]), str(request.get("toolName") or ""), request.get("input")
        )
        expires = str(request.get("expiresAt") or iso(self._services.clock.now()))
        approvers = request.get("approvers")
        self._wait(ParkedCall(call, turn_id, str(request.get("at") or ""), expires, approvers))

    def _wait(self, parked: ParkedCall) -> None:
        self.calls[parked.call.call_id] = parked
        parked.timer = self._services.spawn(self._expire(parked), "approval")

    async def _expire(self, parked: ParkedCall) -> None:
        ends = datetime.fromisoformat(parked.expires_at)
        while (left := (ends - self._services.clock.now()).total_seconds()) > 0:
            await self._services.clock.sleep(left)
        parked.timer = None
        self.resolve(parked.call.call_id, Resolution("expired"))

    def overdue(self, parked: ParkedCall, at: str) -> bool:
        """Tell whether a decision at this time comes too late."""
        return at >= parked.expires_at

    def resolve(self, call_id: str, resolution: Resolution) -> bool:
        """Record how a call was decided; False when it waits no more.

        The result of one that was not approved is recorded in the same step.
        """
        parked = self.calls.pop(call_id, None)
        if parked is None:
            return False
        self._end(parked, resolution)
        if resolution.decision != "approved":
            result = resolution.result(parked.call)
            data = {
                "callId": call_id,
                "toolName": result.tool_name,
                "isError": True,
                "error": {"code": result.code, "message": result.output},
                "durationMs": 0,
            }
            self._emit("action.result", data, parked.turn_id)
        self._decided()
        return True

    def supersede(self, reason: str) -> None:
        """Record that the turn ends before anybody decided; the calls' results are the turn's."""
        for parked in list(self.calls.values()):
            del self.calls[parked.call.call_id]
            self._end(parked, Resolution("superseded", reason=reason))

    def drop(self) -> None:
        """Stop waiting and record nothing: the next process goes on."""
        for parked in self.calls.values():
            if parked.timer is not None:
                parked.timer.cancel()
            parked.resolved.cancel()
        self.calls.clear()

    def _end(self, parked: ParkedCall, resolution: Resolution) -> None:
        if parked.timer is not None:
            parked.timer.cancel()
        data = {"callId": parked.call.call_id} | resolution.to_wire()
        self._emit("action.approval_resolved", data, parked.turn_id)
        if resolution.decision == "superseded":
            parked.resolved.cancel()
        elif not parked.resolved.done():
            parked.resolved.set_result(resolution)
