"""A host that dies anywhere in a turn: one comment with the answer, one review, one check."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from tests.channels.github.world import REPOSITORY, World, served

from threadline.harness.scripted import Call, Say, Scripted, Step
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


def asks(world: World) -> Pull:
    """Open a pull request, which is a question."""
    return world.github.user(DEV).open_pull()


def ended(world: World, pull: Pull) -> bool:
    """Tell whether the turn is over, and all of it was shown."""
    record = world.host.agent().store.session_by_token("github", f"pr:{REPOSITORY}#{pull.number}")
    if record is None or not world.host.agent().dispatcher.caught_up(record.id):
        return False
    events = world.host.session(record.id).events()
    return events[-1]["type"] == "session.waiting"


def check(world: World, pull: Pull) -> None:
    """Each thing is there once for each time that the log has it."""
    record = world.host.agent().store.session_by_token("github", f"pr:{REPOSITORY}#{pull.number}")
    assert record is not None
    events = world.host.session(record.id).events()
    reviews = [one for one in _outputs(events) if one["type"] == "github_review"]
    comments = [one.body for one in world.github.comments(pull) if one.author.login == BOT]
    said = "".join(body.rpartition("\n\n")[0] for body in comments)
    assert len(comments) == 2
    assert "".join(said.split()) == "".join(LONG.split())
    assert len(world.github.reviews(pull)) == len(reviews) > 0
    assert len(world.github.review_comments(pull)) == len(reviews)
    (run,) = world.github.checks(pull)
    assert (run.status, run.conclusion, run.title) == ("completed", "failure", "1 problem")
    assert len(run.annotations) == 1
    assert world.github.labels(pull) == ["seen"]
    posts = world.host.agent().store.outbound(record.id)
    assert [post for post in posts if post.ref is None or post.failure is not None] == []


def _outputs(events: list[Any]) -> Iterator[dict[str, Any]]:
    for event in events:
        if event["type"] == "action.result" and not event["data"].get("isError"):
            yield event["data"]["output"]


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("first", range(3))
async def test_a_host_may_die_at_every_call(place: Literal["before", "after"], first: int) -> None:
    """Every third call, from a first one on."""
    for number in itertools.count(first + 1, 3):
        async with served(Scripted(SCRIPT), tools=TOOLS, check="agent") as world:
            gate = world.github.hold("*", "*", place, when=Numbered(number), times=1)
            pull = asks(world)
            await until(world, lambda: gate.arrived or ended(world, pull))  # noqa: B023
            if not gate.arrived:
                check(world, pull)
                assert number > 12
                return
            await world.host.kill()
            gate.release()
            await world.github.settled()
            await world.host.start()
            if not world.github.deliveries("pull_request")[0].ok:
                world.github.webhooks.redeliver(world.github.deliveries("pull_request")[0])
            await until(world, lambda: ended(world, pull))  # noqa: B023
            check(world, pull)
