"""Commands of a tool: a small environment, bounded output, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from threadline.agent.context import ToolContext
from threadline.agent.started import SCOPE, Started, current, within
from threadline.errors import ToolFailed

PYTHON = sys.executable
ORPHAN = "import os, time\nif os.fork():\n    os._exit(0)\nos.setsid()\ntime.sleep(600)\n"


@pytest.fixture
def started() -> Started:
    return Started("c1")


def alive(started: Started) -> list[int]:
    return [process.pid for process in started.alive()]


async def test_a_command_runs_in_the_workspace_without_the_hosts_secrets(
    ctx: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "s3cret")
    ctx.workspace = tmp_path
    told = "import os, sys; print(os.getcwd(), os.environ.get('API_KEY'), os.environ['MORE'])"
    done = await ctx.run(PYTHON, "-c", told, env={"MORE": "yes"})
    assert (done.returncode, done.text.split()) == (0, [str(tmp_path), "None", "yes"])
    home = await ctx.run(PYTHON, "-c", "import os; print(os.environ['HOME'])")
    assert not Path(home.text.strip()).exists()


async def test_standard_input_ends_and_a_failure_has_its_code(ctx: ToolContext) -> None:
    done = await ctx.run("cat", stdin="hello")
    assert done.text == "hello"
    assert (await ctx.run("cat")).text == ""
    assert (await ctx.run("sh", "-c", "echo no >&2; exit 3")).returncode == 3
    with pytest.raises(OSError, match="no-such-command"):
        await ctx.run("no-such-command")


async def test_what_is_printed_beyond_the_limit_is_dropped(ctx: ToolContext) -> None:
    shout = "import sys\nfor _ in range(1600): sys.stdout.write('x' * 65536)"
    done = await ctx.run(PYTHON, "-c", shout, limit=1000)
    assert (done.returncode, len(done.stdout), done.truncated) == (0, 1000, True)


async def test_a_command_that_takes_too_long_takes_its_children_along(
    ctx: ToolContext, started: Started
) -> None:
    with within(started), pytest.raises(TimeoutError):
        await ctx.run("sh", "-c", f"{PYTHON} -c '{ORPHAN}'; sleep 600", timeout=0.5)
    assert alive(started) == []


async def test_what_a_command_leaves_running_ends_with_it(
    ctx: ToolContext, started: Started
) -> None:
    with within(started):
        done = await ctx.run(PYTHON, "-c", ORPHAN)
    assert done.returncode == 0
    assert alive(started) == []


async def test_a_cancelled_command_is_gone(ctx: ToolContext, started: Started) -> None:
    with within(started):
        task = asyncio.ensure_future(ctx.run("sh", "-c", "trap '' TERM; sleep 600 & wait"))
    while not alive(started):  # noqa: ASYNC110 - processes begin without telling
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(started) == []


async def test_a_call_that_was_given_up_starts_nothing_more(
    ctx: ToolContext, started: Started
) -> None:
    assert await started.stop() == 0
    with within(started), pytest.raises(ToolFailed, match="no more processes"):
        await ctx.run("true")


def test_outside_of_calls_nothing_is_marked() -> None:
    assert current() is None
    assert SCOPE not in os.environ
    mine: dict[str, Any] = psutil.Process().environ()
    assert SCOPE not in mine
