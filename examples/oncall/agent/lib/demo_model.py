"""An offline model: it behaves like an on-call helper, and always the same way.

Like a real model it knows nothing but the messages that it gets. It picks tools by words of the
prompt, narrates, calls them, and writes an answer from their results. A message that arrives while
the tools run is one more prompt, answered at the end under "You also asked".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lib.records import pause, services
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingPart,
    DeltaToolCall,
    FunctionModel,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["demo_model"]

_PIECE = re.compile(r"\S+\s*|\s+")
_DEPLOY = re.compile(r"\b(deploy|deploys|deployed|deployment|release|released|shipped|changed)\b")
_INVESTIGATE = re.compile(r"\b(investigate|why|wrong|broken|slow|down|incident|outage|look into)\b")
_RUNBOOK = re.compile(r"\b(runbook|runbooks|playbook|how do|how to|what to do|roll ?back|steps)\b")
_RESTART = re.compile(r"\b(restart|reboot|bounce)\b")
_REPORT = re.compile(r"\b(report|write[- ]?up|post ?mortem)\b")
_STATUS = re.compile(r"\b(status|healthy|health|state|up|ok|okay|page)\b")

_HELP = """I am the offline demo of an on-call helper. Ask me, for example:

- `What is the status of checkout?`
- `What was deployed to search lately?`
- `Show me the runbook for a rollback.`
- `Investigate checkout`, and write to me again while I look.
- `Restart checkout`: I look, then wait until you approve it.
- `Write the incident report for checkout.`

