"""Labels: put on and taken off, as often as it takes."""

from __future__ import annotations

import pytest
from tests.channels.github.desk import Desk, at_desk

from threadline_github.outbound.labels import LabelSet
from threadline_github.outbound.results import Labels
from threadline_github.testing import Issue

DEV = "dev-one"


def labels(desk: Desk, issue: Issue, **given: list[str]) -> LabelSet:
    return LabelSet(desk.hub, desk.ctx, desk.thread(issue), Labels.model_validate(given))


async def test_labels_are_put_on_and_taken_off() -> None:
    async with at_desk() as desk:
        dev = desk.github.user(DEV)
        pull = dev.open_pull()
        dev.label(pull, "needs review")
        dev.label(pull, "kept")
        target = labels(desk, pull, add=["bug", "kept"], remove=["needs review", "never there"])
        record = await desk.post(target, "labels")
        assert desk.github.labels(pull) == ["kept", "bug"]
        assert record.ref == f"issues/{pull.number}/labels"


@pytest.mark.parametrize("name", ["a/b", "c#", "50% {x}", "\u6f22\u5b57", "a?b&c"])
async def test_any_name_can_be_taken_off(name: str) -> None:
    async with at_desk() as desk:
        dev = desk.github.user(DEV)
        issue = dev.open_issue()
        dev.label(issue, name)
        assert (await desk.post(labels(desk, issue, remove=[name]), "labels")).failure is None
        assert desk.github.labels(issue) == []


async def test_an_answer_that_was_lost_changes_nothing_more() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.drop("POST", "*/labels")
        record = await desk.post(labels(desk, pull, add=["bug"]), "labels")
        assert record.failure is None
        assert desk.github.labels(pull) == ["bug"]
