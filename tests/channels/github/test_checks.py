"""Check runs: begun and completed, all annotations once, found after a crash."""

from __future__ import annotations

from typing import Any

import pytest
from tests.channels.github.desk import NAME, Desk, at_desk

from threadline.store.base import OutboundRecord
from threadline_github.outbound.checks import CheckRun, State, ended, reported
from threadline_github.outbound.results import Annotation, Check
from threadline_github.testing import Pull

DEV = "dev-one"
CHECK = Check(conclusion="failure", title="2 problems", summary="See below, @org/team.")


def remarks(count: int) -> list[Annotation]:
    return [Annotation(path="a.py", start_line=n + 1, message=f"No. {n}") for n in range(count)]


def check(count: int = 0, **more: Any) -> Check:
    return CHECK.model_copy(update={"annotations": remarks(count), **more})


def run(desk: Desk, pull: Pull, state: State, sha: str | None = None) -> CheckRun:
    return CheckRun(desk.hub, desk.ctx, desk.thread(pull), "review", sha or pull.head, state)


async def post(desk: Desk, pull: Pull, state: State) -> OutboundRecord:
    return await desk.post(run(desk, pull, state), state.key())


async def test_a_check_run_is_begun_and_completed() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        begun = await post(desk, pull, State())
        (made,) = desk.github.checks(pull)
        assert (made.name, made.status, made.head_sha) == ("review", "in_progress", pull.head)
        assert begun.ref == f"check-runs/{made.id}"
        assert made.external_id == f"{pull.number}:{NAME}"
        state = reported(check(1, text="More."))
        assert (await post(desk, pull, state)).ref == begun.ref
        (made,) = desk.github.checks(pull)
        assert (made.status, made.conclusion, made.title) == ("completed", "failure", "2 problems")
        assert (made.summary, made.text) == ("See below, @\u200borg/team.", "More.")
        assert made.annotations == [
            {
                "path": "a.py",
                "start_line": 1,
                "end_line": 1,
                "annotation_level": "warning",
                "message": "No. 0",
            }
        ]
        assert made.actions == []


@pytest.mark.parametrize("count", [50, 51, 120])
@pytest.mark.parametrize("begins", [True, False])
async def test_many_annotations_go_fifty_a_call(count: int, begins: bool) -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        if begins:
            await post(desk, pull, State())
        await post(desk, pull, reported(check(count)))
        (made,) = desk.github.checks(pull)
        assert [one["message"] for one in made.annotations] == [f"No. {n}" for n in range(count)]
        assert made.conclusion == "failure"


async def test_a_limit_between_making_and_completing_leaves_one_check_run() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.limit(method="PATCH", path="*/check-runs/*", retry_after=5)
        posted = await post(desk, pull, reported(check(1)))
        (made,) = desk.github.checks(pull)
        assert posted.ref == f"check-runs/{made.id}"
        assert (made.status, len(made.annotations)) == ("completed", 1)


@pytest.mark.parametrize("place", ["before", "after"])
async def test_no_annotation_is_there_twice_when_a_call_is_lost(place: Any) -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        await post(desk, pull, State())
        calls = iter(range(9))
        desk.github.drop("PATCH", "*/check-runs/*", place, when=lambda _: next(calls) == 1)
        assert (await post(desk, pull, reported(check(120)))).failure is None
        (made,) = desk.github.checks(pull)
        assert [one["message"] for one in made.annotations] == [f"No. {n}" for n in range(120)]


async def test_a_crash_on_the_way_is_made_good() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        state = reported(check(60))
        await desk.dies(run(desk, pull, state), state.key())
        (made,) = desk.github.checks(pull)
        assert made.status == "in_progress"
        record = await post(desk, pull, state)
        assert record.ref == f"check-runs/{made.id}"
        (made,) = desk.github.checks(pull)
        assert (made.conclusion, len(made.annotations)) == ("failure", 60)


async def test_a_turn_that_ends_otherwise_says_how() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        await post(desk, pull, State())
        await post(desk, pull, ended("Stopped", "Somebody stopped it.", "cancelled"))
        (made,) = desk.github.checks(pull)
        assert (made.conclusion, made.summary) == ("cancelled", "Somebody stopped it.")


async def test_without_a_known_commit_it_is_the_newest() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        target = CheckRun(desk.hub, desk.ctx, desk.thread(pull), "review", None, State())
        await desk.post(target, "begun")
        assert [one.head_sha for one in desk.github.checks(pull)] == [pull.head]


async def test_an_app_that_may_not_is_refused_once() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.app.installations[0].permissions.pop("checks")
        assert "403" in ((await post(desk, pull, State())).failure or "")
        assert len(desk.github.calls("POST", "*/check-runs")) == 1


def test_another_state_has_another_key() -> None:
    states = [State(), reported(check()), reported(check(1)), reported(check(1, text="x"))]
    assert len({state.key() for state in states}) == len(states)
    assert reported(check(2)).key() == reported(check(2)).key()


def test_what_is_too_long_is_cut() -> None:
    state = reported(check(summary="@a/b " * 20_000, title="@a/b " * 60))
    assert len(state.summary) == 65_535
    assert len(state.title) == 255
