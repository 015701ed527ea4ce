"""Dry runs: a write never runs, whoever calls it; reads do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.agent.conftest import Journal, Run

from threadline.agent.calls import run_tool
from threadline.agent.context import ToolContext
from threadline.agent.tools import Tool, tool
from threadline.testing.clock import ManualClock


class Order(BaseModel):
    item_name: str = Field(alias="itemName")
    at: datetime | None = None


@pytest.fixture
def written() -> list[Any]:
    """What writes have written."""
    return []


@pytest.fixture
def dry(ctx: ToolContext, clock: ManualClock) -> Run:
    async def run(declared: Tool, arguments: Any = None, **options: Any) -> Any:
        ctx.dry_run = True
        return await run_tool(declared, arguments, ctx, clock=clock, **options)

    return run


def writer(written: list[Any], is_async: bool, **options: Any) -> Tool:
    """Return a tool ``order`` that writes, async or not."""

    async def order_async(order: Order, count: int = 2) -> str:
        written.append(order)
        return "written"

    def order_sync(order: Order, count: int = 2) -> str:
        written.append(order)
        return "written"

    function: Callable[..., Any] = order_async if is_async else order_sync
    function.__annotations__ = {"order": Order, "count": int, "return": str}
    return tool(effect="write", name="order", **options)(function)


ORDER = {"order": {"itemName": "tea", "at": "2025-01-31T12:00:00Z"}}


@pytest.mark.parametrize("is_async", [True, False])
class TestStub:
    async def test_by_default_it_says_what_would_have_been_called(
        self, dry: Run, written: list[Any], is_async: bool
    ) -> None:
        result = await dry(writer(written, is_async), ORDER)
        assert result.output == {
            "dryRun": True,
            "toolName": "order",
            "input": {"order": {"itemName": "tea", "at": "2025-01-31T12:00:00Z"}, "count": 2},
        }
        assert (result.is_error, result.dry_run) == (False, True)
        assert written == []

    @pytest.mark.parametrize("value", [{"id": 5}, "ordered", 0, False, [], Order(itemName="tea")])
    @pytest.mark.parametrize("option", ["dry_run", "dry_run_result"])
    async def test_a_value(
        self, dry: Run, written: list[Any], is_async: bool, value: Any, option: str
    ) -> None:
        options = {option: value}
        result = await dry(writer(written, is_async, **options), ORDER)
        shown = {"itemName": "tea", "at": None} if isinstance(value, Order) else value
        assert (result.output, result.dry_run, written) == (shown, True, [])

    async def test_a_value_is_fresh_each_time(
        self, dry: Run, written: list[Any], is_async: bool
    ) -> None:
        declared = writer(written, is_async, dry_run={"items": []})
        (await dry(declared, ORDER)).output["items"].append(1)
        assert (await dry(declared, ORDER)).output == {"items": []}

    async def test_a_function_of_the_arguments_that_it_names(
        self, dry: Run, written: list[Any], is_async: bool
    ) -> None:
        def with_count(count: int) -> dict[str, int]:
            return {"would order": count}

        async def with_all(order: Order, ctx: ToolContext, count: int) -> list[Any]:
            return [order.item_name, ctx.call_id, count]

        def with_anything(**arguments: Any) -> list[str]:
            return sorted(arguments)

        def with_default(unit: str = "cups") -> str:
            return unit

        for stub, expected in (
            (with_count, {"would order": 2}),
            (with_all, ["tea", "c1", 2]),
            (with_anything, ["count", "order"]),
            (with_default, "cups"),
            (lambda: None, None),
        ):
            result = await dry(writer(written, is_async, dry_run=stub), ORDER)
            assert (result.output, result.is_error, result.dry_run) == (expected, False, True)
        assert written == []

    async def test_a_stub_that_fails(
        self, dry: Run, written: list[Any], is_async: bool, journal: Journal
    ) -> None:
        def broken() -> None:
            raise SystemExit(3)

        result = await dry(writer(written, is_async, dry_run=broken), ORDER)
        assert (result.code, result.dry_run) == ("tool_failed", True)
        assert result.output == 'Tool "order" failed: SystemExit: 3'
        assert written == []

    async def test_a_stub_that_takes_too_long(
        self, dry: Run, written: list[Any], is_async: bool, clock: ManualClock
    ) -> None:
        async def slow() -> None:
            await asyncio.Event().wait()

        call = asyncio.create_task(dry(writer(written, is_async, dry_run=slow, timeout=5), ORDER))
        await clock.sleeping()
        clock.advance(5)
        result = await call
        assert (result.code, result.dry_run) == ("tool_timeout", True)
        assert "effect" not in result.output

    async def test_the_input_is_checked_first(
        self, dry: Run, written: list[Any], is_async: bool
    ) -> None:
        result = await dry(writer(written, is_async, dry_run="ordered"), {"order": {}})
        assert (result.code, result.dry_run) == ("invalid_input", True)

    async def test_times_are_checked_first(
        self, dry: Run, written: list[Any], is_async: bool, ctx: ToolContext
    ) -> None:
        ctx.as_of = datetime(2025, 1, 31, 11, tzinfo=UTC)
        result = await dry(writer(written, is_async, dry_run="ordered"), ORDER)
        assert result.code == "time_not_allowed"
        assert "order.at must not be later" in result.output

    async def test_otherwise_it_is_run(self, run: Run, written: list[Any], is_async: bool) -> None:
        result = await run(writer(written, is_async, dry_run="ordered"), ORDER)
        assert (result.output, result.dry_run, len(written)) == ("written", False, 1)


async def test_an_envelope_is_a_stub_too(dry: Run, written: list[Any]) -> None:
    stub = {"content": [{"type": "text", "text": "no"}], "isError": True}
    result = await dry(writer(written, True, dry_run=stub), ORDER)
    assert (result.code, result.output, result.dry_run) == ("tool_error", "no", True)


async def test_an_input_that_json_cannot_show_is_an_error(dry: Run) -> None:
    endless: list[Any] = []
    endless.append(endless)

    @tool(effect="write")
    def send(value: Any) -> None: ...

    assert (await dry(send, {"value": endless})).code == "tool_failed"


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_reads_run_and_writes_do_not(dry: Run, effect: Any) -> None:
    ran: list[bool] = []

    @tool(effect=effect)
    def look(ctx: ToolContext) -> str:
        ran.append(ctx.dry_run)
        return "seen"

    result = await dry(look)
    assert (ran, result.dry_run) == (([True], False) if effect == "read" else ([], True))


class TestCalledByAnotherTool:
    """A write that a read calls as a plain function."""

    async def test_from_an_async_tool(self, dry: Run, written: list[Any]) -> None:
        order, order_sync = writer(written, True), writer(written, False, dry_run="sync")

        @tool
        async def look() -> list[Any]:
            made = Order(itemName="tea")
            return [await order(made, count=3), order_sync(order=made)]

        default, sync = (await dry(look)).output
        assert default["input"] == {"order": {"itemName": "tea", "at": None}, "count": 3}
        assert (sync, written) == ("sync", [])

    async def test_from_a_sync_tool(self, dry: Run, written: list[Any]) -> None:
        order = writer(written, False, dry_run=lambda count: count)
        assert (await dry(tool(lambda: order(Order(itemName="tea"))))).output == 2
        assert written == []

    @pytest.mark.parametrize("from_async", [True, False])
    async def test_an_async_stub_for_a_sync_write(
        self, dry: Run, written: list[Any], from_async: bool
    ) -> None:
        async def stub(count: int, ctx: ToolContext) -> list[Any]:
            await asyncio.sleep(0)
            return [count, ctx.call_id]

        order = writer(written, False, dry_run=stub)

        async def look_async() -> Any:
            return order(Order(itemName="tea"))

        def look_sync() -> Any:
            return order(Order(itemName="tea"))

        looks = tool(look_async if from_async else look_sync)
        assert (await dry(looks)).output == [2, "c1"]
        assert written == []

    async def test_from_what_the_tool_starts(self, dry: Run, written: list[Any]) -> None:
        order = writer(written, False, dry_run="stub")
        made = Order(itemName="tea")

        @tool
        async def look() -> list[Any]:
            async def one() -> Any:
                return order(made)

            task = asyncio.create_task(one())
            in_pool = asyncio.get_running_loop().run_in_executor(None, order, made)
            return [await task, await asyncio.to_thread(order, made), await in_pool]

        assert (await dry(look)).output == ["stub"] * 3
        assert written == []

    async def test_in_a_thread_of_its_own_with_the_context(self, dry: Run) -> None:
        written: list[Any] = []

        @tool(effect="write", dry_run="stub")
        def order(ctx: ToolContext) -> str:
            written.append(1)
            return "written"

        @tool
        def look(ctx: ToolContext) -> list[Any]:
            answers: list[Any] = []
            thread = threading.Thread(target=lambda: answers.append(order(ctx)))
            thread.start()
            thread.join()
            return answers

        assert (await dry(look)).output == ["stub"]
        assert written == []

    async def test_in_a_stub(self, dry: Run, written: list[Any]) -> None:
        order = writer(written, False)
        outer = tool(effect="write", dry_run=lambda: order(Order(itemName="tea")), name="outer")
        result = await dry(outer(lambda: None))
        assert (result.output["toolName"], written) == ("order", [])

    async def test_a_call_that_does_not_fit_is_the_callers_mistake(
        self, dry: Run, written: list[Any]
    ) -> None:
        order = writer(written, False)
        assert "order" in (await dry(tool(lambda: order(size=1)))).output
        assert written == []

    async def test_a_read_is_run(self, dry: Run) -> None:
        inner = tool(lambda: "seen")
        assert (await dry(tool(lambda: inner()))).output == "seen"

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_without_a_dry_run_it_is_run(
        self, run: Run, written: list[Any], is_async: bool
    ) -> None:
        order = writer(written, is_async, dry_run="stub")

        @tool
        async def look() -> Any:
            answer = order(Order(itemName="tea"))
            return await answer if is_async else answer

        assert (await run(look)).output == "written"
        assert len(written) == 1

    def test_outside_of_any_call_it_is_run(self, written: list[Any]) -> None:
        assert writer(written, False, dry_run="stub")(Order(itemName="tea")) == "written"

    async def test_the_dry_run_ends_with_the_call(self, dry: Run, written: list[Any]) -> None:
        await dry(tool(lambda: 1))
        assert writer(written, False, dry_run="stub")(Order(itemName="tea")) == "written"
