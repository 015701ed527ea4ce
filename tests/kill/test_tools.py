"""Tools that do all that a tool must not do, in a real host: it answers on, and nothing is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
import pytest
from tests.kill.host import HostProcess

from threadline.agent.started import SCOPE

PROJECT = Path(__file__).parent / "torture"
ENDS = ("turn.completed", "turn.failed")


class Torture:
    """Talks to the host."""

    def __init__(self, host: HostProcess, client: aiohttp.ClientSession) -> None:
        self.host = host
        self.client = client

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        async with self.client.request(method, self.host.url + path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return orjson.loads(await answer.read())

    async def say(self, tool: str, **arguments: Any) -> str:
        """Start a session whose turn calls a tool."""
        message = f"{tool} {json.dumps(arguments)}"
        answer = await self.ask("POST", "/v1/session", {"message": message})
        return str(answer["sessionId"])

    async def end(self, session: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return how the first turn ended, and its call's result, when it has ended."""
        result = None
        url = f"{self.host.url}/v1/session/{session}/stream"
        async with self.client.get(url) as stream:
            async for line in stream.content:
                if line.strip():
                    event = orjson.loads(line)
                    result = event["data"] if event["type"] == "action.result" else result
                    if event["type"] in ENDS:
                        return event, result
        raise AssertionError("the stream ended before the turn")

    async def working(self, session: str) -> None:
        """Return when the call runs."""
        while True:
            answer = await self.ask("GET", f"/v1/session/{session}/events?format=json")
            if any(event["type"] == "actions.requested" for event in answer["events"]):
                return
            await asyncio.sleep(0.02)

    async def fine(self) -> None:
        """The host answers, and the turn of somebody else goes through."""
        assert (await self.ask("GET", "/healthz"))["ok"]
        end, _ = await self.end(await self.say("nothing"))
        assert end["type"] == "turn.completed"

    async def until_nothing_is_left(self) -> None:
        while marked(self.host):  # noqa: ASYNC110 - processes end without telling
            await asyncio.sleep(0.05)


def marked(host: HostProcess) -> list[int]:
    """Return the processes that calls of a host have started and that live."""
    found = []
    for process in psutil.process_iter():
        try:
            told = process.environ()
            ours = SCOPE in told and told.get("TORTURE_HOST") == str(host.folder)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
async def torture(tmp_path: Path) -> AsyncIterator[Torture]:
    told = {"TORTURE_HOST": str(tmp_path), "TORTURE_BLOCK": "1", "TORTURE_SETTLE": "1"}
    host = HostProcess(tmp_path, project=PROJECT, environment=told)
    await host.start()
    await host.ready()
    async with aiohttp.ClientSession(read_bufsize=2**24) as client:
        yield Torture(host, client)
    code = await host.terminate()
    assert code == 0, host.tail()
    assert marked(host) == []


@pytest.mark.parametrize(
    "how", ["sleep", "busy", "lock", "subprocess", "subtask", "stubborn", "busy and stubborn"]
)
async def test_a_tool_that_blocks_the_loop_is_interrupted(torture: Torture, how: str) -> None:
    end, result = await torture.end(await torture.say("block", how=how))
    assert end["type"] == "turn.completed"
    assert result is not None
    assert result["error"]["code"] == "tool_blocked", result
    assert "torture.py" in result["error"]["message"]
    await torture.fine()


async def test_one_host_outlives_it_all(torture: Torture) -> None:
    for tool in ("shout", "shout_sync"):
        end, result = await torture.end(await torture.say(tool, megabytes=100))
        assert (end["type"], result and result.get("output")) == ("turn.completed", "printed")
    for what in ("nan", "deep", "deepish", "circle", "object", "big-number", "huge"):
        end, result = await torture.end(await torture.say("give", what=what))
        assert end["type"] == "turn.completed", (what, end)
    errors = (
        *("KeyboardInterrupt", "SystemExit", "GeneratorExit", "BaseException", "CancelledError"),
        *("MemoryError", "RecursionError", "StopIteration", "StopAsyncIteration"),
    )
    for tool in ("throw", "throw_sync", "throw_in_task"):
        for error in errors:
            end, result = await torture.end(await torture.say(tool, error=error))
            assert end["type"] == "turn.completed", (tool, error, end)
            assert result is not None
            assert result["isError"], (tool, error)
    await torture.fine()
    await torture.end(await torture.say("leak_threads", number=1000))
    await torture.fine()


@pytest.mark.parametrize(
    "tool", ["stay", "stay_sync", "spin_sync", "daemon", "daemon_sync", "fill_pool"]
)
async def test_what_never_ends_is_stopped_with_all_that_it_started(
    torture: Torture, tool: str
) -> None:
    arguments = {"number": 64} if tool == "fill_pool" else {}
    session = await torture.say(tool, **arguments)
    await torture.working(session)
    if "daemon" in tool:
        while len(marked(torture.host)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    answer = await torture.ask("POST", f"/v1/session/{session}/stop", {})
    assert answer["stopped"]
    end, _ = await torture.end(session)
    assert end["data"]["code"] == "stopped"
    await torture.until_nothing_is_left()
    await torture.fine()


async def test_what_takes_too_long_takes_its_processes_along(torture: Torture) -> None:
    end, result = await torture.end(await torture.say("daemon_timeout"))
    assert end["type"] == "turn.completed"
    assert result is not None
    assert result["error"]["code"] == "tool_timeout"
    await torture.until_nothing_is_left()
    await torture.fine()


async def test_what_a_call_left_on_purpose_ends_with_the_host(torture: Torture) -> None:
    end, _ = await torture.end(await torture.say("daemon_and_return"))
    assert end["type"] == "turn.completed"
