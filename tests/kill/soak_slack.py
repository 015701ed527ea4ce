"""Kill a host that people talk to in Slack, then look for every answer: once, in its thread.

``python -m tests.kill.soak_slack --threads 500 --kills 20 --socket``
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import aiohttp
from tests.kill.host import HostProcess
from tests.kill.slack.checks import check, settle
from tests.kill.slack.traffic import CHANNELS, STREAMING, Traffic
from tests.kill.soak_shared import Answered, Killer, command

from threadline.testing.gates import CallGate, Place
from threadline_slack.testing import FakeSlack

__all__ = ["Reply", "soak"]

PROJECT = Path(__file__).parent / "slack" / "project"
EVENTS = "/v1/channels/slack/events"
Reply: TypeAlias = Literal["post", "stream", "agent"]
SETTLE_SECONDS = 60.0


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
) -> Answered:
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

        def hold(dice: random.Random, place: Place) -> CallGate:
            return slack.hold(dice.choice(traffic.posting), place, times=1)

        killer = Killer(host, kills, random.Random(seed), hold)
        try:
            await host.start()
            await host.ready()
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(traffic.run())
                group.create_task(killer.run(lambda: traffic.begun, threads, asking))
            async with aiohttp.ClientSession(host.url) as http:
                problems = await settle(http, traffic, SETTLE_SECONDS)
                problems += await check(host, http, traffic)
            problems += await _unchanged(host, slack)
        finally:
            await host.kill()
        counts = traffic.counts + _counts(slack)
    questions = len(traffic.asked)
    spent = time.monotonic() - began
    asked = f"{questions} questions in {traffic.begun} threads"
    return Answered(asked, traffic.begun, questions, killer.killed, counts, spent, problems)


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
    return command(__doc__, soak, {"threads": 500, "kills": 20, "clients": 16}, _declare)


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", action="store_true", help="events by Socket Mode, not by HTTP")
    parser.add_argument("--reply", choices=get_args(Reply), default="post")


if __name__ == "__main__":
    sys.exit(main())
