"""A runaway ends clearly: the turn fails with a code, and the session stays usable."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.session.conftest import MakeHost

from threadline.harness.base import ToolCall, Turn, TurnResult
from threadline.harness.scripted import Call, Calls, Say, Scripted
from threadline.prices import price
from threadline.session.limits import Limits, Meter, Totals

MODEL = "openai:gpt-4o"
STEP = {"inputTokens": 1000, "outputTokens": 100}


def none(_: str) -> int | None:
    return None


def calls(count: int, tool: str = "work") -> list[ToolCall]:
    return [ToolCall(f"c{n}", tool, {"n": n}) for n in range(count)]


class Spender:
    """Makes ``steps`` model requests that each take what STEP says, and one tool call."""

    def __init__(self, steps: int, model: str | None = None) -> None:
        self.name, self.model = "spender", model
        self.capabilities = Scripted([]).capabilities
        self.steps = steps

    async def run(self, turn: Turn) -> TurnResult:
        for number in range(self.steps):
            turn.step_started(self.model)
            turn.step_completed(STEP, "tool_calls")
            await turn.call_tools([ToolCall(f"{turn.id}.c{number}", "work", {"n": number})])
            await turn.boundary([])
        turn.step_started(self.model)
        turn.step_completed(STEP, "stop")
        turn.message_completed("m", "Done.")
        return TurnResult("Done.")


@pytest.mark.parametrize(
    ("limits", "steps", "code"),
    [
        (Limits(calls_per_turn=3), 9, "calls_limit"),
        (Limits(tokens_per_turn=2500), 9, "tokens_limit"),
        (Limits(tokens_per_session=2500), 9, "tokens_limit"),
        (Limits(cost_per_turn=0.0065), 9, "cost_limit"),
        (Limits(cost_per_session=0.0065), 9, "cost_limit"),
    ],
)
async def test_a_runaway_turn_is_ended(
    make_host: MakeHost, limits: Limits, steps: int, code: str
) -> None:
    host = await make_host(Spender(steps, MODEL), limits=limits)
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.ends() == [code]
    assert len(host.tools.runs) < steps
    failed = host.events(type_="turn.failed")[0]["data"]
    assert failed["status"] == "failed"
    assert failed["usage"]["inputTokens"] >= 2000
    assert failed["costUsd"] > 0
    assert host.events()[-1]["type"] == "session.waiting"


async def test_a_turn_within_its_limits_ends_well(make_host: MakeHost) -> None:
    limits = Limits(calls_per_turn=3, tokens_per_turn=4400, same_call=1)
    host = await make_host(Spender(3), limits=limits)
    await host.send("a1")
    await host.rest()
    assert host.ends() == ["completed"]
    done = host.events(type_="turn.completed")[0]["data"]
    assert done["usage"]["inputTokens"] == 4000
    assert "costUsd" not in done


async def test_a_session_has_so_many_turns(make_host: MakeHost) -> None:
    host = await make_host(Spender(0), limits=Limits(turns_per_session=2))
    for number in range(3):
        await host.send(f"a{number}")
        await host.rest()
    assert host.ends() == ["completed", "completed", "turns_limit"]
    await host.restart()
    await host.send("a4")
    await host.rest()
    host.check()
    assert host.ends()[-1] == "turns_limit"


async def test_what_a_session_took_is_known_after_it_rested(make_host: MakeHost) -> None:
    host = await make_host(Spender(0), limits=Limits(tokens_per_session=2000))
    await host.send("a1")
    await host.rest()
    for _ in range(2):
        await host.restart()
        await host.send(f"b{_}")
        await host.rest()
    assert host.ends() == ["completed", "completed", "tokens_limit"]


async def test_a_tool_may_be_called_so_often(make_host: MakeHost) -> None:
    script = [Calls([Call("work", {"n": n}) for n in range(2)]), Call("look"), Call("work")]
    host = await make_host(Scripted([*script, Say("Done.")]))
    host.tools.limits = {"work": 2}
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.ends() == ["tool_limit"]
    assert host.tools.runs == ["work", "work", "look"]


async def test_a_loop_is_detected(make_host: MakeHost) -> None:
    host = await make_host(Scripted([Call("work", {"a": 1}) for _ in range(9)]))
    host.core.services.limits = Limits(same_call=3)
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.ends() == ["loop_detected"]
    assert host.tools.runs == ["work"] * 3
    assert "work more than 3 times" in host.events(type_="turn.failed")[0]["data"]["message"]


async def test_a_harness_that_goes_on_is_cut_off(make_host: MakeHost) -> None:
    async def stubborn(turn: Turn) -> str:
        for number in range(9):
            try:
                await turn.call_tools([ToolCall(f"c{number}", "work", {})])
            except BaseException:
                continue
        return "never mind"

    host = await make_host(Scripted(stubborn), limits=Limits(calls_per_turn=2))
    await host.send("a1")
    await host.rest()
    host.check()
    assert host.ends() == ["calls_limit"]
    assert host.tools.runs == ["work", "work"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls_per_turn": 0},
        {"same_call": -1},
        {"tokens_per_turn": 1.5},
        {"cost_per_turn": float("nan")},
        {"turns_per_session": True},
        {"cost_per_session": "1"},
    ],
)
def test_limits_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)


@given(
    most=st.integers(1, 20),
    batches=st.lists(st.integers(1, 5), max_size=12),
)
def test_not_one_call_more_runs_than_allowed(most: int, batches: list[int]) -> None:
    meter, ran = Meter(Limits(calls_per_turn=most, same_call=None)), 0
    for size in batches:
        if meter.call(calls(size), none) is not None:
            break
        ran += size
    else:
        assert sum(batches) <= most
    assert ran <= most


def test_the_same_call_is_one_with_equal_arguments() -> None:
    meter = Meter(Limits(same_call=1))
    assert meter.call([ToolCall("1", "a", {"x": 1, "y": [2]})], none) is None
    assert meter.call([ToolCall("2", "a", {"x": 1, "y": [3]})], none) is None
    assert meter.call([ToolCall("3", "b", {"x": 1, "y": [2]})], none) is None
    exceeded = meter.call([ToolCall("4", "a", {"y": [2], "x": 1})], none)
    assert exceeded is not None
    assert exceeded.code == "loop_detected"


def test_totals_are_read_as_they_were_written() -> None:
    totals = Totals(3, 1200, 0.5)
    assert Totals.from_wire(dict(totals.to_wire())) == totals
    assert Totals.from_wire({"status": "waiting"}) == Totals()  # type: ignore[dict-item]


@pytest.mark.parametrize("model", [None, "", "test", "function:x", "openai:gpt-none-such"])
def test_an_unknown_model_has_no_price(model: str | None) -> None:
    assert price(model, STEP) is None


def test_a_known_model_has_the_price_of_the_list() -> None:
    assert price(MODEL, STEP) == pytest.approx(0.0035)
    assert price("gpt-4o", STEP) == price(MODEL, STEP)
