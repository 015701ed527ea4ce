"""The harness of the cases: it counts, calls a tool between numbers, and takes nudges there."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from threadline.clock import Clock
from threadline.harness.base import Capabilities, ToolCall, Turn, TurnResult

__all__ = ["CaseHarness"]

STEP_SECONDS = 0.5


class CaseHarness:
    """Counts to 1,000, a step every half second, unless it is told to hurry."""

    name = "case"
    model = None
    capabilities = Capabilities(workspace=True)

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.hurry = asyncio.Event()
        self.hooks: dict[str, list[Callable[[Turn], Awaitable[None]]]] = defaultdict(list)
        self.final_text = asyncio.Event()
        self.prompts: list[str] = []

    async def hook(self, name: str, turn: Turn) -> None:
        """Run what a case placed here."""
        for action in self.hooks[name]:
            await action(turn)

    async def run(self, turn: Turn) -> TurnResult:
        """Count, then answer."""
        self.prompts.append(turn.prompt.for_model())
        records = [] if turn.prompt_in_history else [{"role": "user", "text": turn.prompt.text}]
        for number in range(1, 1001):
            if self.hurry.is_set() or "slowly" not in turn.prompt.text:
                break
            await self._count(turn, number, records)
            records = []
        return await self._answer(turn, records)

    async def _count(self, turn: Turn, number: int, records: list[dict[str, str]]) -> None:
        turn.step_started()
        turn.message_delta(f"{turn.id}-{number}", str(number))
        await self.clock.sleep(STEP_SECONDS)
        turn.message_completed(f"{turn.id}-{number}", str(number), "tool_calls")
        turn.step_completed(finish_reason="tool_calls")
        call = ToolCall(f"{turn.id}-call-{number}", "tick", {"number": number})
        await turn.call_tools([call])
        nudges = await turn.boundary([*records, {"role": "tool", "text": str(number)}])
        if nudges:
            await self.hook("after_dequeue_before_inject", turn)
            await self.hook("harness.steer", turn)
            await turn.confirm(nudges, [{"role": "user", "text": n.text} for n in nudges])

    async def _answer(self, turn: Turn, records: list[dict[str, str]]) -> TurnResult:
        turn.step_started()
        turn.message_delta(f"{turn.id}-final", "done: ")
        self.final_text.set()
        await self.hook("final_text", turn)
        text = f"done: {turn.prompt.text}"
        turn.message_completed(f"{turn.id}-final", text)
        turn.step_completed()
        await self.hook("after_last_steer_check", turn)
        return TurnResult(text, messages=[*records, {"role": "assistant", "text": text}])
