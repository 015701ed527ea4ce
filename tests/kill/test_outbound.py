"""``kill -9`` on a host that posts outside: every answer is visible once, and has its receipt.

``KILL_MESSAGES``, ``KILL_KILLS`` and ``KILL_SEED`` make it larger, or the same again; the whole is
``python -m tests.kill.soak_outbound``.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.kill.soak_outbound import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(120)
async def test_answers_are_visible_once_across_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))

    report = await soak(
        tmp_path,
        messages=int(os.environ.get("KILL_MESSAGES", "150")),
        kills=int(os.environ.get("KILL_KILLS", "4")),
        clients=12,
        seed=seed,
        seconds=110,
    )

    assert not report.problems, f"seed {seed}: {report}"
    assert report.kills
