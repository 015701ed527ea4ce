"""What must be visible outside when all is at rest: every answer, once, and its receipt here."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.kill.host import HostProcess
from tests.kill.outbound.load import Rooms, get
from tests.kill.outbound.service import Service

from threadline.testing.laws import violations

__all__ = ["check", "settle"]


async def settle(rooms: Rooms, seconds: float) -> list[str]:
    """Wait until every delivery shows a receipt; return a sentence for each that does not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    problems = []
    for delivery_id in rooms.acknowledged:
        while True:
            wire = await get(rooms.http, f"/v1/deliveries/{delivery_id}")
            if wire["outbound"] and all("intentAt" not in post for post in wire["outbound"]):
                break
            if loop.time() > deadline:
                problems.append(f"{delivery_id} has no receipt: {wire}")
                break
            await asyncio.sleep(0.05)
    return problems


@dataclass(slots=True)
class _Chain:
    """A prompt's turns: the first, and those that resumed it."""

    origin: str
    deliveries: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)


async def check(host: HostProcess, rooms: Rooms, service: Service) -> list[str]:
    """Return a sentence for each promise that was broken."""
    problems, expected, answered = [], Counter[str](), {}
    by_session: defaultdict[str, list[str]] = defaultdict(list)
    for delivery_id, session_id in rooms.acknowledged.items():
        by_session[session_id].append(delivery_id)
    for session_id, accepted in by_session.items():
        log = host.log_bytes(session_id)
        problems += [f"{session_id}: {p}" for p in violations(log, accepted, at_rest=True)]
        for chain in _chains([json.loads(line) for line in log.splitlines()]):
            problems += _visible(session_id, chain, service, expected)
            answered |= dict.fromkeys(chain.deliveries, f"{session_id}/room/answer/{chain.origin}")
    problems += _strangers(service, expected)
    problems += await _receipts(rooms, service, answered)
    return problems + list(_said(host))


def _chains(events: list[dict[str, Any]]) -> list[_Chain]:
    chains: dict[str, _Chain] = {}
    for event in events:
        data, turn_id = event["data"], event.get("turnId")
        if turn_id is None or event["type"] == "turn.queued":
            # A host that dies meanwhile takes the waiting turn's id along.
            continue
        if event["type"] == "turn.started" and data.get("resumes"):
            chains[turn_id] = chains[data["resumes"]]
        chain = chains.setdefault(turn_id, _Chain(turn_id))
        if event["type"] == "message.received":
            chain.deliveries += data["deliveryIds"]
        elif event["type"] == "nudge.delivered":
            chain.deliveries.append(data["deliveryId"])
        elif event["type"] == "message.completed" and data["finishReason"] == "stop":
            chain.answers.append(data["text"])
        elif event["type"] == "turn.failed" and not data["code"].startswith("host_"):
            chain.failures.append(event["index"])
    return list({chain.origin: chain for chain in chains.values()}.values())


def _visible(
    session_id: str, chain: _Chain, service: Service, expected: Counter[str]
) -> Iterator[str]:
    place = f"{session_id}/room"
    if chain.answers:
        name = f"{place}/answer/{chain.origin}"
        expected[name] += 1
        texts = [message.text for message in service.of(name)]
        if texts != [chain.answers[-1]]:
            yield f"{name} shows {texts} instead of {chain.answers[-1:]}"
    elif not chain.failures:
        yield f"{place}: turn {chain.origin} has neither an answer nor a failure"
    for index in chain.failures:
        name = f"{place}/event/{index}"
        expected[name] += 1
        if len(service.of(name)) != 1:
            yield f"{name} shows {service.of(name)}"


def _strangers(service: Service, expected: Counter[str]) -> Iterator[str]:
    shown = Counter(message.id for message in service.messages)
    for name, count in shown.items():
        if count > 1:
            yield f"{name} is there {count} times"
        if name not in expected:
            yield f"{name} belongs to no turn"


async def _receipts(rooms: Rooms, service: Service, answered: dict[str, str]) -> list[str]:
    problems = []
    for delivery_id in rooms.acknowledged:
        wire = await get(rooms.http, f"/v1/deliveries/{delivery_id}")
        refs = [post.get("ref") for post in wire["outbound"]]
        wanted = [message.ref for message in service.of(answered.get(delivery_id, ""))]
        if not refs or None in refs or not set(wanted) <= set(refs):
            problems.append(f"{delivery_id} shows {wire['outbound']}, and {wanted} are there")
    return problems


def _said(host: HostProcess) -> Iterator[str]:
    """The host reported no error of its own, and no handler failed."""
    for line in host.log.read_bytes().splitlines():
        if b'"level": "error"' in line or line.startswith(b"Traceback"):
            yield f"the host said: {line.decode('utf-8', 'replace')[:1500]}"
