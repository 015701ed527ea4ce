"""Kill a host that people talk to in Slack, then look for every answer: once, in its thread.

``python -m tests.kill.soak_slack --threads 500 --kills 20 --socket``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import aiohttp
from tests.kill.host import HostProcess
from tests.kill.slack.checks import check, settle
from tests.kill.slack.traffic import CHANNELS, STREAMING, Traffic

from threadline_slack.testing import FakeSlack

__all__ = ["Reply", "Report", "soak"]

PROJECT = Path(__file__).parent / "slack" / "project"
EVENTS = "/v1/channels/slack/events"
AGAIN = 0.2
Reply: TypeAlias = Literal["post", "stream", "agent"]
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """What happened; ``problems`` is empty when every promise was kept."""

    threads: int
    questions: int
    kills: Counter[str]
    counts: Counter[str]
    seconds: float
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a few lines for people."""
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items()))
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        head = (
            f"{self.questions} questions in {self.threads} threads; kills: {kills}; "
            f"{counts}; {self.seconds:.0f} s"
        )
        if not self.problems:
            return f"{head}: every answer is there once."
        more = len(self.problems) - 40
        shown = [*self.problems[:40], *([f"and {more} more"] if more > 0 else [])]
        return "\n- ".join([f"{head}:", *shown])


async def soak(
    folder: Path,
    *,
    threads: int,
    kills: int,
    clients: int,
    seed: int,
    seconds: float,
    socket: bool = False,
    reply: Reply = "post",
) -> Report:
    """Run it all in a folder; raises TimeoutError when it takes longer than ``seconds``."""
    began = time.monotonic()
    async with asyncio.timeout(seconds), FakeSlack() as slack:
        host = HostProcess(folder, project=PROJECT, environment=_environment(slack, socket, reply))
        slack.app.socket_mode = socket
        slack.app.request_url = None if socket else host.url + EVENTS
        traffic = Traffic(slack, threads, clients, seed)
        if reply == "stream":
            traffic.posting = ("chat.postMessage", *STREAMING)
        traffic.prepare()
        killer = _Killer(host, traffic, kills, random.Random(seed))
        try:
            await host.start()
            await host.ready()
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(traffic.run())
                group.create_task(killer.run(asking))
            async with aiohttp.ClientSession(host.url) as http:
                problems = await settle(http, traffic, SETTLE_SECONDS)
                problems += await check(host, http, traffic)
            problems += await _unchanged(host, slack)
        finally:
            await host.kill()
        counts = traffic.counts + _counts(slack)
    questions = len(traffic.asked)
    spent = time.monotonic() - began
    return Report(traffic.begun, questions, killer.killed, counts, spent, problems)


def _environment(slack: FakeSlack, socket: bool, reply: Reply) -> dict[str, str]:
    trusted = {
        "KILL_REPLY": reply,
        "SLACK_APP_TOKEN": slack.app.app_token if socket else "",
        "SLACK_SIGNING_SECRET": "" if socket else slack.app.signing_secret,
    }
    return {"SLACK_BOT_TOKEN": slack.app.bot_token, "SLACK_API_URL": slack.api_url, **trusted}


def _counts(slack: FakeSlack) -> Counter[str]:
    sent = slack.deliveries()
    return Counter(
        {
            "events": len(sent),
            "events sent again": sum(len(one.attempts) - 1 for one in sent),
            "posts": len(slack.calls("chat.postMessage")),
            "streams": len(slack.calls("chat.startStream")),
            "edits": len(slack.calls("chat.update")),
        }
    )


@dataclass(slots=True)
class _Killer:
    """Kills at random moments; every other time while a post is on its way or has just arrived."""

    host: HostProcess
    traffic: Traffic
    kills: int
    dice: random.Random
    killed: Counter[str] = field(default_factory=Counter)

    async def run(self, asking: asyncio.Task[None]) -> None:
        """Kill so often, spread over the traffic."""
        moments = sorted(self.dice.sample(range(max(self.traffic.threads, self.kills)), self.kills))
        while (done := self.killed.total()) < self.kills:
            while self.traffic.begun < moments[done] and not asking.done():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            await self._strike()
            await self.host.start()
            if self.dice.random() < AGAIN and self.killed.total() < self.kills:
                # While it is starting, or has just begun to look for what it left.
                await asyncio.sleep(self.dice.uniform(0.2, 1.2))
                await self._kill("while starting")
                await self.host.start()
            await self.host.ready()

    async def _strike(self) -> None:
        """Kill now; what is on its way takes effect, if at all, before the next host starts."""
        places: list[Literal["before", "after"] | None] = [None, "before", "after"]
        place = self.dice.choice(places)
        if place is None:
            await asyncio.sleep(self.dice.uniform(0.0, 0.1))
            await self._kill("at any moment")
            return
        method = self.dice.choice(self.traffic.posting)
        gate = self.traffic.slack.hold(method, place, times=1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while not gate.arrived:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
        await self._kill(f"{place} a post" if gate.arrived else "at any moment")
        gate.release()

    async def _kill(self, when: str) -> None:
        await self.host.kill()
        self.killed[when] += 1


async def _unchanged(host: HostProcess, slack: FakeSlack) -> list[str]:
    """Another kill and a drain at rest post nothing, and change nothing."""
    before = _posts(slack)
    await host.kill()
    await host.start()
    await host.ready()
    code = await host.terminate()
    problems = [] if code == 0 else [f"SIGTERM ended the host with {code}:\n{host.tail()}"]
    if before != _posts(slack):
        problems.append("a restart at rest changed what is visible")
    return problems


def _posts(slack: FakeSlack) -> list[tuple[str, str, str | None]]:
    return [
        (post.ts, post.text, str(post.edited))
        for channel in CHANNELS
        for post in slack.state.channel(channel).posts.values()
    ]


def main() -> int:
    """Run from the command line; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--socket", action="store_true", help="events by Socket Mode, not by HTTP")
    parser.add_argument("--reply", choices=get_args(Reply), default="post")
    parser.add_argument("--keep", type=Path, help="run in this folder and leave it")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="threadline-soak-") as folder:
        place = options.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(
            soak(
                place,
                threads=options.threads,
                kills=options.kills,
                clients=options.clients,
                seed=seed,
                seconds=options.seconds,
                socket=options.socket,
                reply=options.reply,
            )
        )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
