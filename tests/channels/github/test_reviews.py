"""Reviews: of the commit that was read, there once, and never thrown away."""

from __future__ import annotations

from typing import Any

import pytest
from tests.channels.github.desk import NAME, SINCE, Desk, at_desk

from threadline.store.base import OutboundRecord
from threadline_github.outbound.markers import marked, marker
from threadline_github.outbound.results import Finding, Review
from threadline_github.outbound.reviews import Reviews
from threadline_github.testing import Pull

DEV, OTHER, BOT = "dev-one", "dev-two", "agent-fixture[bot]"
BEFORE = "".join(f"{number}\n" for number in range(1, 41))
FILES = {"src/a.py": (BEFORE, BEFORE.replace("20\n", "twenty\n"))}
"""Lines 17 to 23 are part of the diff."""


def finding(line: int = 20, path: str = "src/a.py", **more: Any) -> Finding:
    return Finding(path=path, line=line, body="Why?", **more)


def reviews(desk: Desk, pull: Pull, review: Review, commit: str | None = None) -> Reviews:
    return Reviews(desk.hub, desk.ctx, desk.thread(pull), SINCE, review, commit)


async def submit(
    desk: Desk, pull: Pull, review: Review, commit: str | None = None
) -> OutboundRecord:
    return await desk.post(reviews(desk, pull, review, commit), review.model_dump_json())


async def test_a_review_is_of_its_commit_with_comments_on_its_lines() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        findings = [finding(), finding(25), finding(19, start_line=17), finding(3), finding(1, "b")]
        record = await submit(desk, pull, Review(body="Look.", comments=findings), pull.head)
        (review,) = pull.reviews
        assert (review.author.login, review.state, review.commit) == (BOT, "COMMENTED", pull.head)
        assert record.ref == f"pulls/{pull.number}/reviews/{review.id}"
        assert review.body.startswith("Look.\n\nNot on lines that can be commented on:\n\n")
        assert "**`src/a.py:3`**: Why?\n\n**`b:1`**: Why?" in review.body
        assert review.body.endswith(marker(NAME))
        comments = desk.github.review_comments(pull)
        assert [(one.start_line, one.line) for one in comments] == [
            (None, 20),
            (None, 23),
            (17, 19),
        ]
        assert comments[1].body == "_About line 25:_\n\nWhy?"


@pytest.mark.parametrize(
    ("event", "state"),
    [("APPROVE", "APPROVED"), ("REQUEST_CHANGES", "CHANGES_REQUESTED")],
)
async def test_a_verdict_is_one(event: Any, state: str) -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        await submit(desk, pull, Review(body="So.", event=event), pull.head)
        assert [one.state for one in pull.reviews] == [state]


async def test_code_from_a_fork_is_not_approved() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES, fork=True)
        await submit(desk, pull, Review(body="Fine.", event="APPROVE"), pull.head)
        assert [one.state for one in pull.reviews] == ["COMMENTED"]
        assert "is from a fork" in pull.reviews[0].body


async def test_what_was_pushed_meanwhile_is_not_approved() -> None:
    """As case G-19 has it."""
    async with at_desk() as desk:
        dev = desk.github.user(DEV)
        pull = dev.open_pull(files=FILES)
        read = pull.head
        dev.push(pull)
        await submit(desk, pull, Review(body="Fine.", event="APPROVE"), read)
        (review,) = pull.reviews
        assert (review.state, review.commit) == ("COMMENTED", read)
        assert f"No approval: this is a review of {read[:12]}" in review.body


async def test_the_lines_are_those_of_the_commit_that_was_read() -> None:
    async with at_desk() as desk:
        dev = desk.github.user(DEV)
        pull = dev.open_pull(files=FILES)
        read = pull.head
        dev.push(pull, files={"src/b.py": (None, "x = 1\n")})
        await submit(desk, pull, Review(comments=[finding(), finding(3)]), read)
        assert [(one.state, one.commit) for one in pull.reviews] == [("COMMENTED", read)]
        assert [(one.line, one.commit) for one in desk.github.review_comments(pull)] == [(20, read)]
        assert "**`src/a.py:3`**" in pull.reviews[0].body


