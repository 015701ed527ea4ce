"""An offline model that works like an incident desk, and always the same way.

It reads the messages that it gets, looks at the timeline, then at the affected services, and writes
a summary. Each tool call is a boundary at which a webhook that came meanwhile reaches the turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lib.records import pause
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["demo_model"]

_CHANGE = re.compile(r"\bIncident (\S+) is now ([^.\n]+)")
_WORD = re.compile(r"\S+\s*|\s+")
_TOOLS = ("incident_timeline", "affected_services")


@dataclass(slots=True)
class Reading:
    """What the messages since the last answer say; ``late`` changes came while tools ran."""

    changes: list[tuple[str, str]] = field(default_factory=list)
    late: list[tuple[str, str]] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    calls: int = 0


def read(messages: Sequence[ModelMessage]) -> Reading:
    """Read the part of the history that the next answer is about."""
    reading = Reading()
    for message in messages:
        if isinstance(message, ModelResponse):
            reading.calls += len(message.tool_calls)
            if not message.tool_calls and message.state == "complete":
                reading = Reading(calls=reading.calls)
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    found = _CHANGE.findall(str(part.content))
                    (reading.late if reading.results else reading.changes).extend(found)
                elif isinstance(part, ToolReturnPart):
                    reading.results[part.tool_name] = part.content
    return reading


def reply(messages: Sequence[ModelMessage]) -> list[TextPart | ToolCallPart]:
    """Return the next response: a tool call while one is missing, then the summary."""
    reading = read(messages)
    changes = [*reading.changes, *reading.late]
    if not changes:
        return [TextPart("Tell me about an incident: `Incident INC-7 is now triggered.`")]
    incident = changes[-1][0]
    for tool in _TOOLS:
        if tool not in reading.results:
            said = f"I look at {tool.replace('_', ' ')} of {incident}."
            call_id = f"demo_{reading.calls + 1}"
            call = ToolCallPart(tool, {"incident": incident}, tool_call_id=call_id)
            return [TextPart(said), call]
    return [TextPart(_summary(incident, reading))]


def _summary(incident: str, reading: Reading) -> str:
    newest = [*reading.changes, *reading.late][-1][1]
    lines = [f"**{incident} is {newest}.**", ""]
    lines += [f"- You told me: {one} is {status}." for one, status in reading.changes]
    lines += [f"- While I looked: {one} is now {status}." for one, status in reading.late]
    lines += [f"- Timeline: {', then '.join(_field(reading, _TOOLS[0], 'events'))}."]
    lines += [f"- Affected: {' and '.join(_field(reading, _TOOLS[1], 'services'))}."]
    return "\n".join(lines)


def _field(reading: Reading, tool: str, name: str) -> list[str]:
    result = reading.results.get(tool)
    return list(result[name]) if isinstance(result, dict) else [str(result)]


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once."""
    return ModelResponse(parts=reply(messages))


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Answer word by word; a summary takes about ten seconds, so that a webhook can be too late."""
    for index, part in enumerate(reply(messages)):
        if isinstance(part, ToolCallPart):
            arguments = part.args_as_json_str()
            yield {index: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}
        else:
            for word in _WORD.findall(part.content):
                await pause(0.25)
                yield word


demo_model = FunctionModel(respond, stream_function=stream, model_name="demo")
