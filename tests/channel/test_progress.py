"""The latest text instead of each piece, beside what matters and never before it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from threadline.channel.progress import Lane, Texts
from threadline.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Coroutine

Event = dict[str, Any]


def piece(index: int, delta: str, block: str = "m1") -> Event:
    data = {"messageId": block, "delta": delta}
    return {"type": "message.appended", "index": index, "turnId": "t", "data": data}


def thought(index: int, delta: str, block: str = "m1") -> Event:
    data = {"blockId": block, "delta": delta}
    return {"type": "reasoning.appended", "index": index, "turnId": "t", "data": data}


def completed(index: int, block: str = "m1") -> Event:
    data = {"messageId": block, "text": "", "finishReason": "stop"}
    return {"type": "message.completed", "index": index, "turnId": "t", "data": data}


def other(index: int, type_: str = "step.started") -> Event:
    return {"type": type_, "index": index, "turnId": "t", "data": {}}


def said(events: list[Event]) -> list[tuple[int, str, str]]:
    return [(e["index"], e["data"].get("delta", ""), e["data"].get("text", "")) for e in events]


def test_the_pieces_of_a_text_are_one_and_it_is_whole() -> None:
    texts = Texts()
    first = texts.latest([piece(0, "a"), other(1), piece(2, "b"), thought(3, "x"), piece(4, "c")])
    assert said(first) == [(1, "", ""), (3, "x", "x"), (4, "abc", "abc")]
    assert said(texts.latest([piece(5, "d"), thought(6, "y")])) == [
        (5, "d", "abcd"),
        (6, "y", "xy"),
    ]
    assert bool(texts)


def test_a_complete_text_is_not_shown_in_pieces() -> None:
    texts = Texts()
    events = [piece(0, "a"), piece(1, "b", "m2"), completed(2), piece(3, "c", "m2")]
    assert said(texts.latest(events)) == [(2, "", ""), (3, "bc", "bc")]
    texts.latest([other(4, "turn.failed")])
    assert not texts


def test_a_turn_ends_all_its_texts() -> None:
    texts = Texts()
    events = [piece(0, "a"), thought(1, "x"), other(2, "turn.failed"), piece(3, "n", "m9")]
    assert said(texts.latest(events)) == [(2, "", ""), (3, "n", "n")]


def test_events_that_come_again_add_nothing() -> None:
    texts = Texts()
    texts.latest([piece(0, "a"), piece(1, "b")])
    assert said(texts.latest([piece(1, "b"), piece(2, "c")])) == [(2, "bc", "abc")]


def test_a_piece_of_another_shape_is_left_out() -> None:
    texts = Texts()
    odd = [piece(0, "a") | {"data": None}, piece(1, "a") | {"data": {"messageId": 5}}]
    odd += [completed(2) | {"data": None}, piece(3, "a") | {"data": {"messageId": "m", "delta": 1}}]
    assert [e["index"] for e in texts.latest(odd)] == [2, 3]


class Stage:
    """A lane whose calls last until the test lets them go."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.shown: list[str] = []
        self.go = asyncio.Event()
        self.stubborn = False
        self.tasks: list[asyncio.Task[None]] = []
        self.lane = Lane(self.run, self.spawn, self.clock)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    async def run(self, event: Event) -> None:
        self.shown.append(event["data"]["delta"])
        while True:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                if self.stubborn:
                    continue
                raise
            return

    async def end(self) -> None:
        self.stubborn = False
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_overtaken_is_left_out(stage: Stage) -> None:
    stage.lane.show(piece(0, "a"))
    await settle()
    for index, delta in enumerate("bcd", 1):
        stage.lane.show(piece(index, delta))
    stage.lane.show(thought(4, "x"))
    stage.lane.show(other(5))
    stage.go.set()
    await settle()
    assert stage.shown == ["a", "bcd", "x"]
    stage.lane.show(piece(6, "e"))
    await settle()
    assert stage.shown[-1] == "e"


async def test_an_end_drops_what_waits_of_it(stage: Stage) -> None:
    for event in (piece(0, "a"), piece(1, "b", "m2"), thought(2, "x")):
        stage.lane.show(event)
    stage.lane.drop(completed(3, "m2"))
    stage.lane.drop(other(4))
    stage.go.set()
    await settle()
    assert stage.shown == ["a", "x"]
    stage.go.clear()
    stage.lane.show(piece(5, "c"))
    await settle()
    stage.lane.show(piece(6, "d"))
    stage.lane.drop(other(7, "turn.completed"))
    stage.go.set()
    await settle()
    assert stage.shown == ["a", "x", "c"]


async def test_what_matters_waits_a_moment_for_a_call_on_its_way(stage: Stage) -> None:
    stage.lane.show(piece(0, "a"))
    await settle()
    stage.lane.show(piece(1, "b"))
    clearing = asyncio.create_task(stage.lane.clear())
    await stage.clock.elapse(0.5)
    assert not clearing.done()
    stage.go.set()
    await clearing
    assert stage.shown == ["a"]
    await stage.lane.clear()


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_call_that_takes_longer_is_cut_off(stage: Stage, stubborn: bool) -> None:
    stage.stubborn = stubborn
    stage.lane.show(piece(0, "a"))
    await settle()
    clearing = asyncio.create_task(stage.lane.clear())
    await stage.clock.elapse(2.0)
    assert clearing.done()
    assert stage.tasks[0].cancelled() is not stubborn
    await stage.end()


async def test_a_lane_ends_at_once(stage: Stage) -> None:
    assert stage.lane.cancel() == []
    stage.lane.show(piece(0, "a"))
    await settle()
    (task,) = stage.lane.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
