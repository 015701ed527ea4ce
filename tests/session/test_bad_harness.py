"""A harness may raise, hang, swallow cancellation or return nonsense; the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.session.host import Host, until

from threadline.errors import HarnessFailed, ToolFailed
from threadline.harness.base import Capabilities, ToolCall, Turn, TurnResult

if TYPE_CHECKING:
    from tests.session.conftest import MakeHost


class Harness:
    """Runs a function of the turn, with nothing around it."""

    name = "bad"
    model = None
    capabilities = Capabilities()

    def __init__(self, run: Callable[[Turn], Awaitable[Any]]) -> None:
        self._run = run

    async def run(self, turn: Turn) -> Any:
        return await self._run(turn)


class Odd(BaseException):
    """Neither an Exception nor anything asyncio knows."""


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(2000):
        value = [value]
    return value


async def ended(host: Host) -> dict[str, Any]:
    """Return how the first turn failed; then the session must still work."""
    await host.send("a1")
    await host.rest()
    host.check()
    (failed,) = host.events(type_="turn.failed")
    return dict(failed["data"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("why"), "harness_failed"),
        (HarnessFailed("why", code="model_refused"), "model_refused"),
        (ToolFailed("why"), "tool_failed"),
        (SystemExit(1), "harness_failed"),
        (KeyboardInterrupt(), "harness_failed"),
        (GeneratorExit(), "harness_failed"),
        (asyncio.CancelledError(), "harness_failed"),
        (Odd(), "harness_failed"),
        (StopAsyncIteration(), "harness_failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_whatever_it_raises_is_a_failed_turn(
    make_host: MakeHost, error: BaseException, code: str
) -> None:
    async def run(turn: Turn) -> Any:
        raise error

    failed = await ended(await make_host(Harness(run)))
    assert failed["status"] == "failed"
    assert failed["code"] == code
    assert failed["message"]


@pytest.mark.parametrize(
    "result",
    [
        None,
        "text",
        TurnResult("x", usage={"inputTokens": None}),  # type: ignore[dict-item]
        TurnResult("x", usage=7),  # type: ignore[arg-type]
        TurnResult("x", messages=7),  # type: ignore[arg-type]
        TurnResult("x", cost_usd="free"),  # type: ignore[arg-type]
    ],
    ids=["none", "text", "usage of none", "no usage", "no messages", "no cost"],
)
async def test_a_result_that_is_none_is_a_failed_turn(make_host: MakeHost, result: Any) -> None:
    async def run(turn: Turn) -> Any:
        return result

    assert (await ended(await make_host(Harness(run))))["code"] == "harness_failed"


@pytest.mark.parametrize(
    "value",
    [float("nan"), "\ud800", circle(), deep(), Unprintable(), {1: {2}}, 2**80, b"\xff", object()],
    ids=["nan", "surrogate", "circle", "deep", "unprintable", "odd keys", "big", "bytes", "object"],
)
async def test_whatever_it_says_is_recorded_as_strict_json(make_host: MakeHost, value: Any) -> None:
    async def run(turn: Turn) -> Any:
        turn.step_started()
        turn.message_completed("m", value)
        turn.step_completed()
        turn.checkpoint([value])
        return TurnResult(value, messages=[value])

    host = await make_host(Harness(run))
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.ends() == ["completed"]
    await host.restart()
    await host.send("a2")
    await host.rest()
    host.check()


async def test_without_a_harness_the_turn_says_what_to_do(make_host: MakeHost) -> None:
    failed = await ended(await make_host(None))
    assert failed["code"] == "model_not_configured"
    assert "agent.py" in failed["message"]


@pytest.mark.parametrize("swallows", ["waits on", "loops", "shields"])
async def test_a_turn_that_does_not_settle_is_cut_off(make_host: MakeHost, swallows: str) -> None:
    let_go = asyncio.Event()
    said: list[str] = []

    async def run(turn: Turn) -> Any:
        if turn.prompt.text != "say a1":
            return TurnResult("ok")
        turn.step_started()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await _swallow(swallows, let_go)
        for attempt in (
            lambda: turn.message_completed("late", "late"),
            lambda: turn.step_started(),
            lambda: turn.checkpoint(["late"]),
            lambda: turn.bound("late", "late"),
        ):
            attempt()
        for late in (
            lambda: turn.call_tools([ToolCall("late", "work", {})]),
            lambda: turn.boundary(["late"]),
            lambda: turn.confirm([], ["late"]),
        ):
            with pytest.raises(asyncio.CancelledError):
                await late()
        said.append("all")
        return TurnResult("late", messages=["late"])

    host = await make_host(Harness(run), settle_seconds=10)
    await host.send("a1")
    await until(lambda: host.owner().phase == "running")
    assert await host.stop()
    await host.clock.sleeping(2)
    host.clock.advance(9)
    await host.send("a2")
    assert host.ends() == []
    host.clock.advance(2)
    await until(lambda: host.ends() == ["stopped", "completed"])
    assert host.prompts() == [["a1"], ["a2"]]
    let_go.set()
    await until(lambda: said)
    await host.rest()
    host.check()
    assert b"late" not in host.log()
    assert host.core.store.checkpoints(host.session_id()) == []
    assert host.tools.runs == []


async def _swallow(how: str, let_go: asyncio.Event) -> None:
    if how == "waits on":
        await let_go.wait()
    elif how == "shields":
        await asyncio.shield(asyncio.ensure_future(let_go.wait()))
    else:
        await until(let_go.is_set)


async def test_a_tool_that_swallows_cancellation_is_cut_off_too(make_host: MakeHost) -> None:
    let_go = asyncio.Event()

    async def stubborn(_: Any) -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    host = await make_host()
    host.tools.functions["work"] = stubborn
    await host.send("a1")
    await host.working()
    await host.stop()
    await host.clock.sleeping(2)
    host.clock.advance(11)
    await host.rest()
    host.check()
    assert host.ends() == ["stopped"]
    let_go.set()
    await until(lambda: not [t for t in host.core.services.tasks if t.get_name()[:5] == "turn "])
    assert b"late" not in host.log()


async def test_the_messages_of_a_turn_that_ends_in_its_grace_are_kept(
    make_host: MakeHost,
) -> None:
    async def run(turn: Turn) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return TurnResult("so far", messages=["so far"])

    host = await make_host(Harness(run))
    await host.send("a1")
    await until(lambda: host.owner().phase == "running")
    await host.stop()
    await host.rest()
    host.check()
    assert host.ends() == ["stopped"]
    (kept,) = host.core.store.checkpoints(host.session_id())
    assert kept.messages == ["so far"]


async def test_calls_that_a_harness_forgets_are_closed(make_host: MakeHost) -> None:
    async def run(turn: Turn) -> Any:
        turn.step_started()
        calls = [ToolCall(f"c{n}", "work", {}) for n in range(3)]
        async with turn.actions(calls) as batch:
            first = await batch.run("c1")
            assert await batch.run("c1") == first
        return TurnResult("ok")

    host = await make_host(Harness(run))
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.tools.runs == ["work"]
    results = {
        event["data"]["callId"]: event["data"]["isError"]
        for event in host.events(type_="action.result")
    }
    assert results == {"c0": True, "c1": False, "c2": True}


async def test_calls_of_one_step_run_side_by_side(make_host: MakeHost) -> None:
    async def run(turn: Turn) -> Any:
        turn.step_started()
        results = await turn.call_tools([ToolCall(f"c{n}", "work", {}) for n in range(3)])
        return TurnResult([result.call_id for result in results])

    host = await make_host(Harness(run))
    host.tools.held = True
    await host.send("a1")
    await host.working(3)
    host.tools.release()
    await host.rest()
    host.check()
    assert host.events()[-2]["data"]["result"] == ["c0", "c1", "c2"]


async def test_a_tool_that_breaks_its_contract_is_a_failed_turn(make_host: MakeHost) -> None:
    async def broken(_: Any) -> Any:
        raise ZeroDivisionError("tool")

    host = await make_host()
    host.tools.functions["work"] = broken
    failed = await ended(host)
    assert failed["code"] == "harness_failed"


async def test_a_thousand_turns_leave_no_tasks(make_host: MakeHost) -> None:
    async def run(turn: Turn) -> Any:
        return TurnResult("ok")

    host = await make_host(Harness(run))
    before = len(asyncio.all_tasks())
    for batch in range(5):
        await asyncio.gather(*(host.send(f"{batch}.{n}", f"c{n}") for n in range(100)))
        await host.rest()
    assert len(asyncio.all_tasks()) <= before
    host.check()
