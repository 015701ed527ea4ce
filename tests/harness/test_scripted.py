"""The scripted harness: order, steering, history, cancellation and errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.fake_turn import FakeTurn

from threadline.harness.base import Capabilities, Nudge, Turn, TurnResult
from threadline.harness.scripted import (
    Call,
    Calls,
    Fail,
    Reason,
    Say,
    Script,
    Scripted,
    Step,
    Wait,
    echo,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NUDGE = Nudge("d2", "and billing?")


async def ok(**_: Any) -> Any:
    return {"status": "ok"}


async def run(script: Script, turn: FakeTurn) -> TurnResult:
    result = await Scripted(script).run(turn)
    turn.finish(result.messages)
    return result


class TestEcho:
    async def test_is_the_default(self) -> None:
        assert Scripted().script is echo

    async def test_says_the_prompt_word_by_word(self) -> None:
        turn = FakeTurn("hello  there\nyou")
        result = await run(echo, turn)
        assert result.result == "hello  there\nyou"
        assert [delta for _, delta in turn.of("message.delta")] == ["hello  ", "there\n", "you"]
        assert turn.kinds == ["step.started", "message.completed", "step.completed"]
        assert turn.of("message.completed")[0][:2] == ("stop", "hello  there\nyou")

    async def test_records_prompt_and_answer(self) -> None:
        turn = FakeTurn("hi")
        await run(echo, turn)
        assert turn.records == [
            {"role": "user", "content": "hi", "turnId": "turn_1"},
            {"role": "assistant", "content": "hi"},
        ]


class TestSteps:
    async def test_play_in_order(self) -> None:
        turn = FakeTurn(functions={"one": ok, "two": ok})
        script: list[Step] = [
            Reason("Hm."),
            Say("Looking."),
            Calls([Call("one", {"a": 1}), Call("two")]),
            Say("Fine.", deltas=["Fi", "ne."]),
        ]
        result = await run(script, turn)
        assert result.result == "Fine."
        assert turn.kinds == [
            "step.started",
            "reasoning.completed",
            "message.completed",
            "step.completed",
            "actions.requested",
            "action.result",
            "action.result",
            "actions.completed",
            "boundary",
            "step.started",
            "message.completed",
            "step.completed",
        ]
        assert turn.of("actions.requested") == [([("one", {"a": 1}), ("two", {})],)]
        assert [entry[0] for entry in turn.of("message.completed")] == ["tool_calls", "stop"]
        assert [entry[0] for entry in turn.of("step.completed")] == ["tool_calls", "stop"]
        assert [delta for _, delta in turn.of("message.delta")] == ["Looking.", "Fi", "ne."]
        assert result.usage == {"inputTokens": 0, "outputTokens": 2, "requests": 2}

    async def test_can_say_something_without_streaming(self) -> None:
        turn = FakeTurn()
        await run([Say("Fine.", deltas=())], turn)
        assert turn.of("message.delta") == []

    async def test_end_in_an_answer(self) -> None:
        turn = FakeTurn(functions={"one": ok})
        assert (await run([Call("one")], turn)).result == "Done."
        assert turn.of("message.completed")[-1][:2] == ("stop", "Done.")

    async def test_have_one_answer(self) -> None:
        turn = FakeTurn()
        assert (await run([Say("First."), Say("Second.")], turn)).result == "Second."
        assert [entry[0] for entry in turn.of("message.completed")] == ["tool_calls", "stop"]
        assert turn.records[-1]["content"] == "First.\n\nSecond."

    async def test_show_an_unknown_tool_as_an_error(self) -> None:
        turn = FakeTurn()
        await run([Call("nothing")], turn)
        assert turn.records[2]["content"] == "Error: there is no such tool"

    async def test_have_a_model_name_when_given_one(self) -> None:
        turn = FakeTurn()
        harness = Scripted(
            [Say("x")], name="demo", model="demo-1", capabilities=Capabilities(False)
        )
        await harness.run(turn)
        assert (harness.name, harness.model) == ("demo", "demo-1")
        assert not harness.capabilities.steers
        assert turn.of("step.started") == [("demo-1",)]


class TestFunction:
    async def test_may_return_its_own_result(self) -> None:
        async def script(turn: Turn) -> TurnResult:
            results = await turn.call_tools([])
            return TurnResult({"results": results}, messages=[{"role": "assistant"}])

        turn = FakeTurn()
        result = await run(script, turn)
        assert result.result == {"results": []}
        assert turn.records == [{"role": "assistant"}]


class TestSteering:
    async def test_confirms_between_the_results_and_the_next_step(self) -> None:
        turn = FakeTurn(functions={"one": ok}, offers=[[NUDGE]])
        await run([Call("one"), Say("Both are fine.")], turn)
        middle = turn.kinds[turn.kinds.index("actions.completed") :]
        assert middle[:4] == ["actions.completed", "boundary", "confirm", "step.started"]
        assert turn.confirmed == ["d2"]
        assert [record["role"] for record in turn.records] == [
            "user",
            "assistant",
            "tool",
            "user",
            "assistant",
        ]
        assert turn.records[3] == {"role": "user", "content": "and billing?", "deliveryId": "d2"}

    async def test_never_asks_in_a_turn_without_tools(self) -> None:
        turn = FakeTurn(offers=[[NUDGE]])
        await run([Say("Hello.")], turn)
        assert turn.of("boundary") == []


class TestHistory:
    async def test_resumes_after_the_steps_that_are_done(self) -> None:
        script: list[Step] = [Call("one"), Fail(ValueError("gone")), Call("two"), Say("Fine.")]
        turn = FakeTurn("look", functions={"one": ok, "two": ok}, offers=[[NUDGE]])
        with pytest.raises(ValueError, match="gone"):
            await run(script, turn)
        resumed = FakeTurn(
            "look",
            functions={"one": ok, "two": ok},
            history=turn.stored,
            resumes="turn_1",
            prompt_in_history=True,
            turn_id="turn_2",
        )
        result = await run([Call("one"), Call("two"), Say("Fine.")], resumed)
        assert result.result == "Fine."
        assert resumed.of("actions.requested") == [([("two", {})],)]
        assert "turnId" not in str(resumed.records)

    async def test_sends_the_prompt_when_no_checkpoint_has_it(self) -> None:
        turn = FakeTurn("look", resumes="turn_1")
        await run(echo, turn)
        assert turn.records[0]["content"] == "look"

    async def test_closes_calls_that_were_interrupted(self) -> None:
        begun = asyncio.Event()

        async def slow() -> None:
            begun.set()
            await asyncio.Event().wait()

        turn = FakeTurn("look", functions={"slow": slow})
        task = asyncio.create_task(run([Call("slow"), Say("Fine.")], turn))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [record["role"] for record in turn.records] == ["user", "assistant"]

        later = FakeTurn("never mind", history=turn.stored, turn_id="turn_2")
        await run(echo, later)
        assert [record["role"] for record in later.records] == ["tool", "user", "assistant"]
        assert "interrupted" in later.records[0]["content"]


class TestEnds:
    async def test_waits_in_the_middle_of_a_step(self) -> None:
        event = asyncio.Event()
        turn = FakeTurn("look")
        task = asyncio.create_task(run([Say("Half."), Wait(event), Say("Whole.")], turn))
        await turn.until("message.completed")
        assert turn.of("step.completed") == []
        event.set()
        assert (await task).result == "Whole."

    async def test_keeps_the_prompt_when_cancelled(self) -> None:
        turn = FakeTurn("look")
        task = asyncio.create_task(run([Say("Half."), Wait(asyncio.Event())], turn))
        await turn.until("message.completed")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [record["role"] for record in turn.records] == ["user"]

    @pytest.mark.parametrize("offers", [(), ([NUDGE],)])
    async def test_stores_every_record_once(self, offers: Sequence[Sequence[Nudge]]) -> None:
        turn = FakeTurn("look", functions={"one": ok}, offers=offers)
        with pytest.raises(ValueError, match="gone"):
            await run([Call("one"), Fail(ValueError("gone"))], turn)
        roles = [record["role"] for record in turn.records]
        assert roles == ["user", "assistant", "tool", *["user"] * len(offers)]
