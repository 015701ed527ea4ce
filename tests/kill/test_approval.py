"""``kill -9`` while calls wait for people, are decided and run: no decision is lost or made twice.

``KILL_ROUNDS`` and ``KILL_SEED`` make it longer, or the same again.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.kill.host import HostProcess

from threadline.testing import check_laws

PROJECT = Path(__file__).parent / "approvals"
SESSIONS = 6
UNKNOWN = "interrupted"


@dataclass
class People:
    """Who sends messages and decides calls, and what they were told."""

    host: HostProcess
    client: aiohttp.ClientSession
    dice: random.Random
    sent: dict[str, list[str]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    seen: dict[str, str] = field(default_factory=dict)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with self.client.request(method, self.host.url + path, json=body) as answer:
            return answer.status, orjson.loads(await answer.read())

    async def going(self) -> list[str]:
        """Return the sessions that do not rest."""
        _, found = await self.ask("GET", "/v1/sessions?limit=1000")
        return [s["sessionId"] for s in found["sessions"] if s["status"] != "waiting"]

    async def fill(self) -> None:
        """Start sessions until enough are under way."""
        for _ in range(SESSIONS - len(await self.going())):
            status, answer = await self.ask("POST", "/v1/session", {"message": "go"})
            assert status == 200, answer
            self.sent[answer["sessionId"]] = [answer["deliveryId"]]

    async def look(self) -> dict[str, str]:
        """Return the calls that wait, with their sessions."""
        waiting = {}
        for session in await self.going():
            status, answer = await self.ask("GET", f"/v1/session/{session}/approvals")
            assert status == 200, answer
            waiting.update({call["callId"]: session for call in answer["approvals"]})
        self.seen.update(waiting)
        return waiting

    async def decide(self, session: str, call_id: str, decision: str) -> None:
        """Decide a call; an answer that does not arrive says nothing."""
        self.tried.add(call_id)
        path = f"/v1/session/{session}/approvals/{call_id}"
        status, answer = await self.ask("POST", path, {"decision": decision})
        assert status in (200, 409, 503), answer
        if status == 200:
            assert call_id not in self.told, f"{call_id} was decided twice"
            self.told[call_id] = decision

    async def live(self) -> None:
        """Decide what waits, at random, for as long as the host lives."""
        try:
            while True:
                await self.fill()
                for call_id, session in (await self.look()).items():
                    choice = self.dice.random()
                    if choice < 0.3:
                        continue
                    decision = "denied" if choice < 0.5 else "approved"
                    await self.decide(session, call_id, decision)
                await asyncio.sleep(0.01)
        except (aiohttp.ClientError, orjson.JSONDecodeError):
            return

    async def finish(self) -> None:
        """Approve everything until nothing waits or runs."""
        while await self.going():
            for call_id, session in (await self.look()).items():
                await self.decide(session, call_id, "approved")
            await asyncio.sleep(0.02)


def log_of(host: HostProcess, session: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in host.log_bytes(session).splitlines()]


def check_decisions(people: People, counter: Path) -> None:
    """Compare what people were told, what the logs say, and what was done outside."""
    lines = [line.split() for line in counter.read_text().splitlines()]
    begun = Counter((tool, call) for word, tool, call in lines if word == "begin")
    twice = {call: runs for (tool, call), runs in begun.items() if runs > 1 and tool == "restart"}
    assert not twice, f"{twice} ran twice"
    ran = {call for _, call in begun}
    decided: dict[str, str] = {}
    results: dict[str, dict[str, Any]] = {}
    for folder in sorted((people.host.state / "sessions").glob("ses_*")):
        # Some were started without anybody hearing of it.
        session = folder.name
        check_laws(people.host.log_bytes(session), people.sent.get(session, []))
        for event in log_of(people.host, session):
            data = event["data"]
            if event["type"] == "action.approval_resolved":
                assert data["callId"] not in decided
                decided[data["callId"]] = data["decision"]
            elif event["type"] == "action.result":
                results[data["callId"]] = data
    for call, decision in people.told.items():
        assert decided.get(call) == decision, f"{call} was {decision}, the log: {decided.get(call)}"
    for call, decision in decided.items():
        if decision == "approved":
            unknown = (results[call].get("error") or {}).get("code") == UNKNOWN
            assert call in ran or unknown, f"{call} was approved, and neither ran nor is unknown"
        else:
            assert call not in ran, f"{call} was {decision} and ran"


@pytest.mark.timeout(180)
async def test_decisions_survive_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))
    rounds = int(os.environ.get("KILL_ROUNDS", "20"))
    dice = random.Random(seed)
    counter = tmp_path / "counter"
    counter.touch()
    host = HostProcess(tmp_path, project=PROJECT, environment={"KILL_COUNTER": str(counter)})
    try:
        async with aiohttp.ClientSession() as client:
            people = People(host, client, dice)
            for _ in range(rounds):
                await host.start()
                await host.ready()
                waiting = {c: s for c, s in people.seen.items() if c not in people.tried}
                still = await people.look()
                lost = {call for call in waiting if call not in still}
                assert not lost, f"seed {seed}: {lost} waited before the kill, and wait no more"
                living = asyncio.ensure_future(people.live())
                await asyncio.sleep(dice.uniform(0.02, 0.4))
                await host.kill()
                await living
            await host.start()
            await host.ready()
            await people.finish()
            assert await host.terminate() == 0
    finally:
        await host.kill()
    assert len(people.told) > rounds, f"seed {seed}: little happened"
    check_decisions(people, counter)
