"""A session core in a test: its state root, its disk, its clock, its tools and its restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import orjson

from threadline import ndjson
from threadline.harness.base import Harness, ToolCall, ToolInfo, ToolResult
from threadline.harness.scripted import Call, Say, Scripted
from threadline.principal import Principal
from threadline.session.admission import Admitted
from threadline.session.core import Services, SessionCore
from threadline.session.owner import SessionOwner
from threadline.session.turn import CallContext, Gate
from threadline.store.base import AcceptRequest, AcceptResult, DecisionRecord, SessionRecord
from threadline.store.embedded import EmbeddedStore
from threadline.testing.clock import ManualClock
from threadline.testing.faults import Crashed, FaultyDisk, crash
from threadline.testing.laws import check_laws

__all__ = ["ALICE", "WORK", "Host", "Tools", "until"]

ALICE = Principal("user", "alice")
WORK = Scripted([Call("work"), Call("work"), Say("Done.")])


async def until(check: Callable[[], object], disk: FaultyDisk | None = None) -> None:
    """Let the event loop run until something is so; a dead disk ends the wait too."""
    async with asyncio.timeout(10):
        while not check():
            if disk is not None and disk.dead:
                raise Crashed
            await asyncio.sleep(0)


class Tools:
    """``work`` waits while ``held`` and counts its runs; other tools are functions of the input."""

    def __init__(self) -> None:
        self.held = False
        self.runs: list[str] = []
        self.written: Counter[str] = Counter()
        self.writes: set[str] = set()
        self.gated: set[str] = set()
        self.limits: dict[str, int] = {}
        self.approvers: set[str] | None = None
        self.harmless: set[str] = set()
        self.functions: dict[str, Callable[[Any], Awaitable[Any]]] = {}
        self._waiting: set[asyncio.Event] = set()

    @property
    def working(self) -> int:
        """How many calls of ``work`` wait."""
        return len(self._waiting)

    def release(self) -> None:
        """Let all the work that is waiting end."""
        while self._waiting:
            self._waiting.pop().set()

    def infos(self) -> list[ToolInfo]:
        return [ToolInfo("work", "Work.", {"type": "object"}, approval="work" in self.gated)]

    def effect(self, name: str) -> str:
        return "write" if name in self.writes else "read"

    def idempotent(self) -> frozenset[str]:
        return frozenset(self.harmless)

    def limit(self, name: str) -> int | None:
        return self.limits.get(name)

    def validated(self, call: ToolCall) -> Any:
        return call.input

    def refusal(self, call: ToolCall, context: CallContext) -> ToolResult | None:
        return None

    def gate(self, call: ToolCall) -> Gate | None:
        names = None if self.approvers is None else sorted(self.approvers)
        return Gate(timedelta(hours=1), names) if call.tool_name in self.gated else None

    async def may_decide(
        self, principal: Principal, call: ToolCall, session: SessionRecord
    ) -> bool | None:
        return None if self.approvers is None else principal.key in self.approvers

    async def run(self, call: ToolCall, context: CallContext) -> ToolResult:
        self.runs.append(call.tool_name)
        if call.tool_name in self.writes:
            self.written[call.call_id] += 1
        if call.tool_name in self.functions:
            output = await self.functions[call.tool_name](call.input)
            return ToolResult(call.call_id, call.tool_name, output)
        if self.held:
            go = asyncio.Event()
            self._waiting.add(go)
            try:
                await go.wait()
            finally:
                self._waiting.discard(go)
        return ToolResult(call.call_id, call.tool_name, "worked")


class Host:
    """One agent on one state root; ``conversation`` names a session by a fixed token."""

    def __init__(
        self,
        root: Path,
        harness: Harness | None = WORK,
        *,
        disk: FaultyDisk | None = None,
        boot: str = "boot-1",
        **services: Any,
    ) -> None:
        self.root = root
        self.harness = harness
        self.disk = disk or FaultyDisk()
        self.boot = boot
        self.clock = ManualClock()
        self.tools = Tools()
        self.acknowledged: dict[str, str] = {}
        self._worked = 0
        self._seen: dict[tuple[str, int], bytes] = {}
        self._given = services
        self.core: SessionCore

    async def start(self) -> Host:
        store = EmbeddedStore(self.root, disk=self.disk, clock=self.clock, boot=self.boot)
        given: dict[str, Any] = {
            "clock": self.clock,
            "tools": self.tools,
            "harness": self.harness,
        }
        given |= self._given
        self.core = SessionCore(Services(store, **given))
        await self.core.start()
        return self

    async def close(self) -> None:
        await self.core.close()

    async def kill(self, *, power_cut: bool = False) -> None:
        """End the process without warning."""
        await crash(self.core, self.disk)
        self._read_all()
        if power_cut:
            self.disk.lose_unsynced(self.root)
            self.boot += "+"
        self.disk.revive()

    async def restart(self, *, power_cut: bool = False) -> None:
        """Kill the process and start another."""
        await self.kill(power_cut=power_cut)
        await self.start()

    # What people do

    def request(
        self, text: str, conversation: str = "a", *, by: Principal = ALICE, **fields: Any
    ) -> AcceptRequest:
        def may(session: SessionRecord) -> bool:
            return session.owner.key == by.key

        given: dict[str, Any] = {
            "channel": "chat",
            "principal": by,
            "owner": by,
            "may": may,
            "text": text,
            "admission": "coalesce",
            "at": self.core.services.stamp(),
            "token": conversation,
        }
        return AcceptRequest(**(given | fields))

    async def send(
        self, delivery_id: str, conversation: str = "a", **fields: Any
    ) -> tuple[AcceptResult, Admitted]:
        """Send a message whose text is ``say <id>``."""
        text = fields.pop("text", f"say {delivery_id}")
        self.clock.advance(0.001)
        answer = await self.core.send(
            self.request(text, conversation, delivery_id=delivery_id, **fields)
        )
        self.acknowledged[delivery_id] = answer[0].session.id
        return answer

    async def stop(self, conversation: str = "a", **fields: Any) -> bool:
        self.clock.advance(0.001)
        return await self.core.stop(self.session_id(conversation), **fields)

    async def parked(self, count: int = 1, conversation: str = "a") -> list[str]:
        """Return the ids of the calls that wait, when there are so many and it is recorded."""

        def waiting() -> list[str]:
            owner = self.core._owners.get(self.session_id(conversation))
            return list(owner.parking.calls) if owner is not None else []

        await until(lambda: len(waiting()) == count, self.disk)
        await self.flushed()
        return waiting()

    async def decide(
        self,
        call_id: str,
        decision: Literal["approved", "denied"] = "approved",
        *,
        by: Principal = ALICE,
        conversation: str = "a",
        reason: str | None = None,
    ) -> DecisionRecord:
        """Decide a call that waits."""
        self.clock.advance(0.001)
        return await self.core.decide(
            self.session_id(conversation),
            call_id,
            decision,
            by,
            may=lambda session: session.owner.key == by.key,
            reason=reason,
        )

    # What can be seen

    def session_id(self, conversation: str = "a", channel: str = "chat") -> str:
        record = self.core.store.session_by_token(channel, conversation)
        assert record is not None
        return record.id

    def owner(self, conversation: str = "a") -> SessionOwner:
        return self.core._owners[self.session_id(conversation)]

    def log(self, conversation: str = "a") -> bytes:
        path = self.root / "sessions" / self.session_id(conversation) / "events.ndjson"
        return path.read_bytes()

    def log_of_only_session(self) -> bytes:
        """Return the one log there is, also while no host runs."""
        (data,) = self.logs().values()
        return data

    def events(self, conversation: str = "a", type_: str = "") -> list[dict[str, Any]]:
        found = [orjson.loads(line) for line in self.log(conversation).split(b"\n") if line]
        return [e for e in found if not type_ or e["type"] == type_]

    def types(self, conversation: str = "a", *, leave_out: str = "step.") -> list[str]:
        """Return the types of a log; those of steps and deltas are mostly in the way."""
        noise = ("message.appended", "reasoning.appended")
        kinds = [event["type"] for event in self.events(conversation)]
        return [k for k in kinds if k not in noise and not k.startswith(leave_out or "-")]

    def prompts(self, conversation: str = "a") -> list[list[str]]:
        return [
            event["data"]["deliveryIds"] for event in self.events(conversation, "message.received")
        ]

    def steered(self, conversation: str = "a") -> list[str]:
        return [e["data"]["deliveryId"] for e in self.events(conversation, "nudge.delivered")]

    def ends(self, conversation: str = "a") -> list[str]:
        """Return how each turn ended: ``completed``, or its failure's code."""
        return [
            event["data"].get("code", "completed")
            for event in self.events(conversation)
            if event["type"] in ("turn.completed", "turn.failed")
        ]

    async def working(self, count: int = 1) -> None:
        """Return when so many more tool calls have begun, and all that led to them is written."""
        await until(lambda: len(self.tools.runs) >= self._worked + count, self.disk)
        self._worked = len(self.tools.runs)
        await self.flushed()

    async def flushed(self) -> None:
        await until(
            lambda: all(
                not owner.log.flushing and not owner.log.waiting
                for owner in self.core._owners.values()
            ),
            self.disk,
        )

    async def rest(self) -> None:
        """Return when nothing runs, waits or is written any more."""
        await until(self._rests, self.disk)
        self._worked = len(self.tools.runs)

    def _rests(self) -> bool:
        core = self.core
        busy = core._loading or core._reopening or core._early
        return not busy and all(owner.at_rest for owner in core._owners.values())

    def check(self, *, at_rest: bool = True) -> None:
        """Check the laws for every session, and that ledger, log and history agree."""
        store = self.core.store
        ids: dict[str, list[str]] = {}
        for session_id, delivery_id in self._rows("SELECT session_id, delivery_id FROM deliveries"):
            ids.setdefault(session_id, []).append(delivery_id)
        for delivery_id, session_id in self.acknowledged.items():
            assert delivery_id in ids.get(session_id, ()), f"{delivery_id} is not in the ledger"
        for session_id, accepted in ids.items():
            if store.session(session_id) is None:
                states = {d.state for i in accepted for d in store.delivery(i)}
                assert "accepted" not in states, (session_id, accepted)
                assert not (self.root / "sessions" / session_id).exists()
                assert not (self.root / "runner" / f"{session_id}.ndjson").exists()
            else:
                path = self.root / "sessions" / session_id / "events.ndjson"
                check_laws(path.read_bytes(), accepted, at_rest=at_rest)
                nudges = [n["deliveryId"] for c in store.checkpoints(session_id) for n in c.nudges]
                assert len(nudges) == len(set(nudges)), nudges
        assert set(self.logs()) <= {record.id for record in store.sessions()}
        self._read_all()

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.root / "threadline.db")
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def check_closed(self) -> None:
        """Check that a closed host at rest left nothing to be done."""
        assert self._rows("SELECT * FROM deliveries WHERE state = 'accepted'") == []
        assert self._rows("SELECT * FROM stops") == []
        assert self._rows("SELECT id FROM sessions WHERE open_boot IS NOT NULL") == []
        known = {name for (name,) in self._rows("SELECT id FROM sessions WHERE deleted_at IS NULL")}
        assert set(self.logs()) <= known
        histories = {p.stem for p in (self.root / "runner").iterdir() if p.stat().st_size}
        assert histories <= known

    def _read_all(self) -> None:
        """Read every log as a client does: what an index says may vanish, but never change."""
        for session_id, data in self.logs().items():
            for line in ndjson.scan(data):
                assert line is not None
                place = session_id, line.event["index"]
                assert self._seen.setdefault(place, line.raw) == line.raw

    def logs(self) -> Mapping[str, bytes]:
        """Return the bytes of every log; that of a folder made in advance is empty."""
        found = {
            path.parent.name: path.read_bytes()
            for path in (self.root / "sessions").glob("*/events.ndjson")
        }
        return {name: data for name, data in found.items() if data}