I read the messages and the tool results of this session only. Set `THREADLINE_MODEL`, or the key \
of a provider, to talk to a real model."""


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
    open_calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = message.tool_calls
            reading.calls += len(calls)
            if not calls and message.state == "complete":
                reading = Reading(calls=reading.calls)
            for call in calls:
                open_calls[call.tool_call_id] = Wish(call.tool_name, call.args_as_dict()).key
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    into = reading.nudges if open_calls and reading.results else reading.prompts
                    into.append(str(part.content))
                elif isinstance(part, ToolReturnPart) and part.tool_call_id in open_calls:
                    reading.results[open_calls[part.tool_call_id]] = part.content
    return reading


def wishes(text: str) -> list[list[Wish]]:
    """Return the calls that a prompt asks for, step by step."""
    lower = text.lower()
    named = [name for name in services() if re.search(rf"\b{name}\b", lower)]
    if _RESTART.search(lower) and named:
        reason = f"Asked for: {text.strip()}"
        return [
            [Wish("page_status", {"service": name}) for name in named],
            [Wish("restart_service", {"service": name, "reason": reason}) for name in named],
        ]
    if _REPORT.search(lower) and named:
        return [[Wish("write_report", {"service": name}) for name in named]]
    if _INVESTIGATE.search(lower):
        subject = named or ["checkout"]
        return [
            [Wish("page_status", {"service": name}) for name in subject],
            [Wish("recent_deploys", {"service": name}) for name in subject],
            [Wish("search_runbook", {"query": name}) for name in subject],
        ]
    step: list[Wish] = []
    if _STATUS.search(lower) or (
        named and not _DEPLOY.search(lower) and not _RUNBOOK.search(lower)
    ):
        step += [Wish("page_status", {"service": name}) for name in named or services()]
    if _DEPLOY.search(lower) and not _RUNBOOK.search(lower):
        step += [Wish("recent_deploys", {"service": name}) for name in named] or [
            Wish("recent_deploys", {})
        ]
    if _RUNBOOK.search(lower):
        step.append(Wish("search_runbook", {"query": text.strip()}))
    return [step] if step else []


def reply(messages: Sequence[ModelMessage]) -> list[ModelResponsePart]:
    """Return the next response: tool calls while some are missing, then the answer."""
    reading = read(messages)
    for text in [*reading.prompts, *reading.nudges]:
        for step in wishes(text):
            missing = [wish for wish in step if wish.key not in reading.results]
            if missing:
                return _ask(missing, reading, text)
    return [TextPart(_answer(reading))]


def _ask(step: Sequence[Wish], reading: Reading, text: str) -> list[ModelResponsePart]:
    said: list[ModelResponsePart] = []
    if not reading.results:
        said.append(ThinkingPart(f"They ask: {text.strip()!r}. I should look before I answer."))
    said.append(TextPart(_narration(step, follow_up=text in reading.nudges)))
    return [
        *said,
        *(
            ToolCallPart(wish.tool, wish.args, tool_call_id=f"demo_{reading.calls + number}")
            for number, wish in enumerate(step, 1)
        ),
    ]


def _narration(step: Sequence[Wish], *, follow_up: bool) -> str:
    what = {
        "page_status": "the status page",
        "recent_deploys": "the recent deploys",
        "search_runbook": "the runbooks",
    }
    if not what.keys() & {wish.tool for wish in step}:
        return _plan(step)
    places = " and ".join(dict.fromkeys(what[wish.tool] for wish in step))
    about = ", ".join(
        dict.fromkeys(wish.args["service"] for wish in step if wish.args.get("service"))
    )
    opening = "For your new question I check" if follow_up else "I check"
    return f"{opening} {places}{f' for {about}' if about else ''}."


def _plan(step: Sequence[Wish]) -> str:
    services = " and ".join(dict.fromkeys(wish.args["service"] for wish in step))
    if step[0].tool == "restart_service":
        return f"Restarting {services} needs somebody's approval. I wait for it."
    return f"I write the report for {services}."


def _answer(reading: Reading) -> str:
    blocks = [_section(text, reading) for text in reading.prompts]
    blocks += [
        f"**You also asked:** {text.strip()}\n\n{_section(text, reading)}"
        for text in reading.nudges
    ]
    unique = list(dict.fromkeys(blocks))
    return "\n\n".join(unique) if unique else _HELP


def _section(text: str, reading: Reading) -> str:
    steps = wishes(text)
    if not steps:
        return (
            "I have noted that, and nothing in my tools answers it." if reading.results else _HELP
        )
    lines = [_line(wish, reading.results.get(wish.key)) for step in steps for wish in step]
    suspect = _suspect([wish for step in steps for wish in step], reading)
    return "\n".join([*lines, *([f"\n**Next:** {suspect}"] if suspect else [])])


def _line(wish: Wish, result: Any) -> str:
    if not isinstance(result, dict):
        return f"- `{wish.tool}`: {result}"
    match wish.tool:
        case "page_status":
            since = _ago(result["sinceMinutes"])
            last = result.get("lastRestart")
            restarted = f" {last['by']} restarted it at {last['at']}." if last else ""
            return (
                f"- **{result['service']}** is **{result['state']}** (for {since}): "
                f"{result['summary']}{restarted}"
            )
        case "restart_service":
            if not result["restarted"]:
                return f"- **{result['service']}** was not restarted. {result['note']}"
            return f"- **{result['service']}** was restarted; {result['by']} approved it."
        case "write_report":
            return f"- **{result['title']}** is written: artifact `{result['artifactId']}`."
        case "recent_deploys":
            return _deploy_lines(result)
        case _:
            return _runbook_lines(result)


def _deploy_lines(result: dict[str, Any]) -> str:
    about = f" of {result['service']}" if result["service"] else ""
    if not result["deploys"]:
        return f"- **Deploys{about}**: none in the last {result['hours']} hours."
    lines = [
        f"  - {deploy['service']} `{deploy['version']}`, {_ago(deploy['minutesAgo'])} ago by "
        f"{deploy['by']}: {deploy['summary']}"
        for deploy in result["deploys"]
    ]
    return "\n".join([f"- **Deploys{about}**, newest first:", *lines])


def _runbook_lines(result: dict[str, Any]) -> str:
    if not result["matches"]:
        return f"- **Runbooks**: none fits {result['query']!r}."
    best = result["matches"][0]
    steps = [f"  {number}. {step}" for number, step in enumerate(best["steps"], 1)]
    return "\n".join([f"- **Runbook** “{best['title']}” (`{best['file']}`):", *steps])


def _suspect(asked: Sequence[Wish], reading: Reading) -> str | None:
    """Name a deploy that came shortly before a problem began."""
    known = {wish.key: reading.results.get(wish.key) for wish in asked}
    statuses = [result for key, result in known.items() if key.startswith("page_status")]
    deploys = [result for key, result in known.items() if key.startswith("recent_deploys")]
    for status in statuses:
        if not isinstance(status, dict) or status["state"] == "operational":
            continue
        for deploy in (
            one for result in deploys if isinstance(result, dict) for one in result["deploys"]
        ):
            before = deploy["minutesAgo"] - status["sinceMinutes"]
            if deploy["service"] == status["service"] and 0 <= before <= 60:
                return (
                    f"{deploy['service']} `{deploy['version']}` went out {before} minutes before "
                    f"this began. That makes it the first suspect, not yet the cause; rolling it "
                    f"back is the quickest test."
                )
    return None


def _ago(minutes: int) -> str:
    if minutes < 120:
        return f"{minutes} minutes"
    return f"{minutes // 60} hours" if minutes < 2880 else f"{minutes // 1440} days"


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once."""
    return ModelResponse(parts=reply(messages))


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Answer word by word."""
    for index, part in enumerate(reply(messages)):
        match part:
            case ThinkingPart(content=text):
                for piece in _PIECE.findall(text):
                    await pause(0.02)
                    yield {index: DeltaThinkingPart(content=piece)}
            case TextPart(content=text):
                for piece in _PIECE.findall(text):
                    await pause(0.02)
                    yield piece
            case ToolCallPart():
                yield {
                    index: DeltaToolCall(
                        part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id
                    )
                }


demo_model = FunctionModel(respond, stream_function=stream, model_name="demo")
