"""Feedback buttons: a click is an event of the session, durable before Slack is answered."""

from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs
from tests.channels.slack.world import (
    BOT,
    CHANNEL,
    EVENTS,
    OTHER,
    PERSON,
    TEAM,
    World,
    deliver,
    served,
)

from threadline_slack.interaction.feedback import FEEDBACK, buttons
from threadline_slack.testing import Message
from threadline_slack.testing.blocks import check_blocks


async def rated(world: World, *, plain: bool = False) -> tuple[Any, str, Message]:
    """Return a session, its turn, and a message with the buttons below an answer."""
    root = world.say(f"<@{BOT}> hello")
    await world.shown(2, root)
    session = world.session(root)
    await session.rest()
    turn = session.events("turn.completed")[0]["turnId"]
    client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
    posted = await client.chat_postMessage(
        channel=CHANNEL,
        text="answer",
        thread_ts=root,
        blocks=[buttons(session.id, turn, plain=plain)],
    )
    return session, turn, world.slack.message(posted["ts"])


def values(message: Message) -> dict[str, str]:
    """Return what each button carries, by its rating."""
    (element,) = (message.blocks or [])[0]["elements"]
    return {name: element[f"{name}_button"]["value"] for name in ("positive", "negative")}


@pytest.mark.parametrize("socket", [False, True])
async def test_a_click_is_an_event_with_who_it_was(socket: bool) -> None:
    async with served(socket=socket) as world:
        session, turn, message = await rated(world)
        clicked = world.slack.user(OTHER).click(message, FEEDBACK, values(message)["positive"])
        assert (await clicked).ok
        (event,) = session.events("feedback.given")
        assert event["data"]["rating"] == "positive"
        assert event["data"]["turnId"] == turn
        assert event["data"]["messageRef"] == message.ts
        assert event["data"]["by"]["id"] == f"{TEAM}:{OTHER}"
        await world.slack.until(lambda: world.slack.whispers(OTHER))
        world.host.check_laws()


async def test_an_answer_has_the_buttons_when_they_are_wanted() -> None:
    async with served(feedback=True) as world:
        root = world.say(f"<@{BOT}> hello")
        assert (await world.shown(2, root))[1].startswith("hello")
        session = world.session(root)
        await session.rest()
        answer = world.slack.messages(CHANNEL, root)[1]
        assert (await world.slack.user(PERSON).click(answer, FEEDBACK)).ok
        (event,) = session.events("feedback.given")
        assert event["data"]["messageRef"] == answer.ts
        assert event["data"]["turnId"] == session.events("turn.completed")[0]["turnId"]


async def test_no_may_say_why_and_the_last_word_counts() -> None:
    async with served() as world:
        session, turn, message = await rated(world)
        person = world.slack.user(PERSON)
        assert (await person.click(message, FEEDBACK, values(message)["positive"])).ok
        assert (await person.click(message, FEEDBACK, values(message)["negative"])).ok
        await world.slack.until(lambda: world.slack.modals(PERSON))
        assert (await person.submit_view({"comment": "It is wrong."})).ok
        assert not world.slack.modals(PERSON)
        given = [one["data"] for one in session.events("feedback.given")]
        assert [one["rating"] for one in given] == ["positive", "negative", "negative"]
        assert given[-1]["comment"] == "It is wrong."
        assert {one["turnId"] for one in given} == {turn}
        assert {one["messageRef"] for one in given} == {message.ts}


async def test_ordinary_buttons_do_the_same_after_a_restart() -> None:
    async with served() as world:
        session, _, message = await rated(world, plain=True)
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        assert (await world.slack.user(PERSON).click(message, f"{FEEDBACK}:negative")).ok
        (event,) = session.events("feedback.given")
        assert event["data"]["rating"] == "negative"


async def test_a_click_is_not_acknowledged_before_it_is_recorded() -> None:
    async with served() as world:
        session, _, message = await rated(world)
        world.host.disk.full = True
        with capture_logs() as logs:
            clicked = world.slack.user(PERSON).click(message, FEEDBACK, values(message)["positive"])
            await world.slack.until(lambda: "log.write_failed" in [one["event"] for one in logs])
        for _ in range(3):  # An answer would be here by then.
            assert (await deliver(world, {})).status == 200
        assert clicked.answer is None
        world.host.disk.full = False
        assert (await world.passing(clicked)).ok
        assert len(session.events("feedback.given")) == 1


@pytest.mark.parametrize("value", ["", "fine/ses_x/turn_x", "positive", "positive/ses_none/t"])
async def test_a_button_that_names_nothing_is_told_so(value: str) -> None:
    async with served() as world:
        session, _, message = await rated(world)
        good = world.slack.user(PERSON).click(message, FEEDBACK, values(message)["positive"])
        await good
        payload = {**good.payload, "trigger_id": "another"}
        payload["actions"] = [{**good.payload["actions"][0], "value": value}]
        before = len(world.slack.whispers(PERSON))
        assert (await deliver(world, payload)).status == 200
        await world.slack.until(lambda: len(world.slack.whispers(PERSON)) > before)
        assert len(session.events("feedback.given")) == 1


def test_the_blocks_are_what_slack_takes() -> None:
    for plain in (False, True):
        assert check_blocks([buttons("ses_a", "turn_a", plain=plain)]) == []
    broken = buttons("ses_a", "turn_a")
    del broken["elements"][0]["negative_button"]
    assert check_blocks([broken])
