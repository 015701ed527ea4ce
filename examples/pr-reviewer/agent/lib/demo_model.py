"""An offline model: it reviews as a careful reader of patterns would, and always the same way.

Like a real model it knows nothing but the messages that it gets, and what its tools return. When
code arrives it scans the diff, reviews it, reports a check and sums up; what it said of a line in
an earlier turn it does not say again. A question is answered from what it found.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lib.scan import RULES
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
_DATA = re.compile(r"<(\w+)(?: [^>\n]*)?>\n.*?\n</\1>", re.DOTALL)
_CONTEXT = ("[", "What stands between the tags")
_CODE = re.compile(
    r"^Pull request #\d+ (?:was (?:re)?opened|is ready for review|has new commits)\b"
    r"|^\S+ asks you to review Pull request #\d+\b"
    r"|^\S+ (?:asks for another run of|presses '.+' on) the check ",
    re.MULTILINE,
)
_AGAIN = re.compile(
    r"\b(?:review|scan|check) (?:it|this|that|the|again|please)\b|^\s*(?:@\S+\s+)?/?review\b",
    re.IGNORECASE,
)
_MARKS = {"failure": "**Must not be merged.**", "warning": "**Look at this.**", "notice": ""}
_WORDS = {
    "secret": ("secret", "key", "token", "password", "credential"),
    "bare-except": ("except", "exception"),
    "print": ("print",),
    "todo": ("todo", "fixme", "missing"),
}

_HELP = """I am the offline demo of a reviewer: I look for secrets, bare excepts, prints and TODOs \
in the lines that a pull request adds. Ask me, for example:

- `what did you find?`
- `why is the bare except a problem?`
- `review this again`

Set `THREADLINE_MODEL`, or the key of a provider, to talk to a real model."""


@dataclass(slots=True)
class Reading:
    """What the messages say: this turn's, and the findings of earlier ones."""

    prompts: list[str] = field(default_factory=list)
    nudges: list[str] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)
    known: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0

    @property
    def findings(self) -> list[dict[str, Any]] | None:
        """What this turn's scan found; None before there was one, or when it failed."""
        scanned = self.results.get("scan_diff")
        return list(scanned["findings"]) if isinstance(scanned, dict) else None

    @property
    def new(self) -> list[dict[str, Any]]:
        """What this turn found that no earlier one did."""
        said = {finding["id"] for finding in self.known}
        return [finding for finding in self.findings or [] if finding["id"] not in said]


def read(messages: Sequence[ModelMessage]) -> Reading:
    """Read the history up to this answer."""
    reading = Reading()
    names: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            reading.calls += len(message.tool_calls)
            names |= {call.tool_call_id: call.tool_name for call in message.tool_calls}
            if not message.tool_calls and message.state == "complete":
                known = reading.known if reading.findings is None else reading.findings
                reading = Reading(known=known, calls=reading.calls)
        elif isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    into = reading.nudges if reading.results else reading.prompts
                    into.append(str(part.content))
                elif isinstance(part, ToolReturnPart) and part.tool_call_id in names:
                    reading.results[names[part.tool_call_id]] = part.content
    return reading


@dataclass(frozen=True, slots=True)
class Wish:
    """What a prompt asks for: a review, the answer to a question, or both."""

    review: bool
    question: str


def wish(text: str) -> Wish:
    """Read a prompt; what the channel says of it, and what it quotes, is no question."""
    parts = [part.strip() for part in _DATA.sub("", text).split("\n\n")]
    said = [part for part in parts if part and not part.startswith(_CONTEXT)]
    asked = [part for part in said if not _CODE.search(part)]
    question = "\n\n".join(asked)
    if _AGAIN.search(question):
        return Wish(review=True, question="")
    return Wish(review=len(asked) < len(said), question=question)


def step(reading: Reading) -> ToolCallPart | None:
    """Return the next call of a review; None when it is done."""
    call_id = f"demo_{reading.calls + 1}"
    if "scan_diff" not in reading.results:
        return ToolCallPart("scan_diff", {}, tool_call_id=call_id)
    findings = reading.findings
    if findings is None:
        return None
    if reading.new and "review_pull_request" not in reading.results:
        return ToolCallPart("review_pull_request", _review(reading.new), tool_call_id=call_id)
    if "report_check" not in reading.results:
        return ToolCallPart("report_check", _check(findings), tool_call_id=call_id)
    return None


