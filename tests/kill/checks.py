"""What must be true of every session when all is at rest."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import aiohttp

from threadline.testing.laws import violations

if TYPE_CHECKING:
    from tests.kill.host import HostProcess
    from tests.kill.load import Load

__all__ = ["at_rest", "check"]

RESTING = ("waiting", "completed", "failed")


async def at_rest(load: Load, seconds: float) -> None:
    """Return when every session rests and the ledger knows every outcome."""
    async with asyncio.timeout(seconds):
        for session_id in load.readers:
            while True:
                if await _status(load, session_id) in RESTING:
                    break
                await asyncio.sleep(0.02)
        for delivery_id in load.acknowledged:
            while True:
                if (await _get(load, f"/v1/deliveries/{delivery_id}"))["state"] != "accepted":
                    break
                await asyncio.sleep(0.05)


async def _status(load: Load, session_id: str) -> str:
    answer = await _get(load, f"/v1/sessions?sessionId={session_id}")
    return str(answer["sessions"][0]["status"])


async def _get(load: Load, path: str) -> dict[str, Any]:
    while True:
        try:
            async with load.http.get(path) as answer:
                answer.raise_for_status()
                body: dict[str, Any] = await answer.json()
                return body
        except (aiohttp.ClientConnectionError, ConnectionError):
            await asyncio.sleep(0.05)


async def check(host: HostProcess, load: Load) -> list[str]:
    """Return a sentence for each promise that was broken."""
    logs = {session_id: host.log_bytes(session_id) for session_id in load.readers}
    problems = [*_logs(load, logs), *_strangers(load, logs)]
    problems += await _readers(load, logs)
    problems += await _ledger(load, logs)
    problems += [*_handled(host, logs), *_said(host)]
    for sent in list(load.acknowledged.values()):
        await load.repeat(sent)
    return [*load.problems, *problems]


def _logs(load: Load, logs: dict[str, bytes]) -> Iterator[str]:
    accepted: dict[str, list[str]] = defaultdict(list)
    for sent in load.acknowledged.values():
        accepted[sent.session_id].append(sent.delivery_id)
    for session_id, log in logs.items():
        for problem in violations(log, accepted[session_id], at_rest=True):
            yield f"{session_id}: {problem}"


def _strangers(load: Load, logs: dict[str, bytes]) -> Iterator[str]:
    """An id has one outcome in all logs together, and only what was sent has one."""
    named = Counter(name for log in logs.values() for name, *_ in _outcomes(log))
    for delivery_id, count in named.items():
        if count > 1:
            yield f"{delivery_id} has {count} outcomes"
        if delivery_id not in load.sent_ids:
            yield f"{delivery_id} was never sent"


def _events(log: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.split(b"\n") if line]


def _outcomes(log: bytes) -> Iterator[tuple[str, str, int, str | None]]:
    for event in _events(log):
        data = event.get("data") or {}
        place = (event["index"], event.get("turnId"))
        if event["type"] == "message.received":
            yield from ((name, "prompted", *place) for name in data["deliveryIds"])
        elif event["type"] == "nudge.delivered":
            yield (data["deliveryId"], "steered", *place)
        elif event["type"] == "deliveries.cleared":
            yield from ((name, "cleared", *place) for name in data["deliveryIds"])


async def _readers(load: Load, logs: dict[str, bytes]) -> list[str]:
    problems = []
    for session_id, reader in load.readers.items():
        try:
            async with asyncio.timeout(20):
                await reader.until(logs[session_id].count(b"\n"))
        except TimeoutError:
            problems.append(f"the reader of {session_id} is stuck behind index {reader.last}")
        problems += reader.problems
        if reader.stored != logs[session_id]:
            problems.append(f"the reader of {session_id} read other bytes than are stored")
    return problems


async def _ledger(load: Load, logs: dict[str, bytes]) -> list[str]:
    said = {
        name: (state, index, turn)
        for log in logs.values()
        for name, state, index, turn in _outcomes(log)
    }
    problems = []
    for delivery_id, sent in load.acknowledged.items():
        wire = await _get(load, f"/v1/deliveries/{delivery_id}")
        found = (wire["state"], wire.get("eventIndex"), wire.get("turnId"))
        if found != said.get(delivery_id) or wire["sessionId"] != sent.session_id:
            problems.append(f"{delivery_id}: the log says {said.get(delivery_id)}, GET {wire}")
    return problems


def _handled(host: HostProcess, logs: dict[str, bytes]) -> Iterator[str]:
    """The desk's handler saw each ``turn.completed`` of its sessions, in order, at least once."""
    seen: dict[str, list[int]] = defaultdict(list)
    lines = host.handled.read_text().splitlines() if host.handled.exists() else []
    for line in lines:
        session_id, index = json.loads(line)
        if index not in seen[session_id]:
            seen[session_id].append(index)
    for session_id, log in logs.items():
        events = _events(log)
        if events[0]["data"]["channel"] != "desk":
            continue
        wanted = [event["index"] for event in events if event["type"] == "turn.completed"]
        if seen[session_id] != wanted:
            yield f"{session_id}: the handler saw {seen[session_id]} of {wanted}"


def _said(host: HostProcess) -> Iterator[str]:
    """The host reported no error of its own."""
    for line in host.log.read_bytes().splitlines():
        if b'"level": "error"' in line or line.startswith(b"Traceback"):
            yield f"the host said: {line.decode('utf-8', 'replace')[:1500]}"
