"""``kill -9`` on a real host: every acknowledged delivery has one outcome, readers miss nothing.

``KILL_DELIVERIES``, ``KILL_KILLS`` and ``KILL_SEED`` make it larger, or the same again; the whole
is ``python -m tests.kill.soak``.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.kill.soak import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(180)
async def test_acknowledged_deliveries_survive_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))

    report = await soak(
        tmp_path,
        deliveries=int(os.environ.get("KILL_DELIVERIES", "400")),
        kills=int(os.environ.get("KILL_KILLS", "5")),
        clients=24,
        seed=seed,
        seconds=150,
    )

    assert not report.problems, f"seed {seed}: {report}"
