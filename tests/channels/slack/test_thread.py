"""Where posts go: threads whose first post is gone, or takes no replies."""

from __future__ import annotations

import pytest
from tests.channels.slack.world import BOT, CHANNEL, PERSON, TEAM, World, served

from threadline.testing import Gated
from threadline_slack.inbound.decide import Place


async def answered(world: World, ts: str) -> list[dict[str, object]]:
    """Return what became of the posts of a thread's session, once its turn has ended."""
    session = world.session(ts)
    await session.rest()
    store = world.host.agent().store
    await world.slack.settled()
    return [vars_of(one) for one in store.outbound(session.id)]


def vars_of(record: object) -> dict[str, object]:
    return {name: getattr(record, name) for name in ("ref", "failure")}


async def test_nothing_is_posted_below_a_question_that_was_deleted() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> report please")
        await harness.gates["answer"].reached()
        world.slack.user(PERSON).delete(ts)
        await world.slack.settled()
        harness.release()
        (record,) = await answered(world, ts)
        assert "deleted" in str(record["failure"])
        assert not world.slack.calls("chat.postMessage")


async def test_what_strays_into_the_channel_is_taken_back() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> report please")
        await harness.gates["answer"].reached()
        world.slack.app.events = set()
        gate = world.slack.hold("chat.postMessage", "before")
        harness.release()
        await world.slack.until(lambda: gate.arrived)
        world.slack.user(PERSON).delete(ts)
        gate.release()
        (record,) = await answered(world, ts)
        assert "taken back" in str(record["failure"])
        assert len(world.slack.calls("chat.postMessage")) == 1
        assert not world.slack.visible(CHANNEL)


async def test_slack_is_asked_whether_the_question_is_still_there() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> report please")
        await harness.gates["answer"].reached()
        world.slack.app.events = set()
        world.slack.user(PERSON).delete(ts)
        harness.release()
        (record,) = await answered(world, ts)
        assert "deleted" in str(record["failure"])
        assert not world.slack.calls("chat.postMessage")


async def test_an_app_that_may_hardly_read_is_not_asked_again() -> None:
    async with served() as world:
        world.slack.fail("conversations.replies", "ratelimited", times=None)
        for _ in range(2):
            ts = world.say(f"<@{BOT}> hello")
            assert len(await world.shown(2, ts)) == 2
            await world.session(ts).rest()
        assert len(world.slack.calls("conversations.replies")) == 1


async def test_a_thread_that_goes_on_below_a_deleted_question_is_answered() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> report please")
        await harness.gates["answer"].reached()
        bot = await world.channel.bots.of(TEAM)
        bot.deleted.add(Place(TEAM, CHANNEL, ts))
        world.say("and this", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        harness.release()
        await world.session(ts).rest()
        await world.slack.until(lambda: "and this" in world.slack.visible(CHANNEL, ts)[-1])


async def test_a_first_post_without_replies_is_answered_in_the_channel_once() -> None:
    async with served() as world:
        world.slack.fail(
            "chat.postMessage",
            "cannot_reply_to_message",
            times=None,
            when=lambda args: bool(args.get("thread_ts")),
        )
        world.slack.drop("chat.postMessage", "after", when=lambda args: not args.get("thread_ts"))
        ts = world.say(f"<@{BOT}> hello")
        await world.slack.until(lambda: len(world.slack.visible(CHANNEL)) == 2)
        await world.passing(answered(world, ts))
        _, said = world.slack.visible(CHANNEL)
        assert f"<@{PERSON}>" in world.slack.messages(CHANNEL)[-1].text
        assert "hello" in said


@pytest.mark.parametrize("lost", [False, True])
async def test_an_answer_in_its_thread_is_there_once(lost: bool) -> None:
    async with served() as world:
        if lost:
            world.slack.drop("chat.postMessage", "after")
        ts = world.say(f"<@{BOT}> hello")
        await world.slack.until(lambda: len(world.slack.visible(CHANNEL, ts)) == 2)
        (record,) = await world.passing(answered(world, ts))
        assert record["failure"] is None
        assert len(world.slack.visible(CHANNEL, ts)) == 2
        assert len(world.slack.visible(CHANNEL)) == 1
