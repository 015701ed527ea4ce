"""``make demo-github`` serves a GitHub and an agent in it, and Ctrl-C ends both."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from threadline_github.setup.demo.servers import free_port

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SECONDS, INSTALLING = 60, 300
UNSET = ("THREADLINE_", "ANTHROPIC_", "OPENAI_", "GITHUB_")


@dataclass
class Demo:
    """The demo as it runs, seen from its terminal."""

    process: asyncio.subprocess.Process
    ahead: str = ""

    async def until(self, *words: str, seconds: float = SECONDS) -> str:
        """Read on until all these are there, regular expressions; returns what the last one was."""
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            while not all(found := [re.search(one, self.ahead, re.MULTILINE) for one in words]):
                line = (await self.process.stdout.readline()).decode()
                assert line, self.ahead
                self.ahead += line
        last = max((one for one in found if one), key=lambda one: one.end())
        self.ahead = self.ahead[last.end() :]
        return last[0]

    async def address(self, kind: str, seconds: float = SECONDS) -> str:
        """Return where its GitHub is, once all is up."""
        said = await self.until(rf"^{kind} is at http://127\.0\.0\.1:\d+", seconds=seconds)
        await self.until(r"^Ctrl-C ends both\.$")
        return said.rpartition(" ")[2]

    async def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        await self.process.stdin.drain()

    async def end(self) -> int:
        """Press Ctrl-C, which reaches every process of the terminal's group."""
        os.killpg(self.process.pid, signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def demo(*options: str, path: Path | None = None) -> AsyncIterator[Demo]:
    """Run the target in the environment of this Python, which is installed already.

    ``path`` is a folder of programs that come before all others.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith(UNSET)}
    env["PATH"] = f"{path}:{env['PATH']}" if path is not None else env["PATH"]
    installed = f"{sys.prefix}/.installed"
    command = ["make", "-s", "demo-github", f"VENV={sys.prefix}", "-o", installed, *options]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=env | {"PR_REVIEWER_PACE": "0"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield Demo(process)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


async def is_gone(url: str) -> bool:
    async with aiohttp.ClientSession() as http:
        try:
            async with http.get(url):
                return False
        except aiohttp.ClientConnectionError:
            return True


async def played(running: Demo) -> None:
    """See the review, ask, push, and close."""
    await running.until(r"^ada opened acme/shop#\d+: Take coupons")
    await running.until(
        r"^Check pr-reviewer on \w+: failure",
        r"^pr-reviewer\[bot\] asks for changes:",
        r"^pr-reviewer\[bot\] at shop/coupons\.py:16:",
        r"^  \| \*\*Not ready to merge",
    )
    await running.type("@pr-reviewer why is the bare except a problem?")
    await running.until(r"^ada:\n")
    await running.until(r"^  \| .*KeyboardInterrupt.* It is at `shop/coupons\.py:16`")
    await running.type("/push")
    await running.until(r"^ada pushed \w{7}")
    await running.until(r"^Check pr-reviewer on \w+: success")
    await running.type("/close")
    await running.until(r"^The pull request is closed")


async def test_the_local_github_server() -> None:
    async with demo() as running:
        url = await running.address("The local GitHub server", INSTALLING)
        await played(running)
        await running.end()
        assert await is_gone(url)


async def test_where_there_is_no_such_server(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho false\n")
    node.chmod(0o755)
    port = free_port()
    async with demo(f"GITHUB_PORT={port}", path=tmp_path) as running:
        await running.until(r"^The local GitHub server needs Node\.js 20 or newer")
        assert await running.address("FakeGitHub") == f"http://127.0.0.1:{port}"


async def test_fake_github() -> None:
    async with demo("FAKE=1") as running:
        url = await running.address("FakeGitHub")
        await played(running)
        await running.end()
        assert await is_gone(url)
