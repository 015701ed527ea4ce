"""What the soaks have in common: their command line, how they report, and when they kill."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.kill.host import HostProcess

from threadline.testing.gates import CallGate, Place

__all__ = ["Answered", "HasProblems", "Killer", "command", "listed", "report"]

AGAIN = 0.2
SHOWN = 40


class HasProblems(Protocol):
    """What a soak returns: it is shown to people, and says what went wrong."""

    @property
    def problems(self) -> list[str]:
        """A sentence for each promise that was broken."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a soak of a channel says: ``asked`` is what was asked, and where, in words.

    ``problems`` is empty when every promise was kept.
    """

    asked: str
    threads: int
    questions: int
    kills: Counter[str]
    counts: Counter[str]
    seconds: float
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a few lines for people."""
        head = (
            f"{self.asked}; kills: {listed(self.kills)}; {listed(self.counts)}; "
            f"{self.seconds:.0f} s"
        )
        return report(head, self.problems, "every answer is there once")


def listed(counts: Mapping[str, int]) -> str:
    """Return counts in words, in the order of their names."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def report(head: str, problems: Sequence[str], kept: str) -> str:
    """Return a few lines for people: what was done, and that it was kept, or what was not."""
    if not problems:
        return f"{head}: {kept}."
    more = len(problems) - SHOWN
    shown = [*problems[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
    return "\n- ".join([f"{head}:", *shown])


def command(
    doc: str | None,
    soak: Callable[..., Coroutine[Any, Any, HasProblems]],
    counts: Mapping[str, int],
    declare: Callable[[argparse.ArgumentParser], object] = lambda _: None,
) -> int:
    """Run a soak from the command line; 1 when a promise was broken.

    ``counts`` are its numbers with their defaults, ``declare`` adds options of its own; each is
    passed on by its name, with ``seed`` and ``seconds``.
    """
    parser = argparse.ArgumentParser(description=doc)
    for name, default in counts.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=900.0)
    declare(parser)
    parser.add_argument("--keep", type=Path, help="run in this folder and leave it")
    options = vars(parser.parse_args())
    keep: Path | None = options.pop("keep")
    if options["seed"] is None:
        options["seed"] = random.SystemRandom().randrange(10**6)
    # So that the host is ended too when this is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {options['seed']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="threadline-soak-") as folder:
        place = keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        found = asyncio.run(soak(place, **options))
    print(found)
    return 1 if found.problems else 0


@dataclass(slots=True)
class Killer:
    """Kills at random moments; two of three while a call to a service is on its way.

    ``hold`` lets the next such call wait at a place. What is on its way takes effect, if at all,
    before the next process starts.
    """

    host: HostProcess
    kills: int
    dice: random.Random
    hold: Callable[[random.Random, Place], CallGate]
    killed: Counter[str] = field(default_factory=Counter)

    async def run(self, begun: Callable[[], int], whole: int, traffic: asyncio.Task[None]) -> None:
        """Kill so often, spread over the ``whole`` that ``begun`` counts up to."""
        moments = sorted(self.dice.sample(range(max(whole, self.kills)), self.kills))
        while (done := self.killed.total()) < self.kills:
            while begun() < moments[done] and not traffic.done():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            await self._strike()
            await self.host.start()
            if self.dice.random() < AGAIN and self.killed.total() < self.kills:
                # While it is starting, or has just begun to look for what it left.
                await asyncio.sleep(self.dice.uniform(0.2, 1.2))
                await self._kill("while starting")
                await self.host.start()
            await self.host.ready()

    async def _strike(self) -> None:
        places: list[Place | None] = [None, "before", "after"]
        place = self.dice.choice(places)
        if place is None:
            await asyncio.sleep(self.dice.uniform(0.0, 0.1))
            await self._kill("at any moment")
            return
        gate = self.hold(self.dice, place)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                while not gate.arrived:  # noqa: ASYNC110
                    await asyncio.sleep(0.002)
        await self._kill(f"{place} a post" if gate.arrived else "at any moment")
        gate.release()

    async def _kill(self, when: str) -> None:
        await self.host.kill()
        self.killed[when] += 1