def reply(messages: Sequence[ModelMessage]) -> list[ModelResponsePart]:
    """Return the next response: a tool call while one is missing, then the answer."""
    reading = read(messages)
    wishes = [wish(text) for text in [*reading.prompts, *reading.nudges]]
    reviews = any(one.review for one in wishes)
    call = step(reading) if reviews else None
    if call is not None:
        return [call]
    blocks = [answer(one.question, reading) for one in wishes if one.question]
    if reviews:
        blocks.insert(0, summary(reading))
    return [TextPart("\n\n".join(dict.fromkeys(blocks)) or _HELP)]


def _review(findings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    refuse = any(finding["level"] == "failure" for finding in findings)
    comments = [
        {
            "path": finding["path"],
            "line": finding["line"],
            "body": f"{_MARKS[finding['level']]} {finding['message']}".strip(),
        }
        for finding in findings
    ]
    body = f"I found {_count(len(findings))} in the lines that this adds."
    event = "REQUEST_CHANGES" if refuse else "COMMENT"
    return {"body": body, "event": event, "comments": comments}


def _check(findings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    levels = {finding["level"] for finding in findings}
    conclusion = "failure" if "failure" in levels else "neutral" if levels else "success"
    return {
        "conclusion": conclusion,
        "title": f"{_count(len(findings))} found" if findings else "Nothing found",
        "summary": "\n".join(_lines(findings)) or "Secrets, bare excepts, prints, TODOs: none.",
        "annotations": [
            {
                "path": finding["path"],
                "start_line": finding["line"],
                "level": finding["level"],
                "title": finding["rule"],
                "message": finding["message"],
            }
            for finding in findings
        ],
    }


def summary(reading: Reading) -> str:
    """Return what a review ends with."""
    findings = reading.findings
    if findings is None:
        return f"I could not read the diff: {reading.results['scan_diff']}"
    if not findings:
        gone = " What I found before is gone." if reading.known else ""
        return f"**Nothing found.** I looked at every line that this adds.{gone}"
    refused = any(finding["level"] == "failure" for finding in findings)
    verdict = "Not ready to merge" if refused else "Worth a look"
    before = len(findings) - len(reading.new)
    still = f", {before} of them as before" if before else ""
    return "\n".join([f"**{verdict}:** {_count(len(findings))}{still}.", "", *_lines(findings)])


def answer(asked: str, reading: Reading) -> str:
    """Return the answer to a question, from what was found."""
    findings = reading.known if reading.findings is None else reading.findings
    lower = asked.lower()
    for rule in RULES:
        if any(word in lower for word in _WORDS[rule.name]):
            at = [f"`{one['path']}:{one['line']}`" for one in findings if one["rule"] == rule.name]
            where = f" It is at {', '.join(at)}." if at else " There is none in this pull request."
            return rule.message + where
    if re.search(r"\b(?:what|which|find|found|findings|sum|summary|list)\b", lower):
        return "\n".join(_lines(findings)) or "I have found nothing."
    return _HELP


def _lines(findings: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"- `{finding['path']}:{finding['line']}` {finding['rule']}: {finding['message']}"
        for finding in findings
    ]


def _count(number: int) -> str:
    return "1 problem" if number == 1 else f"{number} problems"


async def pause(seconds: float) -> None:
    """Take the time that a real model would; ``PR_REVIEWER_PACE=0`` takes none."""
    await asyncio.sleep(seconds * float(os.environ.get("PR_REVIEWER_PACE", "1")))


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once."""
    return ModelResponse(parts=reply(messages))


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Answer word by word."""
    for index, part in enumerate(reply(messages)):
        if isinstance(part, ToolCallPart):
            await pause(1)
            arguments = part.args_as_json_str()
            yield {index: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}
        elif isinstance(part, TextPart):
            for piece in _PIECE.findall(part.content):
                await pause(0.02)
                yield piece


demo_model = FunctionModel(respond, stream_function=stream, model_name="demo")
