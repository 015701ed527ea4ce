"""Row 8: how soon it starts, what it holds, and what stored sessions cost."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.benchmarks.process import Server
from tests.benchmarks.result import Plan, Result
from tests.benchmarks.turns import START, _rate, ours
from tests.benchmarks.wire import Connection

__all__ = ["footprint"]


async def footprint(plan: Plan) -> list[Result]:
    """Start with nothing, and with many stored sessions, turn about."""
    stored = plan.of(10_000, 500)
    with tempfile.TemporaryDirectory(prefix="threadline-bench-") as folder:
        full = Path(folder) / "full"
        async with Server("host", "--state", full, "--plain") as host:
            await _rate(host.port, ours, 64, stored)
        files, folders = _count(full)
        empty_times, full_times, memory = [], [], []
        for number in range(plan.rounds):
            empty = Path(folder) / f"empty{number}"
            seconds, rss = await _first_accept(empty)
            empty_times.append(seconds)
            memory.append(rss)
            full_times.append((await _first_accept(full))[0])
    more = median(b - a for a, b in zip(empty_times, full_times, strict=True))
    per_session = files / stored
    return [
        Result(
            row="8",
            what="first accept after the start",
            value=median(empty_times),
            unit="s",
            better="low",
            target=0.8,
            stretch=0.5,
        ),
        Result(
            row="8",
            what="idle RSS with the HTTP channel",
            value=median(memory),
            unit="MB",
            better="low",
            target=70,
            stretch=55,
        ),
        Result(
            row="8",
            what=f"{stored} stored sessions add to the start",
            value=more,
            unit="s",
            better="low",
            target=0.3,
        ),
        Result(
            row="8",
            what="files a session",
            value=per_session,
            unit="",
            better="low",
            target=4,
            ours=f"{folders / stored:.0f} folders beside them",
        ),
    ]


async def _first_accept(state: Path) -> tuple[float, float]:
    """Return seconds from the process's start to its first 200, and its memory a second later."""
    server = Server("host", "--state", state, "--plain")
    began = time.perf_counter()
    async with server:
        async with Connection(server.port) as connection:
            await connection.post("/v1/session", START)
        seconds = time.perf_counter() - began
        await asyncio.sleep(1.0)
        return seconds, server.rss


def _count(root: Path) -> tuple[int, int]:
    """Return files and folders below a state root, without the few that belong to the root."""
    entries = list(root.rglob("*"))
    folders = sum(entry.is_dir() for entry in entries)
    return len(entries) - folders, folders
