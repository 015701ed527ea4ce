"""Rows 3, 4, 5 and 9: events out of one session, replay, many sessions, and slow followers."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import orjson
from tests.benchmarks.process import Server, number_of
from tests.benchmarks.result import Plan, Result, ratio
from tests.benchmarks.wire import Connection, fetch

__all__ = ["appends", "followers", "replay", "stream"]

BURST = 64
FOLLOWERS = 200


@asynccontextmanager
async def _host() -> AsyncIterator[tuple[Server, Path]]:
    with tempfile.TemporaryDirectory(prefix="threadline-bench-") as folder:
        state = Path(folder) / "state"
        async with Server("host", "--state", state) as host:
            yield host, state


def _log(state: Path, session_id: str) -> Path:
    return state / "sessions" / session_id / "events.ndjson"


async def _start(port: int, message: str) -> str:
    answer = await fetch(port, "/v1/session", {"message": message})
    return str(answer["sessionId"])


# Row 3


async def stream(plan: Plan) -> list[Result]:
    """One session, one follower, from the POST to the last event."""
    count = plan.of(40_000, 4000)
    kinds = {"burst": f"events {count} {BURST}", "single": f"events {count} 1"}
    mine: dict[str, list[float]] = {"burst": [], "single": [], "deltas": []}
    base: list[float] = []
    async with AsyncExitStack() as stack:
        host, _ = await stack.enter_async_context(_host())
        server = await stack.enter_async_context(Server("bare"))
        for _ in range(plan.rounds):
            for kind, message in kinds.items():
                mine[kind].append(count / await _streamed(host.port, message))
            deltas = count * 10
            mine["deltas"].append(deltas / await _streamed(host.port, f"deltas {deltas}"))
            began = time.perf_counter()
            async with Connection(server.port) as connection:
                await connection.until(f"/events?count={count}")
            base.append(count / (time.perf_counter() - began))
    against = f"aiohttp encodes and writes each, {median(base):.0f}/s"
    return [
        Result(
            row="3",
            what="streamed events/s, one session, one follower; 64 events ready a tick",
            value=100 * ratio(mine["burst"], base),
            unit="%",
            better="high",
            target=50,
            stretch=100,
            ours=f"{median(mine['burst']):.0f}/s",
            baseline=against,
        ),
        Result(
            row="3",
            what="the same, one event a tick",
            value=100 * ratio(mine["single"], base),
            unit="%",
            ours=f"{median(mine['single']):.0f}/s",
            baseline=against,
        ),
        Result(
            row="3",
            what="model deltas/s, merged while they wait",
            value=100 * ratio(mine["deltas"], base),
            unit="%",
            ours=f"{median(mine['deltas']):.0f}/s",
            baseline=against,
        ),
    ]


async def _streamed(port: int, message: str) -> float:
    began = time.perf_counter()
    session_id = await _start(port, message)
    async with Connection(port) as connection:
        await connection.until(f"/v1/session/{session_id}/stream")
    return time.perf_counter() - began


# Row 4


async def replay(plan: Plan) -> list[Result]:
    """The whole log, and the first byte from two places."""
    count = plan.of(200_000, 20_000)
    async with AsyncExitStack() as stack:
        host, state = await stack.enter_async_context(_host())
        session_id = await _start(host.port, f"events {count} 256")
        async with Connection(host.port) as connection:
            await connection.until(f"/v1/session/{session_id}/stream")
        log = _log(state, session_id)
        server = await stack.enter_async_context(Server("bare", "--file", log))
        path = f"/v1/session/{session_id}/events"
        mine, base, first, late = [], [], [], []
        for _ in range(plan.rounds):
            mine.append(await _to_end(host.port, path))
            base.append(await _to_end(server.port, "/replay"))
            first.append(await _first(host.port, f"{path}?startIndex=0"))
            late.append(await _first(host.port, f"{path}?startIndex={count * 9 // 10}"))
        size = log.stat().st_size / 1e6
    return [
        Result(
            row="4",
            what="replay over HTTP, a whole log",
            value=100 * ratio(base, mine),
            unit="%",
            better="high",
            target=50,
            stretch=80,
            ours=f"{size / median(mine):.0f} MB/s",
            baseline=f"aiohttp sends the file in 64 KiB chunks, {size / median(base):.0f} MB/s",
        ),
        Result(
            row="4",
            what="first byte at 90 % of the log",
            value=ratio(late, first),
            unit="×",
            better="low",
            target=2,
            ours=f"{median(late) * 1000:.2f} ms",
            baseline=f"first byte at index 0, {median(first) * 1000:.2f} ms",
        ),
    ]


async def _to_end(port: int, path: str) -> float:
    async with Connection(port) as connection:
        began = time.perf_counter()
        await connection.to_end(path)
        return time.perf_counter() - began


async def _first(port: int, path: str) -> float:
    times = []
    for _ in range(9):
        async with Connection(port) as connection:
            began = time.perf_counter()
            await connection.first(path)
            times.append(time.perf_counter() - began)
    return median(times)


# Row 5


async def appends(plan: Plan) -> list[Result]:
    """A thousand sessions that all emit at once."""
    sessions, count = plan.of(1000, 100), 64
    bursts: dict[int, list[float]] = {16: [], 1: []}
    base = []
    async with AsyncExitStack() as stack:
        host, _ = await stack.enter_async_context(_host())
        for _ in range(plan.rounds):
            for burst, rates in bursts.items():
                rates.append(await _released(host.port, sessions, f"gate {count} {burst}"))
            arguments = ("--files", str(sessions), "--events", str(count))
            base.append(await number_of("tests.benchmarks.servers.appends", *arguments))
    against = f"encode and write() each without a host, {median(base):.0f}/s"
    return [
        Result(
            row="5",
            what=f"{sessions} sessions active at once, events/s; 16 events ready a tick",
            value=100 * ratio(bursts[16], base),
            unit="%",
            better="high",
            target=40,
            stretch=60,
            ours=f"{median(bursts[16]):.0f}/s",
            baseline=against,
        ),
        Result(
            row="5",
            what="the same, one event a tick",
            value=100 * ratio(bursts[1], base),
            unit="%",
            ours=f"{median(bursts[1]):.0f}/s",
            baseline=against,
        ),
    ]


async def _released(port: int, sessions: int, message: str) -> float:
    """Start sessions that wait at the gate, open it, and return events a second."""
    left = iter(range(sessions))

    async def client() -> None:
        async with Connection(port) as connection:
            for _ in left:
                await connection.post("/v1/session", {"message": message})

    await asyncio.gather(*(client() for _ in range(32)))
    while True:
        if (await fetch(port, "/v1/channels/bench/waiting"))["waiting"] >= sessions:
            break
        await asyncio.sleep(0.01)
    # What the starts left to sync is not part of it.
    await asyncio.sleep(0.7)
    answer = await fetch(port, "/v1/channels/bench/go", {})
    return float(answer["events"]) / float(answer["seconds"])


# Row 9


async def followers(plan: Plan) -> list[Result]:
    """Followers that ask and never read, while the session they follow goes on."""
    seconds = 10 * plan.scale
    growths = []
    for _ in range(max(1, plan.rounds // 2)):
        async with _host() as (host, _):
            growths.append(await _growth(host, seconds))
    return [
        Result(
            row="9",
            what=f"{FOLLOWERS} followers that do not read for {seconds:.0f} s: RSS grows",
            value=median(growths),
            unit="MB",
            better="low",
            target=20,
            stretch=5,
        )
    ]


async def _growth(host: Server, seconds: float) -> float:
    """Return by how much followers let the host grow, beyond what the turn alone does."""
    session_id = await _start(host.port, "events 100000 64")
    async with Connection(host.port) as connection:
        await connection.until(f"/v1/session/{session_id}/stream")
    before = host.rss
    async with Connection(host.port) as connection:
        answer = await connection.post("/v1/session", {"message": "events 200000 16"})
        talk = orjson.loads(answer)
        sockets = [_mute(host.port, talk["sessionId"]) for _ in range(FOLLOWERS)]
        peak = before
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(0.1)
            peak = max(peak, host.rss)
    for follower in sockets:
        follower.close()
    return peak - before


def _mute(port: int, session_id: str) -> socket.socket:
    """Ask for a stream, and read nothing of it."""
    follower = socket.socket()
    follower.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    follower.connect(("127.0.0.1", port))
    request = f"GET /v1/session/{session_id}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
    follower.sendall(request.encode())
    return follower
