"""What the team knows of its launch: a few facts in place of your own systems."""

from __future__ import annotations

import asyncio
import os
from typing import Any

__all__ = ["AREAS", "DAY", "area_of", "pause"]

DAY = "Thursday"

AREAS: dict[str, dict[str, Any]] = {
    "build": {"ready": True, "note": "Version 4.2.0 is built, and its tests passed."},
    "docs": {"ready": False, "note": "The page on billing still shows last year's prices."},
    "pricing": {"ready": True, "note": "The new plans are in the shop, hidden until the day."},
    "security": {"ready": True, "note": "The review ended without findings."},
    "support": {"ready": False, "note": "Two of five macros are not written yet."},
}


def area_of(name: str) -> str:
    """Return an area's name as it is kept; raises ValueError when there is none."""
    area = name.strip().lower()
    if area not in AREAS:
        raise ValueError(f'There is no area "{name}"; there are: {", ".join(AREAS)}.')
    return area


async def pause(seconds: float) -> None:
    """Take the time that a real system would; ``SLACK_HELPER_PACE=0`` takes none."""
    await asyncio.sleep(seconds * float(os.environ.get("SLACK_HELPER_PACE", "1")))
