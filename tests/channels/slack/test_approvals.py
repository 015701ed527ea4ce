"""Approval cards: what they say, who may press, and what the second of two is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from tests.channels.slack.world import (
    BOT,
    CHANNEL,
    DM,
    EVENTS,
    OTHER,
    PERSON,
    TEAM,
    World,
    served,
)

from threadline import Approval, tool
from threadline.harness.scripted import Call, Say, Scripted
from threadline_slack.interaction import cards
from threadline_slack.interaction.cards import APPROVE, DENY
from threadline_slack.testing import Message


@tool(
    effect="write",
    approval=Approval(approvers=[f"slack:{TEAM}:{OTHER}", "group:sre"], expires=timedelta(hours=1)),
)
async def drop_table(name: str) -> str:
    """Drop a table."""
    return f"dropped {name}"


@asynccontextmanager
async def asking(name: str = "drop_table", **options: Any) -> AsyncIterator[tuple[World, Message]]:
    """Serve an agent whose turn waits for an approval; return the card too."""
    given = {"name": "users"} if name == "drop_table" else {"service": "shop"}
    script = Scripted([Call(name, given), Say("Done.")])
    async with served(script, tools=[drop_table], **options) as world:
        root = world.say(f"<@{BOT}> clean up")
        await world.shown(2, root)
        yield world, world.slack.messages(CHANNEL, root)[1]


def words(message: Message) -> str:
    return json.dumps(message.blocks, ensure_ascii=False)


def buttons(message: Message) -> list[str]:
    """Return what can be pressed."""
    actions = [block for block in message.blocks or [] if block["type"] == "actions"]
    return [element["action_id"] for block in actions for element in block["elements"]]


async def test_a_card_says_what_who_and_until_when() -> None:
    async with asking() as (_, card):
        said = words(card)
        assert "*drop_table*" in said
        assert "users" in said
        assert f"<@{OTHER}>" in said
        assert "group sre" in said
        assert "<!date^1760003600^{date_short_pretty} at {time}|2025-10-09 09:53 UTC>" in said
        assert buttons(card) == [APPROVE, DENY]


@pytest.mark.parametrize("socket", [False, True])
async def test_a_decided_card_names_tool_input_and_person(socket: bool) -> None:
    async with asking(socket=socket) as (world, card):
        assert (await world.slack.user(OTHER).click(card, APPROVE)).ok
        assert (await world.shown(3, card.root or ""))[-1] == "Done."
        decided = world.slack.message(card.ts)
        assert f"*Approved* by <@{OTHER}>: *drop_table*" in words(decided)
        assert "users" in words(decided)
        assert not buttons(decided)


async def test_the_second_of_two_is_told_who_was_first() -> None:
    async with asking("deploy") as (world, card):
        first = world.slack.user(PERSON).click(card, DENY)
        second = world.slack.user(OTHER).click(card, APPROVE)
        assert (await first).ok
        assert (await second).ok
        await world.slack.until(lambda: world.slack.whispers(OTHER) or world.slack.whispers(PERSON))
        session = world.session(card.root or "")
        await session.rest()
        (resolved,) = session.events("action.approval_resolved")
        winner = resolved["data"]["by"]["id"].rpartition(":")[2]
        loser = OTHER if winner == PERSON else PERSON
        (said,) = world.slack.whispers(loser)
        decision = resolved["data"]["decision"]
        assert said.text == f"Too late: <@{winner}> has {decision} this already."
        assert not world.slack.whispers(winner)


@pytest.mark.parametrize("later", [False, True])
async def test_the_same_press_twice_says_nothing_more(later: bool) -> None:
    async with asking("deploy") as (world, card):
        person = world.slack.user(PERSON)
        (value,) = {
            element["value"]
            for block in card.blocks or []
            for element in block.get("elements", ())
            if element.get("action_id") in (APPROVE, DENY)
        }
        presses = [person.click(card, APPROVE)]
        if later:
            await presses[0]
            await world.session(card.root or "").rest()
        presses.append(person.click(card, APPROVE, value, stale=True))
        for press in presses:
            assert (await press).ok
        await world.session(card.root or "").rest()
        await world.slack.settled()
        assert not world.slack.whispers(PERSON)
        await person.click(card, DENY, value, stale=True)
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        (said,) = world.slack.whispers(PERSON)
        assert "approved this already" in said.text


async def test_who_is_not_entitled_is_told_and_the_card_stays() -> None:
    async with asking() as (world, card):
        assert (await world.slack.user(PERSON).click(card, APPROVE)).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "not one of those" in world.slack.whispers(PERSON)[0].text
        assert buttons(world.slack.message(card.ts)) == [APPROVE, DENY]


async def test_a_card_is_good_after_a_restart_and_expires() -> None:
    async with asking() as (world, card):
        await world.host.restart()
        world.slack.app.request_url = world.host.url + EVENTS
        await world.in_time(lambda: not buttons(world.slack.message(card.ts)), step=30)
        assert "*Expired*" in words(world.slack.message(card.ts))
        assert "*drop_table*" in words(world.slack.message(card.ts))
        assert (await world.slack.user(OTHER).click(card, APPROVE, stale=True)).ok


async def test_a_stop_withdraws_the_card() -> None:
    async with asking() as (world, card):
        world.say("stop", thread=card.root)
        await world.slack.until(lambda: not buttons(world.slack.message(card.ts)))
        assert "*Withdrawn*" in words(world.slack.message(card.ts))
        stale = world.slack.user(OTHER).click(card, APPROVE, _value(world, card), stale=True)
        assert (await stale).ok
        await world.slack.until(lambda: world.slack.whispers(OTHER))
        assert (
            world.slack.whispers(OTHER)[0].text == "Too late: this waits no more. It was withdrawn."
        )


def _value(world: World, card: Message) -> str:
    session = world.session(card.root or "")
    call = session.events("action.approval_requested")[0]["data"]["callId"]
    return cards.button_value(session.id, call)


async def test_a_button_elsewhere_decides_nothing() -> None:
    async with asking("deploy") as (world, card):
        client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
        blocks = [
            {
                "type": "actions",
                "elements": [
                    {
                        "type": "button",
                        "action_id": APPROVE,
                        "text": {"type": "plain_text", "text": "Say hello"},
                        "value": _value(world, card),
                    }
                ],
            }
        ]
        posted = await client.chat_postMessage(channel=DM, text="hi", blocks=blocks)
        assert (await world.slack.user(PERSON).click(posted["ts"], APPROVE)).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "does not belong" in world.slack.whispers(PERSON)[0].text
        assert not world.session(card.root or "").events("action.approval_resolved")


async def test_a_decision_is_durable_before_it_is_acknowledged() -> None:
    async with asking() as (world, card):
        world.slack.options.own_events = False
        world.host.disk.full = True
        assert (await world.slack.user(OTHER).click(card, APPROVE)).status == 503
        world.host.disk.full = False
        assert (await world.slack.user(OTHER).click(card, APPROVE)).ok
        await world.host.kill()
        await world.host.start()
        session = world.session(card.root or "")
        await session.rest()
        (resolved,) = session.events("action.approval_resolved")
        assert resolved["data"]["decision"] == "approved"


async def test_who_may_not_ask_may_not_decide() -> None:
    async with asking("deploy", blocked=[OTHER]) as (world, card):
        assert (await world.slack.user(OTHER).click(card, APPROVE)).ok
        await world.slack.until(lambda: world.slack.whispers(OTHER))
        assert buttons(world.slack.message(card.ts)) == [APPROVE, DENY]


def test_a_long_input_is_cut_between_characters() -> None:
    card = cards.asked("t", {"text": "&" * 5_000}, "v", None, None)
    text = card.blocks[0]["text"]["text"]
    assert len(text) <= 3_000
    assert text.endswith("…\n```")
    assert text.replace("&amp;", "").count("&") == 0


@pytest.mark.parametrize(
    ("resolved", "said"),
    [
        ({"decision": "expired"}, "It expired before anybody decided."),
        ({"decision": "superseded", "by": None}, "It was withdrawn."),
        ({"decision": "denied", "by": {"kind": "user", "id": "a", "name": "<Ann>"}}, "&lt;Ann&gt;"),
    ],
)
def test_why_it_is_too_late(resolved: dict[str, Any], said: str) -> None:
    assert said in cards.too_late(resolved)
