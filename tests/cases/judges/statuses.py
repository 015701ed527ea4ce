"""Slack outbound: the line that says what the agent does, for as long as it does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.judges.texts import MODES, ROOT
from tests.cases.slack_world import CHANNEL, DM, SlackWorld
from tests.cases.told import Answer, Fail, Tool

__all__: list[str] = []


@judge("S-124")
async def a_status_ends_with_its_turn(world: SlackWorld, case: Case, _: Any) -> None:
    """However a turn ends the line is gone within 2 s; it is there all the while before."""
    post, stop, expected = steps_of(case)
    root = post["body"]["event"]["thread_ts"]
    ends: dict[str, Callable[[SlackWorld], Any]] = {
        "stopped": lambda fresh: _stopped(fresh, stop, root),
        "completed": lambda fresh: fresh.harness.tell(Answer("done")),
        "empty": lambda fresh: fresh.harness.tell(Answer("")),
        "failed": lambda fresh: fresh.harness.tell(Fail()),
        "not posted": lambda fresh: _unposted(fresh),
    }
    for mode in MODES:
        for name, end in ends.items():
            async with world.fresh() as fresh:
                fresh.harness.waits = True
                await fresh.start(reply=mode)
                await fresh.play(post)
                await fresh.until(lambda: fresh.slack.status(DM, root), "the status")
                await fresh.at(3)
                if (waits := end(fresh)) is not None:
                    await waits
                await fresh.until(lambda: _ended(fresh), "the end")
                await fresh.within(2, lambda: not fresh.slack.status(DM, root), name)
                cleared = fresh.calls("assistant.threads.setStatus", status="")
                if name == "stopped":
                    await fresh.at(expected["at_s"])
                    fresh.expect_call(expected)
                elif mode == "post":
                    await fresh.within(
                        2,
                        lambda: fresh.calls("assistant.threads.setStatus", status=""),
                        f"the end of the status, {name} {cleared}",
                    )
                await fresh.rest()
                await fresh.pass_(30)
                assert fresh.slack.status(DM, root) == ""
                assert fresh.slack.session(DM, root) != "processing"
    await _renewed(world, post, root)
    await _not_set_late(world, post, root)


def _ended(world: SlackWorld) -> bool:
    return bool(world.events("turn.completed") or world.events("turn.failed"))


async def _stopped(world: SlackWorld, stop: Mapping[str, Any], root: str) -> None:
    session = world.session(root, DM)
    assert session is not None
    world.saved["sid"] = session.id
    answer = await world.play(stop)
    assert answer is not None
    assert answer.json()["stopped"] is True


def _unposted(world: SlackWorld) -> None:
    """Let no answer arrive: Slack refuses every one."""
    for method in ("chat.postMessage", "chat.startStream", "chat.stopStream", "chat.update"):
        world.slack.fail(method, "restricted_action", times=None)
    world.harness.tell(Answer("done"))


async def _renewed(world: SlackWorld, post: Mapping[str, Any], root: str) -> None:
    for orders in ([], [Tool("idle", {"seconds": 500})]):
        async with world.fresh() as fresh:
            fresh.harness.waits = True
            await fresh.start()
            await fresh.play(post)
            fresh.harness.tell(*orders)
            await fresh.until(lambda: fresh.slack.status(DM, root), "the status")
            await fresh.throughout(450, lambda: fresh.slack.status(DM, root), "a status")
            asked = len(fresh.calls("assistant.threads.setStatus"))
            assert asked <= 3 + 450 / 20


async def _not_set_late(world: SlackWorld, post: Mapping[str, Any], root: str) -> None:
    """A status on its way when the turn ends is not what is seen in the end."""
    method = "assistant.threads.setStatus"
    for seconds in (0, 1, 5):
        async with world.fresh() as fresh:
            fresh.harness.waits = True
            await fresh.start()
            gate = fresh.slack.hold(method, "before", when=lambda args: bool(args.get("status")))
            await fresh.play(post)
            await fresh.until(lambda: gate.arrived, "a status on its way")  # noqa: B023
            fresh.harness.tell(Answer("done"))
            await fresh.until(lambda: _ended(fresh), "the end")
            await fresh.pass_(seconds)
            gate.release()
            await fresh.rest()
            await fresh.pass_(2)
            assert fresh.slack.status(DM, root) == "", seconds
            assert fresh.calls(method)[-1].args["status"] == ""
            assert fresh.slack.session(DM, root) != "processing"


@judge("S-125")
async def a_status_belongs_to_its_turn(world: SlackWorld, case: Case, _: Any) -> None:
    """The end of one turn takes nothing from the next: its status is there throughout."""
    first, second, one, two = steps_of(case)
    method = "assistant.threads.setStatus"
    for mode in MODES:
        for slow in (None, "before", "after"):
            async with world.fresh() as fresh:
                fresh.harness.waits = True
                await fresh.start(reply=mode)
                await fresh.play(first)
                await fresh.until(lambda: fresh.harness.begun == 1, "the first turn")
                await fresh.play(second)
                gate = None
                if slow is not None:
                    gate = fresh.slack.hold(
                        method, slow, times=1, when=lambda args: not args.get("status")
                    )
                await fresh.play(one)
                await fresh.until(lambda: fresh.harness.begun == 2, "the second turn")
                await fresh.pass_(1)
                if gate is not None:
                    gate.release()
                # Slack takes a status away when the answer comes; then it is shown again.
                await fresh.until(lambda: fresh.said(ROOT), "the first answer")
                await fresh.pass_(2)
                await fresh.throughout(
                    two["at_s"] - 0.5,
                    lambda: fresh.slack.status(CHANNEL, ROOT),
                    f"a status in the second turn, {mode} {slow}",
                )
                await fresh.play(two)
                await fresh.until(lambda: len(fresh.events("turn.completed")) == 2, "both")
                await fresh.within(2, lambda: not fresh.slack.status(CHANNEL, ROOT), "no status")
                await fresh.rest()
                assert " ".join(fresh.words(ROOT)) == "first answer second answer"
