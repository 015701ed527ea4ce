"""Slash commands, ``!name`` in threads, the message shortcut and the Stop button."""

from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from tests.channels.slack.many import SECOND, SECOND_CHANNEL, SECOND_PERSON, many
from tests.channels.slack.world import (
    BOT,
    CHANNEL,
    DM,
    EVENTS,
    OTHER,
    PERSON,
    TEAM,
    World,
    deliver,
    served,
)

from threadline.harness.scripted import Call, Say, Scripted
from threadline.testing import Gated
from threadline_slack import Interaction, InteractionContext, SlackChannel
from threadline_slack.interaction.cards import STOP, stop_button
from threadline_slack.interaction.commands import ASK

ELSEWHERE = "C0ELSEWHERE"


class Deploys:
    """A command, and how it was used."""

    def __init__(self) -> None:
        self.used: list[Interaction] = []

    def declare(self, channel: SlackChannel) -> None:
        @channel.command("/deploy", hint="service")
        async def deploy(ctx: InteractionContext, used: Interaction) -> None:
            """Deploy a service."""
            self.used.append(used)
            await ctx.respond(f"Deploying {used.value}.")


async def root_of(world: World, channel: str = CHANNEL) -> Any:
    """Return the one message that stands in a channel."""
    await world.slack.until(lambda: world.slack.messages(channel))
    (root,) = world.slack.messages(channel)
    return root


# Slash commands


@pytest.mark.parametrize("socket", [False, True])
async def test_a_command_is_asked_in_the_thread_of_a_message_that_shows_it(socket: bool) -> None:
    async with served(socket=socket, commands={"/helper": "Ask the helper."}) as world:
        used = world.slack.user(PERSON).command("/helper", "why &lt;so&gt; slow?", channel=CHANNEL)
        answer = await used
        assert answer.ok
        assert not answer.body
        root = await root_of(world)
        assert f"<@{PERSON}> asks" in root.text
        await world.shown(2, root.ts)
        session = world.session(root.ts)
        await session.rest()
        assert session.replies == ["why <so> slow?"]
        (prompt,) = session.events("message.received")
        assert prompt["data"]["parts"][0]["sender"]["id"] == f"{TEAM}:{PERSON}"
        world.say("and now?", thread=root.ts)
        assert (await world.shown(4, root.ts))[-1] == "and now?"
        assert world.channel.commands["/helper"].description == "Ask the helper."
        world.host.check_laws()


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_crash_leaves_one_question_and_one_answer(place: str) -> None:
    async with served() as world:
        world.slack.options.own_events = False
        gate = world.slack.hold("chat.postMessage", place)  # type: ignore[arg-type]
        assert (await world.slack.user(PERSON).command("/helper", "once", channel=CHANNEL)).ok
        await world.slack.until(lambda: world.slack.calls("chat.postMessage"))
        await world.host.kill()
        gate.release()
        root = await root_of(world)
        await world.host.start()
        assert (await world.shown(2, root.ts))[-1] == "once"
        await world.session(root.ts).rest()
        assert len(world.slack.messages(CHANNEL)) == 1
        assert len(world.slack.messages(CHANNEL, root.ts)) == 2


async def test_slack_being_away_delays_a_command() -> None:
    async with served() as world:
        world.slack.fail("chat.postMessage", error="fatal_error", times=2)
        assert (await world.slack.user(PERSON).command("/helper", "late", channel=CHANNEL)).ok
        await world.slack.until(lambda: world.slack.calls("chat.postMessage"))
        await world.in_time(lambda: world.slack.messages(CHANNEL))
        root = await root_of(world)
        assert (await world.shown(2, root.ts))[-1] == "late"


async def test_a_command_where_the_bot_is_not_says_so_and_starts_nothing() -> None:
    async with served() as world:
        world.slack.add_channel(ELSEWHERE, "elsewhere", members=[PERSON])
        assert (await world.slack.user(PERSON).command("/helper", "hi", channel=ELSEWHERE)).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "/invite" in world.slack.whispers(PERSON)[0].text
        assert not world.accepted


