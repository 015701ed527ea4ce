"""``make demo-slack`` serves a Slack and an agent in it, and Ctrl-C ends both."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from threadline_slack.setup.demo.servers import free_port

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SECONDS, INSTALLING = 60, 300
CHANNEL, PERSON, BOT = "C0CHAN0001", "U0HUMAN001", "U0AGENT001"
UNSET = ("THREADLINE_", "ANTHROPIC_", "OPENAI_", "SLACK_")


@dataclass
class Demo:
    """The demo as it runs, seen from outside."""

    process: asyncio.subprocess.Process
    said: str
    http: aiohttp.ClientSession

    @property
    def url(self) -> str:
        """Where its Slack is."""
        found = re.search(r"is at (http://127\.0\.0\.1:\d+)$", self.said, re.M)
        assert found is not None, self.said
        return found[1]

    async def until(self, look: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(SECONDS):
            while True:
                if found := await look():
                    return found
                await asyncio.sleep(0.05)

    async def end(self) -> int:
        """Press Ctrl-C, which reaches every process of the terminal's group."""
        os.killpg(self.process.pid, signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()

    async def is_gone(self, url: str) -> bool:
        try:
            async with self.http.get(url):
                return False
        except aiohttp.ClientConnectionError:
            return True


@asynccontextmanager
async def demo(*options: str, path: Path | None = None) -> AsyncIterator[Demo]:
    """Run the target in the environment of this Python, which is installed already.

    ``path`` is a folder of programs that come before all others.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith(UNSET)}
    env["PATH"] = f"{path}:{env['PATH']}" if path is not None else env["PATH"]
    installed = f"{sys.prefix}/.installed"
    command = ["make", "-s", "demo-slack", f"VENV={sys.prefix}", "-o", installed, *options]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=env | {"SLACK_HELPER_PACE": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(INSTALLING), aiohttp.ClientSession() as http:
            while "Ctrl-C ends both." not in said:
                line = (await process.stdout.readline()).decode()
                assert line, said
                said += line
            yield Demo(process, said, http)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


async def test_the_local_slack_server() -> None:
    async with demo() as running:
        assert "The local Slack server is at" in running.said
        control = f"{running.url}/_control"
        body = {"channel": CHANNEL, "user": PERSON, "text": f"<@{BOT}> check the build"}
        async with running.http.post(f"{control}/message", json=body) as answer:
            assert answer.status == 200

        async def answers() -> list[str]:
            async with running.http.get(f"{control}/messages/{CHANNEL}") as answer:
                found = await answer.json(content_type=None)
            messages = found if isinstance(found, list) else found["messages"]
            return [one["text"] for one in messages if one.get("user") == BOT]

        (said,) = await running.until(answers)
        assert "4.2.0" in said
        await examined(running.url)
        await running.end()
        assert await running.is_gone(running.url)


async def examined(url: str) -> None:
    """Run the doctor on the server, which says little of itself."""
    variables = {"BOT_TOKEN": "xoxb-demo", "APP_TOKEN": "xapp-demo", "API_URL": f"{url}/api/"}
    env = {f"SLACK_{name}": value for name, value in variables.items()}
    command = [sys.executable, "-m", "threadline", "slack", "doctor", "examples/slack-helper"]
    process = await asyncio.create_subprocess_exec(
        *command, "--json", cwd=ROOT, env=os.environ | env, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    found = {check["name"]: check for check in json.loads(said)["checks"]}
    assert process.returncode == 0, found
    assert "@launch-helper" in found["bot token"]["said"]
    assert found["clock"]["state"] == found["socket"]["state"] == "ok"
    assert found["scopes"]["state"] == "note"


async def test_where_there_is_no_such_server(tmp_path: Path) -> None:
    uname = tmp_path / "uname"
    uname.write_text("#!/bin/sh\necho Darwin arm64\n")
    uname.chmod(0o755)
    port = free_port()
    async with demo(f"SLACK_PORT={port}", path=tmp_path) as running:
        assert "is published for Linux x86_64 only" in running.said
        assert "FakeSlack, with a small page, is at" in running.said
        assert running.url == f"http://127.0.0.1:{port}"


async def test_fake_slack() -> None:
    async with demo("FAKE=1") as running:
        assert "FakeSlack, with a small page, is at" in running.said
        mention = {"user": PERSON, "channel": CHANNEL, "text": "@launch-helper check the build"}
        async with running.http.post(f"{running.url}/post", json=mention) as answer:
            assert (answer.status, await answer.json()) == (200, {"ok": True})
        async with running.http.get(f"{running.url}/view") as answer:
            (root,) = (await answer.json())["messages"]

        async def answers() -> list[str]:
            query = {"user": PERSON, "channel": CHANNEL, "thread": root["ts"]}
            async with running.http.get(f"{running.url}/view", params=query) as answer:
                thread = (await answer.json())["thread"]
            return [str(one["parts"]) for one in thread if one["bot"]]

        (said,) = await running.until(answers)
        assert "4.2.0" in said
        await running.end()
        assert await running.is_gone(running.url)
