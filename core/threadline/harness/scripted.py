"""A harness that plays a script: deterministic, for tests and demos.

A script is an async function of the turn, or a list of steps. Like a real harness it keeps its
history in records, ``{"role": "user" | "assistant" | "tool", …}``, and takes nudges at tool
boundaries.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from threadline.harness.base import Capabilities, ToolCall, ToolResult, TurnResult

if TYPE_CHECKING:
    import asyncio

    from threadline.harness.base import Turn

__all__ = [
    "Call",
    "Calls",
    "Fail",
    "Reason",
    "Say",
    "Script",
    "Scripted",
    "Step",
    "Wait",
    "echo",
]

_WORD = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class Say:
    """A message; without ``deltas`` it streams word by word, with ``()`` it does not stream."""

    text: str
    deltas: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """A reasoning block."""

    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an event in the middle of a model step."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise the exception in the middle of a model step."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; it ends its model step, and a tool boundary follows."""

    tool: str
    input: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calls:
    """Several tool calls of one model step."""

    calls: Sequence[Call]


Step: TypeAlias = Say | Reason | Wait | Fail | Call | Calls
Script: TypeAlias = Callable[["Turn"], Awaitable[TurnResult | str]] | Sequence[Step]


async def echo(turn: Turn) -> str:
    """Answer with the prompt."""
    return turn.prompt.text


