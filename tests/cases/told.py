"""A harness that does what a case tells it to; untold, it repeats its prompt at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from threadline.harness.base import Capabilities, ToolCall, Turn, TurnResult

__all__ = ["Answer", "Delta", "Fail", "Order", "Say", "Told", "Tool"]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the final answer, streamed."""

    text: str


@dataclass(frozen=True, slots=True)
class Say:
    """The end of a message that is not the answer: what was streamed and this."""

    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool call, alone in its step; a tool boundary follows."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of the turn: what was streamed and this; None stands for the prompt."""

    text: str | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The end of the turn by an error."""

    error: str = "the model failed"


Order: TypeAlias = Delta | Say | Tool | Answer | Fail


class Told:
    """Follows orders, one turn after another, once ``waits`` is set.

    A turn that waits for an order takes the next one, whichever turn that is. ``prompts`` are what
    the turns were given, in order, and ``folders`` where they worked.
    """

    name = "told"
    model: str | None = None
    capabilities = Capabilities(workspace=True)

    def __init__(self) -> None:
        self.waits = False
        self.prompts: list[str] = []
        self.folders: list[Path] = []
        self.begun = 0
        self._orders: deque[Order] = deque()
        self._news = asyncio.Event()

    def tell(self, *orders: Order) -> None:
        """Give orders to the turn that runs, or to the next one."""
        self._orders.extend(orders)
        self._news.set()

    def free(self) -> None:
        """Let turns answer by themselves from now on."""
        self.waits = False
        self._news.set()

    async def _next(self) -> Order:
        while self.waits and not self._orders:
            self._news.clear()
            await self._news.wait()
        return self._orders.popleft() if self._orders else Answer()

    async def run(self, turn: Turn) -> TurnResult:
        """Follow orders until one ends the turn."""
        self.prompts.append(turn.prompt.for_model())
        self.folders.append(turn.workspace)
        play = _Play(turn)
        self.begun += 1
        while True:
            match await self._next():
                case Answer(text):
                    return play.answer(turn.prompt.text if text is None else text)
                case Fail(error):
                    raise RuntimeError(error)
                case Delta(text):
                    play.delta(text)
                case Say(text):
                    play.say(text)
                case Tool(name, value):
                    await play.call(name, value)


class _Play:
    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.streamed = ""
        self.count = 0
        self.records = [] if turn.prompt_in_history else [_record("user", turn.prompt.text)]
        turn.step_started()

    @property
    def part(self) -> str:
        return f"{self.turn.id}.m{self.count}"

    def delta(self, text: str) -> None:
        self.streamed += text
        if text:
            self.turn.message_delta(self.part, text)

    def say(self, text: str) -> None:
        self.delta(text)
        self.turn.message_completed(self.part, self.streamed, "tool_calls")
        self.streamed = ""
        self.count += 1

    async def call(self, name: str, value: Mapping[str, Any]) -> None:
        turn = self.turn
        turn.step_completed(finish_reason="tool_calls")
        self.count += 1
        (result,) = await turn.call_tools([ToolCall(f"{turn.id}.c{self.count}", name, dict(value))])
        self.records.append(_record("tool", str(result.for_model())))
        nudges = await turn.boundary(self.records)
        self.records = []
        if nudges:
            await turn.confirm(nudges, [_record("user", nudge.text) for nudge in nudges])
        turn.step_started()

    def answer(self, text: str) -> TurnResult:
        self.delta(text)
        self.turn.message_completed(self.part, self.streamed)
        self.turn.step_completed()
        return TurnResult(
            self.streamed, messages=[*self.records, _record("assistant", self.streamed)]
        )


def _record(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}
