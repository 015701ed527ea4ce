"""The Pydantic AI harness: order, steering, history, cancellation and errors."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingPart,
    DeltaToolCall,
    FunctionModel,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import UsageLimits
from tests.harness.fake_turn import FakeTurn

import threadline.harness
from threadline.errors import HarnessFailed, LeaseLost
from threadline.harness.base import Nudge, TurnResult
from threadline.harness.pydantic_ai import PydanticAI

ONCALL = Path(__file__).parents[2] / "examples" / "oncall" / "agent"

Piece = str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]
Reply = Callable[[list[ModelMessage], AgentInfo], Sequence[Piece]]


def tool_call(name: str, args: str = "{}", call_id: str | None = None, at: int = 0) -> Piece:
    return {at: DeltaToolCall(name=name, json_args=args, tool_call_id=call_id)}


def replies(*steps: Sequence[Piece] | Reply) -> tuple[FunctionModel, list[list[ModelMessage]]]:
    """A model that gives one reply a request, and the messages of each request."""
    asked: list[list[ModelMessage]] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        step = steps[len(asked)]
        asked.append(list(messages))
        for piece in step(messages, info) if callable(step) else step:
            yield piece

    return FunctionModel(stream_function=stream), asked


def parts(messages: Sequence[ModelMessage]) -> list[Any]:
    return [part for message in messages for part in message.parts]


def user_texts(messages: Sequence[ModelMessage]) -> list[str]:
    return [str(part.content) for part in parts(messages) if isinstance(part, UserPromptPart)]


async def ok(**_: Any) -> Any:
    return {"status": "ok"}


async def run(model: Any, turn: FakeTurn, **options: Any) -> TurnResult:
    result = await PydanticAI(model, **options).run(turn)
    turn.finish(result.messages)
    return result


class TestTurn:
    async def test_answers_in_one_step(self) -> None:
        model, asked = replies(["Hello ", "you."])
        turn = FakeTurn("hi")
        result = await run(model, turn)
        assert result.result == "Hello you."
        assert turn.kinds == ["step.started", "message.completed", "step.completed"]
        assert [delta for _, delta in turn.of("message.delta")] == ["Hello ", "you."]
        assert turn.of("message.completed")[0][:2] == ("stop", "Hello you.")
        assert turn.of("message.delta")[0][0] == turn.of("message.completed")[0][2]
        assert user_texts(asked[0]) == ["hi"]

    async def test_reports_usage_and_no_price_for_an_unknown_model(self) -> None:
        model, _ = replies(["one two"])
        result = await run(model, FakeTurn())
        assert set(result.usage) == {
            "inputTokens",
            "outputTokens",
            "cacheReadTokens",
            "cacheWriteTokens",
            "requests",
        }
        assert result.usage["requests"] == 1
        assert result.usage["outputTokens"] > 0
        assert result.cost_usd is None

    async def test_streams_reasoning_before_the_answer(self) -> None:
        model, _ = replies(
            [{0: DeltaThinkingPart(content="Hm, ")}, {0: DeltaThinkingPart(content="yes.")}, "Yes."]
        )
        turn = FakeTurn()
        await run(model, turn)
        assert [delta for _, delta in turn.of("reasoning.delta")] == ["Hm, ", "yes."]
        assert turn.of("reasoning.completed")[0][1] == "Hm, yes."
        assert turn.kinds == [
            "step.started",
            "reasoning.completed",
            "message.completed",
            "step.completed",
        ]

    async def test_passes_instructions_and_keeps_them_out_of_the_history(self) -> None:
        seen: list[str | None] = []

        def reply(_: list[ModelMessage], info: AgentInfo) -> Sequence[Piece]:
            seen.append(info.instructions)
            return ["ok"]

        model, _ = replies(reply)
        turn = FakeTurn(instructions="Talk like a pirate.")
        await run(model, turn)
        assert seen == ["Talk like a pirate."]
        assert "pirate" not in str(turn.records)

    async def test_runs_a_model_that_cannot_stream(self) -> None:
        def reply(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[ThinkingPart("Hm."), TextPart("All at once.")])

        turn = FakeTurn()
        result = await run(FunctionModel(reply), turn)
        assert result.result == "All at once."
        assert turn.kinds == [
            "step.started",
            "reasoning.completed",
            "message.completed",
            "step.completed",
        ]

    async def test_shares_one_agent_between_turns(self) -> None:
        model, _ = replies(["one"], ["two"])
        harness = PydanticAI(model)
        assert (await harness.run(FakeTurn())).result == "one"
        agent = harness._agent
        assert (await harness.run(FakeTurn())).result == "two"
        assert harness._agent is agent

    def test_names_its_model(self) -> None:
        assert PydanticAI("openai:gpt-6-luna").model == "openai:gpt-6-luna"
        assert PydanticAI(TestModel()).model == "test:test"

    async def test_makes_the_model_when_the_first_turn_runs(self) -> None:
        made: list[FunctionModel] = []

        def make() -> FunctionModel:
            made.append(replies(["one"], ["two"])[0])
            return made[-1]

        harness = PydanticAI(make)
        assert harness.model is None
        assert made == []
        assert (await harness.run(FakeTurn())).result == "one"
        assert (await harness.run(FakeTurn())).result == "two"
        assert len(made) == 1
        assert harness.model == made[0].model_id


class TestTools:
    async def test_runs_the_calls_of_a_step_through_the_core(self) -> None:
        model, asked = replies(
            ["Looking.", tool_call("one", '{"a": 1}', "c1", 1), tool_call("two", "{}", "c2", 2)],
            ["Done."],
        )
        turn = FakeTurn(functions={"one": ok, "two": ok})
        await run(model, turn)
        assert turn.kinds == [
            "step.started",
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
        assert turn.of("message.completed")[0][:2] == ("tool_calls", "Looking.")
        assert turn.of("step.completed")[0][0] == "tool_calls"
        assert turn.of("actions.requested") == [([("one", {"a": 1}), ("two", {})],)]
        returns = [part for part in parts(asked[1]) if isinstance(part, ToolReturnPart)]
        assert [part.content for part in returns] == [{"status": "ok"}, {"status": "ok"}]

    async def test_shows_an_error_to_the_model_as_text(self) -> None:
        async def broken() -> None:
            raise ValueError("the page is down")

        model, asked = replies([tool_call("broken")], [tool_call("broken")], ["Sorry."])
        result = await run(model, FakeTurn(functions={"broken": broken}))
        contents = [part.content for part in parts(asked[2]) if isinstance(part, ToolReturnPart)]
        assert contents == ["Error: the page is down"] * 2
        assert result.result == "Sorry."

    async def test_leaves_validation_to_the_core(self) -> None:
        model, asked = replies(
            [tool_call("one", "not json", "c1"), tool_call("one", "[1]", "c2", 1)], ["Sorry."]
        )
        turn = FakeTurn(functions={"one": ok})
        result = await run(model, turn)
        assert result.result == "Sorry."
        assert turn.of("actions.requested") == [([("one", "not json"), ("one", [1])],)]
        assert turn.of("action.result") == [("c1", True), ("c2", True)]
        returns = [part for part in parts(asked[1]) if isinstance(part, ToolReturnPart)]
        assert all(str(part.content).startswith("Error: ") for part in returns)

    async def test_answers_the_call_of_an_unknown_tool(self) -> None:
        model, asked = replies(
            [tool_call("nothing", "{}", "c1"), tool_call("one", "{}", "c2", 1)],
            [tool_call("nothing", "{}", "c3")],
            [tool_call("nothing", "{}", "c4")],
            ["I will stop guessing."],
        )
        turn = FakeTurn(functions={"one": ok})
        result = await run(model, turn)
        assert result.result == "I will stop guessing."
        assert turn.of("action.result") == [
            ("c1", True),
            ("c2", False),
            ("c3", True),
            ("c4", True),
        ]
        assert "Unknown tool name: 'nothing'" in str(parts(asked[1]))

    async def test_makes_call_ids_unique_in_the_session(self) -> None:
        first, _ = replies(
            [tool_call("one", "{}", "same")], [tool_call("one", "{}", "same")], ["x"]
        )
        turn = FakeTurn(functions={"one": ok})
        await run(first, turn)
        second, _ = replies([tool_call("one", "{}", "same")], ["y"])
        later = FakeTurn(functions={"one": ok}, history=turn.stored, turn_id="turn_2")
        await run(second, later)
        ids = [call_id for (call_ids,) in turn.of("actions.completed") for call_id in call_ids]
        assert ids == ["same", "same-2"]
        assert later.of("actions.completed") == [(["same-3"],)]

    async def test_runs_the_test_model(self) -> None:
        turn = FakeTurn(functions={"one": ok, "two": ok})
        result = await run(TestModel(), turn)
        assert "status" in result.result
        assert len(turn.of("action.result")) == 2


NUDGE = Nudge("d2", "and billing?")


class TestSteering:
    async def test_confirms_after_the_tools_and_before_the_next_step(self) -> None:
        model, asked = replies([tool_call("one")], ["Both are fine."])
        turn = FakeTurn(functions={"one": ok}, offers=[[NUDGE, Nudge("d3", "and search?")]])
        await run(model, turn)
        middle = turn.kinds[turn.kinds.index("actions.completed") :]
        assert middle[:4] == ["actions.completed", "boundary", "confirm", "step.started"]
        assert turn.confirmed == ["d2", "d3"]
        assert user_texts(asked[1]) == ["hello there", "and billing?", "and search?"]

    async def test_asks_the_model_only_after_the_confirmation_returned(self) -> None:
        model, asked = replies([tool_call("one")], ["Both are fine."])
        turn = FakeTurn(functions={"one": ok}, offers=[[NUDGE]])
        reached, released = asyncio.Event(), asyncio.Event()
        confirm = turn.confirm

        async def slow(nudges: Sequence[Nudge], messages: Sequence[Any]) -> None:
            reached.set()
            await released.wait()
            await confirm(nudges, messages)

        turn.confirm = slow  # type: ignore[method-assign]
        task = asyncio.create_task(run(model, turn))
        await reached.wait()
        assert len(asked) == 1
        assert turn.steps == 1
        released.set()
        await task
        assert len(asked) == 2

    async def test_asks_for_nudges_at_every_boundary(self) -> None:
        model, asked = replies([tool_call("one")], [tool_call("one")], ["Done."])
        turn = FakeTurn(functions={"one": ok}, offers=[[], [NUDGE]])
        await run(model, turn)
        assert len(turn.of("boundary")) == 2
        assert user_texts(asked[1]) == ["hello there"]
        assert user_texts(asked[2]) == ["hello there", "and billing?"]

    async def test_never_asks_in_a_turn_without_tools(self) -> None:
        model, asked = replies(["Hello."])
        turn = FakeTurn(offers=[[NUDGE]])
        await run(model, turn)
        assert turn.of("boundary") == []
        assert turn.confirmed == []
        assert len(asked) == 1

    async def test_keeps_each_record_once(self) -> None:
        model, _ = replies([tool_call("one")], ["Both are fine."])
        turn = FakeTurn(functions={"one": ok}, offers=[[NUDGE]])
        await run(model, turn)
        kinds = [part["part_kind"] for record in turn.records for part in record["parts"]]
        assert kinds == ["user-prompt", "tool-call", "tool-return", "user-prompt", "text"]
        assert turn.of("boundary") == [(3,)]
        assert turn.of("confirm") == [(["d2"], 1)]

        again, seen = replies(["As I said."])
        await run(again, FakeTurn("sure?", history=turn.stored))
        assert user_texts(seen[0]) == ["hello there", "and billing?", "sure?"]

    async def test_stores_no_nudge_that_was_not_confirmed(self) -> None:
        model, _ = replies([tool_call("one")], ["never"])
        turn = FakeTurn(functions={"one": ok}, offers=[[NUDGE]])

        async def lost(nudges: Sequence[Nudge], messages: Sequence[Any]) -> None:
            raise LeaseLost("another owner")

        turn.confirm = lost  # type: ignore[method-assign]
        with pytest.raises(LeaseLost):
            await run(model, turn)
        assert "and billing?" not in str(turn.records)
        assert turn.steps == 1


class TestHistory:
    async def test_gives_the_next_turn_what_was_said(self) -> None:
        model, asked = replies([tool_call("one")], ["First."], ["Second."])
        first = FakeTurn("one", functions={"one": ok})
        await run(model, first)
        second = FakeTurn("two", functions={"one": ok}, history=first.stored)
        await run(model, second)
        assert user_texts(asked[2]) == ["one", "two"]
        assert "First." in str(parts(asked[2]))
        assert [record["kind"] for record in second.records] == ["request", "response"]

    async def test_resumes_after_a_boundary_without_a_new_prompt(self) -> None:
        model, _ = replies([tool_call("one")])
        turn = FakeTurn("look", functions={"one": ok}, offers=[[NUDGE]])
        with pytest.raises(HarnessFailed):
            await run(model, turn)
        again, asked = replies(["Here it is."])
        resumed = FakeTurn(
            "look", history=turn.stored, resumes="turn_1", prompt_in_history=True, turn_id="turn_2"
        )
        result = await run(again, resumed)
        assert result.result == "Here it is."
        assert user_texts(asked[0]) == ["look", "and billing?"]
        assert [record["kind"] for record in resumed.records] == ["response"]

    async def test_sends_the_prompt_when_no_checkpoint_has_it(self) -> None:
        model, asked = replies(["Hello."])
        await run(model, FakeTurn("look", resumes="turn_1", prompt_in_history=False))
        assert user_texts(asked[0]) == ["look"]

    async def test_repeats_an_answer_that_the_history_holds(self) -> None:
        model, asked = replies(["Here it is."])
        turn = FakeTurn("look")
        await run(model, turn)
        resumed = FakeTurn("look", history=turn.stored, resumes="turn_1", prompt_in_history=True)
        result = await run(model, resumed)
        assert result.result == "Here it is."
        assert resumed.of("message.completed")[0][:2] == ("stop", "Here it is.")
        assert resumed.records == []
        assert len(asked) == 1

    async def test_refuses_the_history_of_another_harness(self) -> None:
        model, _ = replies(["never"])
        turn = FakeTurn(history=[{"role": "user", "content": "hi"}])
        with pytest.raises(HarnessFailed) as caught:
            await run(model, turn)
        assert caught.value.failure_code == "history_unreadable"


class TestCancellation:
    async def test_in_the_middle_of_an_answer(self) -> None:
        forever = asyncio.Event()
        begun = asyncio.Event()

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
            yield "The half "
            begun.set()
            await forever.wait()

        turn = FakeTurn("look")
        task = asyncio.create_task(run(FunctionModel(stream_function=stream), turn))
        await begun.wait()
        await turn.until("message.delta")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        assert turn.of("message.completed") == []
        assert turn.of("message.delta") != []
        assert [record["kind"] for record in turn.records] == ["request", "response"]

        again, asked = replies(["The whole answer."])
        resumed = FakeTurn(history=turn.stored, resumes="turn_1", prompt_in_history=True)
        await run(again, resumed)
        assert user_texts(asked[0]) == ["look"]
        assert not any(isinstance(message, ModelResponse) for message in asked[0])

        other, seen = replies(["Something else."])
        await run(other, FakeTurn("never mind", history=turn.stored))
        assert "The half " in str(parts(seen[0]))
        assert user_texts(seen[0]) == ["look", "never mind"]

    async def test_in_the_middle_of_a_call_of_the_model(self) -> None:
        begun = asyncio.Event()

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            yield tool_call("one", '{"half')
            begun.set()
            await asyncio.Event().wait()

        turn = FakeTurn("look", functions={"one": ok})
        task = asyncio.create_task(run(FunctionModel(stream_function=stream), turn))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        assert [record["kind"] for record in turn.records] == ["request"]

    async def test_in_the_middle_of_a_tool(self) -> None:
        begun = asyncio.Event()
        stopped = asyncio.Event()

        async def slow() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        model, _ = replies([tool_call("fast", "{}", "c1"), tool_call("slow", "{}", "c2", 1)])
        turn = FakeTurn("look", functions={"fast": ok, "slow": slow})
        task = asyncio.create_task(run(model, turn))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        assert stopped.is_set()
        assert turn.of("boundary") == []

        again, asked = replies(["Fine."])
        resumed = FakeTurn(
            history=turn.stored, resumes="turn_1", prompt_in_history=True, turn_id="turn_2"
        )
        await run(again, resumed)
        returns = {
            part.tool_call_id: str(part.content)
            for part in parts(asked[0])
            if isinstance(part, ToolReturnPart)
        }
        assert set(returns) == {"c1", "c2"}
        assert "interrupted" in returns["c2"]
        assert user_texts(asked[0]) == ["look"]

    async def test_at_the_boundary_keeps_the_results(self) -> None:
        reached = asyncio.Event()
        model, _ = replies([tool_call("one")])
        turn = FakeTurn("look", functions={"one": ok})
        boundary = turn.boundary

        async def slow(messages: Sequence[Any]) -> list[Nudge]:
            await boundary(messages)
            reached.set()
            await asyncio.Event().wait()
            return []

        turn.boundary = slow  # type: ignore[method-assign]
        task = asyncio.create_task(run(model, turn))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        kinds = [part["part_kind"] for record in turn.records for part in record["parts"]]
        assert kinds == ["user-prompt", "tool-call", "tool-return"]

    async def test_before_the_model_was_asked_keeps_the_prompt(self) -> None:
        turn = FakeTurn("look")

        def cancelled(model: str | None = None) -> int:
            raise asyncio.CancelledError

        turn.step_started = cancelled  # type: ignore[method-assign]
        model, asked = replies(["never"])
        with pytest.raises(asyncio.CancelledError):
            await run(model, turn)
        assert asked == []
        assert [part["content"] for part in turn.records[0]["parts"]] == ["look"]
        assert len(turn.records) == 1

    async def test_at_any_moment_loses_nothing_and_doubles_nothing(self) -> None:
        whole = ["user-prompt", "tool-call", "tool-return", "user-prompt", "text"]
        for moment in itertools.count(1):
            model, _ = replies([tool_call("one")], ["All ", "is ", "fine."])
            harness = PydanticAI(model)
            harness._agent = harness._build()
            turn = FakeTurn("look", functions={"one": ok}, offers=[[NUDGE]])
            task = asyncio.create_task(harness.run(turn))
            for _ in range(moment):
                await asyncio.sleep(0)
            if task.done():
                assert moment > 20
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            kinds = [part["part_kind"] for record in turn.records for part in record["parts"]]
            assert kinds
            assert kinds == whole[: len(kinds)]
            assert ("and billing?" in str(turn.records)) == (turn.confirmed == ["d2"])
            await self.resume(turn)

    @staticmethod
    async def resume(turn: FakeTurn) -> None:
        model, asked = replies(["Fine after all."])
        resumed = FakeTurn(
            "look", history=turn.stored, resumes="turn_1", prompt_in_history=True, turn_id="turn_2"
        )
        await run(model, resumed)
        if asked:
            assert user_texts(asked[0]) == ["look", *(["and billing?"] if turn.confirmed else [])]
        else:
            assert resumed.of("message.completed")[0][1] == "All is fine."


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "code", "text"),
        [
            (ModelHTTPError(500, "m", "boom"), "model_error", "answered 500: boom"),
            (ModelHTTPError(401, "m", "no key"), "model_auth", "answered 401"),
            (ModelHTTPError(429, "m", "slow down"), "model_rate_limited", "answered 429"),
            (RuntimeError("a bug"), "model_error", "RuntimeError: a bug"),
            (
                ExceptionGroup("all failed", [ModelHTTPError(500, "m", "boom"), ValueError("x")]),
                "model_error",
                "boom; ValueError: x",
            ),
        ],
    )
    async def test_of_the_model_end_the_turn(self, error: Exception, code: str, text: str) -> None:
        def reply(_: list[ModelMessage], info: AgentInfo) -> Sequence[Piece]:
            raise error

        model, _ = replies([tool_call("one")], reply)
        turn = FakeTurn("look", functions={"one": ok})
        with pytest.raises(HarnessFailed) as caught:
            await run(model, turn)
        assert caught.value.failure_code == code
        assert text in caught.value.message
        assert caught.value.__cause__ is error
        kinds = [part["part_kind"] for record in turn.records for part in record["parts"]]
        assert kinds == ["user-prompt", "tool-call", "tool-return"]
        assert turn.of("message.completed") == []

    async def test_before_the_first_answer_keep_the_prompt(self) -> None:
        def reply(_: list[ModelMessage], info: AgentInfo) -> Sequence[Piece]:
            raise ModelHTTPError(503, "m")

        model, _ = replies(reply)
        turn = FakeTurn("look")
        with pytest.raises(HarnessFailed):
            await run(model, turn)
        assert turn.records[0]["parts"][0]["content"] == "look"

    async def test_of_an_empty_answer_follow_one_more_try(self) -> None:
        model, asked = replies([{0: DeltaThinkingPart(content="Hm.")}], ["Now then."])
        turn = FakeTurn()
        assert (await run(model, turn)).result == "Now then."
        assert len(asked) == 2
        assert turn.of("boundary") == []

    async def test_of_a_limit_say_so(self) -> None:
        model, _ = replies([tool_call("one")], ["never"])
        turn = FakeTurn(functions={"one": ok})
        with pytest.raises(HarnessFailed) as caught:
            await run(model, turn, usage_limits=UsageLimits(request_limit=1))
        assert caught.value.failure_code == "usage_limit"

    async def test_of_the_core_pass_unchanged(self) -> None:
        async def lost() -> None:
            raise LeaseLost("another owner")

        model, _ = replies([tool_call("lost")])
        with pytest.raises(LeaseLost):
            await run(model, FakeTurn(functions={"lost": lost}))

    async def test_of_a_model_that_is_not_configured_name_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        for model in ("nowhere:some-model", "openai:gpt-6-luna"):
            with pytest.raises(HarnessFailed) as caught:
                await run(model, FakeTurn())
            assert caught.value.failure_code == "model_not_configured"
            assert model in caught.value.message

    async def test_of_a_missing_library_say_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pydantic_ai", None)
        monkeypatch.delitem(sys.modules, "threadline.harness._pydantic_ai_run", raising=False)
        monkeypatch.delattr(threadline.harness, "_pydantic_ai_run", raising=False)
        with pytest.raises(HarnessFailed, match=r"pip install 'threadline\[pydantic-ai\]'"):
            await run("anthropic:some-model", FakeTurn())


class TestDemoModel:
    """The model of examples/oncall."""

    @pytest.fixture
    def demo(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[FunctionModel]:
        monkeypatch.setenv("ONCALL_PACE", "0")
        monkeypatch.syspath_prepend(str(ONCALL))
        yield importlib.import_module("lib.demo_model").demo_model
        for name in [name for name in sys.modules if name.partition(".")[0] == "lib"]:
            del sys.modules[name]

    @staticmethod
    def functions() -> dict[str, Any]:
        async def page_status(service: str) -> Any:
            return {"service": service, "state": "degraded", "sinceMinutes": 42, "summary": "Slow."}

        async def recent_deploys(service: str | None = None) -> Any:
            return {"service": service, "hours": 24, "deploys": []}

        async def search_runbook(query: str) -> Any:
            return {"query": query, "matches": []}

        return {
            "page_status": page_status,
            "recent_deploys": recent_deploys,
            "search_runbook": search_runbook,
        }

    async def test_investigates_in_several_steps(self, demo: FunctionModel) -> None:
        turn = FakeTurn("Investigate checkout", functions=self.functions())
        result = await run(demo, turn)
        called = [name for (calls,) in turn.of("actions.requested") for name, _ in calls]
        assert called == ["page_status", "recent_deploys", "search_runbook"]
        assert len(turn.of("boundary")) == 3
        assert "**degraded**" in result.result
        assert "You also asked" not in result.result

    async def test_answers_a_message_that_arrives_meanwhile(self, demo: FunctionModel) -> None:
        turn = FakeTurn(
            "Investigate checkout",
            functions=self.functions(),
            offers=[[Nudge("d2", "and is billing ok?")]],
        )
        result = await run(demo, turn)
        assert "**You also asked:** and is billing ok?" in result.result
        assert "**billing**" in result.result

    async def test_says_the_same_with_and_without_streaming(self, demo: FunctionModel) -> None:
        streamed = FakeTurn("status of checkout", functions=self.functions())
        at_once = FakeTurn("status of checkout", functions=self.functions())
        first = await run(demo, streamed)
        second = await run(FunctionModel(demo.function), at_once)  # type: ignore[arg-type]
        assert first.result == second.result
        assert streamed.kinds == at_once.kinds


def test_constructing_does_not_import_the_library() -> None:
    code = (
        "import sys; from threadline.harness.pydantic_ai import PydanticAI;"
        "PydanticAI('anthropic:x'); sys.exit('pydantic_ai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