class Scripted:
    """Plays one script in every turn.

    A function that returns text has it said as the final answer, and prompt and answer recorded;
    one that returns a :class:`TurnResult` records everything itself. A list is played from its
    start, or in a resumed turn after the steps that the history holds. When it has no last
    :class:`Say`, the answer is ``"Done."``.
    """

    def __init__(
        self,
        script: Script = echo,
        *,
        name: str = "scripted",
        model: str | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.script = script
        self.name = name
        self.capabilities = capabilities or Capabilities(workspace=True, parks=not callable(script))
        self._model = model

    @property
    def model(self) -> str | None:
        """The name given to the constructor."""
        return self._model

    async def run(self, turn: Turn) -> TurnResult:
        """Play the script; whatever ends it early, the history is stored first."""
        player = _Player(turn, model=self._model)
        try:
            return await self._play(player)
        except BaseException:
            turn.checkpoint(player.take())
            raise

    async def _play(self, player: _Player) -> TurnResult:
        if callable(self.script):
            result = await self.script(player.turn)
            if isinstance(result, TurnResult):
                return result
            return await player.answer([Say(result)])
        await player.reopen()
        said, steps = _split(self.script)
        for group, calls in steps[player.skipped :]:
            await player.step(group, calls)
        return await player.answer(said)


class _Player:
    """What a list of steps is played with; holds the records that are not stored yet."""

    def __init__(self, turn: Turn, *, model: str | None = None) -> None:
        self.turn = turn
        self.model = model
        self._fresh: list[Any] = []
        self._step = 0
        self._parts = 0
        self._words = 0
        self.skipped = self._open()

    def take(self) -> list[Any]:
        """Return the records since the last checkpoint, and forget them."""
        fresh, self._fresh = self._fresh, []
        return fresh

    async def step(self, said: Sequence[Step], calls: Sequence[Call]) -> list[ToolResult]:
        """Play one model step that ends in tool calls, and the boundary after it."""
        self._begin()
        texts = [await self._play(part, "tool_calls") for part in said]
        self._end("tool_calls", texts)
        made = [
            ToolCall(f"{self.turn.id}.c{self._step}.{number}", call.tool, dict(call.input))
            for number, call in enumerate(calls, 1)
        ]
        self._assistant(texts, made)
        gated = {tool.name for tool in self.turn.tools if tool.approval}
        if any(call.tool_name in gated for call in made):
            self.turn.checkpoint(self.take())
        return await self._call(made)

    async def reopen(self) -> None:
        """Go on with the calls that were open when the host stopped."""
        if self.turn.open_calls:
            await self._call(self.turn.open_calls)

    async def _call(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        results = await self.turn.call_tools(calls)
        self._fresh += [_tool_record(result) for result in results]
        await self._boundary()
        return results

    async def answer(self, said: Sequence[Step]) -> TurnResult:
        """Play the last model step, whose last message is the answer."""
        if not said or not isinstance(said[-1], Say):
            said = [*said, Say("Done.")]
        self._begin()
        texts = [await self._play(part, "tool_calls") for part in said[:-1]]
        texts.append(await self._play(said[-1], "stop"))
        self._end("stop", texts)
        self._assistant(texts, [])
        usage = {"inputTokens": 0, "outputTokens": self._words, "requests": self._step}
        return TurnResult(texts[-1], usage=usage, messages=self.take())

    def _open(self) -> int:
        """Close open calls and add the prompt; return how many steps are done already."""
        turn = self.turn
        if turn.open_calls:
            return _steps_since_prompt(turn.history)
        self._fresh += [_interrupted(call) for call in _open_calls(turn.history)]
        if turn.resumes and turn.prompt_in_history:
            return _steps_since_prompt(turn.history)
        self._fresh.append({"role": "user", "content": turn.prompt.for_model(), "turnId": turn.id})
        return 0

    async def _boundary(self) -> None:
        nudges = await self.turn.boundary(self.take())
        if not nudges:
            return
        records = [
            {"role": "user", "content": nudge.text, "deliveryId": nudge.delivery_id}
            for nudge in nudges
        ]
        await self.turn.confirm(nudges, records)

    def _begin(self) -> None:
        self._step = self.turn.step_started(self.model)

    def _end(self, reason: str, texts: Sequence[str]) -> None:
        words = sum(len(text.split()) for text in texts)
        self._words += words
        self.turn.step_completed({"inputTokens": 0, "outputTokens": words}, reason)

    def _assistant(self, texts: Sequence[str], calls: Sequence[ToolCall]) -> None:
        record: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(filter(None, texts))}
        if calls:
            record["calls"] = [
                {"callId": call.call_id, "toolName": call.tool_name, "input": call.input}
                for call in calls
            ]
        self._fresh.append(record)

    async def _play(self, step: Step, reason: str) -> str:
        """Play a part of a model step and return what it said."""
        self._parts += 1
        part_id = f"{self.turn.id}.m{self._parts}"
        match step:
            case Say():
                deltas = _WORD.findall(step.text) if step.deltas is None else step.deltas
                for delta in deltas:
                    self.turn.message_delta(part_id, delta)
                self.turn.message_completed(part_id, step.text, reason)
                return step.text
            case Reason():
                self.turn.reasoning_delta(part_id, step.text)
                self.turn.reasoning_completed(part_id, step.text)
            case Wait():
                await step.event.wait()
            case Fail():
                raise step.error
        return ""


def _split(
    script: Sequence[Step],
) -> tuple[list[Step], list[tuple[list[Step], Sequence[Call]]]]:
    """Return what follows the last call, and the model steps before: what each says and calls."""
    steps: list[tuple[list[Step], Sequence[Call]]] = []
    said: list[Step] = []
    for step in script:
        if isinstance(step, Call | Calls):
            steps.append((said, step.calls if isinstance(step, Calls) else [step]))
            said = []
        else:
            said.append(step)
    return said, steps


def _steps_since_prompt(history: Sequence[Any]) -> int:
    done = 0
    for record in history:
        done = 0 if "turnId" in record else done + (record["role"] == "assistant")
    return done


def _open_calls(history: Sequence[Any]) -> list[Any]:
    answered = {record.get("callId") for record in history}
    calls = [call for record in history for call in record.get("calls", ())]
    return [call for call in calls if call["callId"] not in answered]


def _tool_record(result: ToolResult) -> dict[str, Any]:
    return {
        "role": "tool",
        "callId": result.call_id,
        "toolName": result.tool_name,
        "content": result.for_model(),
    }


def _interrupted(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "role": "tool",
        "callId": call["callId"],
        "toolName": call["toolName"],
        "content": "Error: interrupted before a result came.",
    }
