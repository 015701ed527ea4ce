"""Row 7: signed events of Slack at a real host, each acknowledged when it is durable.

200 events a second for a minute, sent when they are due whatever became of those before. A third of
them begin threads, a third are the twins of those, under another event id, and a third are more
questions in these threads; every question has a turn and a post. Beside it, in the same run, what
Bolt needs to verify and acknowledge the same requests and do nothing.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

import orjson
from tests.benchmarks.process import LOAD_CORE, SERVER_CORE, Server
from tests.benchmarks.result import Plan, Result, ratio
from tests.benchmarks.wire import Connection
from tests.kill.host import HostProcess

from threadline.testing.inbound import slack_signature

__all__ = ["events"]

PROJECT = Path(__file__).parent / "helper"
RATE, SECONDS = 200, 60
SLOWLY = 25  # events a second that leave the host idle in between
CONNECTIONS, MOST = 32, 1000
BEHIND = 400  # threads begun before the next question in one: some seconds
REST_SECONDS = 300.0
SECRET = "signing-secret-of-the-benchmark"
TEAM, APP, CHANNEL = "T0AGENT001", "A0AGENT001", "C0CHAN0001"
OURS, BOLTS = "/v1/channels/slack/events", "/slack/events"
BOT, PERSON = "U0AGENT001", "U0HUMAN001"


def body(number: int, kind: str, text: str, ts: str, thread: str | None) -> bytes:
    """Return one event as Slack sends it."""
    parts = [{"type": "text", "text": text}]
    if text.startswith("<@"):
        parts = [{"type": "user", "user_id": BOT}, {"type": "text", "text": text[12:]}]
    section = {"type": "rich_text_section", "elements": parts}
    event: dict[str, Any] = {
        "type": kind,
        "user": PERSON,
        "ts": ts,
        "client_msg_id": f"7d0c1c3e-0000-4000-8000-{number:012d}",
        "text": text,
        "team": TEAM,
        "blocks": [{"type": "rich_text", "block_id": "b1", "elements": [section]}],
        "channel": CHANNEL,
        "event_ts": ts,
    }
    if kind == "message":
        event["channel_type"] = "channel"
    if thread is not None:
        event |= {"thread_ts": thread, "parent_user_id": PERSON}
    return orjson.dumps(
        {
            "token": "legacy-verification-token",
            "team_id": TEAM,
            "api_app_id": APP,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{number:010d}",
            "event_time": int(float(ts)),
            "authorizations": [{"team_id": TEAM, "user_id": BOT, "is_bot": True}],
        }
    )


@dataclass(slots=True)
class Asked:
    """The requests of a run, and the ids of the deliveries that are to come of them."""

    bodies: list[bytes] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, count: int, start: int) -> Asked:
        """Make ``count`` events: mentions, their twins, and questions further down the threads.

        ``start`` is the second that all were posted in.
        """
        asked = cls()
        threads = [f"{start}.{number:06d}" for number in range(0, count, 3)]
        for number, ts in enumerate(threads):
            text = f"<@{BOT}> why is checkout slow in region {number}?"
            asked.bodies.append(body(3 * number, "app_mention", text, ts, None))
            asked.bodies.append(body(3 * number + 1, "message", text, ts, None))
            asked.ids.add(f"{TEAM}:{CHANNEL}:{ts}")
            if number >= BEHIND:
                asked._further(3 * number + 2, threads[number - BEHIND])
        for number in range(max(0, len(threads) - BEHIND), len(threads)):
            asked._further(3 * number + 2, threads[number])
        return asked

    def _further(self, number: int, thread: str) -> None:
        ts = f"{int(float(thread)) + 1}.{number:06d}"
        self.bodies.append(body(number, "message", "And in the others?", ts, thread))
        self.ids.add(f"{TEAM}:{CHANNEL}:{ts}")


class Signed(Connection):
    """A connection that signs what it posts."""

    async def send(self, path: str, data: bytes) -> None:
        """Post an event, and return when it is acknowledged; raises RuntimeError when it is not."""
        now = int(time.time())
        signature = slack_signature(SECRET, data, now)
        self._writer.write(
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"X-Slack-Request-Timestamp: %d\r\nX-Slack-Signature: %b\r\nContent-Length: %d\r\n\r\n"
            b"%b" % (path.encode(), self.port, now, signature.encode(), len(data), data)
        )
        head = await self._head()
        _, _, length = head.lower().partition(b"content-length:")
        await self._reader.readexactly(int(length.partition(b"\r\n")[0]))


class Sender:
    """Sends when it is time to, over as many connections as that takes."""

    def __init__(self, port: int, path: str) -> None:
        self.times: list[float] = []
        self.refused: Counter[str] = Counter()
        self._port = port
        self._path = path
        self._free: asyncio.LifoQueue[Signed] = asyncio.LifoQueue()
        self._open: set[Signed] = set()

    async def __aenter__(self) -> Sender:
        """Open the first connections."""
        for _ in range(CONNECTIONS):
            self._free.put_nowait(await self._more())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them all."""
        for connection in self._open:
            await connection.__aexit__()

    async def steadily(self, bodies: list[bytes], rate: float) -> None:
        """Send ``rate`` a second; a time is from when it was due to its acknowledgement."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, data in enumerate(bodies):
                due = began + number / rate
                if (early := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                group.create_task(self._timed(data, due))

    async def _timed(self, data: bytes, due: float) -> None:
        more = self._free.empty() and len(self._open) < MOST
        connection = await (self._more() if more else self._free.get())
        try:
            await connection.send(self._path, data)
        except (RuntimeError, ConnectionError, asyncio.IncompleteReadError) as error:
            self.refused[str(error).partition("\r\n")[0]] += 1
            self._open.discard(connection)
            await connection.__aexit__()
            return
        self.times.append(time.perf_counter() - due)
        self._free.put_nowait(connection)

    async def _more(self) -> Signed:
        connection = Signed(self._port)
        self._open.add(connection)
        await connection.__aenter__()
        return connection


async def events(plan: Plan) -> list[Result]:
    """Row 7: one at a time, then a steady stream, with Bolt beside both."""
    now = int(time.time())
    steady = Asked.of(plan.of(RATE * SECONDS, 600), now)
    singly: tuple[list[float], list[float]] = ([], [])
    async with AsyncExitStack() as stack:
        host, bolt = await _pair(stack)
        both = (host.port, OURS), (bolt.port, BOLTS)
        for number in range(plan.rounds + 1):
            bodies = Asked.of(60, now - 2 - number).bodies
            for times, (port, path) in zip(singly, both, strict=True):
                times.append(median((await _sent(port, path, bodies, SLOWLY)).times))
        mine = await _sent(*both[0], steady.bodies, RATE)
        began = time.perf_counter()
        lost, doubled = await _kept(host, steady)
        rest = time.perf_counter() - began
        base = await _sent(*both[1], steady.bodies[: len(steady.bodies) // 3], RATE)
    one = _one(singly[0][1:], singly[1][1:])  # the first round warms both up
    return [one, *_acks(mine, base, len(steady.bodies)), *_counted(mine, lost, doubled, rest)]


async def _pair(stack: AsyncExitStack) -> tuple[HostProcess, Server]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="threadline-bench-")))
    api = await stack.enter_async_context(Server("slack_api", "--core", str(LOAD_CORE)))
    url = f"http://127.0.0.1:{api.port}/api/"
    bolt = await stack.enter_async_context(Server("bolt", "--secret", SECRET, "--api", url))
    host = await stack.enter_async_context(_host(folder, url))
    return host, bolt


@asynccontextmanager
async def _host(folder: Path, api_url: str) -> AsyncIterator[HostProcess]:
    environment = {
        "SLACK_BOT_TOKEN": "xoxb-bench",
        "SLACK_SIGNING_SECRET": SECRET,
        "SLACK_APP_TOKEN": "",
        "SLACK_API_URL": api_url,
    }
    host = HostProcess(folder, project=PROJECT, environment=environment)
    await host.start()
    assert host.process is not None
    os.sched_setaffinity(host.process.pid, {SERVER_CORE})
    try:
        await host.ready()
        yield host
    finally:
        await host.terminate()


async def _sent(port: int, path: str, bodies: list[bytes], rate: float) -> Sender:
    async with Sender(port, path) as sender:
        await sender.steadily(bodies, rate)
    return sender


async def _kept(host: HostProcess, asked: Asked) -> tuple[int, int]:
    """Wait until every delivery has its outcome; return how many have none, and how many two."""
    database = sqlite3.connect(f"file:{host.state / 'threadline.db'}?mode=ro", uri=True)
    try:
        async with asyncio.timeout(REST_SECONDS):
            while _waiting(database):  # noqa: ASYNC110 - another process ends it
                await asyncio.sleep(0.2)
    finally:
        database.close()
    named: Counter[str] = Counter()
    for log in host.state.glob("sessions/*/events.ndjson"):
        for line in log.read_bytes().splitlines():
            event = orjson.loads(line)
            if event["type"] == "message.received":
                named.update(event["data"]["deliveryIds"])
            elif event["type"] == "nudge.delivered":
                named[event["data"]["deliveryId"]] += 1
    lost = sum(identity not in named for identity in asked.ids)
    return lost, sum(count > 1 for count in named.values())


def _waiting(database: sqlite3.Connection) -> int:
    (count,) = database.execute(
        "select count(*) from deliveries where state = 'accepted'"
    ).fetchone()
    return int(count)


def _one(mine: list[float], base: list[float]) -> Result:
    return Result(
        row="7",
        what="a signed event to its durable ack, one at a time; p50",
        value=ratio(mine, base),
        unit="×",
        better="low",
        target=1,
        stretch=0.67,
        ours=f"{median(mine) * 1000:.2f} ms",
        baseline=f"Bolt, which keeps nothing, {median(base) * 1000:.2f} ms",
    )


def _acks(mine: Sender, base: Sender, count: int) -> list[Result]:
    found = []
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        one, other = _share(mine.times, share), _share(base.times, share)
        found.append(
            Result(
                row="7",
                what=f"the same at {RATE} a second, {count} events, with turns and posts; {name}",
                value=one / other,
                unit="×",
                ours=f"{one * 1000:.1f} ms",
                baseline=f"Bolt, which does nothing more, {other * 1000:.1f} ms",
            )
        )
    return found


def _counted(mine: Sender, lost: int, doubled: int, rest: float) -> list[Result]:
    refused = ", ".join(f"{count} {what}" for what, count in mine.refused.items())
    later = f"all at rest {rest:.0f} s after the last event"
    facts: list[tuple[str, float, Literal["s", ""], float, str]] = [
        ("p99 of that ack", _share(mine.times, 0.99), "s", 1.0, "Slack waits three"),
        ("longest of them", max(mine.times), "s", 3.0, ""),
        ("events that were not acknowledged", mine.refused.total(), "", 0, refused),
        ("deliveries lost", lost, "", 0, later),
        ("deliveries doubled", doubled, "", 0, ""),
    ]
    return [
        Result(row="7", what=what, value=value, unit=unit, better="low", target=target, ours=ours)
        for what, value, unit, target, ours in facts
    ]


def _share(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]
