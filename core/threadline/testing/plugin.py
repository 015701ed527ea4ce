"""The pytest plugin that comes with threadline; importing it imports nothing heavy.

Fixtures: ``manual_clock``, ``faulty_disk`` and ``threadline_host``, which makes hosts::

    async def test_it_answers(threadline_host, manual_clock):
        async with threadline_host(channel, clock=manual_clock) as host:
            session = await host.start_session("hi")
            await session.rest()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from threadline.testing.clock import ManualClock
    from threadline.testing.faults import FaultyDisk
    from threadline.testing.host import TestHost

__all__ = ["faulty_disk", "manual_clock", "threadline_host"]


@pytest.fixture
def manual_clock() -> ManualClock:
    """Return a clock that only the test moves."""
    from threadline.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def faulty_disk() -> FaultyDisk:
    """Return a disk for a host, healthy until the test breaks it."""
    from threadline.testing.faults import FaultyDisk

    return FaultyDisk()


@pytest.fixture
def threadline_host(tmp_path: Path) -> Iterator[Callable[..., TestHost]]:
    """Return what makes hosts: it takes what ``TestHost`` takes, and gives each a state root.

    A host that still runs at the end of the test is an error: use ``async with``.
    """
    from threadline.testing.host import TestHost

    made: list[TestHost] = []

    def make(*subjects: Any, **options: Any) -> TestHost:
        options.setdefault("root", tmp_path / f"state-{len(made) + 1}")
        host = TestHost(*subjects, **options)
        made.append(host)
        return host

    yield make
    if any(host.running for host in made):
        pytest.fail("A host still runs: use 'async with threadline_host(…) as host'.")