@pytest.mark.parametrize("text", ["", "help", "Help"])
async def test_a_command_without_a_question_explains_itself(text: str) -> None:
    async with served(declare=Deploys().declare) as world:
        answer = await world.slack.user(PERSON).command("/helper", text, channel=CHANNEL)
        assert answer.body["response_type"] == "ephemeral"
        assert "`/helper <question>`" in answer.body["text"]
        assert "`/deploy` (in a thread `!deploy`): Deploy a service." in answer.body["text"]
        assert not world.slack.messages(CHANNEL)


async def test_a_command_stops_what_runs_in_its_channel() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        person = world.slack.user(PERSON)
        answer = await person.command("/helper", "stop", channel=CHANNEL)
        assert answer.body["text"] == "Nothing is running here."
        root = world.say(f"<@{BOT}> one")
        world.say("a long job", channel=DM)
        await harness.gates["answer"].held_up(2)
        answer = await person.command("/helper", "status", channel=CHANNEL)
        assert answer.body["text"] == "The agent is working since less than a minute."
        answer = await person.command("/helper", "stop", channel=CHANNEL)
        assert answer.body["text"] == "Stopped."
        session = world.session(root)
        await session.rest()
        assert session.events("turn.failed")[0]["data"]["code"] == "stopped"
        second = [world.say(f"<@{BOT}> {number}") for number in range(2)]
        await world.slack.until(lambda: len(world.accepted) == 4)
        answer = await person.command("/helper", "stop", channel=CHANNEL)
        assert answer.body["text"].startswith("2 conversations run here")
        harness.release()
        for one in second:
            await world.session(one).rest()


async def test_who_may_not_ask_has_no_commands() -> None:
    async with served(allowed=[OTHER]) as world:
        answer = await world.slack.user(PERSON).command("/helper", "hi", channel=CHANNEL)
        assert "may not" in answer.body["text"]
        await world.slack.settled()
        assert not world.slack.messages(CHANNEL)


@pytest.mark.parametrize("socket", [False, True])
async def test_a_declared_command_has_its_handler(socket: bool) -> None:
    deploys = Deploys()
    async with served(socket=socket, declare=deploys.declare) as world:
        assert (await world.slack.user(PERSON).command("/deploy", " shop ", channel=CHANNEL)).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert world.slack.whispers(PERSON)[0].text == "Deploying shop."
        shown = world.channel.commands["/deploy"]
        assert (shown.description, shown.hint) == ("Deploy a service.", "service")


async def test_a_command_belongs_to_the_workspace_it_was_used_in() -> None:
    async with many() as world:
        await world.install()
        await world.install(SECOND)
        used = world.slack.user(SECOND_PERSON).command("/helper", "hi", channel=SECOND_CHANNEL)
        assert (await used).ok
        root = await root_of(world, SECOND_CHANNEL)
        assert (await world.shown(2, root.ts, SECOND_CHANNEL))[-1] == "hi"
        store = world.host.agent().store
        assert store.session_by_token("slack", f"slack:{SECOND}:{SECOND_CHANNEL}:{root.ts}")


# In threads


async def test_a_command_in_a_thread_is_taken_once_though_its_post_comes_twice() -> None:
    deploys = Deploys()
    async with served(declare=deploys.declare) as world:
        root = world.say(f"<@{BOT}> hello")
        await world.shown(2, root)
        world.say(f"<@{BOT}> !deploy shop --now", thread=root)
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        await world.slack.settled()
        (used,) = deploys.used
        assert (used.name, used.value) == ("/deploy", "shop --now")
        assert used.token == f"slack:{TEAM}:{CHANNEL}:{root}"
        assert len(world.accepted) == 1


async def test_status_and_help_in_a_thread_are_for_who_asked() -> None:
    script = Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")])
    async with served(script) as world:
        root = world.say(f"<@{BOT}> deploy")
        await world.shown(2, root)
        await world.clock.elapse(130)
        world.say("!status", thread=root)
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert world.slack.whispers(PERSON)[-1].text == (
            "The agent waits for an approval since 2 min."
        )
        world.say("!help", thread=root)
        await world.slack.until(lambda: len(world.slack.whispers(PERSON)) == 2)
        assert "!status" in world.slack.whispers(PERSON)[-1].text
        assert len(world.accepted) == 1