async def test_a_push_between_the_reading_and_the_approval_counts_too() -> None:
    async with at_desk() as desk:
        dev = desk.github.user(DEV)
        pull = dev.open_pull(files=FILES)
        read = pull.head
        gate = desk.github.hold("GET", "*/pulls/*", "after", times=2)
        review = Review(body="Fine.", event="APPROVE", comments=[finding()])
        target = reviews(desk, pull, review, read)
        work = desk.passing(desk.outbox.post(desk.named(NAME, "r"), target), seconds=0)

        async def push() -> None:
            await desk.github.until(lambda: gate.arrived)
            dev.push(pull)
            gate.release()

        await desk.beside(work, push())
        assert [(one.state, one.commit) for one in pull.reviews] == [("COMMENTED", read)]


async def test_the_agents_own_pull_request_gets_a_comment() -> None:
    async with at_desk(personal=OTHER) as desk:
        pull = desk.github.user(OTHER).open_pull(files=FILES)
        review = Review(body="Fine.", event="APPROVE", comments=[finding()])
        await submit(desk, pull, review, pull.head)
        assert [one.state for one in pull.reviews] == ["COMMENTED"]
        assert "this pull request is the agent's own" in pull.reviews[0].body
        assert len(desk.github.calls("POST", "*/reviews")) == 1
        assert len(desk.github.review_comments(pull)) == 1


async def test_a_line_that_github_does_not_take_is_in_the_text() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        desk.github.fail("GET", "*/pulls/*", 406, when=lambda call: "diff" in accepts(call))
        review = Review(body="Look.", event="APPROVE", comments=[finding(3), finding()])
        record = await submit(desk, pull, review, pull.head)
        assert record.failure is None
        (made,) = pull.reviews
        assert made.state == "APPROVED"
        assert "**`src/a.py:3`**: Why?\n\n**`src/a.py:20`**: Why?" in made.body
        assert desk.github.review_comments(pull) == []


def accepts(call: Any) -> str:
    return str({name.lower(): value for name, value in call.headers.items()}.get("accept"))


async def test_a_commit_that_is_gone_is_reviewed_in_a_comment() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        review = Review(body="Look.", event="REQUEST_CHANGES", comments=[finding()])
        record = await submit(desk, pull, review, "f" * 40)
        assert pull.reviews == []
        (comment,) = desk.github.comments(pull)
        assert record.ref == f"issues/comments/{comment.id}"
        assert comment.body.startswith("_A review of ffffffffffff:_\n\n")
        assert "Look." in comment.body
        assert "**`src/a.py:20`**: Why?" in comment.body
        assert comment.body.endswith(marker(NAME))


async def test_a_review_is_there_once_after_a_crash() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        review = Review(body="Look.", comments=[finding()])
        await desk.dies(reviews(desk, pull, review, pull.head), review.model_dump_json())
        desk.github.user(OTHER).review(pull, marked("Look.", NAME))
        record = await submit(desk, pull, review, pull.head)
        own = [one for one in pull.reviews if one.author.login == BOT]
        assert record.ref == f"pulls/{pull.number}/reviews/{own[0].id}"
        assert len(own) == 1
        assert len(desk.github.review_comments(pull)) == 1


async def test_a_limit_is_outlasted_and_a_refusal_is_not_tried_again() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        desk.github.limit(method="POST", path="*/reviews", times=2)
        review = Review(body="Look.", comments=[finding()])
        work = desk.outbox.post(desk.named(NAME, "r"), reviews(desk, pull, review, pull.head))
        assert (await desk.passing(work, seconds=20)).failure is None
        assert len(pull.reviews) == 1
        pull.locked = True
        target = reviews(desk, pull, review, pull.head)
        record = await desk.post(target, "r", "s/github/key/other")
        assert "403" in (record.failure or "")
        assert len(pull.reviews) == 1


async def test_a_review_without_words_has_a_marker() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        await submit(desk, pull, Review(comments=[finding()]), pull.head)
        assert pull.reviews[0].body == marker(NAME)


async def test_without_a_known_commit_it_is_of_the_newest() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull(files=FILES)
        await submit(desk, pull, Review(event="APPROVE"))
        assert [(one.state, one.commit) for one in pull.reviews] == [("APPROVED", pull.head)]
