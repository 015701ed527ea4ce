"""One client follows one stream while its host is shut down, killed and started again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.kill.host import HostProcess
from tests.kill.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[HostProcess]:
    process = HostProcess(tmp_path)
    await process.start()
    await process.ready()
    yield process
    await process.kill()


async def restart(host: HostProcess) -> None:
    await host.start()
    await host.ready()


@pytest.mark.parametrize("sse", [False, True], ids=["ndjson", "sse"])
async def test_a_follower_misses_nothing(host: HostProcess, sse: bool) -> None:
    async with aiohttp.ClientSession(host.url) as http, asyncio.timeout(60):
        async with http.post("/v1/session", json={"message": "count to 40"}) as answer:
            session_id = (await answer.json())["sessionId"]
        reader = Reader(http, session_id, sse=sse)
        await reader.until(20)

        assert await host.terminate() == 0
        await restart(host)
        await reader.until(reader.last + 40)
        await host.kill()
        await restart(host)
        await until_waiting(reader)
        await reader.close()

    assert reader.problems == []
    assert reader.opened >= 3
    assert reader.stored == host.log_bytes(session_id)
    events = [json.loads(line) for line in reader.lines]
    assert [
        e["data"].get("code") for e in events if e["type"].startswith("turn.") and ended(e)
    ] == [
        "host_shutdown",
        "host_restarted",
        None,
    ]
    started = [event["data"]["attempt"] for event in events if event["type"] == "turn.started"]
    assert started == [1, 2, 3]
    assert sum(event["type"] == "message.received" for event in events) == 1
    assert said(events) == [f"{n} " for n in range(40)]


async def until_waiting(reader: Reader) -> None:
    while not reader.problems and b'"type":"session.waiting"' not in reader.lines[-1]:
        await reader.until(reader.last + 2)


def ended(event: dict[str, Any]) -> bool:
    return event["type"] in ("turn.completed", "turn.failed")


def said(events: list[dict[str, Any]]) -> list[str]:
    """Return the numbers in the order they were first said; a resumed step says its own again."""
    texts = [e["data"]["text"] for e in events if e["type"] == "message.completed"]
    return list(dict.fromkeys(text for text in texts if not text.startswith("counted")))
