"""Rows 1, 2 and 6: turns, from the POST to ``session.waiting`` in the stream."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import orjson
from tests.benchmarks.process import Server, number_of
from tests.benchmarks.result import Plan, Result, ratio
from tests.benchmarks.wire import Connection

__all__ = ["latency", "model", "throughput"]

Pair = Callable[[Connection, int], Awaitable[object]]
CLIENTS = 200
START = {"message": "hello, please answer this short message"}


async def ours(connection: Connection, port: int) -> bytes:
    """Start a session and follow it to its rest, on a connection that is then given up."""
    answer = await connection.post("/v1/session", START)
    session_id = orjson.loads(answer)["sessionId"]
    async with Connection(port) as stream:
        await stream.until(f"/v1/session/{session_id}/stream")
    return answer


async def bare(connection: Connection, _: int) -> None:
    """Post, and get the same bytes."""
    await connection.post("/v1/session", START)
    await connection.get("/stream")


async def pair(stack: AsyncExitStack, *arguments: str) -> tuple[Server, Server]:
    """Start a host, and a bare server that answers with the bytes of one of the host's turns."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="threadline-bench-")))
    state = folder / "state"
    host = await stack.enter_async_context(Server("host", "--state", state, *arguments))
    async with Connection(host.port) as connection:
        answer = await ours(connection, host.port)
    session_id = orjson.loads(answer)["sessionId"]
    (folder / "answer").write_bytes(answer)
    (folder / "log").write_bytes((state / "sessions" / session_id / "events.ndjson").read_bytes())
    server = await stack.enter_async_context(
        Server("bare", "--answer", folder / "answer", "--log", folder / "log")
    )
    return host, server


async def latency(plan: Plan) -> list[Result]:
    """Row 1: one client, one turn after the other."""
    async with AsyncExitStack() as stack:
        host, server = await pair(stack)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(plan.rounds + 1):
            times[0].append(await _p50(host.port, ours, plan.of(200, 20)))
            times[1].append(await _p50(server.port, bare, plan.of(200, 20)))
    # The first round warms both up.
    mine, base = times[0][1:], times[1][1:]
    return [
        Result(
            row="1",
            what="start, turn, session.waiting seen; p50",
            value=ratio(mine, base),
            unit="×",
            better="low",
            target=4,
            stretch=3,
            ours=f"{median(mine) * 1000:.2f} ms",
            baseline=f"aiohttp POST + GET, {median(base) * 1000:.2f} ms",
        )
    ]


async def _p50(port: int, run: Pair, count: int) -> float:
    times = []
    async with Connection(port) as connection:
        for _ in range(count):
            began = time.perf_counter()
            await run(connection, port)
            times.append(time.perf_counter() - began)
    return median(times)


async def throughput(plan: Plan) -> list[Result]:
    """Row 2: two hundred clients, each one turn after the other."""
    async with AsyncExitStack() as stack:
        host, server = await pair(stack)
        rates: tuple[list[float], list[float]] = ([], [])
        for _ in range(plan.rounds + 1):
            rates[0].append(await _rate(host.port, ours, CLIENTS, plan.of(2000, 200)))
            rates[1].append(await _rate(server.port, bare, CLIENTS, plan.of(4000, 400)))
    mine, base = rates[0][1:], rates[1][1:]
    return [
        Result(
            row="2",
            what="turns/s, 200 clients, durable",
            value=100 * ratio(mine, base),
            unit="%",
            better="high",
            target=25,
            stretch=40,
            ours=f"{median(mine):.0f}/s",
            baseline=f"aiohttp POST + GET pairs, {median(base):.0f}/s",
        )
    ]


async def _rate(port: int, run: Pair, clients: int, count: int) -> float:
    left = iter(range(count))

    async def client() -> None:
        async with Connection(port) as connection:
            for _ in left:
                await run(connection, port)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.perf_counter() - began)


async def model(plan: Plan) -> list[Result]:
    """Row 6: Pydantic AI inside, beside bare ``agent.iter``; sixteen at a time."""
    count, clients = plan.of(200, 32), 16
    async with AsyncExitStack() as stack:
        host, _ = await pair(stack, "--model")
        mine, base = [], []
        for _ in range(plan.rounds):
            mine.append(await _rate(host.port, ours, clients, count))
            arguments = ("--turns", str(count), "--clients", str(clients))
            base.append(await number_of("tests.benchmarks.model", *arguments))
    return [
        Result(
            row="6",
            what="turns/s with Pydantic AI's FunctionModel over HTTP",
            value=100 * ratio(mine, base),
            unit="%",
            better="high",
            target=60,
            stretch=80,
            ours=f"{median(mine):.0f}/s",
            baseline=f"agent.iter in process, {median(base):.0f}/s",
        )
    ]
