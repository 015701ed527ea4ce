"""A host that dies anywhere in a turn: one comment with the answer, one review, one check."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.channels.github.world import REPOSITORY, World, served

from threadline.harness.scripted import Call, Say, Scripted, Step
from threadline.store.base import SessionRecord
from threadline.testing.gates import Place
from threadline_github.outbound.tools import report_check, review_pull_request, set_labels
from threadline_github.testing import Pull

DEV, BOT = "dev-one", "agent-fixture[bot]"
TOOLS = [report_check, review_pull_request, set_labels]
LONG = "\n\n".join(f"{number} " + "word " * 60 for number in range(300))
FINDING = {"path": "src/upload.py", "line": 2, "body": "Why?"}
REMARK = {"path": "src/upload.py", "start_line": 2, "message": "Hm."}
REPORT = {"conclusion": "failure", "title": "1 problem", "summary": "Line 2."}
SCRIPT: list[Step] = [
    Call("review_pull_request", {"body": "Look.", "event": "APPROVE", "comments": [FINDING]}),
    Call("report_check", {**REPORT, "annotations": [REMARK]}),
    Call("set_labels", {"add": ["seen"]}),
    Say(LONG, deltas=()),
]


class Numbered:
    """Counts the host's calls, and finds the one with a number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = itertools.count(1)

    def __call__(self, call: Any) -> bool:
        """Tell whether it is that call."""
        return call.path.startswith("/repos/") and next(self.count) == self.number


async def until(world: World, done: Callable[[], object]) -> None:
    """Let time pass until it is so."""
    async with asyncio.timeout(30):
        while not done():
            await world.clock.elapse(0.25)
            await world.github.settled()
            # The disk takes real time.
            await asyncio.sleep(0.002)


async def goes_on(world: World, pull: Pull) -> None:
    """Start the next process, and see that it does what is left, when it has heard of it."""
    await world.github.settled()
    await world.host.start()
    opened = world.github.deliveries("pull_request")[0]
    if not opened.ok:
        world.github.webhooks.redeliver(opened)
    await until(world, lambda: ended(world, pull))
    check(world, pull)


async def dies(world: World, *, power_cut: bool = False) -> None:
    """Kill the host, when no connection is just being made: the library would forget it open."""
    for _ in range(50):
        await asyncio.sleep(0)
    await world.host.kill(power_cut=power_cut)


def asks(world: World) -> Pull:
    """Open a pull request, which is a question."""
    return world.github.user(DEV).open_pull()


def recorded(world: World, pull: Pull) -> SessionRecord | None:
    """Return the session of a pull request, if there is one."""
    return world.host.agent().store.session_by_token("github", f"pr:{REPOSITORY}#{pull.number}")


def ended(world: World, pull: Pull) -> bool:
    """Tell whether the turn is over, and all of it was shown."""
    record = recorded(world, pull)
    if record is None or not world.host.agent().dispatcher.caught_up(record.id):
        return False
    types = [one["type"] for one in world.host.session(record.id).events()]
    return types[-1] == "session.waiting" or types[-2:] == ["session.waiting", "log.recovered"]


def check(world: World, pull: Pull) -> None:
    """The answer is there once, and so is what tools have posted, if the log has it.

    A power cut may take a call whose result no other file knew of.
    """
    record = recorded(world, pull)
    assert record is not None
    outputs = [one["type"] for one in _outputs(world.host.session(record.id).events())]
    comments = [one.body for one in world.github.comments(pull) if one.author.login == BOT]
    said = "".join(body.rpartition("\n\n")[0] for body in comments)
    assert len(comments) == 2
    assert "".join(said.split()) == "".join(LONG.split())
    assert len(world.github.reviews(pull)) == outputs.count("github_review")
    assert len(world.github.review_comments(pull)) == outputs.count("github_review")
    reported = "github_check" in outputs
    (run,) = world.github.checks(pull)
    assert (run.status, run.conclusion) == ("completed", "failure" if reported else "neutral")
    assert len(run.annotations) == reported
    assert world.github.labels(pull) == (["seen"] if "github_labels" in outputs else [])
    posts = world.host.agent().store.outbound(record.id)
    assert [post for post in posts if post.ref is None or post.failure is not None] == []


def _outputs(events: list[Any]) -> Iterator[dict[str, Any]]:
    for event in events:
        if event["type"] == "action.result" and not event["data"].get("isError"):
            yield event["data"]["output"]


@pytest.mark.parametrize(("place", "first"), [("before", 1), ("after", 2)])
async def test_a_host_may_die_at_every_call(place: Place, first: int) -> None:
    """Every second call before its effect, and the others after it."""
    for number in itertools.count(first, 2):
        async with served(Scripted(SCRIPT), tools=TOOLS, check="agent") as world:
            gate = world.github.hold("*", "*", place, when=Numbered(number), times=1)
            pull = asks(world)
            await until(world, lambda: gate.arrived or ended(world, pull))  # noqa: B023
            if not gate.arrived:
                check(world, pull)
                assert number > 12
                return
            await dies(world)
            gate.release()
            await goes_on(world, pull)


@pytest.mark.parametrize("when", ["before", "after", "power cut"])
async def test_a_host_may_die_at_many_writes(when: str) -> None:
    """Every ninth write, and with a power cut what was not synced is gone, too."""
    first = {"before": 2, "after": 5, "power cut": 8}[when]
    for number in itertools.count(first, 9):
        async with served(Scripted(SCRIPT), tools=TOOLS, check="agent") as world:
            disk = world.host.disk
            disk.revive(number, "before" if when == "before" else "after")
            pull = asks(world)
            await until(world, lambda: disk.dead or ended(world, pull))  # noqa: B023
            if not disk.dead:
                check(world, pull)
                assert number > 30
                return
            await dies(world, power_cut=when == "power cut")
            await goes_on(world, pull)
