"""Buttons, selects, modals, shortcuts and reactions reach the handlers declared for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from structlog.testing import capture_logs
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

from threadline_slack import Interaction, InteractionContext, SlackChannel
from threadline_slack.interaction.forms import interactions
from threadline_slack.interaction.interactions import offered
from threadline_slack.testing import Message

BUTTONS = [
    {
        "type": "actions",
        "block_id": "b",
        "elements": [
            {
                "type": "button",
                "action_id": "retry",
                "text": {"type": "plain_text", "text": "Try again"},
                "value": "job-7",
            },
            {
                "type": "multi_static_select",
                "action_id": "where",
                "options": [
                    {"text": {"type": "plain_text", "text": one}, "value": one} for one in "abc"
                ],
            },
            {
                "type": "button",
                "action_id": "threadline:gone",
                "text": {"type": "plain_text", "text": "Old"},
            },
            {"type": "external_select", "action_id": "city", "min_query_length": 1},
        ],
    }
]
FORM: dict[str, Any] = {
    "type": "modal",
    "callback_id": "why",
    "title": {"type": "plain_text", "text": "Why?"},
    "submit": {"type": "plain_text", "text": "Send"},
    "notify_on_close": True,
    "blocks": [
        {
            "type": "input",
            "block_id": "reason",
            "label": {"type": "plain_text", "text": "Reason"},
            "element": {"type": "plain_text_input", "action_id": "text"},
        }
    ],
}


class Desk:
    """What a channel declares; it outlives processes as code does, and keeps what they got."""

    def __init__(self) -> None:
        self.got: list[Interaction] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def declare(self, channel: SlackChannel) -> None:
        @channel.action("retry")
        async def retry(ctx: InteractionContext, interaction: Interaction) -> None:
            self.got.append(interaction)
            await self.gate.wait()
            await ctx.send(f"again: {interaction.value}")

        @channel.action(re.compile("wh.*"))
        async def where(ctx: InteractionContext, interaction: Interaction) -> None:
            self.got.append(interaction)

    async def called(self, world: World, times: int) -> None:
        await world.slack.until(lambda: len(self.got) >= times)


async def show(world: World, thread: str | None = None, blocks: Any = None) -> Message:
    """Post a message with things to use, as the bot."""
    client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
    posted = await client.chat_postMessage(
        channel=CHANNEL, text="use", blocks=blocks or BUTTONS, thread_ts=thread
    )
    return world.slack.message(posted["ts"])


def moved(world: World) -> None:
    """Tell Slack where the host that was started again is."""
    world.slack.app.request_url = world.host.url + EVENTS


@pytest.mark.parametrize("socket", [False, True])
async def test_a_button_asks_the_agent_in_its_thread_as_who_pressed_it(socket: bool) -> None:
    desk = Desk()
    async with served(socket=socket, declare=desk.declare) as world:
        root = world.say(f"<@{BOT}> hello")
        await world.shown(2, root)
        message = await show(world, root)
        clicked = world.slack.user(OTHER).click(message, "retry")
        assert (await clicked).ok
        assert (await world.shown(4, root))[-1] == "again: job-7"
        session = world.session(root)
        await session.rest()
        prompt = session.events("message.received")[-1]["data"]
        assert prompt["parts"][0]["sender"]["id"] == f"{TEAM}:{OTHER}"
        assert prompt["deliveryIds"] == [desk.got[0].id]
        (got,) = desk.got
        assert (got.user, got.channel, got.ts) == (OTHER, CHANNEL, message.ts)
        assert got.token == f"slack:{TEAM}:{CHANNEL}:{root}"
        assert got.label == "Try again"
        world.host.check_laws()


async def test_what_slack_sends_again_adds_nothing() -> None:
    desk = Desk()
    async with served(declare=desk.declare) as world:
        message = await show(world)
        clicked = world.slack.user(PERSON).click(message, "retry")
        await world.shown(2, message.ts)
        for _ in range(2):
            assert (await deliver(world, clicked.payload)).status == 200
        await world.host.restart()
        assert (await deliver(world, clicked.payload)).status == 200
        await world.session(message.ts).rest()
        assert len(desk.got) == 1
        assert len(world.session(message.ts).events("message.received")) == 1


async def test_a_button_is_good_after_a_restart() -> None:
    desk = Desk()
    async with served(declare=desk.declare) as world:
        message = await show(world)
        await world.host.crash()
        moved(world)
        world.slack.user(PERSON).click(message, "retry")
        assert (await world.shown(2, message.ts))[-1] == "again: job-7"


async def test_a_handler_that_a_crash_cut_short_runs_again() -> None:
    desk = Desk()
    desk.gate.clear()
    async with served(declare=desk.declare) as world:
        world.slack.options.own_events = False
        message = await show(world)
        assert (await world.slack.user(PERSON).click(message, "retry")).ok
        await world.slack.until(lambda: desk.got)
        await world.host.kill()
        desk.gate.set()
        await world.host.start()
        assert (await world.shown(2, message.ts))[-1] == "again: job-7"
        await world.session(message.ts).rest()
        assert len(desk.got) == 2
        assert desk.got[0] == desk.got[1]
        await world.host.restart()
        assert len(desk.got) == 2


async def test_a_handler_that_ends_its_process_is_given_up() -> None:
    desk = Desk()
    desk.gate.clear()
    async with served(declare=desk.declare) as world:
        world.slack.options.own_events = False
        message = await show(world)
        assert (await world.slack.user(PERSON).click(message, "retry")).ok
        for times in range(1, 4):
            await desk.called(world, times)
            await world.host.kill()
            await world.host.start()
        assert len(desk.got) == 3
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "could not be finished" in world.slack.whispers(PERSON)[0].text


async def test_what_cannot_be_kept_is_not_acknowledged() -> None:
    desk = Desk()
    async with served(declare=desk.declare) as world:
        message = await show(world)
        world.host.disk.full = True
        answer = await world.slack.user(PERSON).click(message, "retry")
        assert answer.status == 503
        assert not desk.got
        world.host.disk.full = False
        assert (await world.slack.user(PERSON).click(message, "retry")).ok
        await world.shown(2, message.ts)


async def test_names_may_be_patterns_and_several_may_be_chosen() -> None:
    desk = Desk()
    async with served(declare=desk.declare) as world:
        message = await show(world)
        payload = (await _chosen(world, message, ["a", "c"])).payload
        await world.slack.until(lambda: desk.got)
        assert desk.got[0].values == ("a", "c")
        assert desk.got[0].raw == payload


async def _chosen(world: World, message: Message, values: list[str]) -> Any:
    clicked = world.slack.user(PERSON).click(message, "where", values)  # type: ignore[arg-type]
    await clicked
    return clicked


async def test_an_unknown_name_is_answered_and_one_of_ours_is_explained() -> None:
    async with served() as world:
        message = await show(world)
        assert (await world.slack.user(PERSON).click(message, "retry")).ok
        await world.slack.settled()
        assert not world.slack.whispers(PERSON)
        assert (await world.slack.user(PERSON).click(message, "threadline:gone")).ok
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "older version" in world.slack.whispers(PERSON)[0].text


async def test_who_may_not_ask_may_not_press() -> None:
    desk = Desk()
    async with served(declare=desk.declare, blocked=[OTHER]) as world:
        message = await show(world)
        assert (await world.slack.user(OTHER).click(message, "retry")).ok
        await world.slack.until(lambda: world.slack.whispers(OTHER))
        assert "may not" in world.slack.whispers(OTHER)[0].text
        assert not desk.got


async def test_people_of_other_organisations_press_only_where_they_may_ask() -> None:
    desk = Desk()
    async with served(declare=desk.declare) as world:
        world.slack.add_team("T0OTHERORG")
        world.slack.add_user("U0STRANGER", team="T0OTHERORG")
        message = await show(world)
        clicked = world.slack.user(PERSON).click(message, "retry")
        await world.shown(2, message.ts)
        payload = {**clicked.payload, "trigger_id": "other"}
        payload["user"] = {"id": "U0STRANGER", "team_id": "T0OTHERORG"}
        assert (await deliver(world, payload)).status == 200
        await world.slack.settled()
        assert [got.user for got in desk.got] == [PERSON]
        (stranger,) = interactions(payload)
        assert stranger.external
        assert stranger.token == desk.got[0].token


async def test_a_failure_is_told_with_the_reference_that_the_log_has() -> None:
    def declare(channel: SlackChannel) -> None:
        @channel.action("retry")
        async def fails(ctx: InteractionContext, interaction: Interaction) -> None:
            raise ValueError("secret detail")

    async with served(declare=declare) as world:
        message = await show(world)
        with capture_logs() as logs:
            assert (await world.slack.user(PERSON).click(message, "retry")).ok
            await world.slack.until(lambda: world.slack.whispers(PERSON))
        said = world.slack.whispers(PERSON)[0].text
        (failed,) = [one for one in logs if one["event"] == "slack.handler_failed"]
        assert failed["reference"] in said
        assert "secret" not in said


async def test_respond_replaces_the_message_or_whispers() -> None:
    def declare(channel: SlackChannel) -> None:
        @channel.action("retry")
        async def done(ctx: InteractionContext, interaction: Interaction) -> None:
            assert await ctx.respond("Only for you")
            assert await ctx.respond("Done.", replace=True)

    async with served(declare=declare) as world:
        message = await show(world)
        world.slack.user(PERSON).click(message, "retry")
        await world.slack.until(lambda: world.slack.message(message.ts).text == "Done.")
        assert world.slack.whispers(PERSON)[0].text == "Only for you"


# Modals


def asks_why(take: Callable[[InteractionContext, Interaction], Any]) -> Callable[..., None]:
    """Declare a button that opens a modal, and what takes it."""

    def declare(channel: SlackChannel) -> None:
        @channel.action("retry")
        async def opens(ctx: InteractionContext, interaction: Interaction) -> None:
            assert await ctx.open_view(FORM)

        @channel.view("why")
        async def why(ctx: InteractionContext, interaction: Interaction) -> Any:
            return await take(ctx, interaction)

    return declare


@pytest.mark.parametrize("socket", [False, True])
async def test_a_modal_belongs_to_the_conversation_it_came_from(socket: bool) -> None:
    async def take(ctx: InteractionContext, interaction: Interaction) -> Any:
        if interaction.state["text"] == "no":
            return {"response_action": "errors", "errors": {"reason": "Say more."}}
        await ctx.send(f"because {interaction.state['text']}")
        return None

    async with served(socket=socket, declare=asks_why(take)) as world:
        message, person = await show(world), world.slack.user(PERSON)
        person.click(message, "retry")
        await world.slack.until(lambda: world.slack.modals(PERSON))
        await person.submit_view({"text": "no"})
        assert person.modal.errors == {"reason": "Say more."}
        await person.submit_view({"text": "of rain"})
        assert not world.slack.modals(PERSON)
        assert (await world.shown(2, message.ts))[-1] == "because of rain"


async def test_a_slow_modal_is_closed_in_time_and_still_taken() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def take(ctx: InteractionContext, interaction: Interaction) -> Any:
        begun.set()
        await gate.wait()
        await ctx.send("late")
        raise RuntimeError("and then this")

    async with served(declare=asks_why(take)) as world:
        message, person = await show(world), world.slack.user(PERSON)
        person.click(message, "retry")
        await world.slack.until(lambda: world.slack.modals(PERSON))
        submitted = person.submit_view({"text": "x"})
        await begun.wait()
        world.clock.advance(2.6)
        assert (await submitted).ok
        assert not world.slack.modals(PERSON)
        gate.set()
        assert "late" in (await world.shown(2, message.ts))[-1]
        await world.slack.until(lambda: world.slack.whispers(PERSON))


async def test_a_modal_that_fails_says_so_in_its_place() -> None:
    async def take(ctx: InteractionContext, interaction: Interaction) -> Any:
        raise RuntimeError("x")

    async with served(declare=asks_why(take)) as world:
        message, person = await show(world), world.slack.user(PERSON)
        person.click(message, "retry")
        await world.slack.until(lambda: world.slack.modals(PERSON))
        await person.submit_view({"text": "x"})
        assert "err_" in str(person.modal.body["blocks"])


async def test_a_modal_that_is_closed_is_heard_of() -> None:
    closed: list[str] = []

    def declare(channel: SlackChannel) -> None:
        asks_why(lambda ctx, interaction: asyncio.sleep(0))(channel)

        @channel.view_closed("why")
        async def gone(ctx: InteractionContext, interaction: Interaction) -> None:
            closed.append(interaction.metadata)

    async with served(declare=declare) as world:
        message, person = await show(world), world.slack.user(PERSON)
        person.click(message, "retry")
        await world.slack.until(lambda: world.slack.modals(PERSON))
        told = person.close_view()
        assert told is not None
        assert (await told).ok
        await world.slack.until(lambda: closed)
        assert closed == [f"slack:{TEAM}:{CHANNEL}:{message.ts}"]


# Options


@pytest.mark.parametrize("socket", [False, True])
async def test_options_are_in_the_answer(socket: bool) -> None:
    def declare(channel: SlackChannel) -> None:
        @channel.options("city")
        async def cities(ctx: InteractionContext, interaction: Interaction) -> Any:
            return [one for one in ("Bern", "Berlin", "Rome") if one.startswith(interaction.value)]

    async with served(socket=socket, declare=declare) as world:
        message = await show(world)
        answer = await world.slack.user(PERSON).suggest(message, "city", "Be")
        assert [one["value"] for one in answer.body["options"]] == ["Bern", "Berlin"]


async def test_options_that_fail_or_take_long_are_none() -> None:
    asked: list[str] = []

    def declare(channel: SlackChannel) -> None:
        @channel.options("city")
        async def cities(ctx: InteractionContext, interaction: Interaction) -> Any:
            asked.append(interaction.value)
            if interaction.value == "x":
                raise RuntimeError("x")
            await asyncio.Event().wait()

    async with served(declare=declare) as world:
        message, person = await show(world), world.slack.user(PERSON)
        assert (await person.suggest(message, "city", "x")).body == {"options": []}
        waiting = person.suggest(message, "city", "y")
        await world.slack.until(lambda: "y" in asked)
        world.clock.advance(2.6)
        assert (await waiting).body == {"options": []}


def test_options_may_be_texts_pairs_or_slacks_own() -> None:
    own = {"text": {"type": "plain_text", "text": "C"}, "value": "c"}
    made = offered(["A", ("B", "b"), own])["options"]
    assert [(one["text"]["text"], one["value"]) for one in made] == [
        ("A", "A"),
        ("B", "b"),
        ("C", "c"),
    ]
    assert offered({"option_groups": []}) == {"option_groups": []}
    assert offered(None) == {"options": []}


# Shortcuts and reactions


@pytest.mark.parametrize("socket", [False, True])
async def test_a_global_shortcut_opens_a_modal_or_asks_in_a_channel(socket: bool) -> None:
    def declare(channel: SlackChannel) -> None:
        @channel.shortcut("report", scope="global")
        async def report(ctx: InteractionContext, interaction: Interaction) -> None:
            """Write a report."""
            assert interaction.token is None
            await ctx.open_view(FORM)
            await ctx.ask("Write a report, <!channel>", channel=CHANNEL)

    async with served(socket=socket, declare=declare) as world:
        assert (await world.slack.user(PERSON).shortcut("report")).ok
        await world.slack.until(lambda: len(world.slack.messages(CHANNEL)) == 1)
        (root,) = world.slack.messages(CHANNEL)
        assert (await world.shown(2, root.ts))[-1].startswith("Write a report")
        assert f"<@{PERSON}> asks" in root.text
        assert "<!channel>" not in root.text
        assert world.slack.modals(PERSON)
        shown = world.channel.shortcuts["report"]
        assert (shown.description, shown.scope) == ("Write a report.", "global")


async def test_a_reaction_is_in_the_thread_of_its_message() -> None:
    def declare(channel: SlackChannel) -> None:
        @channel.reaction("eyes")
        async def look(ctx: InteractionContext, interaction: Interaction) -> None:
            await ctx.send(f"look, says {interaction.user}")

    async with served(declare=declare, blocked=[OTHER]) as world:
        root = world.say("a strange thing")
        reply = world.say("indeed", thread=root)
        world.slack.user(OTHER).react(reply, "eyes")
        world.slack.user(PERSON).react(reply, "tada")
        world.slack.user(PERSON).react(reply, "eyes")
        assert (await world.shown(3, root))[-1] == f"look, says {PERSON}"
        await world.slack.settled()
        assert len(world.accepted) == 1


# Declaring


def test_what_cannot_be_declared_is_refused() -> None:
    channel = SlackChannel()

    async def fine(ctx: InteractionContext, interaction: Interaction) -> None: ...

    def plain(ctx: Any, interaction: Any) -> None: ...

    async def short(ctx: Any) -> None: ...

    with pytest.raises(TypeError, match="async def"):
        channel.action("a")(plain)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="a context and an interaction"):
        channel.action("a")(short)
    with pytest.raises(ValueError, match="begins with"):
        channel.action("threadline:approve")(fine)
    with pytest.raises(ValueError, match="lower case"):
        channel.command("Deploy")
    channel.action("a")(fine)
    with pytest.raises(ValueError, match="two handlers"):
        channel.action("a")(fine)
    channel.view("a")(fine)


@pytest.mark.parametrize(
    ("team", "message_team", "home", "external"),
    [
        ("T1", "T1", "T1", False),
        ("T1", "T1", "T2", True),
        (None, "T1", "T2", True),
        ("T2", "T1", "T2", True),
        (None, "T1", "E1", False),
        (None, None, "T2", False),
    ],
)
def test_who_presses_from_elsewhere_is_of_another_organisation(
    team: str | None, message_team: str | None, home: str, external: bool
) -> None:
    payload = {
        "type": "block_actions",
        "api_app_id": "A1",
        "team": {"id": team} if team else None,
        "enterprise": {"id": "E1"},
        "is_enterprise_install": True,
        "user": {"id": PERSON, "team_id": home},
        "message": {"app_id": "A1", "team": message_team} if message_team else {},
        "actions": [{"action_id": "a"}],
    }
    (made,) = interactions(payload)
    assert made.external is external
    assert made.team == (message_team or home)


def test_a_flat_direct_conversation_is_one() -> None:
    payload = {
        "type": "block_actions",
        "team": {"id": TEAM},
        "user": {"id": PERSON, "team_id": TEAM},
        "channel": {"id": DM},
        "container": {"message_ts": "1.2"},
        "actions": [{"action_id": "a"}, {"action_id": "b"}],
    }
    first, second = interactions(payload, flat_dms=True)
    assert first.token == f"slack:{TEAM}:{DM}:dm"
    assert first.id != second.id
    (first, _) = interactions(payload)
    assert first.token == f"slack:{TEAM}:{DM}:1.2"
