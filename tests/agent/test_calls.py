"""Running tools: validation, time, retries, failures, cancellation and output."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, field_validator
from tests.agent.conftest import Journal, Run

from threadline.agent import calls
from threadline.agent.calls import Catalog, Retry, unknown_tool
from threadline.agent.context import ToolContext
from threadline.agent.tools import tool
from threadline.agent.transient import TransientToolError
from threadline.errors import NotFound, ToolFailed
from threadline.harness.base import ToolResult
from threadline.testing.clock import ManualClock

if TYPE_CHECKING:
    from threadline.clock import Clock


class TestRunning:
    async def test_an_async_tool(self, run: Run) -> None:
        @tool
        async def add(a: int, b: int = 2) -> int:
            return a + b

        result = await run(add, {"a": "40"})
        assert result == ToolResult("c1", "add", 42)

    async def test_the_context_is_passed(self, run: Run, ctx: ToolContext) -> None:
        @tool
        async def mine(ctx: ToolContext) -> str:
            return ctx.call_id

        assert (await run(mine)).output == "c1"

    async def test_a_sync_tool_runs_in_a_thread_with_the_context_variables(self, run: Run) -> None:
        variable = contextvars.ContextVar("variable", default="unset")
        variable.set("set")

        @tool
        def where() -> list[Any]:
            return [threading.current_thread() is threading.main_thread(), variable.get()]

        assert (await run(where)).output == [False, "set"]

    async def test_a_sync_tool_does_not_block_the_loop(self, run: Run) -> None:
        released = threading.Event()

        @tool
        def wait() -> bool:
            return released.wait(10)

        @tool
        async def release() -> None:
            released.set()

        waiting, _ = await asyncio.gather(run(wait), run(release))
        assert waiting.output is True

    async def test_a_sync_tool_that_returns_an_awaitable(self, run: Run) -> None:
        async def answer() -> int:
            return 42

        @tool
        def wrapped() -> Any:
            return answer()

        assert (await run(wrapped)).output == 42


class TestInput:
    async def test_each_problem_is_named_by_its_field(self, run: Run, journal: Journal) -> None:
        class Item(BaseModel):
            count: int

        def order(items: list[Item], to: str) -> None: ...

        order.__annotations__ = {"items": list[Item], "to": str}
        result = await run(tool(order), {"items": [{"count": "many"}], "colour": "red"})
        assert result.is_error
        assert result.code == "invalid_input"
        assert result.output == (
            'The input of tool "order" is not valid: items.0.count: Input should be a valid '
            "integer, unable to parse string as an integer; to: is required; colour: is not an "
            "argument (there are: items, to)."
        )
        assert journal.events == []

    @pytest.mark.parametrize("arguments", [[], "text", 3])
    async def test_the_input_must_be_an_object(self, run: Run, arguments: Any) -> None:
        result = await run(tool(lambda: None), arguments)
        assert result.code == "invalid_input"
        assert "should be an object" in result.output

    async def test_no_input_is_an_empty_object(self, run: Run) -> None:
        assert not (await run(tool(lambda: 1), None)).is_error

    async def test_long_lists_of_problems_are_cut(self, run: Run) -> None:
        @tool
        def add(numbers: list[int]) -> None: ...

        result = await run(add, {"numbers": ["x"] * 30})
        assert result.output.count("numbers.") == 10
        assert result.output.endswith("and 20 more.")

    async def test_a_key_that_no_file_can_hold(self, run: Run) -> None:
        result = await run(tool(lambda: None), {"\ud800": 1})
        result.output.encode()
        assert result.code == "invalid_input"

    async def test_a_validator_that_breaks_is_a_failure(self, run: Run) -> None:
        class Odd(BaseModel):
            x: int

            @field_validator("x")
            @classmethod
            def broken(cls, value: int) -> int:
                raise RuntimeError("bug")

        def use(odd: Odd) -> None: ...

        use.__annotations__ = {"odd": Odd}
        assert (await run(tool(use), {"odd": {"x": 1}})).code == "tool_failed"

    async def test_an_invalid_model_inside_the_tool_is_a_failure(self, run: Run) -> None:
        class Inner(BaseModel):
            x: int

        @tool
        async def parse() -> None:
            Inner.model_validate({})

        assert (await run(parse)).code == "tool_failed"


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "message"),
        [
            (ValueError("no such page"), "no such page"),
            (ToolFailed("down"), "down"),
            (KeyError("id"), "KeyError: 'id'"),
            (ValueError(), "ValueError"),
            (SystemExit(3), "SystemExit: 3"),
            (KeyboardInterrupt(), "KeyboardInterrupt"),
            (GeneratorExit(), "GeneratorExit"),
            (asyncio.CancelledError(), "it was cancelled from the inside"),
            (ExceptionGroup("g", [ValueError("a"), OSError("b")]), "a; b"),
            (ValueError("\ud800"), "\ufffd"),
        ],
    )
    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_whatever_is_raised_is_an_error(
        self, run: Run, journal: Journal, error: BaseException, message: str, kind: str
    ) -> None:
        @tool(name="broken")
        async def broken_async() -> None:
            raise error

        @tool(name="broken")
        def broken_sync() -> None:
            raise error

        result = await run(broken_async if kind == "async" else broken_sync)
        assert result.is_error
        assert result.code == "tool_failed"
        assert result.output == f'Tool "broken" failed: {message}'
        assert journal.events == ["tool_failed"]

    async def test_stop_iteration(self, run: Run) -> None:
        @tool
        def first() -> Any:
            return next(iter([]))

        assert (await run(first)).output == 'Tool "first" failed: StopIteration'

    async def test_long_messages_are_cut(self, run: Run) -> None:
        @tool
        async def wordy() -> None:
            raise ValueError("x" * 10_000)

        assert len((await run(wordy)).output) < 5_000

    async def test_an_error_that_cannot_be_shown(self, run: Run) -> None:
        class MuteError(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        @tool
        async def mute() -> None:
            raise MuteError

        assert (await run(mute)).output == 'Tool "mute" failed: MuteError'

    async def test_output_that_json_cannot_hold(self, run: Run) -> None:
        @tool
        async def loop() -> Any:
            endless: list[Any] = []
            endless.append(endless)
            return endless

        result = await run(loop)
        assert result.code == "invalid_output"
        assert "Circular reference" in result.output

    async def test_cancelling_its_own_task_is_an_error(self, run: Run) -> None:
        @tool
        async def suicidal() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        assert (await run(suicidal)).code == "tool_failed"


class TestTimeout:
    async def test_an_async_tool_is_cancelled(self, run: Run, clock: ManualClock) -> None:
        ended = []

        @tool(timeout=5)
        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cleaned up")

        task = asyncio.create_task(run(slow))
        await clock.sleeping()
        clock.advance(4.9)
        await asyncio.sleep(0)
        assert not task.done()
        clock.advance(0.2)
        result = await task
        assert result.code == "tool_timeout"
        assert result.output == 'Tool "slow" did not answer within 5 seconds.'
        assert ended == ["cleaned up"]
        assert clock.sleepers == 0

    async def test_a_write_may_have_taken_effect(self, run: Run, clock: ManualClock) -> None:
        @tool(effect="write", timeout=5)
        async def slow() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(run(slow))
        await clock.sleeping()
        clock.advance(5)
        assert "may still have taken effect" in (await task).output

    async def test_a_thread_is_left_running(
        self, run: Run, clock: ManualClock, journal: Journal
    ) -> None:
        released = threading.Event()

        @tool(timeout=5)
        def stuck() -> bool:
            return released.wait(30)

        task = asyncio.create_task(run(stuck))
        await clock.sleeping()
        clock.advance(5)
        result = await task
        released.set()
        assert result.code == "tool_timeout"
        assert journal.events == ["tool_thread_left_running"]

    async def test_a_tool_that_ignores_cancellation_is_given_up(
        self, run: Run, clock: ManualClock, journal: Journal
    ) -> None:
        released = asyncio.Event()

        @tool(timeout=5)
        async def stubborn() -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        task = asyncio.create_task(run(stubborn))
        await clock.sleeping()
        await clock.elapse(5)
        assert not task.done()
        await clock.elapse(5)
        assert (await task).code == "tool_timeout"
        assert journal.events == ["tool_ignores_cancellation"]
        released.set()

    async def test_its_own_timeout_is_a_failure(self, run: Run) -> None:
        @tool
        async def impatient() -> None:
            raise TimeoutError("no answer")

        assert (await run(impatient)).code == "tool_failed"


class TestCancellation:
    async def test_a_requested_cancellation_reaches_the_tool_and_is_raised(
        self, run: Run, clock: ManualClock
    ) -> None:
        ended = []

        @tool
        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        task = asyncio.create_task(run(slow))
        await clock.sleeping()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cancelled"]

    async def test_a_tool_cannot_turn_it_into_a_result(self, run: Run, clock: ManualClock) -> None:
        @tool
        async def deaf() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "never mind"
            return ""

        task = asyncio.create_task(run(deaf))
        await clock.sleeping()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_a_thread_does_not_hold_it_up(self, run: Run, clock: ManualClock) -> None:
        released = threading.Event()

        @tool
        def stuck() -> bool:
            return released.wait(30)

        task = asyncio.create_task(run(stuck))
        await clock.sleeping()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        released.set()


class TestRetries:
    @pytest.mark.parametrize(
        "error",
        [
            TransientToolError("busy"),
            ConnectionResetError("busy"),
            TimeoutError("busy"),
            ExceptionGroup("g", [ConnectionError("busy")]),
        ],
    )
    async def test_a_read_runs_again(self, run: Run, clock: ManualClock, error: Exception) -> None:
        failures = [error, error]
        seen: list[Retry] = []

        @tool(retries=2)
        async def flaky() -> str:
            if failures:
                raise failures.pop()
            return "up"

        task = asyncio.create_task(run(flaky, on_retry=seen.append))
        await clock.elapse(0.5)
        await clock.elapse(1.0)
        assert (await task).output == "up"
        assert seen == [
            Retry(2, 500, "transient_failure", "busy"),
            Retry(3, 1000, "transient_failure", "busy"),
        ]

    async def test_the_last_failure_is_the_result(self, run: Run, clock: ManualClock) -> None:
        attempts: list[int] = []

        @tool(retries=2)
        async def down() -> None:
            attempts.append(len(attempts))
            raise ConnectionError(f"down {len(attempts)}")

        task = asyncio.create_task(run(down))
        await clock.elapse(10)
        result = await task
        assert (result.code, result.output) == ("tool_failed", 'Tool "down" failed: down 3')

    async def test_only_transient_failures(self, run: Run) -> None:
        seen: list[Retry] = []

        @tool(retries=2)
        async def wrong() -> None:
            raise ValueError("no")

        assert (await run(wrong, on_retry=seen.append)).is_error
        assert seen == []

    async def test_not_after_its_time_is_up(self, run: Run, clock: ManualClock) -> None:
        seen: list[Retry] = []

        @tool(retries=2, timeout=5)
        async def slow() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(run(slow, on_retry=seen.append))
        await clock.elapse(5)
        assert (await task).code == "tool_timeout"
        assert seen == []

    async def test_retry_after_is_obeyed(self, run: Run, clock: ManualClock) -> None:
        waits = [7.0, 3600.0]
        seen: list[Retry] = []

        @tool(retries=5)
        async def busy() -> None:
            raise TransientToolError("busy", retry_after=waits[len(seen)])

        task = asyncio.create_task(run(busy, on_retry=seen.append))
        await clock.elapse(7)
        assert (await task).is_error
        assert [retry.delay_ms for retry in seen] == [7000]

    async def test_each_attempt_gets_fresh_arguments(self, run: Run, clock: ManualClock) -> None:
        seen = []

        @tool(retries=1)
        async def consume(items: list[int]) -> None:
            seen.append(list(items))
            items.clear()
            raise ConnectionError

        task = asyncio.create_task(run(consume, {"items": [1]}))
        await clock.elapse(1)
        await task
        assert seen == [[1], [1]]

    async def test_an_error_of_the_callback_is_the_callers(self, run: Run) -> None:
        class LostError(Exception): ...

        def lost(_: Retry) -> None:
            raise LostError

        @tool(retries=1)
        async def flaky() -> None:
            raise ConnectionError

        with pytest.raises(LostError):
            await run(flaky, on_retry=lost)


class TestCatalog:
    @pytest.fixture
    def catalog(self) -> Catalog:
        return Catalog([tool(name="b")(lambda: 2), tool(name="a")(lambda: 1)])

    def test_holds_tools_by_name(self, catalog: Catalog) -> None:
        assert catalog.names == ["a", "b"]
        assert [declared.name for declared in catalog] == ["a", "b"]
        assert [info.name for info in catalog.infos()] == ["a", "b"]
        assert [wire["name"] for wire in catalog.to_wire()] == ["a", "b"]
        assert len(catalog) == 2
        assert "a" in catalog
        assert catalog.get("a").name == "a"

    def test_an_unknown_name_lists_the_names(self, catalog: Catalog) -> None:
        with pytest.raises(NotFound, match=r'no tool "c"\. Available: a, b') as caught:
            catalog.get("c")
        assert caught.value.to_wire()["available"] == ["a", "b"]

    def test_two_tools_of_one_name(self) -> None:
        with pytest.raises(ValueError, match="rename one"):
            Catalog([tool(name="a")(lambda: 2), tool(name="a")(lambda: 1)])

    async def test_runs_by_name(
        self, catalog: Catalog, ctx: ToolContext, clock: ManualClock
    ) -> None:
        assert (await catalog.run("b", {}, ctx, clock=clock)).output == 2
        result = await catalog.run("c", {}, ctx, clock=clock)
        assert result == unknown_tool("c1", "c", ["b", "a"])
        assert result.code == "unknown_tool"
        assert result.output == 'There is no tool "c". Available: a, b.'

    def test_an_empty_one(self) -> None:
        assert unknown_tool("c1", "x", []).output == 'There is no tool "x". Available: none.'


class TestManualClock:
    async def test_stands_still_until_advanced(self) -> None:
        clock: Clock = (manual := ManualClock())
        start = clock.now()
        manual.advance(1.5)
        assert clock.monotonic() == 1.5
        assert (clock.now() - start).total_seconds() == 1.5

    async def test_sleepers_wake_in_the_order_of_their_deadlines(self) -> None:
        clock = ManualClock()
        woken: list[int] = []

        async def sleeper(seconds: int) -> None:
            await clock.sleep(seconds)
            woken.append(seconds)

        tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2)]
        await clock.sleeping(3)
        clock.advance(2)
        await asyncio.gather(*tasks[1:])
        assert woken == [1, 2]
        assert clock.sleepers == 1
        clock.advance(1)
        await tasks[0]

    async def test_elapse_passes_through_every_deadline(self) -> None:
        clock = ManualClock()
        seen: list[float] = []

        async def ticking() -> None:
            for _ in range(3):
                await clock.sleep(10)
                seen.append(clock.monotonic())

        task = asyncio.create_task(ticking())
        await clock.elapse(25)
        assert seen == [10, 20]
        assert clock.monotonic() == 25
        await clock.elapse(5)
        await task

    async def test_a_cancelled_sleeper_is_forgotten(self) -> None:
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(1))
        await clock.sleeping()
        task.cancel()
        await asyncio.wait({task})
        assert clock.sleepers == 0
        await clock.elapse(2)

    async def test_no_time_is_no_sleep(self) -> None:
        clock = ManualClock()
        await clock.sleep(0)
        await clock.sleep(-1)
        assert clock.sleepers == 0


def test_public_names_are_sorted() -> None:
    assert calls.__all__ == sorted(calls.__all__)
