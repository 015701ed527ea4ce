"""A harness that takes a moment, and whose answer says which attempt gave it."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import TYPE_CHECKING

from threadline.harness.base import Capabilities, TurnResult
from threadline.harness.scripted import Scripted

if TYPE_CHECKING:
    from threadline.harness.base import Turn


async def answer(turn: Turn) -> str:
    """Stream a few words, then answer."""
    dice = random.Random(zlib.crc32(f"{turn.prompt.text} {turn.attempt}".encode()))
    for number in range(dice.choice((1, 3, 8))):
        turn.message_delta(f"{turn.id}.draft", f"word {number} ")
        await asyncio.sleep(dice.uniform(0.0, 0.02))
    text = f"attempt {turn.attempt}: {turn.prompt.text[-200:]}"
    turn.message_completed(f"{turn.id}.draft", text)
    # A host that dies now has answered, and does not know that the turn is over.
    await asyncio.sleep(dice.choice((0.0, 0.0, 0.05)))
    return text


class Answers:
    """Plays it."""

    name = "answers"
    model = None
    capabilities = Capabilities()

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        return await Scripted(_recorded).run(turn)


async def _recorded(turn: Turn) -> TurnResult:
    return TurnResult(await answer(turn))
