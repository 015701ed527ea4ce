"""A host whose harness emits what the prompt asks for.

Prompts: ``events N B`` emits N events that cannot be merged, B a tick of the event loop;
``deltas N`` emits N pieces of one message, 64 a tick; ``gate N B`` is ``events`` behind a gate that
``POST /v1/channels/bench/go`` opens; anything else is said back. With ``--model`` the turns run on
Pydantic AI instead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadline.agent.config import Agent
from threadline.channel.channel import Channel
from threadline.channel.context import RouteContext
from threadline.harness.scripted import Scripted
from threadline.host.app import Host, Options
from threadline.host.logs import LogBook, configure
from threadline.host.serve import serve
from threadline.project import Project

if TYPE_CHECKING:
    from threadline.harness.base import Turn

PIECE = "twenty bytes of text"
BURST = 64


class Gate:
    """Lets many turns begin to emit at one moment, and says when all have ended."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0
        self.running = 0

    async def enter(self) -> None:
        """Wait until the gate opens."""
        self.waiting += 1
        await self.open.wait()


gate = Gate()
channel = Channel()


@channel.get("/waiting")
async def waiting(ctx: RouteContext) -> dict[str, Any]:
    """Return how many turns wait at the gate."""
    return {"waiting": gate.waiting}


@channel.post("/go")
async def go(ctx: RouteContext) -> dict[str, Any]:
    """Open the gate; answer when every event of every turn is in its log."""
    counts = ctx._runtime.core.services.counts
    before, ended = counts["events", "appended"], counts["turns", "completed"]
    expected = ended + gate.waiting
    began = time.perf_counter()
    gate.open.set()
    while True:
        if counts["turns", "completed"] >= expected:
            break
        await asyncio.sleep(0.001)
    elapsed = time.perf_counter() - began
    gate.open.clear()
    gate.waiting = 0
    return {"events": counts["events", "appended"] - before, "seconds": elapsed}


async def play(turn: Turn) -> str:
    """Do what the prompt says."""
    kind, *numbers = turn.prompt.text.split()
    if kind == "gate":
        await gate.enter()
    if kind in ("events", "gate"):
        await events(turn, int(numbers[0]), int(numbers[1]))
    elif kind == "deltas":
        for number in range(int(numbers[0])):
            turn.message_delta("m", PIECE)
            if number % BURST == BURST - 1:
                await asyncio.sleep(0)
    return turn.prompt.text


async def events(turn: Turn, count: int, burst: int) -> None:
    """Emit events whose message changes each time, so that none can join the one before."""
    for number in range(count):
        turn.message_delta(f"m{number & 1}", PIECE)
        if number % burst == burst - 1:
            await asyncio.sleep(0)


def harness(model: bool) -> Any:
    """Return the harness of all turns."""
    if not model:
        return Scripted(play)
    from tests.benchmarks.model import function_model

    from threadline.harness.pydantic_ai import PydanticAI

    return PydanticAI(function_model)


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--core", type=int)
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--plain", action="store_true", help="only the HTTP channel")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    book = LogBook()
    configure(book, level="warning")
    agent = Agent(
        instructions="Play.",
        harness=harness(options.model),
        channels={} if options.plain else {"bench": channel},
    )
    host_options = Options(mode="single", port=options.port, state_root=options.state)

    async def run() -> None:
        await serve(Host([Project.of(agent)], host_options, book=book))

    asyncio.run(run())


if __name__ == "__main__":
    main()
