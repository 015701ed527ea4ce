"""A call outside of any host: its context, its clock, and what it logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from threadline.agent.calls import run_tool
from threadline.agent.context import ToolContext
from threadline.agent.tools import Tool
from threadline.harness.base import ToolResult
from threadline.principal import LOCAL
from threadline.testing.clock import ManualClock

Run = Callable[..., Any]


class Journal:
    """A log that keeps the events it gets."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fields: list[dict[str, Any]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.events.append(event)
        self.fields.append(fields)

    info = warning = error = debug


class Keeper:
    """Keeps nothing."""

    async def get(self, key: str) -> None: ...

    async def put(self, key: str, value: Any) -> None: ...

    async def delete(self, key: str) -> bool:
        return False


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def ctx(clock: ManualClock, journal: Journal) -> ToolContext:
    return ToolContext(
        call_id="c1", tool_name="t", principal=LOCAL, clock=clock, kv=Keeper(), log=journal
    )


@pytest.fixture
def run(ctx: ToolContext, clock: ManualClock) -> Callable[..., Any]:
    async def run(declared: Tool, arguments: Any = None, **options: Any) -> ToolResult:
        return await run_tool(declared, arguments, ctx, clock=clock, **options)

    return run
