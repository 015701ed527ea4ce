"""``kill -9`` on a host that people talk to in Slack: every answer is there once, in its thread.

``KILL_THREADS``, ``KILL_KILLS`` and ``KILL_SEED`` make it larger, or the same again; the whole is
``python -m tests.kill.soak_slack``.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.kill.soak_slack import Reply, soak

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("socket", "reply", "threads", "kills"),
    [(False, "post", 160, 6), (True, "post", 40, 3), (False, "stream", 40, 3)],
)
async def test_every_question_in_slack_is_answered_once_across_kills(
    tmp_path: Path, socket: bool, reply: Reply, threads: int, kills: int
) -> None:
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(10**6))

    report = await soak(
        tmp_path,
        threads=int(os.environ.get("KILL_THREADS", threads)),
        kills=int(os.environ.get("KILL_KILLS", kills)),
        clients=12,
        seed=seed,
        seconds=220,
        socket=socket,
        reply=reply,
    )

    assert not report.problems, f"seed {seed}: {report}"
    assert report.kills
