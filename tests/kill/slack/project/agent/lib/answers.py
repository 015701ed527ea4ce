"""A harness whose answer names each question that it heard, and says so once.

Questions are called ``q7x2``. The answer begins with their names; a long one ends with ``end-q7x2``
of the first of them, in a message of its own.
"""

from __future__ import annotations

import asyncio
import random
import re
import zlib
from typing import TYPE_CHECKING

from threadline.harness.base import Capabilities, ToolCall, TurnResult
from threadline.harness.scripted import Scripted

if TYPE_CHECKING:
    from threadline.harness.base import Turn

QUESTION = re.compile(r"q[0-9]+x[0-9]+")
LONG = "And so on, at some length. " * 600


async def answer(turn: Turn) -> TurnResult:
    """Call a tool a few times, taking what comes meanwhile, then answer."""
    prompt = turn.prompt.text
    heard = QUESTION.findall(prompt)
    for record in turn.history:
        if record.get("of") == prompt:
            heard += record["heard"]
    dice = random.Random(zlib.crc32(f"{prompt} {turn.attempt}".encode()))
    for number in range(dice.choice((0, 0, 1, 2))):
        await asyncio.sleep(dice.uniform(0.0, 0.03))
        turn.step_started()
        turn.step_completed(finish_reason="tool_calls")
        await turn.call_tools([ToolCall(f"{turn.id}.{number}", "look", {"number": number})])
        nudges = await turn.boundary([{"role": "tool", "content": number}])
        if nudges:
            # What was said in the thread may stand before the message: it ends in its own words.
            found = [QUESTION.findall(nudge.text)[-1] for nudge in nudges]
            await turn.confirm(nudges, [{"role": "user", "of": prompt, "heard": found}])
            heard += found
    await asyncio.sleep(dice.uniform(0.0, 0.05))
    text = f"Heard {', '.join(heard)} at attempt {turn.attempt}."
    if dice.random() < 0.05:
        text = f"{text}\n\n{LONG}\n\nend-{heard[0]}"
    for piece in (text[:9], text[9:30], text[30:8000], text[8000:]):
        turn.message_delta(f"{turn.id}.answer", piece)
        await asyncio.sleep(dice.choice((0.0, 0.02)))
    turn.message_completed(f"{turn.id}.answer", text)
    # A host that dies now has answered, and does not know that the turn is over.
    await asyncio.sleep(dice.choice((0.0, 0.0, 0.05)))
    return TurnResult(text, messages=[{"role": "assistant", "content": text}])


class Answers:
    """Plays it."""

    name = "answers"
    model = None
    capabilities = Capabilities()

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        return await Scripted(answer).run(turn)
