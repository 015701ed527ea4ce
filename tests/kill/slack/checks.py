"""What must stand in Slack when all is at rest: every question's answer, once, in its thread."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import aiohttp
from tests.kill.host import HostProcess
from tests.kill.slack.traffic import CHANNELS, Question, Traffic

from threadline.testing.laws import violations
from threadline_slack.testing import DEFAULTS, FakeSlack, Message
from threadline_slack.testing.wire import visible_text

__all__ = ["check", "settle"]

NAMES = re.compile(r"(?<!end-)\bq[0-9]+x[0-9]+\b")
ENDS = re.compile(r"\bend-(q[0-9]+x[0-9]+)\b")
TURN = re.compile(r"\(`?(turn_\w+)`?\)")


async def settle(http: aiohttp.ClientSession, traffic: Traffic, seconds: float) -> list[str]:
    """Wait until Slack has sent everything and every delivery shows a receipt."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    slack, problems = traffic.slack, []
    await slack.until(lambda: all(one.done for one in slack.deliveries()), patience=seconds)
    for question in traffic.asked:
        while not _at_rest(wire := await _wire(http, question)):
            if loop.time() > deadline:
                problems.append(f"{question} has no receipt: {wire}")
                break
            await asyncio.sleep(0.05)
    return problems


async def _wire(http: aiohttp.ClientSession, question: Question) -> dict[str, Any]:
    """Ask the host for a delivery, also while it is starting; empty when it knows of none."""
    while True:
        try:
            async with http.get(f"/v1/deliveries/{question.delivery_id}") as answer:
                if answer.status == 404:
                    return {}
                answer.raise_for_status()
                body: dict[str, Any] = await answer.json()
                return body
        except (aiohttp.ClientConnectionError, ConnectionError):
            await asyncio.sleep(0.05)


def _at_rest(wire: dict[str, Any]) -> bool:
    posts = wire.get("outbound", [])
    return bool(posts) and all("intentAt" not in post for post in posts)


async def check(host: HostProcess, http: aiohttp.ClientSession, traffic: Traffic) -> list[str]:
    """Return a sentence for each promise that was broken."""
    slack = traffic.slack
    problems = [f"never acknowledged: {one.event}" for one in _lost(slack)]
    sessions: defaultdict[str, list[Question]] = defaultdict(list)
    for question in traffic.asked:
        wire = await _wire(http, question)
        if "sessionId" in wire:
            sessions[wire["sessionId"]].append(question)
    failed: dict[str, set[str]] = {}
    for session_id, questions in sessions.items():
        log = host.log_bytes(session_id)
        ids = [question.delivery_id for question in questions]
        problems += [f"{session_id}: {p}" for p in violations(log, ids, at_rest=True)]
        failed |= _failed([json.loads(line) for line in log.splitlines()])
        if len({question.thread for question in questions}) > 1:
            problems.append(f"{session_id} has the questions of several threads: {questions}")
    return [*problems, *_visible(slack, traffic, failed), *_said(host)]


def _lost(slack: FakeSlack) -> list[Any]:
    """Return the posts that no host ever acknowledged."""
    posts = [
        one for one in slack.deliveries() if one.event.get("type") in ("message", "app_mention")
    ]
    return [one for one in posts if one.done and not one.accepted]


def _failed(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the deliveries of each turn that ended without an answer, and is not resumed."""
    chains: dict[str, set[str]] = {}
    failed = {}
    for event in events:
        data, turn_id = event["data"], event.get("turnId")
        if turn_id is None:
            continue
        if event["type"] == "turn.started" and data.get("resumes"):
            chains[turn_id] = chains.setdefault(data["resumes"], set())
        chain = chains.setdefault(turn_id, set())
        if event["type"] == "message.received":
            chain.update(data["deliveryIds"])
        elif event["type"] == "nudge.delivered":
            chain.add(data["deliveryId"])
        elif event["type"] == "turn.failed" and not data["code"].startswith("host_"):
            failed[turn_id] = chain
    return failed


def _visible(slack: FakeSlack, traffic: Traffic, failed: dict[str, set[str]]) -> Iterator[str]:
    """Every question is named by one message of the bot, in its thread, and by no other.

    A long answer has its end there, once; of one that became shorter no end is left.
    """
    shown: defaultdict[str, list[Message]] = defaultdict(list)
    wanted, ends = Counter[str](), Counter[str]()
    for message in _by_bot(slack):
        text = visible_text(message)
        names = NAMES.findall(text)
        for name in names:
            shown[name].append(message)
        for turn_id in TURN.findall(text):
            for delivery_id in failed.get(turn_id, ()):
                shown[delivery_id].append(message)
        wanted.update(names[:1] if "at some length" in text else ())
        ends.update(ENDS.findall(text))
    for question in traffic.asked:
        found = shown.pop(question.name, []) + shown.pop(question.delivery_id, [])
        if [(one.channel, one.root) for one in found] != [(question.channel, question.thread)]:
            yield f"{question} is answered by {[_told(one) for one in found]}"
    yield from (f"{name} was never asked, and is answered" for name in shown)
    for name in wanted.keys() | ends.keys():
        if ends[name] != wanted[name]:
            yield f"the end of the answer to {name} is there {ends[name]} times, not {wanted[name]}"


def _by_bot(slack: FakeSlack) -> Iterator[Message]:
    for channel in CHANNELS:
        for message in slack.state.channel(channel).posts.values():
            if not message.deleted and message.user == DEFAULTS["bot_user"]:
                yield message


def _told(message: Message) -> str:
    kind = "post" if message.stream is None else f"stream, {message.stream.state}"
    text = visible_text(message)[:80]
    return f"{kind} {message.ts} in {message.root}: {text!r} {message.metadata}"


def _said(host: HostProcess) -> Iterator[str]:
    """The host reported no error of its own, and no handler failed."""
    for line in host.log.read_bytes().splitlines():
        if b'"level": "error"' in line or line.startswith(b"Traceback"):
            yield f"the host said: {line.decode('utf-8', 'replace')[:1500]}"