@pytest.mark.parametrize("text", ["!nonsense x", "wow!", "! deploy", "!deployed yesterday"])
async def test_other_words_are_for_the_agent(text: str) -> None:
    async with served(declare=Deploys().declare) as world:
        root = world.say(f"<@{BOT}> hello")
        await world.shown(2, root)
        world.say(text, thread=root)
        assert (await world.shown(4, root))[-1] == text


# The message shortcut


@pytest.mark.parametrize("socket", [False, True])
async def test_the_agent_is_asked_about_a_message_in_its_thread(socket: bool) -> None:
    async with served(socket=socket, message_shortcut="Ask the helper") as world:
        ts = world.slack.user(OTHER).post(CHANNEL, "disk full on db1").ts
        assert (await world.slack.user(PERSON).message_action(ts, ASK)).ok
        shown = await world.shown(2, ts)
        assert shown[-1] == f"What about this message of {OTHER}?\n\ndisk full on db1"
        (prompt,) = world.session(ts).events("message.received")
        assert prompt["data"]["parts"][0]["sender"]["id"] == f"{TEAM}:{PERSON}"
        assert world.channel.shortcuts[ASK].title == "Ask the helper"


async def test_a_message_where_the_bot_is_not_is_not_asked_about() -> None:
    async with served() as world:
        world.slack.add_channel(ELSEWHERE, "elsewhere", members=[PERSON])
        ts = world.slack.user(PERSON).post(ELSEWHERE, "hello").ts
        assert (await world.slack.user(PERSON).message_action(ts, ASK)).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "/invite" in world.slack.whispers(PERSON)[0].text
        assert not world.accepted


# Stop


async def stop_below(world: World, root: str, token: str | None = None) -> Any:
    """Post a Stop button into a thread, as the bot."""
    client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
    token = token or f"slack:{TEAM}:{CHANNEL}:{root}"
    posted = await client.chat_postMessage(
        channel=CHANNEL, thread_ts=root, text="Working", blocks=[stop_button(token)]
    )
    return world.slack.message(posted["ts"])


@pytest.mark.parametrize("socket", [False, True])
async def test_the_stop_button_stops_the_turn_and_what_waits(socket: bool) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=socket) as world:
        root = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        button = await stop_below(world, root)
        world.say("and this", thread=root)
        await world.slack.until(lambda: len(world.accepted) == 2)
        pressed = world.slack.user(OTHER).click(button, STOP)
        assert (await pressed).ok
        session = world.session(root)
        await session.rest()
        assert session.events("turn.failed")[0]["data"]["code"] == "stopped"
        assert len(session.events("deliveries.cleared")) == 1
        await world.slack.until(lambda: "Stopped." in world.slack.visible(CHANNEL, root))
        world.say("go on", thread=root)
        harness.release()
        await world.slack.until(lambda: "go on" in world.slack.visible(CHANNEL, root)[-1])
        if not socket:
            assert (await deliver(world, pressed.payload)).status == 200
        await session.rest()
        assert len(session.events("turn.failed")) == 1
        world.host.check_laws()


async def test_a_stop_is_durable_before_it_is_acknowledged() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        world.slack.options.own_events = False
        root = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        button = await stop_below(world, root)
        world.host.disk.full = True
        assert (await world.slack.user(PERSON).click(button, STOP)).status == 503
        world.host.disk.full = False
        assert (await world.slack.user(PERSON).click(button, STOP)).ok
        await world.host.kill()
        await world.host.start()
        world.slack.app.request_url = world.host.url + EVENTS
        session = world.session(root)
        await session.rest()
        assert session.events("turn.failed")[-1]["data"]["code"] == "stopped"


async def test_a_stop_of_nothing_or_of_another_conversation_is_told() -> None:
    async with served() as world:
        root = world.say(f"<@{BOT}> hello")
        await world.shown(2, root)
        await world.session(root).rest()
        person = world.slack.user(PERSON)
        assert (await person.click(await stop_below(world, root), STOP)).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert world.slack.whispers(PERSON)[0].text == "Nothing is running here."
        foreign = await stop_below(world, root, f"slack:{TEAM}:{DM}:1760000000.000100")
        assert (await person.click(foreign, STOP)).ok
        await world.slack.until(lambda: len(world.slack.whispers(PERSON)) == 2)
        assert "does not work" in world.slack.whispers(PERSON)[1].text
