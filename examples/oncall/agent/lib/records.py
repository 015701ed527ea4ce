"""The data that the tools read: small files beside this one, in place of your own systems."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Runbook", "deploys", "known", "pause", "runbooks", "services", "statuses"]

_HERE = Path(__file__).parent
_STEP = re.compile(r"^\d+\.\s+(.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Runbook:
    """One procedure: its title, the words it is about, and its steps."""

    title: str
    file: str
    text: str
    steps: list[str]

    def score(self, words: set[str]) -> int:
        """Return how many of the words it holds; those of the title count three times."""
        title = set(re.findall(r"[a-z]+", self.title.lower()))
        text = set(re.findall(r"[a-z]+", self.text.lower()))
        return 3 * len(words & title) + len(words & text)


async def pause(seconds: float) -> None:
    """Take the time that a real system would; ``ONCALL_PACE=0`` takes none."""
    await asyncio.sleep(seconds * float(os.environ.get("ONCALL_PACE", "1")))


@cache
def statuses() -> dict[str, dict[str, Any]]:
    """Return what the status page says, by service."""
    found: dict[str, dict[str, Any]] = json.loads((_HERE / "data" / "statuses.json").read_text())
    return found


@cache
def deploys() -> list[dict[str, Any]]:
    """Return ``{service, version, minutesAgo, by, summary}`` of each deploy."""
    found: list[dict[str, Any]] = json.loads((_HERE / "data" / "deploys.json").read_text())
    return found


@cache
def runbooks() -> list[Runbook]:
    """Return all runbooks, by file name."""
    return [_runbook(path) for path in sorted((_HERE / "runbooks").glob("*.md"))]


def known(service: str) -> str:
    """Return a service's name as the records have it; raises ValueError when there is none."""
    name = service.strip().lower()
    if name not in statuses():
        raise ValueError(f'There is no service "{service}"; there are: {", ".join(services())}.')
    return name


def services() -> list[str]:
    """Return the names of the services."""
    return sorted(statuses())


def _runbook(path: Path) -> Runbook:
    text = path.read_text()
    title = text.partition("\n")[0].removeprefix("# ").strip()
    return Runbook(title=title, file=path.name, text=text, steps=_STEP.findall(text))
