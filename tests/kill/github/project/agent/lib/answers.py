"""A harness whose answer names each question that it heard, and says so once.

Questions that people write are called ``q7x2``, what happens to code is called by the event and its
commit, as ``opened-0123456789ab``. The answer begins with their names; a long one ends with
``end-q7x2`` of the first of them, in a comment of its own. ``w7x0`` is answered when somebody stops
it.
"""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from threadline.harness.base import Capabilities, ToolCall, TurnResult
from threadline.harness.scripted import Scripted

if TYPE_CHECKING:
    from threadline.harness.base import Turn

QUESTION = re.compile(r"\b[qw][0-9]+x[0-9]+\b")
EVENTS = "opened", "ready_for_review", "reopened", "rerequested", "review_requested", "synchronize"
LONG = "And so on, at some length. " * 2700
LONGEST_WAIT = 20.0
FINDING = {"path": "src/upload.py", "line": 2, "body": "Why?"}


class Message(Protocol):
    """What somebody said, or what happened."""

    text: str
    sender: Mapping[str, Any] | None


def names(messages: Sequence[Message], *, steered: bool = False) -> Iterator[str]:
    """Yield what messages are called.

    What others said meanwhile may stand before one that is steered: it ends in its own words.
    """
    for message in messages:
        about = (message.sender or {}).get("attributes") or {}
        happened = about.get("trigger") in EVENTS
        if happened:
            yield f"{about['trigger']}-{about['head'][:12]}"
        found = QUESTION.findall(message.text)
        yield from found if not steered else [] if happened else found[-1:]


async def answer(turn: Turn) -> TurnResult:
    """Call a few tools, taking what comes meanwhile, then answer."""
    prompt = turn.prompt.text
    heard = list(names(turn.prompt.parts))
    for record in turn.history:
        if record.get("of") == prompt:
            heard += record["heard"]
    dice = random.Random(zlib.crc32(f"{prompt} {turn.attempt}".encode()))
    for number in range(dice.choice((0, 0, 1, 2, 3))):
        await asyncio.sleep(dice.uniform(0.0, 0.05))
        turn.step_started()
        turn.step_completed(finish_reason="tool_calls")
        await turn.call_tools([_call(f"{turn.id}.{number}", number, dice)])
        nudges = await turn.boundary([{"role": "tool", "content": number}])
        if nudges:
            found = list(names(nudges, steered=True))
            await turn.confirm(nudges, [{"role": "user", "of": prompt, "heard": found}])
            heard += found
    waits = any(name.startswith("w") for name in heard)
    await asyncio.sleep(LONGEST_WAIT if waits else dice.uniform(0.0, 0.1))
    if dice.random() < 0.04:
        raise ValueError("no luck")
    text = f"Heard {', '.join(heard)} at attempt {turn.attempt}."
    if dice.random() < 0.04:
        text = f"{text}\n\n{LONG}\n\nend-{heard[0]}"
    turn.message_completed(f"{turn.id}.answer", text)
    # A host that dies now has answered, and does not know that the turn is over.
    await asyncio.sleep(dice.choice((0.0, 0.0, 0.05)))
    return TurnResult(text, messages=[{"role": "assistant", "content": text[:200]}])


def _call(identity: str, number: int, dice: random.Random) -> ToolCall:
    match dice.choice(("look", "look", "review", "check", "labels")):
        case "review":
            comments = dice.choice(([], [FINDING]))
            body = f"Review {identity}."
            event = dice.choice(("COMMENT", "APPROVE", "REQUEST_CHANGES"))
            given: dict[str, Any] = {"body": body, "event": event, "comments": comments}
            return ToolCall(identity, "review_pull_request", given)
        case "check":
            given = {"conclusion": "failure", "title": "1 problem", "summary": "Line 2."}
            remark = {"path": "src/upload.py", "start_line": 2, "message": identity}
            given["annotations"] = dice.choice(([], [remark]))
            return ToolCall(identity, "report_check", given)
        case "labels":
            return ToolCall(identity, "set_labels", {"add": ["seen"]})
    return ToolCall(identity, "look", {"number": number})


class Answers:
    """Plays it."""

    name = "answers"
    model = None
    capabilities = Capabilities()

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        return await Scripted(answer).run(turn)
