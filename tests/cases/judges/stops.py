"""Slack inbound: what comes while a turn runs: follow-ups in their order, and stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cases.judges.posts import changed
from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.slack_world import BOT, CHANNEL, EPOCH, TEAM, SlackWorld

__all__: list[str] = []


def _id(step: Mapping[str, Any]) -> str:
    """Return the delivery id of a step's post."""
    return f"{TEAM}:{CHANNEL}:{step['body']['event']['ts']}"


async def _running(world: SlackWorld, step: Mapping[str, Any]) -> None:
    """Start the host, post, and wait until the turn waits for what it is told."""
    world.harness.waits = True
    await world.start()
    answer = await world.play(step)
    assert answer is not None
    assert answer.status == 200
    await world.until(lambda: world.harness.begun == 1, "a running turn")


@judge("S-46")
async def arrival_orders_a_batch(world: SlackWorld, case: Case, _: Any) -> None:
    """Follow-ups are drained as they arrived, however slow one's look-ups are; so is the prompt."""
    first, *rest = steps_of(case)
    slow = [changed(one, user="U0HUMAN002") for one in rest]
    for follow_ups, looked_up in ((rest, None), ([rest[0], slow[1], rest[2]], "U0HUMAN002")):
        async with world.fresh() as fresh:
            await _running(fresh, first)
            gate = fresh.slack.hold(
                "*" if looked_up is None else "users.info",
                "before",
                when=lambda args: looked_up in (None, args.get("user")),  # noqa: B023
            )
            for step in follow_ups:
                await fresh.at(step["at_s"])
                answer = await fresh.post(step, signed=looked_up is not None)
                assert answer.status == 200
            assert len(fresh.accepted) == 4
            fresh.harness.free()
            await fresh.pass_(0.1)
            gate.release()
            await fresh.rest()
            drained = fresh.events("message.received")[1:]
            ids = [one for event in drained for one in event["data"]["deliveryIds"]]
            assert ids == [_id(step) for step in follow_ups]
            assert len(drained) == 1
            parts = [part["text"] for part in drained[0]["data"]["parts"]]
            assert parts == ["part 2", "part 1", "part 3"]
            places = [fresh.harness.prompts[-1].index(part) for part in parts]
            assert places == sorted(places)


@judge("S-48")
async def a_stop_is_a_stop(world: SlackWorld, case: Case, variant: Any) -> None:
    """The turn is cancelled, what waits is cleared and never prompted; the session goes on."""
    start, one, two, stop = steps_of(case)
    await _running(world, start)
    (session,) = world.sessions()
    for step in (one, two, stop):
        answer = await world.play(step, variant)
        assert answer is not None
        assert answer.status == 200
    failed = await session.event("turn.failed")
    assert failed["data"]["status"] == "cancelled"
    assert world.now_s == stop["at_s"]
    world.harness.free()
    await world.rest()
    assert len(world.harness.prompts) == 1
    for step in (one, two):
        assert session.outcomes(_id(step)) == ["cleared"]
    assert session.outcomes(_id(stop)) == []
    assert session.status == "waiting"
    assert len(session.events("turn.started")) == 1
    await world.ask(start, f"<@{BOT}> go on", "1760000549.000100", at="1760000540.000100")
    await world.rest()
    assert session.replies == ["go on"]
    assert world.sessions()[0].id == session.id
    assert not any("also" in prompt for prompt in world.harness.prompts)


@judge("S-49")
async def a_sentence_with_stop_is_none(world: SlackWorld, case: Case, variant: Any) -> None:
    """It is a follow-up like any other: steered or prompted, and nothing is cancelled."""
    start, follow_up = steps_of(case)
    await _running(world, start)
    (session,) = world.sessions()
    answer = await world.play(follow_up, variant)
    assert answer is not None
    assert answer.status == 200
    await world.pass_(5)
    assert session.status == "running"
    world.harness.free()
    await world.rest()
    assert not session.events("turn.failed")
    assert not session.events("deliveries.cleared")
    assert session.outcomes(_id(follow_up)) in (["steered"], ["prompted"])
    assert session.replies == ["long job", variant]


@judge("S-51")
async def a_late_stop_spares_what_came_later(world: SlackWorld, case: Case, _: Any) -> None:
    """What is older than the stop is cancelled, what is newer is not, wherever each of them is."""
    a, b, stop = steps_of(case)
    async with world.fresh() as fresh:  # A still runs, B waits
        await _running(fresh, a)
        await fresh.play(b)
        await fresh.play(stop)
        (session,) = fresh.sessions()
        failed = await session.event("turn.failed")
        assert failed["data"]["status"] == "cancelled"
        fresh.harness.free()
        await fresh.rest()
        assert session.outcomes(_id(b)) == ["prompted"]
        assert session.replies == ["B"]
    for drained in (False, True):  # A is done, B runs
        async with world.fresh() as fresh:
            if drained:
                await _running(fresh, a)
                await fresh.play(b)
                fresh.harness.free()
                await fresh.until(lambda: fresh.harness.begun == 2, "B")
            else:
                await fresh.start()
                await fresh.play(a)
                await fresh.rest()
                fresh.harness.waits = True
                await fresh.play(b)
                await fresh.until(lambda: fresh.harness.begun == 2, "B")
            answer = await fresh.play(stop)
            assert answer is not None
            assert answer.status == 200
            fresh.harness.free()
            await fresh.rest()
            (session,) = fresh.sessions()
            assert session.replies == ["A", "B"]
            assert not session.events("turn.failed")
            assert not session.events("deliveries.cleared")
    await _after_a_restart(world, a, b, stop)


async def _after_a_restart(
    world: SlackWorld, a: Mapping[str, Any], b: Mapping[str, Any], stop: Mapping[str, Any]
) -> None:
    """The same behind a restart, at a time at which the posts were written."""
    async with world.fresh(begins=EPOCH + 600) as fresh:
        fresh.harness.waits = True
        await fresh.start()
        await fresh.post(a, signed=True)
        await fresh.until(lambda: fresh.harness.begun == 1, "A")
        await fresh.at(10)
        await fresh.post(b, signed=True)
        await fresh.at(20)
        await fresh.restart()
        await fresh.until(lambda: fresh.harness.begun == 2, "the same turn, gone on")
        await fresh.at(65)
        await fresh.post(stop, signed=True)
        (session,) = fresh.sessions()
        await session.event("turn.failed", where=lambda e: e["data"]["status"] == "cancelled")
        fresh.harness.free()
        await fresh.rest()
        assert session.outcomes(_id(b)) == ["prompted"]
        assert session.replies == ["B"]
