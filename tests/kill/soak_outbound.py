"""Kill a host while it posts answers outside, then look for each of them: once, and with a receipt.

``python -m tests.kill.soak_outbound --messages 2000 --kills 20``
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.kill.host import HostProcess
from tests.kill.outbound.checks import check, settle
from tests.kill.outbound.load import Rooms
from tests.kill.outbound.service import Service
from tests.kill.soak_shared import AGAIN, command, listed, report

__all__ = ["Report", "soak"]

PROJECT = Path(__file__).parent / "outbound" / "project"
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """What happened; ``problems`` is empty when every promise was kept."""

    messages: int
    sessions: int
    kills: int
    struck: int
    counts: Counter[str]
    seconds: float
    problems: list[str]

    def __str__(self) -> str:
        """Return a few lines for people."""
        head = (
            f"{self.messages} messages in {self.sessions} rooms, {self.kills} kills, {self.struck} "
            f"of them between call and receipt; {listed(self.counts)}; {self.seconds:.0f} s"
        )
        return report(head, self.problems, "every answer is there once")


async def soak(
    folder: Path, *, messages: int, kills: int, clients: int, seed: int, seconds: float
) -> Report:
    """Run it all in a folder; raises TimeoutError when it takes longer than ``seconds``."""
    began = time.monotonic()
    async with asyncio.timeout(seconds), Service(seed) as service:
        host = HostProcess(folder, project=PROJECT, environment={"OUTBOUND_SERVICE": service.url})
        killer = _Killer(host, service, kills, random.Random(seed))
        try:
            await host.start()
            await host.ready()
            async with Rooms(host.url, messages, clients, seed) as rooms:
                async with asyncio.TaskGroup() as group:
                    speaking = group.create_task(rooms.run())
                    group.create_task(killer.run(rooms, speaking))
                problems = await settle(rooms, SETTLE_SECONDS)
                problems += await check(host, rooms, service)
                problems += await _unchanged(host, service)
        finally:
            await host.kill()
    counts = service.counts + Counter({"requests tried again": rooms.retries})
    sessions = len(set(rooms.acknowledged.values()))
    return Report(
        len(rooms.acknowledged),
        sessions,
        killer.killed,
        killer.struck,
        counts,
        time.monotonic() - began,
        problems,
    )


@dataclass(slots=True)
class _Killer:
    """Kills at random moments; every other time while a message has arrived and has no receipt."""

    host: HostProcess
    service: Service
    kills: int
    dice: random.Random
    killed: int = 0
    struck: int = 0

    async def _acknowledged(self, rooms: Rooms, count: int, speaking: asyncio.Task[None]) -> None:
        """Return when so many messages were acknowledged, or nobody speaks any more."""
        while len(rooms.acknowledged) < count and not speaking.done():  # noqa: ASYNC110
            await asyncio.sleep(0.002)

    async def run(self, rooms: Rooms, speaking: asyncio.Task[None]) -> None:
        """Kill so often, spread over the load."""
        moments = sorted(self.dice.sample(range(max(rooms.messages, self.kills + 1)), self.kills))
        while self.killed < self.kills:
            await self._acknowledged(rooms, moments[self.killed], speaking)
            await self._moment()
            again = True
            while again and self.killed < self.kills:
                await self.host.kill()
                self.killed += 1
                await self.host.start()
                again = self.dice.random() < AGAIN
                if again:
                    # While it is starting, or has just begun to look for what it left.
                    await asyncio.sleep(self.dice.uniform(0.2, 1.2))
            await self.host.ready()

    async def _moment(self) -> None:
        if self.killed % 2:
            await asyncio.sleep(self.dice.uniform(0.0, 0.1))
            return
        self.service.struck.clear()
        self.service.strike = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await self.service.struck.wait()
        self.struck += self.service.struck.is_set()
        self.service.strike = False


async def _unchanged(host: HostProcess, service: Service) -> list[str]:
    """Another kill and a drain at rest post nothing, and change nothing."""
    before = [(message.id, message.text, message.edits) for message in service.messages]
    await host.kill()
    await host.start()
    await host.ready()
    code = await host.terminate()
    problems = [] if code == 0 else [f"SIGTERM ended the host with {code}:\n{host.tail()}"]
    if before != [(message.id, message.text, message.edits) for message in service.messages]:
        problems.append("a restart at rest changed what is visible")
    return problems


def main() -> int:
    """Run from the command line; 1 when a promise was broken."""
    return command(__doc__, soak, {"messages": 2000, "kills": 20, "clients": 24})


if __name__ == "__main__":
    sys.exit(main())
