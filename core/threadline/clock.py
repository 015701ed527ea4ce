"""Time as a parameter, so that no test has to sleep."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "instant", "iso"]


class Clock(Protocol):
    """What the core knows of time."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(seconds)


def iso(moment: datetime) -> str:
    """Format a moment as the wire has it: ISO 8601, UTC, milliseconds, ``Z``."""
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"


def instant(text: str) -> str:
    """Return an ISO 8601 instant, which must name its timezone, as the wire has it.

    Raises ValueError.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("the time names no timezone")
    try:
        return iso(moment)
    except OverflowError:
        raise ValueError("the time is outside the years 1 to 9999") from None
