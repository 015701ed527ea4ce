"""Comments and replies: each is there once, and says the newest, whatever happens to them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.channels.github.desk import NAME, SINCE, Desk, at_desk

from threadline_github.outbound.conversation import Conversation
from threadline_github.outbound.discussion import Discussion
from threadline_github.outbound.markers import marked, marker
from threadline_github.testing import Pull

DEV, OTHER, BOT = "dev-one", "dev-two", "agent-fixture[bot]"


def conversation(desk: Desk, pull: Pull) -> Conversation:
    return Conversation(desk.hub, desk.ctx, desk.thread(pull), SINCE)


def discussion(desk: Desk, pull: Pull, comment: int) -> Discussion:
    return Discussion(desk.hub, desk.ctx, desk.thread(pull), SINCE, comment)


async def test_a_comment_is_made_and_edited() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        target = conversation(desk, pull)
        made = await desk.post(target, "_Working on it…_")
        edited = await desk.post(target, "Here it is.")
        (comment,) = desk.github.comments(pull)
        assert (comment.author.login, comment.body) == (BOT, marked("Here it is.", NAME))
        assert made.ref == edited.ref == f"issues/comments/{comment.id}"
        assert len(comment.history) == 1


async def test_an_issue_has_comments_too() -> None:
    async with at_desk() as desk:
        issue = desk.github.user(DEV).open_issue()
        target = Conversation(desk.hub, desk.ctx, desk.thread(issue), SINCE)
        await desk.post(target, "Hello.")
        assert desk.github.visible(issue) == [marked("Hello.", NAME)]


@pytest.mark.parametrize("text", ["Hello.", "Another text."])
async def test_what_was_made_before_a_crash_is_found_and_not_made_again(text: str) -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        await desk.dies(conversation(desk, pull), "Hello.")
        for _ in range(120):
            desk.github.user(OTHER).comment(pull, "And another thing.")
        record = await desk.post(conversation(desk, pull), text)
        own = [one for one in desk.github.comments(pull) if one.author.login == BOT]
        assert [one.body for one in own] == [marked(text, NAME)]
        assert record.ref == f"issues/comments/{own[0].id}"


async def test_an_answer_that_was_lost_is_looked_up() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.drop("POST", "*/comments")
        record = await desk.post(conversation(desk, pull), "Hello.")
        assert record.failure is None
        assert desk.github.visible(pull) == [marked("Hello.", NAME)]


async def test_a_person_who_quotes_the_marker_is_not_the_agent() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.drop("POST", "*/comments", "before")
        copied = desk.github.user(OTHER).comment(pull, marked("Hello.", NAME))
        record = await desk.post(conversation(desk, pull), "Hello.")
        assert record.ref not in (None, f"issues/comments/{copied.id}")
        assert [one.author.login for one in desk.github.comments(pull)] == [OTHER, BOT]


async def test_the_owner_of_the_token_who_quotes_the_marker_is_not_the_agent() -> None:
    async with at_desk(personal=OTHER) as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.user(OTHER).comment(pull, f"> {marker(NAME)}\n\nWhat does this mean?")
        desk.github.drop("POST", "*/comments", "before")
        await desk.post(conversation(desk, pull), "Hello.")
        assert desk.github.visible(pull)[1:] == [marked("Hello.", NAME)]


async def test_a_comment_that_somebody_deleted_is_made_anew_and_then_edited() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        target = conversation(desk, pull)
        await desk.post(target, "_Working on it…_")
        desk.github.user(DEV).delete_comment(desk.github.comments(pull)[0])
        await desk.post(target, "Here it is.")
        await desk.post(target, "Here it is, better.")
        assert desk.github.visible(pull) == [marked("Here it is, better.", NAME)]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("secondary", 403), ("secondary", 429), ("bare", 403), ("primary", 403)],
)
async def test_the_answer_outlasts_a_limit(kind: Any, status: Any) -> None:
    """As case G-16 has it."""
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.limit(kind, method="POST", path="*/comments", status=status, reset=120, times=2)
        begun = desk.clock.monotonic()
        work = desk.outbox.post(desk.named(NAME, "review"), conversation(desk, pull))
        record = await desk.passing(work, seconds=20)
        assert record.failure is None
        assert desk.github.visible(pull) == [marked("review", NAME)]
        assert desk.clock.monotonic() - begun >= 120


async def test_a_long_outage_is_outlasted_too() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        outage = desk.github.fail("*", "*/comments", 503, times=None)
        post = desk.outbox.post(desk.named(NAME, "review"), conversation(desk, pull))
        until = desk.clock.monotonic() + 1_500

        async def posted() -> None:
            assert (await post).failure is None

        async def heals() -> None:
            await desk.clock.sleep(until - desk.clock.monotonic())
            desk.github.heal(outage)

        await desk.passing(desk.beside(posted(), heals()), seconds=60)
        assert desk.github.visible(pull) == [marked("review", NAME)]


async def test_a_real_refusal_is_not_tried_again() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        pull.locked = True
        record = await desk.post(conversation(desk, pull), "Hello.")
        assert "403" in (record.failure or "")
        assert len(desk.github.calls("POST", "*/comments")) == 1


async def test_a_repository_that_was_renamed_is_followed() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        target = conversation(desk, pull)
        await desk.post(target, "_Working on it…_")
        desk.github.rename(pull.repository, "gadget")
        await desk.post(target, "Here it is.")
        assert desk.github.visible(pull) == [marked("Here it is.", NAME)]


async def test_a_comment_is_taken_back_once() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        target = conversation(desk, pull)
        record = await desk.post(target, "Hello.")
        assert record.ref is not None
        await target.remove(record.ref)
        await target.remove(record.ref)
        assert desk.github.visible(pull) == []


# Discussions


async def test_a_reply_stands_below_the_review_comment() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        asked = desk.github.user(OTHER).review_comment(pull, text="Why?")
        target = discussion(desk, pull, asked.id)
        await desk.post(target, "_Working on it…_")
        await desk.post(target, "Because.")
        reply = desk.github.review_comments(pull)[-1]
        assert (reply.reply_to, reply.body) == (asked.id, marked("Because.", NAME))
        assert desk.github.visible(pull) == []


async def test_a_reply_is_found_after_a_crash() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        asked = desk.github.user(OTHER).review_comment(pull, text="Why?")
        await desk.dies(discussion(desk, pull, asked.id), "Because.")
        record = await desk.post(discussion(desk, pull, asked.id), "Because.")
        replies = desk.github.review_comments(pull)[1:]
        assert [one.body for one in replies] == [marked("Because.", NAME)]
        assert record.ref == f"pulls/comments/{replies[0].id}"


async def test_a_discussion_that_is_gone_is_answered_in_the_conversation() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        asked = desk.github.user(OTHER).review_comment(pull, text="Why?")
        desk.github.user(OTHER).delete_comment(asked)
        target = discussion(desk, pull, asked.id)
        await desk.post(target, "_Working on it…_")
        desk.restart()
        await desk.post(target, "Because.")
        assert desk.github.visible(pull) == [marked("Because.", NAME)]


async def test_a_comment_in_place_of_a_reply_is_found_after_a_crash() -> None:
    async with at_desk() as desk:
        pull = desk.github.user(DEV).open_pull()
        desk.github.drop("POST", "*/issues/*/comments")
        await desk.post(discussion(desk, pull, 1), "Because.")
        assert desk.github.visible(pull) == [marked("Because.", NAME)]
