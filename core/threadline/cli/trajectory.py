"""What a log says was asked, called and answered: a pure function over events, and its command.

It reads any log: torn or damaged lines are left out, fields that it does not know are ignored, and
logs of the contract's earlier version, which name less, are read for what they say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from threadline.cli import output
from threadline.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["command", "read_events", "summary_of_file", "trajectory"]

_USAGE = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "requests")


def read_events(data: bytes) -> list[dict[str, Any]]:
    """Return the events in a log's bytes; what is no event is left out.

    Only the newline byte ends a line. A last line that is whole but for its newline counts.
    """
    events = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            event = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("type"), str):
            events.append(event)
    return events


@dataclass(slots=True)
class _Turn:
    """One turn, as far as the log tells."""

    status: str = "running"
    final: str | None = None
    said: str | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    usage: dict[str, int] | None = None
    steps: dict[str, int] = field(default_factory=dict)


class _Reading:
    """Folds events into turns and tool calls."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.turns: dict[str, _Turn] = {}
        self.calls: dict[tuple[str, str], dict[str, Any]] = {}
        self.unnamed = 0
        self.ended: str | None = None
        self.error: dict[str, Any] | None = None

    def read(self, event: Mapping[str, Any]) -> None:
        """Take in one event."""
        if self.session_id is None and isinstance(event.get("sessionId"), str):
            self.session_id = event["sessionId"]
        data = event.get("data")
        turn_id = _text(event.get("turnId"))
        if turn_id is None and event["type"] == "message.received":
            self.unnamed += 1
        handler = _HANDLERS.get(event["type"])
        if handler is not None:
            turn_id = turn_id or f"turn {self.unnamed}"
            handler(self, turn_id, data if isinstance(data, dict) else {})

    def turn(self, turn_id: str) -> _Turn:
        """Return a turn; the newest one that was named is the last."""
        return self.turns.setdefault(turn_id, _Turn())

    def received(self, turn_id: str, _: dict[str, Any]) -> None:
        """Take in a prompt; without a turn id, it begins a turn of its own."""
        self.turn(turn_id)

    def queued(self, turn_id: str, _: dict[str, Any]) -> None:
        """The turn waits for a slot."""
        self.turn(turn_id).status = "queued"

    def started(self, turn_id: str, _: dict[str, Any]) -> None:
        """The turn runs."""
        self.turn(turn_id).status = "running"

    def said(self, turn_id: str, data: dict[str, Any]) -> None:
        """A whole message; a subagent's is not the agent's."""
        if data.get("parentCallId") is not None or not isinstance(data.get("text"), str):
            return
        turn = self.turn(turn_id)
        turn.said = data["text"]
        if data.get("finishReason") == "stop":
            turn.final = data["text"]

    def step(self, turn_id: str, data: dict[str, Any]) -> None:
        """A model request has its answer; counts for a turn that never got to its own sum."""
        steps = self.turn(turn_id).steps
        _add(steps, _counts(data.get("usage")))
        _add(steps, {"requests": 1})

    def requested(self, turn_id: str, data: dict[str, Any]) -> None:
        """Tool calls begin."""
        calls = data.get("calls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                known = self._call(turn_id, call)
                known["toolName"] = call.get("toolName", known["toolName"])
                known["input"] = call.get("input", known["input"])

    def result(self, turn_id: str, data: dict[str, Any]) -> None:
        """A tool call has its output or its error."""
        call = self._call(turn_id, data)
        failed = bool(data.get("isError", data.get("error") is not None))
        call |= {"isError": failed, "durationMs": data.get("durationMs")}
        call["toolName"] = call["toolName"] or data.get("toolName")
        call.pop("output", None)
        call.pop("error", None)
        if failed:
            call["error"] = data.get("error", data.get("output"))
        else:
            call["output"] = data.get("output")
        if "truncated" in data:
            call["truncated"] = data["truncated"]

    def _call(self, turn_id: str, data: Mapping[str, Any]) -> dict[str, Any]:
        call_id = _text(data.get("callId")) or f"call {len(self.calls) + 1}"
        return self.calls.setdefault(
            (turn_id, call_id),
            {
                "callId": call_id,
                "toolName": data.get("toolName"),
                "input": data.get("input"),
                "isError": None,
                "durationMs": None,
            },
        )

    def completed(self, turn_id: str, data: dict[str, Any]) -> None:
        """The turn ended well."""
        turn = self.turn(turn_id)
        turn.status, turn.result = "completed", data.get("result")
        turn.usage = _counts(data.get("usage"))

    def failed(self, turn_id: str, data: dict[str, Any]) -> None:
        """The turn ended early; the earlier contract tells a stop by its message alone."""
        turn = self.turn(turn_id)
        message = data.get("message")
        earlier = "cancelled" if message == "turn interrupted" else "failed"
        turn.status = _text(data.get("status")) or earlier
        turn.error = {"code": data.get("code"), "message": message}
        turn.usage = _counts(data.get("usage"))

    def task_completed(self, _: str, __: dict[str, Any]) -> None:
        """The task is done."""
        self.ended = "completed"

    def task_failed(self, _: str, data: dict[str, Any]) -> None:
        """The task failed."""
        self.ended = "failed"
        error = data.get("error", data)
        if isinstance(error, dict):
            self.error = {"code": error.get("code"), "message": error.get("message")}

    def summary(self) -> dict[str, Any]:
        """Return what is known."""
        last = next(reversed(self.turns.values()), None)
        status = self.ended or (last.status if last is not None else "waiting")
        usage = dict.fromkeys(_USAGE, 0)
        for turn in self.turns.values():
            _add(usage, turn.usage or turn.steps)
        wire = {
            "sessionId": self.session_id,
            "status": status,
            "reply": _reply(last),
            "toolCalls": list(self.calls.values()),
            "usage": usage,
        }
        error = self.error or (last.error if last is not None else None)
        return wire | ({"error": error} if error is not None and status != "completed" else {})


_HANDLERS = {
    "action.result": _Reading.result,
    "actions.requested": _Reading.requested,
    "message.completed": _Reading.said,
    "message.received": _Reading.received,
    "session.completed": _Reading.task_completed,
    "session.failed": _Reading.task_failed,
    "step.completed": _Reading.step,
    "turn.completed": _Reading.completed,
    "turn.failed": _Reading.failed,
    "turn.queued": _Reading.queued,
    "turn.started": _Reading.started,
}


def trajectory(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return ``{sessionId, status, reply, toolCalls, usage}`` of a log, and ``error`` if it failed.

    ``status`` and ``reply`` are the last turn's, tool calls and usage those of all events. A call
    without a result has ``isError`` null.
    """
    reading = _Reading()
    for event in events:
        reading.read(event)
    return reading.summary()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _counts(usage: Any) -> dict[str, int]:
    if not isinstance(usage, dict):
        return {}
    return {
        key: value
        for key, value in usage.items()
        if isinstance(value, int) and not isinstance(value, bool)
    }


def _add(total: dict[str, int], counts: Mapping[str, int]) -> None:
    for key, value in counts.items():
        total[key] = total.get(key, 0) + value


def _reply(turn: _Turn | None) -> str | None:
    """Return the final answer; a finished turn that marked none as final ended with its last."""
    if turn is None or turn.final is not None:
        return turn.final if turn else None
    if isinstance(turn.result, str):
        return turn.result
    return turn.said if turn.status == "completed" else None


def summary_of_file(file: Path) -> dict[str, Any]:
    """Return the trajectory of a saved file.

    Raises NotFound when it cannot be read or holds no event.
    """
    try:
        events = read_events(file.read_bytes())
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}.") from error
    if not events:
        raise NotFound(f"{file} holds no events. Name a trace, or a session's events.ndjson.")
    return trajectory(events)


def command(
    *,
    events: Annotated[Path, Parameter(help="A trace, or a session's events.ndjson.")],
    text: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print the reply only.")
    ] = False,
) -> None:
    """Print the tool calls, the reply and the token usage of a saved event file."""
    print_summary(summary_of_file(events), text=text)


def print_summary(summary: Mapping[str, Any], *, text: bool) -> None:
    """Print a trajectory as JSON, or its reply alone."""
    if text:
        output.write(summary["reply"] or "")
    else:
        output.write_json(summary)
