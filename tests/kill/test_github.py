"""``kill -9`` on a host that people talk to at GitHub: every answer is there once, in its place.

``KILL_THREADS``, ``KILL_KILLS`` and ``KILL_SEED`` make it larger, or the same again; the whole is
``python -m tests.kill.soak_github``.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.kill.soak_github import soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("worktree", "threads", "kills"), [(False, 40, 4), (True, 16, 2)])
async def test_every_question_at_github_is_answered_once_across_kills(
    tmp_path: Path, worktree: bool, threads: int, kills: int
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))

    report = await soak(
        tmp_path,
        threads=int(os.environ.get("KILL_THREADS", threads)),
        kills=int(os.environ.get("KILL_KILLS", kills)),
        clients=12,
        seed=seed,
        seconds=220,
        worktree=worktree,
    )

    assert not report.problems, f"seed {seed}: {report}"
    assert report.kills
