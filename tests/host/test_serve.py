"""A host as a process: signals, open streams, a taken port, two hosts on one root."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.host.serving import agent, until

from threadline.errors import ProjectError, StateRootError
from threadline.host.app import Host, Options
from threadline.host.serve import serve
from threadline.project import Project

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PROGRAM = """
import asyncio, sys
from pathlib import Path
from threadline import Agent
from threadline.harness.scripted import Scripted
from threadline.host.app import Host, Options
from threadline.host.serve import serve
from threadline.project import Project

async def script(turn):
    if turn.prompt.text == "hang":
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if sys.argv[2] == "stubborn":
                    continue
                raise
    return turn.prompt.text

agent = Agent(instructions="x", harness=Scripted(script), drain_seconds=float(sys.argv[3]))
host = Host([Project.of(agent, slug="bot")], Options(port=0, state_root=Path(sys.argv[1])))
asyncio.run(serve(host, on_ready=lambda h: print(h.base_url, flush=True)))
"""


class Process:
    """A host in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def end(self) -> int:
        """Return the exit code."""
        return await asyncio.wait_for(self.process.wait(), 15)


@asynccontextmanager
async def process(state: Path, kind: str = "polite", drain: float = 0.2) -> AsyncIterator[Process]:
    """Run a host; kill it when the test leaves it running."""
    command = [sys.executable, "-c", PROGRAM, str(state), kind, str(drain)]
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    assert started.stdout is not None
    line = await asyncio.wait_for(started.stdout.readline(), 20)
    try:
        yield Process(started, line.decode().strip() + "/bot")
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def start(client: aiohttp.ClientSession, url: str, message: str) -> dict[str, Any]:
    async with client.post(f"{url}/v1/session", json={"message": message}) as response:
        assert response.status == 200
        return dict(await response.json())


async def test_sigterm_ends_open_streams_and_the_process(tmp_path: Path) -> None:
    async with process(tmp_path) as host, aiohttp.ClientSession() as client:
        running = [await start(client, host.url, "hang") for _ in range(2)]
        streams = [
            await client.get(f"{host.url}/v1/session/{running[n % 2]['sessionId']}/stream")
            for n in range(5)
        ]
        for stream in streams:
            await stream.content.readuntil(b'"turn.started"')
        host.process.send_signal(signal.SIGTERM)
        for stream in streams:
            await asyncio.wait_for(stream.read(), 5)
        assert await host.end() == 0
        for answer in running:
            log = tmp_path / "bot" / "sessions" / answer["sessionId"] / "events.ndjson"
            last = [json.loads(line) for line in log.read_bytes().split(b"\n")[:-1]][-1]
            assert last["type"] == "turn.failed"
            assert last["data"]["code"] == "host_shutdown"


async def test_an_idle_host_ends_at_once_on_sigint(tmp_path: Path) -> None:
    async with process(tmp_path, drain=60) as host:
        host.process.send_signal(signal.SIGINT)
        assert await host.end() == 0


async def test_a_second_signal_exits_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, "stubborn", 60) as host, aiohttp.ClientSession() as client:
        answer = await start(client, host.url, "hang")
        host.process.send_signal(signal.SIGTERM)

        async def refused() -> bool:
            url = f"{host.url}/v1/session/{answer['sessionId']}/stream"
            async with client.get(url) as response:
                return response.status == 503

        await until(refused)
        host.process.send_signal(signal.SIGTERM)
        assert await host.end() == 128 + signal.SIGTERM


async def test_a_second_host_on_one_root_is_refused(tmp_path: Path) -> None:
    async with process(tmp_path) as host:
        project = Project.of(agent(), slug="bot")
        other = Host([project], Options(port=0, state_root=tmp_path))
        with pytest.raises(StateRootError, match="in use by another host") as caught:
            await other.start()
        holder = json.loads(caught.value.details["holder"])
        assert holder == {"pid": host.process.pid, "url": host.url}
        host.process.kill()
        await host.end()
        await other.start()
        await other.stop(0.0)


async def test_a_taken_port_changes_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = Options(port=taken.getsockname()[1], state_root=tmp_path / "state")
        host = Host([Project.of(agent(), slug="bot")], options)
        with pytest.raises(StateRootError, match="cannot be bound"):
            await serve(host)
    assert not (tmp_path / "state").exists()


async def test_a_root_that_cannot_be_used_frees_the_port(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    host = Host([Project.of(agent(), slug="bot")], Options(port=0, state_root=tmp_path / "state"))
    with pytest.raises(StateRootError):
        await serve(host)
    with socket.socket() as free:
        free.bind(("127.0.0.1", host.port))


async def test_serve_in_this_process(tmp_path: Path) -> None:
    ready = asyncio.Event()
    host = Host([Project.of(agent(auth=None), slug="bot")], Options(port=0, state_root=tmp_path))
    serving = asyncio.create_task(serve(host, on_ready=lambda _: ready.set()))
    await asyncio.wait_for(ready.wait(), 10)
    async with aiohttp.ClientSession() as client:
        answer = await start(client, host.base_url + "/bot", "hi")
        assert answer["traceUrl"].startswith(host.base_url)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 10)


def test_what_a_host_cannot_serve(tmp_path: Path) -> None:
    two = [Project.of(agent(), slug="a"), Project.of(agent(), slug="b")]
    with pytest.raises(ProjectError, match="serves one agent"):
        Host(two, Options(mode="single", state_root=tmp_path))
    with pytest.raises(ProjectError, match="slug 'a'"):
        Host([two[0], Project.of(agent(), slug="a")], Options(state_root=tmp_path))
    for slug in ("..", ".", "v1", "docs", "a/b", "Agent", "agent ", ""):
        with pytest.raises(ProjectError):
            Project.of(agent(), slug=slug)
