"""The manifest: what an app is asked for is what its channel needs, no less and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from threadline import Agent, Artifacts, Kind, ToolContext, tool
from threadline.harness.scripted import Call, Say, Scripted
from threadline.testing import TestHost
from threadline_slack import SlackChannel, watch
from threadline_slack.config import Config
from threadline_slack.interaction.acting import InteractionContext
from threadline_slack.interaction.forms import Interaction
from threadline_slack.setup.manifest import (
    Command,
    Needs,
    Shortcut,
    address,
    bot_events,
    bot_scopes,
    manifest,
    needs_of,
)
from threadline_slack.testing import DEFAULTS, FakeSlack
from threadline_slack.testing.events import EVENT_SCOPES
from threadline_slack.testing.model import Message

CHANNEL, DM, BOT = DEFAULTS["channel"], DEFAULTS["dm"], DEFAULTS["bot_user"]
PERSON, OTHER = DEFAULTS["person"], DEFAULTS["other"]
URL = "https://agents.example.com/helper/v1/channels/slack/events"
PLAIN = Needs(name="Helper")
_NO_AGENT = ("agents.sessions.setStatus", "not_authorized")
ALL = Needs(
    name="Helper of everybody in the whole wide company",
    description="It helps. " * 60,
    watch=("C1",),
    agent=True,
    prompts=(("Look", "Look around"),) * 9,
    commands=(Command("/ask", "Ask it", "[question]"),),
    shortcuts=(Shortcut("sum_up", "Sum up this thread, whatever it takes", "Sums up"),),
    acks=True,
    reactions=True,
    many=True,
)


def made(needs: Needs, **options: Any) -> dict[str, Any]:
    return manifest(needs, events_url=URL, redirect_url="https://agents.example.com/o", **options)


def test_people_can_write_to_the_bot() -> None:
    assert made(PLAIN)["features"]["app_home"] == {
        "home_tab_enabled": False,
        "messages_tab_enabled": True,
        "messages_tab_read_only_enabled": False,
    }
    assert "message.im" in bot_events(PLAIN)
    assert "im:history" in bot_scopes(PLAIN)


def test_mentions_alone_hear_of_no_other_posts() -> None:
    assert bot_events(replace(PLAIN, follow_ups=False)) == ["app_mention", "message.im"]
    assert "message.channels" in bot_events(PLAIN)
    watching = replace(PLAIN, follow_ups=False, watch=("C1",))
    assert {"message.channels", "message.groups"} <= set(bot_events(watching))


@pytest.mark.parametrize(
    ("option", "scope"),
    [
        ({"acks": True}, "reactions:write"),
        ({"reactions": True}, "reactions:read"),
        ({"agent": True}, "assistant:write"),
        ({"commands": ALL.commands}, "commands"),
        ({"shortcuts": ALL.shortcuts}, "commands"),
    ],
)
def test_a_scope_is_asked_for_when_it_is_used(option: dict[str, Any], scope: str) -> None:
    assert set(bot_scopes(replace(PLAIN, **option))) - set(bot_scopes(PLAIN)) == {scope}


@pytest.mark.parametrize("needs", [PLAIN, ALL, replace(PLAIN, follow_ups=False)])
def test_every_event_has_its_scope(needs: Needs) -> None:
    wanted = {EVENT_SCOPES[event] for event in bot_events(needs) if event in EVENT_SCOPES}
    assert wanted <= set(bot_scopes(needs))


def test_socket_mode_names_no_address() -> None:
    whole = made(replace(ALL, many=False))
    assert whole["settings"]["socket_mode_enabled"] is True
    assert "https://" not in str(whole)


def test_over_http_everything_comes_to_one_address() -> None:
    whole = made(replace(ALL, socket=False))
    settings = whole["settings"]
    assert settings["socket_mode_enabled"] is False
    assert settings["event_subscriptions"]["request_url"] == URL
    assert settings["interactivity"] == {
        "is_enabled": True,
        "request_url": URL,
        "message_menu_options_url": URL,
    }
    assert [one["url"] for one in whole["features"]["slash_commands"]] == [URL]


def test_an_address_that_is_needed_is_asked_for() -> None:
    with pytest.raises(ValueError, match="events"):
        manifest(replace(PLAIN, socket=False))
    with pytest.raises(ValueError, match="OAuth"):
        manifest(replace(PLAIN, many=True))


def test_many_workspaces() -> None:
    assert "redirect_urls" not in made(PLAIN)["oauth_config"]
    whole = made(ALL, org=True)
    assert whole["oauth_config"]["redirect_urls"] == ["https://agents.example.com/o"]
    assert whole["settings"]["org_deploy_enabled"] is True
    assert {"app_uninstalled", "tokens_revoked"} <= set(bot_events(ALL))


def test_an_agent_has_a_stop_button() -> None:
    view = made(ALL)["features"]["agent_view"]
    assert len(view["suggested_prompts"]) == 4
    assert view["suggested_prompts"][0] == {"title": "Look", "message": "Look around"}
    assert {"agent_session_stopped", "app_context_changed"} <= set(bot_events(ALL))
    assert "agent_view" not in made(PLAIN)["features"]


def test_no_text_is_longer_than_slack_takes() -> None:
    whole = made(ALL)
    assert len(whole["display_information"]["name"]) <= 35
    assert len(whole["display_information"]["description"]) <= 140
    assert len(whole["features"]["agent_view"]["agent_description"]) <= 300
    assert len(whole["features"]["shortcuts"][0]["name"]) <= 24
    assert whole["features"]["bot_user"]["display_name"].startswith("helper-of-everybody")


@pytest.mark.parametrize(("name", "shown"), [("Ünï Bot", "n-bot"), ("助手", "agent")])
def test_a_bot_user_has_a_name_that_slack_takes(name: str, shown: str) -> None:
    assert made(Needs(name=name))["features"]["bot_user"]["display_name"] == shown


def test_what_a_channel_says_of_itself() -> None:
    channel = SlackChannel(
        follow_ups=False,
        watch=watch(["C02", "#alerts"]),
        suggested_prompts=[("Look", "Look around")],
        commands={"/ask": "Ask it"},
        message_shortcut="Ask about this",
        reactions=False,
    )

    @channel.command("/deploy", hint="service")
    async def deploy(ctx: InteractionContext, interaction: Interaction) -> None:
        """Deploy a service.

        At once.
        """

    @channel.shortcut("sum_up", scope="global")
    async def sum_up(ctx: InteractionContext, interaction: Interaction) -> None: ...

    @channel.reaction("eyes")
    async def eyes(ctx: InteractionContext, interaction: Interaction) -> None: ...

    needs = needs_of(channel, name="Helper", description=None, socket=False, many=True)
    assert needs == Needs(
        name="Helper",
        socket=False,
        follow_ups=False,
        watch=("#alerts", "C02"),
        agent=True,
        prompts=(("Look", "Look around"),),
        commands=(
            Command("/ask", "Ask it", "question"),
            Command("/deploy", "Deploy a service.", "service"),
        ),
        shortcuts=(
            Shortcut("sum_up", "Sum up", "", "global"),
            Shortcut("threadline:ask", "Ask about this", ""),
        ),
        reactions=True,
        many=True,
    )


def test_a_channel_as_it_is() -> None:
    assert needs_of(SlackChannel(), name="Helper") == replace(PLAIN, acks=True)


@pytest.mark.parametrize("base", ["https://a.example.com/x", "https://a.example.com/x/"])
def test_the_address_of_the_endpoint(base: str) -> None:
    channel = SlackChannel()
    channel.id = "slack"
    whole = "https://a.example.com/x/v1/channels/slack/events"
    assert address(base, channel, "/events") == whole
    assert address(whole, channel, "/events") == whole


@tool(effect="write", approval=True)
async def deploy(service: str, ctx: ToolContext) -> str:
    """Deploy a service."""
    log = {"content": "all went well", "filename": "deploy.txt", "content_type": "text/plain"}
    await ctx.artifacts.tag(kind="log", key=service, title="Log", **log)
    return f"deployed {service}"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"follow_ups": False, "reactions": False, "watch": watch(["#general"])},
        {"suggested_prompts": [("Look", "Look around")], "reply": "stream", "feedback": True},
    ],
)
async def test_an_app_that_is_made_from_it_can_do_its_work(options: dict[str, Any]) -> None:
    async with FakeSlack() as slack:
        config = Config(slack.app.bot_token, None, slack.app.signing_secret, slack.api_url)
        channel = SlackChannel(config=config, **options)
        needs = needs_of(channel, name="Helper")
        slack.app.install.scopes = set(bot_scopes(needs))
        slack.app.events = set(bot_events(needs))
        slack.app.is_agent = needs.agent
        agent = Agent(
            name="Helper",
            instructions="Help.",
            harness=Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")]),
            tools=[deploy],
            artifacts=Artifacts(kinds={"log": Kind("What happened.")}),
            channels={"slack": channel},
        )
        async with TestHost(agent, channel_id="slack") as host:
            slack.app.request_url = f"{host.url}/v1/channels/slack/events"
            person = slack.user(PERSON)
            person.open_home("messages")
            root = person.post(DEFAULTS["group_dm"], "Who can deploy?").ts
            person.upload(
                DEFAULTS["group_dm"], "plan.txt", b"plan", text=f"<@{BOT}> you", thread_ts=root
            )
            await does_its_work(slack, DEFAULTS["group_dm"], root)
            root = person.post(CHANNEL, f"<@{BOT}> deploy").ts
            await does_its_work(slack, CHANNEL, root)
            direct = person.post(DM, "hello").ts
            await does_its_work(slack, DM, direct, PERSON)
            await host.rest()
            await slack.settled()
            prompts = [
                str(prompt["data"]["context"])
                for record in host.agent().store.sessions(None, limit=9)
                for prompt in host.session(record.id).events("message.received")
            ]
            said = "\n".join(prompts)
            assert "dev1" in said
            assert "#general" in said
            assert "Who can deploy?" in said
            assert "plan.txt" in said
            assert "not available" not in said
        refused = {(call.method, call.error) for call in slack.calls() if call.error is not None}
        # Whether an app is an agent can only be tried.
        assert refused <= (set() if needs.agent else {_NO_AGENT})


async def does_its_work(slack: FakeSlack, channel: str, root: str, by: str = OTHER) -> None:
    """Approve what the agent asks for in a thread, and see its answer and its file."""

    def cards() -> list[Message]:
        found = slack.messages(channel, root)
        return [one for one in found if "threadline:approve" in str(one.blocks)]

    await slack.until(cards)
    slack.user(by).click(cards()[0], "threadline:approve")
    await slack.until(lambda: any("It is out." in text for text in slack.visible(channel, root)))
    await slack.until(lambda: any("deploy.txt" in text for text in slack.visible(channel, root)))
