"""A turn without a core: it records what a harness does, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from threadline.harness.base import Nudge, Prompt, ToolCall, ToolInfo, ToolResult
from threadline.principal import Principal

ToolFunction = Callable[..., Awaitable[Any]]

OBJECT = {"type": "object", "properties": {}, "additionalProperties": True}


class FakeBatch:
    """Runs each call of a step once."""

    def __init__(self, turn: FakeTurn, calls: Sequence[ToolCall]) -> None:
        self.turn = turn
        self.calls = {call.call_id: call for call in calls}
        self.running: dict[str, asyncio.Task[ToolResult]] = {}

    async def run(self, call_id: str) -> ToolResult:
        if call_id not in self.running:
            self.running[call_id] = asyncio.create_task(self._run(self.calls[call_id]))
        return await self.running[call_id]

    async def _run(self, call: ToolCall) -> ToolResult:
        tool = self.turn.functions.get(call.tool_name)
        if tool is None:
            result = ToolResult(
                call.call_id, call.tool_name, "there is no such tool", True, "not_found"
            )
        else:
            try:
                output = await tool(**call.input)
            except (TypeError, ValueError) as error:
                result = ToolResult(call.call_id, call.tool_name, str(error), True, "tool_failed")
            else:
                result = ToolResult(call.call_id, call.tool_name, output)
        self.turn.note("action.result", call.call_id, result.is_error)
        return result


class FakeTurn:
    """Implements the protocol; ``offers`` holds the nudges of each boundary, one list each."""

    def __init__(
        self,
        text: str = "hello there",
        *,
        functions: Mapping[str, ToolFunction] | None = None,
        offers: Sequence[Sequence[Nudge]] = (),
        history: Sequence[Any] = (),
        resumes: str | None = None,
        prompt_in_history: bool = False,
        instructions: str = "Be brief.",
        turn_id: str = "turn_1",
    ) -> None:
        self.id = turn_id
        self.session_id = "ses_1"
        self.attempt = 2 if resumes else 1
        self.resumes = resumes
        self.prompt = Prompt(text=text)
        self.prompt_in_history = prompt_in_history
        self.instructions = instructions
        self.history: Sequence[Any] = list(history)
        self.open_calls: Sequence[ToolCall] = ()
        self.workspace = Path()
        self.functions = dict(functions or {})
        self.tools: Sequence[ToolInfo] = [
            ToolInfo(name, f"The {name} tool.", OBJECT) for name in self.functions
        ]
        self.principal = Principal(kind="user", id="u1")
        self.offers = [list(offer) for offer in offers]
        self.log: list[tuple[Any, ...]] = []
        self.records: list[Any] = []
        self.confirmed: list[str] = []
        self.steps = 0
        self._noted = asyncio.Event()

    @property
    def kinds(self) -> list[str]:
        """What happened, without the deltas."""
        return [entry[0] for entry in self.log if not entry[0].endswith("delta")]

    @property
    def stored(self) -> list[Any]:
        """The whole history after the turn, as the next one would get it."""
        return [*self.history, *self.records]

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.log if entry[0] == kind]

    def note(self, *entry: Any) -> None:
        self.log.append(entry)
        self._noted.set()

    async def until(self, kind: str) -> None:
        """Wait until something of this kind happened."""
        while not self.of(kind):
            self._noted.clear()
            await self._noted.wait()

    def step_started(self, model: str | None = None) -> int:
        self.steps += 1
        self.note("step.started", model)
        return self.steps

    def step_completed(
        self,
        usage: Mapping[str, int] | None = None,
        finish_reason: str = "stop",
        cost_usd: float | None = None,
    ) -> None:
        self.note("step.completed", finish_reason, dict(usage or {}))

    def reasoning_delta(self, block_id: str, delta: str) -> None:
        self.note("reasoning.delta", block_id, delta)

    def reasoning_completed(self, block_id: str, text: str) -> None:
        self.note("reasoning.completed", block_id, text)

    def message_delta(self, message_id: str, delta: str) -> None:
        self.note("message.delta", message_id, delta)

    def message_completed(self, message_id: str, text: str, finish_reason: str = "stop") -> None:
        self.note("message.completed", finish_reason, text, message_id)

    def bound(self, harness: str, conversation_id: str, url: str | None = None) -> None:
        self.note("bound", harness, conversation_id, url)

    def actions(self, calls: Sequence[ToolCall]) -> AbstractAsyncContextManager[FakeBatch]:
        return self._actions(calls)

    @asynccontextmanager
    async def _actions(self, calls: Sequence[ToolCall]) -> AsyncIterator[FakeBatch]:
        self.note("actions.requested", [(call.tool_name, call.input) for call in calls])
        batch = FakeBatch(self, calls)
        try:
            yield batch
            for call in calls:
                await batch.run(call.call_id)
        finally:
            for task in batch.running.values():
                task.cancel()
            await asyncio.gather(*batch.running.values(), return_exceptions=True)
            self.note("actions.completed", [call.call_id for call in calls])

    async def call_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        async with self.actions(calls) as batch:
            return list(await asyncio.gather(*(batch.run(call.call_id) for call in calls)))

    def checkpoint(self, messages: Sequence[Any]) -> None:
        self.note("checkpoint", len(messages))
        self._store(messages)

    async def boundary(self, messages: Sequence[Any]) -> list[Nudge]:
        self.note("boundary", len(messages))
        self._store(messages)
        return self.offers.pop(0) if self.offers else []

    async def confirm(self, nudges: Sequence[Nudge], messages: Sequence[Any]) -> None:
        self.note("confirm", [nudge.delivery_id for nudge in nudges], len(messages))
        self._store(messages)
        self.confirmed += [nudge.delivery_id for nudge in nudges]

    def finish(self, messages: Sequence[Any]) -> None:
        """Store what a :class:`TurnResult` brought along."""
        self._store(messages)

    def _store(self, messages: Sequence[Any]) -> None:
        self.records += json.loads(json.dumps(list(messages)))
