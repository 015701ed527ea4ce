"""One gate per credential and method."""

from __future__ import annotations

import asyncio

import pytest

from threadline.channel.limiter import Limiter
from threadline.testing.clock import ManualClock


class Calls:
    """Calls that last until they are told to end."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.running: list[str] = []
        self.begun: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def start(
        self, name: str, *, key: str = "k", final: bool = True, seconds: float | None = None
    ) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._call(name, key, final, seconds))
        await let_run()

    async def _call(self, name: str, key: str, final: bool, seconds: float | None) -> None:
        async with self.limiter.turn(key, "post", final=final, seconds=seconds):
            self.begun.append(name)
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await let_run()

    async def close(self) -> None:
        await self.end(*self._ends)
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def let_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_so_many_at_once_and_final_posts_first(clock: ManualClock) -> None:
    calls = Calls(Limiter(clock, concurrency=2))
    for name in ("a", "b"):
        await calls.start(name)
    await calls.start("progress", final=False)
    for name in ("c", "d"):
        await calls.start(name)
    assert calls.running == ["a", "b"]
    await calls.end("a", "b")
    assert calls.running == ["c", "d"]
    await calls.end("c")
    assert calls.running == ["d", "progress"]
    await calls.close()
    assert calls.begun == ["a", "b", "c", "d", "progress"]


async def test_keys_do_not_know_each_other(clock: ManualClock) -> None:
    limiter = Limiter(clock, concurrency=1)
    calls = Calls(limiter)
    await calls.start("a")
    await calls.start("b")
    await calls.start("c", key="other")
    assert calls.running == ["a", "c"]
    limiter.pause("other", "post", 5)
    await calls.end("a")
    assert calls.running == ["c", "b"]
    await calls.close()


async def test_a_pause_holds_back_everybody_with_the_key(clock: ManualClock) -> None:
    limiter = Limiter(clock, concurrency=2)
    calls = Calls(limiter)
    limiter.pause("k", "post", 10)
    limiter.pause("k", "post", 3)  # a shorter one does not open it
    for name in ("a", "b", "c"):
        await calls.start(name)
    await clock.elapse(9.9)
    assert calls.begun == []
    limiter.pause("k", "post", 1)  # a longer one holds those who wait already
    await clock.elapse(0.9)
    assert calls.begun == []
    await clock.elapse(0.1)
    assert calls.running == ["a", "b"]
    await calls.close()


@pytest.mark.parametrize("moment", ["queued", "granted", "closed", "running"])
async def test_a_cancelled_call_gives_its_place_back(clock: ManualClock, moment: str) -> None:
    limiter = Limiter(clock, concurrency=1)
    calls = Calls(limiter)
    if moment == "closed":
        limiter.pause("k", "post", 5)
    elif moment != "running":
        await calls.start("first")
    await calls.start("cancelled")
    await calls.start("next")
    if moment == "granted":
        calls._ends["first"].set()
        while calls.running == ["first"]:  # noqa: ASYNC110 - one turn of the loop at a time
            await asyncio.sleep(0)
        # It has its place, and does not know it yet.
        assert calls.running == []
    calls.tasks["cancelled"].cancel()
    await let_run()
    await calls.end("first") if "first" in calls.tasks else None
    await clock.elapse(5)
    assert calls.running == ["next"]
    assert "cancelled" not in calls.begun or moment == "running"
    await calls.close()
    assert limiter._gates["k", "post"].free == 1


async def test_who_cannot_wait_so_long_is_told(clock: ManualClock) -> None:
    limiter = Limiter(clock, concurrency=1)
    calls = Calls(limiter)
    await calls.start("a")
    await calls.start("b", seconds=5)
    await calls.start("c")
    await clock.elapse(5)
    with pytest.raises(TimeoutError):
        await calls.tasks["b"]
    await calls.end("a")
    assert calls.running == ["c"]
    await calls.end("c")
    limiter.pause("k", "post", 30)
    await calls.start("d", seconds=29)
    with pytest.raises(TimeoutError, match="30 seconds"):
        await calls.tasks["d"]
    await calls.start("e", seconds=30)
    await clock.elapse(30)
    assert calls.running == ["e"]
    await calls.close()


async def test_progress_leaves_half_of_the_places_to_final_posts(clock: ManualClock) -> None:
    limiter = Limiter(clock, concurrency=4)
    calls = Calls(limiter)
    assert not limiter.busy("k", "post")
    await calls.start("a", final=False)
    assert not limiter.busy("k", "post")
    await calls.start("b", final=False)
    assert limiter.busy("k", "post")
    await calls.end("a")
    assert not limiter.busy("k", "post")
    limiter.pause("k", "post", 1)
    assert limiter.busy("k", "post")
    await clock.elapse(1)
    assert not limiter.busy("k", "post")
    assert Limiter(clock, concurrency=1).busy("k", "post")
    await calls.close()


async def test_idle_keys_are_forgotten(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadline.channel.limiter._MANY", 5)
    limiter = Limiter(clock)
    limiter.pause("paused", "post", 60)
    calls = Calls(limiter)
    await calls.start("running", key="running")
    for number in range(20):
        async with limiter.turn(f"key {number}", "post", final=True):
            pass
    assert len(limiter._gates) <= 5
    assert {("paused", "post"), ("running", "post")} <= set(limiter._gates)
    await calls.close()


def test_a_limiter_lets_at_least_one_in(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limiter(clock, concurrency=0)
