"""What a call has started is found by its mark, and ended with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from threadline.agent.started import CALL_ID, SCOPE, Started, current, within
from threadline.errors import ToolFailed

_SLEEPS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def _start(started: Started, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        _SLEEPS, env=started.marks(environment), stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_an_environment_gets_the_mark_and_one_below_keeps_its_own() -> None:
    started = Started("c1")
    assert started.marks({"A": "1"}) == {"A": "1", CALL_ID: "c1", SCOPE: started.scope}
    below = started.below().marks({})
    assert started.marks(below) == below
    other = Started("c2").marks({})
    assert started.marks(other)[SCOPE] == started.scope


async def test_stop_ends_what_is_marked_and_nothing_else() -> None:
    mine, other = Started("c1"), Started("c2")
    ended, stays = _start(mine, {}), _start(other, {})
    try:
        with ended, stays:
            assert [process.pid for process in mine.alive()] == [ended.pid]
            assert await mine.stop() == 0
            assert ended.wait() != 0
            assert stays.poll() is None
            stays.kill()
    finally:
        ended.kill()
        stays.kill()


async def test_a_call_that_was_stopped_starts_nothing_more() -> None:
    started = Started("c1")
    assert await started.stop() == 0
    with pytest.raises(ToolFailed, match="it may start no more processes"):
        started.marks({})
    with pytest.raises(ToolFailed, match="it may start no more processes"):
        started.below()


def test_what_runs_after_the_call_is_not_the_calls() -> None:
    started = Started("c1")
    assert current() is None
    with within(started):
        assert current() is started
        started.leave()
        assert current() is None
        assert current(over=True) is started
    assert current(over=True) is None
