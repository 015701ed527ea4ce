"""The fixtures as an author's own tests use them, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

USES = """
from threadline import Accepted, Channel, RouteContext
from threadline.testing import Gated, ManualClock

def make():
    channel = Channel(admission="coalesce")

    @channel.post("/say")
    async def say(ctx: RouteContext, body: str) -> Accepted:
        return Accepted(await ctx.send(body, continuation_token="t"))

    return channel

async def test_a_host(threadline_host, manual_clock, faulty_disk):
    async with threadline_host(
        make, harness=Gated(), clock=manual_clock, disk=faulty_disk
    ) as host:
        answer = await host.post("/v1/channels/channel/say", json="hi")
        assert answer.status == 202, answer.text
        session = host.session(answer.json()["sessionId"])
        await session.rest()
        assert session.replies == ["hi"]
        await host.crash()
        await session.rest()
        host.check_laws()

async def test_two_hosts(threadline_host):
    async with threadline_host(make) as one, threadline_host(make) as two:
        assert one.url != two.url
        assert one.root != two.root

def test_the_doubles(manual_clock, faulty_disk):
    assert manual_clock.monotonic() == 0.0
    assert isinstance(manual_clock, ManualClock)
    assert not faulty_disk.dead
"""

FORGETS = """
from threadline import Channel

async def test_it_forgets(threadline_host):
    await threadline_host(Channel()).start()
"""


def test_the_fixtures_work(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(USES)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("*warning*")


def test_a_host_that_runs_on_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(FORGETS)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*A host still runs: use 'async with threadline_host*"])


def test_they_are_listed_with_what_they_do(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["manual_clock*", "faulty_disk*", "threadline_host*"])


@pytest.mark.parametrize("module", ["threadline.testing", "threadline.testing.plugin"])
def test_it_is_cheap_to_import(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"aiohttp", "pydantic", "structlog", "sqlite3", "pydantic_ai"}
    assert heavy.isdisjoint(run.stdout.split())
    assert run.stderr == ""
