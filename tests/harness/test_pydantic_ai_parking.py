"""A turn on Pydantic AI waits for a person, also when another process has to go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import BinaryContent, ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from tests.session.host import Host, until

from threadline.harness.base import Attachment, ToolCall, ToolInfo, ToolResult
from threadline.harness.pydantic_ai import PydanticAI

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


def tool_returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for m in messages for part in m.parts if isinstance(part, ToolReturnPart)]


class Model:
    """Calls ``work`` and ``look`` in one step, then says what came of them."""

    def __init__(self) -> None:
        self.requests: list[list[ModelMessage]] = []
        self.model = FunctionModel(stream_function=self.answer)

    async def answer(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        self.requests.append(list(messages))
        returns = tool_returns(messages)
        if not returns:
            yield {
                0: DeltaToolCall("work", '{"x": 1}', tool_call_id="one"),
                1: DeltaToolCall("look", "{}", tool_call_id="two"),
            }
            return
        yield "; ".join(f"{part.tool_name} {part.content}" for part in returns)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = await Host(tmp_path / "state", PydanticAI(Model().model)).start()
    host.tools.gated = {"work"}
    infos = [
        ToolInfo("work", "Work.", {"type": "object"}, approval=True),
        ToolInfo("look", "Look.", {"type": "object"}),
    ]
    host.tools.infos = lambda: infos  # type: ignore[method-assign]

    async def see(_: Any) -> str:
        return "saw"

    host.tools.functions["look"] = see
    yield host
    await host.close()


def last_answer(host: Host) -> str:
    return str(host.events(type_="message.completed")[-1]["data"]["text"])


@pytest.mark.parametrize("restarts", [0, 1, 3])
@pytest.mark.parametrize("decision", ["approved", "denied"])
async def test_the_model_reads_what_was_decided(host: Host, restarts: int, decision: Any) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await until(lambda: host.events(type_="action.result"))
    await host.core.synced(host.session_id())
    for _ in range(restarts):
        await host.restart()
        host.harness = PydanticAI(Model().model)
        assert await host.parked() == [call_id]
    await host.decide(call_id, decision)
    await host.rest()
    host.check()
    came = "worked" if decision == "approved" else "Error: alice denied this call. It did not run."
    assert last_answer(host) == f"work {came}; look saw"
    assert host.tools.runs.count("look") == 1
    assert host.ends() == ["completed"]
    assert [e["data"]["step"] for e in host.events(type_="step.started")] == [1, 2]
    assert len(host.events(type_="actions.requested")) == 1
    assert len(host.events(type_="message.received")) == 1


async def test_the_conversation_goes_on_after_it(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await host.restart()
    await host.parked()
    await host.send("a2")
    await host.decide(call_id)
    await host.rest()
    assert host.steered() == ["a2"]
    await host.send("a3")
    await host.rest()
    host.check()
    assert host.ends() == ["completed", "completed"]


async def test_a_stopped_turn_leaves_a_history_that_can_be_used(host: Host) -> None:
    await host.send("a1")
    await host.parked()
    await host.restart()
    await host.parked()
    assert await host.stop()
    await host.rest()
    await host.send("a2")
    await host.rest()
    host.check()
    assert host.ends() == ["stopped", "completed"]
    assert "interrupted" in last_answer(host)


async def test_the_model_looks_at_what_a_tool_shows(tmp_path: Path) -> None:
    model = Model()
    host = await Host(tmp_path / "state", PydanticAI(model.model)).start()

    async def run(call: ToolCall, _: Any) -> ToolResult:
        shown = [Attachment(PNG, "image/png", "graph.png")]
        return ToolResult(call.call_id, call.tool_name, "a graph", attachments=shown)

    host.tools.run = run  # type: ignore[method-assign]
    await host.send("a1")
    await host.rest()
    contents = [part.content for part in tool_returns(model.requests[-1])]
    assert contents[0][0] == "a graph"
    assert isinstance(contents[0][1], BinaryContent)
    assert contents[0][1].data == PNG
    result = host.events(type_="action.result")[0]["data"]
    (kept,) = result["attachments"]
    path = host.core.store.blob(host.session_id(), kept.pop("blobId"))
    assert kept == {"mediaType": "image/png", "size": len(PNG), "name": "graph.png"}
    assert path is not None
    assert await asyncio.to_thread(path.read_bytes) == PNG
    await host.close()
