"""The gated harness: held at every place, failing, settling slowly, ignoring a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from threadline import Agent, tool
from threadline.testing import Gate, Gated, ManualClock, TestHost

MakeHost = Callable[..., TestHost]


def agent(harness: Gated, **options: Any) -> Agent:
    @tool(effect="read")
    async def gate() -> str:
        """Do nothing."""
        return "through"

    return Agent(name="gated", instructions="Go.", harness=harness, tools=[gate], **options)


async def test_a_gate_that_is_held_holds() -> None:
    gate = Gate(held=True)
    turns = [asyncio.ensure_future(gate.arrive()) for _ in range(2)]
    await gate.reached(2)
    assert (gate.waiting, gate.arrived, gate.held) == (2, 2, True)
    gate.release()
    await asyncio.gather(*turns)
    assert (gate.waiting, gate.held) == (0, False)
    await gate.arrive()
    await gate.reached(3)


async def test_the_places_come_in_order(threadline_host: MakeHost) -> None:
    harness = Gated(calls=1, hold=["start", "call", "boundary", "answer", "end"])
    async with threadline_host(agent(harness)) as host:
        session = await host.start_session("one")
        seen = {}
        for stage in ("start", "call", "boundary", "answer", "end"):
            await harness.gates[stage].held_up()
            seen[stage] = session.types[-1]
            harness.release(stage)
        await session.rest()
        assert session.replies == ["one"]
        assert seen["boundary"] == "actions.completed"
        host.check_laws()


async def test_a_nudge_is_taken_at_the_boundary(threadline_host: MakeHost) -> None:
    harness = Gated(calls=1, hold=["call"])
    async with threadline_host(agent(harness)) as host:
        session = await host.start_session("one")
        await harness.gates["call"].held_up()
        answer = await session.follow_up("two", admission="coalesce", deliveryId="d2")
        assert answer.json()["admitted"] == session.admitted == "queued"
        harness.release()
        await session.rest()
        assert session.outcomes("d2") == ["steered"]
        assert (harness.prompts, harness.nudges) == (["one"], ["two"])
        assert session.replies == ["one\n\ntwo"]
        host.check_laws()


async def test_it_fails_as_often_as_it_is_told(threadline_host: MakeHost) -> None:
    harness = Gated()
    harness.failures.append(ValueError("the model broke"))
    async with threadline_host(agent(harness)) as host:
        session = await host.start_session("one")
        failed = await session.event("turn.failed")
        assert "the model broke" in failed["data"]["message"]
        await session.rest()
        await session.follow_up("two")
        await session.rest()
        assert session.replies == ["two"]
        host.check_laws()


async def test_a_cancelled_turn_settles_slowly(threadline_host: MakeHost) -> None:
    harness = Gated(hold=["answer", "settle"])
    async with threadline_host(agent(harness)) as host:
        session = await host.start_session("one")
        await harness.gates["answer"].held_up()
        await session.follow_up("two", deliveryId="d2")
        await harness.gates["settle"].held_up()
        await session.follow_up("three", deliveryId="d3")
        assert session.events("turn.failed") == []
        harness.release()
        await session.rest()
        assert harness.cancelled == 1
        assert harness.prompts == ["one", "two\n\nthree"]
        host.check_laws()


async def test_one_that_does_not_settle_is_cut_off_by_the_clock(
    threadline_host: MakeHost, manual_clock: ManualClock
) -> None:
    harness = Gated(hold=["answer", "settle"])
    made = agent(harness, settle_seconds=5.0)
    async with threadline_host(made, clock=manual_clock) as host:
        session = await host.start_session("one")
        await harness.gates["answer"].held_up()
        await session.follow_up("two")
        await harness.gates["settle"].held_up()
        await host.elapse(4.0)
        assert session.events("turn.failed") == []
        await host.elapse(2.0)
        await session.event("turn.failed")
        harness.release()
        await session.rest()
        assert session.replies == ["two"]
        host.check_laws()


@pytest.mark.parametrize("stage", ["start", "call", "boundary", "answer"])
async def test_a_swallowed_cancellation_says_nothing_late(
    threadline_host: MakeHost, stage: Any
) -> None:
    harness = Gated(calls=1, hold=[stage])
    harness.swallow = 1
    async with threadline_host(agent(harness)) as host:
        session = await host.start_session("one")
        await harness.gates[stage].held_up()
        await session.follow_up("two")
        await host.until(lambda: harness.cancelled)
        harness.release()
        await session.rest()
        assert harness.cancelled == 1
        assert [e["data"]["code"] for e in session.events("turn.failed")] == ["preempted"]
        assert session.replies[-1] == "two"
        host.check_laws()


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(ValueError, match="There is no gate middle; there are: start, call"):
        Gated(hold=["middle"])  # type: ignore[list-item]
