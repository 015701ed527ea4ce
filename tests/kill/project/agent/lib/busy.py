"""A harness that picks a script for each prompt: text, tools, boundaries and short waits."""

from __future__ import annotations

import asyncio
import random
import zlib
from typing import TYPE_CHECKING, Literal

from threadline.harness.base import Capabilities
from threadline.harness.scripted import Call, Calls, Reason, Say, Scripted, Step, Wait

if TYPE_CHECKING:
    from threadline.harness.base import Turn, TurnResult

TOOLS = ("look", "look", "stamp", "note")


class _Timer(asyncio.Event):
    """An event that sets itself some time after somebody begins to wait for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def wait(self) -> Literal[True]:
        await asyncio.sleep(self._seconds)
        return True


def script(text: str) -> list[Step]:
    """Return the steps that answer a prompt: always the same ones, so that a turn can go on."""
    if text.startswith("count to "):
        return count(int(text.removeprefix("count to ")))
    dice = random.Random(zlib.crc32(text.encode()))
    steps: list[Step] = []
    for number in range(dice.choice((0, 0, 1, 2, 4))):
        if dice.random() < 0.3:
            steps.append(Reason(f"Thinking about call {number}. "))
        steps += [Say(f"Let me see, {number} …"), Wait(_Timer(dice.uniform(0.0, 0.03)))]
        calls = [
            Call(dice.choice(TOOLS), {"item": f"item {number}.{n}"})
            for n in range(dice.choice((1, 1, 3)))
        ]
        steps.append(Calls(calls))
    for _ in range(dice.choice((0, 1, 3, 8))):
        steps += [Say("So far so good, \u2028 and on. "), Wait(_Timer(dice.uniform(0.0, 0.02)))]
    return [*steps, Say(f"That was it: {text[-40:]}")]


def count(number: int) -> list[Step]:
    """Return the steps of a long turn: a number, a short wait and a tool call, again and again."""
    steps: list[Step] = []
    for n in range(number):
        steps += [Say(f"{n} "), Wait(_Timer(0.02)), Call("look", {"item": f"item {n}.0"})]
    return [*steps, Say(f"counted to {number}")]


class Busy:
    """Plays each prompt's own script."""

    name = "busy"
    model = None
    capabilities = Capabilities()

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        return await Scripted(script(turn.prompt.text)).run(turn)
