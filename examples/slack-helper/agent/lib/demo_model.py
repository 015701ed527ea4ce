"""An offline model: it behaves like a launch helper, and always the same way.

Like a real model it knows nothing but the messages that it gets. It picks tools by words of the
prompt, calls them one after the other, and writes an answer from their results. A message that
arrives while it works is one more prompt, answered at the end under "You also asked".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lib.launch import AREAS, pause
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["demo_model"]

_PIECE = re.compile(r"\S+\s*|\s+")
_FILE = re.compile(r"^- .*, \d+ bytes\): (slack/\S+)$", re.M)
_CONTEXT = ("[From ", "Said earlier in this thread:", "Files of this message:")
_MOVE = re.compile(r"\b(move|postpone|delay|reschedule|push)\b")
_CHECK = re.compile(r"\b(check|ready|readiness|launch|status|everything|all)\b")
_DAY = re.compile(
    r"\b((?:mon|tues|wednes|thurs|fri|satur|sun)day|\d{4}-\d\d-\d\d)\b", re.IGNORECASE
)

_HELP = """I am the offline demo of a launch helper. Ask me, for example:

- `Are we ready to launch?`, and write to me again while I check
- `Check docs and support`
- `Move the launch to Friday`: somebody has to approve it
- post a CSV file, and I add its columns up

`stop`, alone in a message, stops me. Set `THREADLINE_MODEL`, or the key of a provider, to talk to \
a real model."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A tool call that a prompt asks for."""

    tool: str
    args: dict[str, Any]

    @property
    def key(self) -> str:
        """Tell the same call again from another one."""
        return f"{self.tool} {json.dumps(self.args, sort_keys=True)}"


@dataclass(slots=True)
class Reading:
    """What the messages since the last answer say."""

    prompts: list[str] = field(default_factory=list)
    nudges: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    calls: int = 0


def read(messages: Sequence[ModelMessage]) -> Reading:
    """Read the part of the history that this answer is about."""
    reading = Reading()
    keys: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            reading.calls += len(message.tool_calls)
            if not message.tool_calls and message.state == "complete":
                reading = Reading(calls=reading.calls)
            for call in message.tool_calls:
                keys[call.tool_call_id] = Wish(call.tool_name, call.args_as_dict()).key
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    into = reading.nudges if reading.results else reading.prompts
                    into.append(str(part.content))
                elif isinstance(part, ToolReturnPart) and part.tool_call_id in keys:
                    reading.results[keys[part.tool_call_id]] = part.content
    return reading


def question(text: str) -> str:
    """Return what a person wrote, without what the channel says of it."""
    parts = [part for part in text.split("\n\n") if not part.startswith(_CONTEXT)]
    return "\n\n".join(parts).strip()


def wishes(text: str) -> list[Wish]:
    """Return the calls that a prompt asks for, in order."""
    files = [Wish("read_sheet", {"path": path}) for path in _FILE.findall(text)]
    asked = question(text)
    lower = asked.lower()
    if _MOVE.search(lower) and "launch" in lower:
        day = _DAY.search(asked)
        args = {"day": day[0] if day else "Friday", "reason": f"Asked for: {asked}"}
        return [*files, Wish("move_launch", args)]
    named = [area for area in AREAS if re.search(rf"\b{area}\b", lower)]
    if not (named or _CHECK.search(lower)) or (files and not named):
        return files
    return [*files, *(Wish("run_check", {"area": area}) for area in named or AREAS)]


def reply(messages: Sequence[ModelMessage]) -> list[ModelResponsePart]:
    """Return the next response: a tool call while one is missing, then the answer."""
    reading = read(messages)
    for text in [*reading.prompts, *reading.nudges]:
        for wish in wishes(text):
            if wish.key not in reading.results:
                call_id = f"demo_{reading.calls + 1}"
                call = ToolCallPart(wish.tool, wish.args, tool_call_id=call_id)
                return [TextPart(_narration(wish)), call]
    return [TextPart(_answer(reading))]


def _narration(wish: Wish) -> str:
    match wish.tool:
        case "run_check":
            return f"I check {wish.args['area']}."
        case "move_launch":
            return f"Moving the launch to {wish.args['day']} needs somebody's approval."
        case _:
            return "I read the table."


def _answer(reading: Reading) -> str:
    blocks = [_section(text, reading) for text in reading.prompts]
    blocks += [
        f"**You also asked:** {question(text)}\n\n{_section(text, reading)}"
        for text in reading.nudges
    ]
    return "\n\n".join(dict.fromkeys(blocks)) or _HELP


def _section(text: str, reading: Reading) -> str:
    found = [(wish, reading.results.get(wish.key)) for wish in wishes(text)]
    if not found:
        return "I have noted that." if reading.results else _HELP
    checks = [result for wish, result in found if wish.tool == "run_check"]
    others = [_line(wish, result) for wish, result in found if wish.tool != "run_check"]
    return "\n".join([*others, *([_checked(checks)] if checks else [])])


def _checked(checks: Sequence[Any]) -> str:
    good = [check for check in checks if isinstance(check, dict)]
    open_ = [check["area"] for check in good if not check["ready"]]
    verdict = f"**Not ready:** {' and '.join(open_)}." if open_ else "**Ready.**"
    rows = [f"| {c['area']} | {'yes' if c['ready'] else 'no'} | {c['note']} |" for c in good]
    if len(good) < 3:
        return "\n".join([verdict, *(f"- **{c['area']}**: {c['note']}" for c in good)])
    return "\n".join([verdict, "", "| area | ready | |", "|---|---|---|", *rows])


def _line(wish: Wish, result: Any) -> str:
    if not isinstance(result, dict):
        return f"- `{wish.tool}`: {result}"
    if wish.tool == "move_launch":
        if not result["moved"]:
            return f"- The launch stays where it is. {result['note']}"
        return f"The launch is now on **{result['day']}**, not on {result['from']}."
    sums = ", ".join(f"`{name}` adds up to **{_number(s)}**" for name, s in result["sums"].items())
    columns = ", ".join(f"`{name}`" for name in result["columns"]) or "none"
    return f"{result['rows']} rows, columns {columns}." + (f" {sums}." if sums else "")


def _number(value: float) -> str:
    return f"{value:,.2f}".removesuffix(".00")


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once."""
    return ModelResponse(parts=reply(messages))


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Answer word by word."""
    for index, part in enumerate(reply(messages)):
        if isinstance(part, ToolCallPart):
            arguments = part.args_as_json_str()
            yield {index: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            for piece in _PIECE.findall(part.content):
                await pause(0.02)
                yield piece


demo_model = FunctionModel(respond, stream_function=stream, model_name="demo")
