"""Kill a host at random moments while clients speak to it, then count every delivery once.

``python -m tests.kill.soak --deliveries 5000 --kills 30``
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kill.checks import at_rest, check
from tests.kill.host import HostProcess
from tests.kill.load import Load
from tests.kill.soak_shared import command, report

__all__ = ["Report", "soak"]

AGAIN = 0.3


@dataclass(frozen=True, slots=True)
class Report:
    """What happened; ``problems`` is empty when every promise was kept."""

    deliveries: int
    sessions: int
    kills: int
    retries: int
    repeats: int
    stops: int
    resumed: int
    seconds: float
    problems: list[str]

    def __str__(self) -> str:
        """Return a few lines for people."""
        head = (
            f"{self.deliveries} deliveries in {self.sessions} sessions, {self.kills} kills, "
            f"{self.retries} requests tried again, {self.repeats} repeats, {self.stops} stops, "
            f"{self.resumed} streams resumed, {self.seconds:.0f} s"
        )
        return report(head, self.problems, "every promise was kept")


async def soak(
    folder: Path, *, deliveries: int, kills: int, clients: int, seed: int, seconds: float
) -> Report:
    """Run it all in a folder; raises TimeoutError when it takes longer than ``seconds``."""
    began = time.monotonic()
    host = HostProcess(folder)
    load = Load(host.url, deliveries, clients, seed)
    try:
        await host.start()
        await host.ready()
        async with asyncio.timeout(seconds), load:
            async with asyncio.TaskGroup() as group:
                speaking = group.create_task(load.run())
                killing = group.create_task(_kill(host, load, kills, random.Random(seed), speaking))
            await at_rest(load, seconds)
            problems = await check(host, load)
            problems += await _unchanged(host, load)
            resumed = sum(reader.opened - 1 for reader in load.readers.values())
    except TimeoutError:
        said = f"{len(load.acknowledged)} of {deliveries} were acknowledged after {seconds:.0f} s"
        raise TimeoutError(f"{said}; the host said last:\n{host.tail()}") from None
    finally:
        await host.kill()
    return Report(
        len(load.acknowledged),
        len(load.readers),
        killing.result(),
        load.retries,
        load.repeats,
        load.stops,
        resumed,
        time.monotonic() - began,
        problems,
    )


async def _kill(
    host: HostProcess, load: Load, kills: int, dice: random.Random, speaking: asyncio.Task[None]
) -> int:
    """Kill at random moments, some of them while the host is still starting."""
    moments = sorted(dice.sample(range(load.clients, max(load.deliveries, kills + 1)), kills))
    killed = 0
    while killed < kills:
        while True:
            if len(load.acknowledged) >= moments[killed] or speaking.done():
                break
            await asyncio.sleep(0.002)
        await asyncio.sleep(dice.uniform(0.0, 0.05))
        again = True
        while again and killed < kills:
            await host.kill()
            killed += 1
            await asyncio.sleep(dice.uniform(0.0, 0.1))
            await host.start()
            again = dice.random() < AGAIN
            if again:
                await asyncio.sleep(dice.uniform(0.2, 1.0))
        await host.ready()
    return killed


async def _unchanged(host: HostProcess, load: Load) -> list[str]:
    """Another kill and start at rest changes no log."""
    before = {session_id: host.log_bytes(session_id) for session_id in load.readers}
    await host.kill()
    await host.start()
    await host.ready()
    await at_rest(load, 60)
    code = await host.terminate()
    problems = [] if code == 0 else [f"SIGTERM ended the host with {code}:\n{host.tail()}"]
    return problems + [
        f"{session_id}: a restart at rest changed the log"
        for session_id, log in before.items()
        if host.log_bytes(session_id) != log
    ]


def main() -> int:
    """Run from the command line; 1 when a promise was broken."""
    return command(__doc__, soak, {"deliveries": 5000, "kills": 30, "clients": 32})


if __name__ == "__main__":
    sys.exit(main())
