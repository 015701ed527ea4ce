"""A scripted harness with gates: a test holds a turn at any place, lets it go on, or breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from threadline.harness.base import Capabilities, ToolCall, TurnResult

if TYPE_CHECKING:
    from threadline.harness.base import Turn

__all__ = ["Gate", "Gated", "Stage"]

Stage: TypeAlias = Literal["start", "call", "boundary", "answer", "end", "settle"]
Reply: TypeAlias = Callable[["Turn", Sequence[str]], str]

_STAGES: tuple[Stage, ...] = ("start", "call", "boundary", "answer", "end", "settle")


class Gate:
    """A place on a turn's way. While it is held, turns that come to it wait there.

    ``arrived`` counts the turns that ever came to it; ``waiting`` those that wait now.
    """

    def __init__(self, *, held: bool = False) -> None:
        self.arrived = 0
        self.waiting = 0
        self._open = asyncio.Event()
        self._arrival = asyncio.Event()
        if not held:
            self._open.set()

    @property
    def held(self) -> bool:
        """Whether turns wait here."""
        return not self._open.is_set()

    def hold(self) -> None:
        """Let turns wait here from now on."""
        self._open.clear()

    def release(self) -> None:
        """Let the turns that wait go on, and those that come."""
        self._open.set()

    async def reached(self, count: int = 1) -> None:
        """Return when at least so many turns have ever come here."""
        while self.arrived < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def held_up(self, count: int = 1) -> None:
        """Return when at least so many turns wait here now."""
        while self.waiting < count:
            self._arrival.clear()
            await self._arrival.wait()

    async def arrive(self) -> None:
        """Be a turn that comes here."""
        self.arrived += 1
        self.waiting += 1
        self._arrival.set()
        try:
            await self._open.wait()
        finally:
            self.waiting -= 1


def echo_all(turn: Turn, nudges: Sequence[str]) -> str:
    """Answer with the prompt and what was steered into the turn, each a paragraph."""
    return "\n\n".join([turn.prompt.text, *nudges])


class Gated:
    """A harness whose turns make ``calls`` tool calls, then answer, past the gates in ``gates``.

    A turn comes to ``start``; then for each call to ``call``, before the tool runs, and to
    ``boundary``, after it and before nudges are taken; then to ``answer``, before its last text,
    and to ``end``, when all is said. A turn that is cancelled comes to ``settle`` before it ends,
    so that holding that gate makes it settle slowly. At first those in ``hold`` are held.

    ``reply`` makes the answer from the turn and the texts that were steered into it; by default it
    repeats them all. ``tool`` is what the calls name; where the agent has no such tool, the call
    has an error as its result, and the boundary comes all the same. ``prompts`` and ``nudges`` are
    what the turns were given, in order; ``cancelled`` counts the turns that were told to stop.

    ``failures`` are raised by the next turns, one each, at ``answer``. ``swallow`` is how many
    cancellations are ignored: such a turn answers as if nothing had happened.
    """

    name = "gated"
    model: str | None = None

    def __init__(
        self,
        *,
        calls: int = 0,
        hold: Collection[Stage] = (),
        reply: Reply = echo_all,
        tool: str = "gate",
        capabilities: Capabilities | None = None,
    ) -> None:
        if unknown := set(hold) - set(_STAGES):
            raise ValueError(
                f"There is no gate {', '.join(sorted(unknown))}; there are: {', '.join(_STAGES)}."
            )
        self.calls = calls
        self.reply = reply
        self.tool = tool
        self.capabilities = capabilities or Capabilities(workspace=True)
        self.gates: dict[Stage, Gate] = {stage: Gate(held=stage in hold) for stage in _STAGES}
        self.failures: list[Exception] = []
        self.swallow = 0
        self.cancelled = 0
        self.prompts: list[str] = []
        self.nudges: list[str] = []

    def hold(self, stage: Stage) -> Gate:
        """Hold a gate and return it."""
        self.gates[stage].hold()
        return self.gates[stage]

    def release(self, *stages: Stage) -> None:
        """Open these gates, or all."""
        for stage in stages or _STAGES:
            self.gates[stage].release()

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        self.prompts.append(turn.prompt.for_model())
        play = _Play(self, turn)
        try:
            await play.steps()
            return await play.answer()
        except asyncio.CancelledError:
            self.cancelled += 1
            turn.checkpoint(play.take())
            if self.swallow > 0:
                self.swallow -= 1
                return await play.answer()
            await self.gates["settle"].arrive()
            raise
        except Exception:
            turn.checkpoint(play.take())
            raise


class _Play:
    """One turn on its way; holds the history records that are not stored yet."""

    def __init__(self, harness: Gated, turn: Turn) -> None:
        self.harness = harness
        self.turn = turn
        self.steered: list[str] = []
        self._open_step = False
        self._fresh: list[Any] = []
        if not turn.prompt_in_history:
            self._fresh.append({"role": "user", "content": turn.prompt.for_model()})

    def take(self) -> list[Any]:
        """Return the records since the last checkpoint, and forget them."""
        fresh, self._fresh = self._fresh, []
        return fresh

    async def steps(self) -> None:
        """Make the tool calls, with the boundary after each."""
        gates, turn = self.harness.gates, self.turn
        await gates["start"].arrive()
        for number in range(1, self.harness.calls + 1):
            turn.step_started()
            turn.step_completed({"inputTokens": 1, "outputTokens": 1}, "tool_calls")
            await gates["call"].arrive()
            call = ToolCall(f"{turn.id}.c{number}", self.harness.tool, {})
            (result,) = await turn.call_tools([call])
            self._fresh.append({"role": "tool", "content": result.for_model()})
            await gates["boundary"].arrive()
            await self._boundary()

    async def _boundary(self) -> None:
        nudges = await self.turn.boundary(self.take())
        if not nudges:
            return
        texts = [nudge.text for nudge in nudges]
        self.steered += texts
        self.harness.nudges += texts
        await self.turn.confirm(nudges, [{"role": "user", "content": text} for text in texts])

    async def answer(self) -> TurnResult:
        """Say the answer, or fail."""
        gates, turn = self.harness.gates, self.turn
        if not self._open_step:
            turn.step_started()
            self._open_step = True
        await gates["answer"].arrive()
        if self.harness.failures:
            raise self.harness.failures.pop(0)
        text = self.harness.reply(turn, self.steered)
        turn.message_delta(f"{turn.id}.m", text)
        turn.message_completed(f"{turn.id}.m", text, "stop")
        turn.step_completed({"inputTokens": 1, "outputTokens": len(text.split())}, "stop")
        self._open_step = False
        await gates["end"].arrive()
        self._fresh.append({"role": "assistant", "content": text})
        usage = {"inputTokens": 1, "outputTokens": len(text.split()), "requests": 1}
        return TurnResult(text, usage=usage, messages=self.take())
