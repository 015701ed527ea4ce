"""Kill a host at random moments while clients speak to it, then count every delivery once.

``python -m tests.kill.soak --deliveries 5000 --kills 30``
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kill.checks import at_rest, check
from tests.kill.host import HostProcess
from tests.kill.load import Load

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
        if not self.problems:
            return f"{head}: every promise was kept."
        more = len(self.problems) - 40
        shown = [*self.problems[:40], *([f"and {more} more"] if more > 0 else [])]
        return "\n- ".join([f"{head}:", *shown])


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--keep", type=Path, help="run in this folder and leave it")
    options = parser.parse_args()
    # So that the host is ended too when this is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="threadline-soak-") as folder:
        place = options.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(
            soak(
                place,
                deliveries=options.deliveries,
                kills=options.kills,
                clients=options.clients,
                seed=seed,
                seconds=options.seconds,
            )
        )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
