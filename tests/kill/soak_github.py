"""Kill a host that people talk to at GitHub, then look for every answer, review and check: once.

``python -m tests.kill.soak_github --threads 200 --kills 20``
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path

import aiohttp
from tests.kill.github.checks import settle, standing
from tests.kill.github.traffic import Traffic
from tests.kill.host import HostProcess
from tests.kill.soak_shared import Answered, Killer, command

from threadline_github.testing import FakeGitHub

__all__ = ["soak"]

PROJECT = Path(__file__).parent / "github" / "project"
HOOK = "/v1/channels/github"
SETTLE_SECONDS = 90.0
REPEATED = 40


async def soak(
    folder: Path,
    *,
    threads: int,
    kills: int,
    clients: int,
    seed: int,
    seconds: float,
    worktree: bool = False,
) -> Answered:
    """Run it all in a folder; raises TimeoutError when it takes longer than ``seconds``."""
    began = time.monotonic()
    async with asyncio.timeout(seconds), FakeGitHub() as github:
        environment = {**github.environ, "KILL_WORKTREE": "1" if worktree else "0"}
        host = HostProcess(folder, project=PROJECT, environment=environment)
        code = folder / "code" if worktree else None
        traffic = Traffic(github, threads, clients, seed, code)
        traffic.prepare(host.url + HOOK)
        killer = Killer(host, kills, random.Random(seed), traffic.hold)
        try:
            await host.start()
            await host.ready()
            async with asyncio.TaskGroup() as group:
                working = group.create_task(traffic.run())
                group.create_task(killer.run(lambda: traffic.begun, threads, working))
            async with aiohttp.ClientSession(host.url) as http:
                problems = await settle(host, http, traffic, SETTLE_SECONDS)
                problems += await _unchanged(host, http, traffic)
        finally:
            await host.kill()
        counts = traffic.counts + _counts(github, host)
    questions = len(traffic.asked)
    spent = time.monotonic() - began
    asked = f"{questions} questions in {traffic.begun} conversations"
    return Answered(asked, traffic.begun, questions, killer.killed, counts, spent, problems)


def _counts(github: FakeGitHub, host: HostProcess) -> Counter[str]:
    sent = github.deliveries()
    return Counter(
        {
            "deliveries": len(sent),
            "deliveries that failed": sum(not one.ok for one in sent),
            "deliveries fetched": host.log.read_bytes().count(b'"github.delivery_fetched"'),
            "comments": len(github.calls("POST", "*/comments")),
            "edits": len(github.calls("PATCH", "*/comments/*")),
            "reviews": len(github.calls("POST", "*/reviews")),
            "check runs": len(github.calls("POST", "*/check-runs")),
        }
    )


async def _unchanged(host: HostProcess, http: aiohttp.ClientSession, traffic: Traffic) -> list[str]:
    """Another kill, deliveries that come again, and a drain at rest change nothing."""
    github, before = traffic.github, standing(host, traffic)
    await host.kill()
    await host.start()
    await host.ready()
    taken = [one for one in github.deliveries() if one.ok]
    for delivery in random.Random(traffic.seed).sample(taken, min(REPEATED, len(taken))):
        github.webhooks.redeliver(delivery)
    problems = await settle(host, http, traffic, SETTLE_SECONDS)
    code = await host.terminate()
    if code != 0:
        problems.append(f"SIGTERM ended the host with {code}:\n{host.tail()}")
    after = standing(host, traffic)
    return problems + [
        f"a restart and repeats at rest changed {name}: {before.get(name)} {after.get(name)}"[:600]
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    ]


def main() -> int:
    """Run from the command line; 1 when a promise was broken."""
    return command(__doc__, soak, {"threads": 200, "kills": 20, "clients": 12}, _declare)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--worktree", action="store_true", help="check real git repositories out")


if __name__ == "__main__":
    sys.exit(main())
