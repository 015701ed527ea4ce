"""The doctor: each thing that can be wrong with a set-up is named, with the fix, and no secret."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from threadline import Agent
from threadline.cli.checks import Check
from threadline.clock import SystemClock
from threadline.harness.scripted import Scripted
from threadline.testing import TestHost
from threadline_slack import SlackChannel
from threadline_slack.config import Config
from threadline_slack.setup import findings
from threadline_slack.setup.doctor import examine
from threadline_slack.setup.manifest import Needs, bot_scopes
from threadline_slack.testing import DEFAULTS, FakeSlack

CHANNEL = DEFAULTS["channel"]
NEEDS = Needs(name="Helper", acks=True)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
KEY = "A" * 43 + "="


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as slack:
        slack.app.install.scopes = set(bot_scopes(NEEDS))
        yield slack


def environ(slack: FakeSlack, **changes: str) -> dict[str, str]:
    app = slack.app
    found = {
        "SLACK_BOT_TOKEN": app.bot_token,
        "SLACK_APP_TOKEN": app.app_token,
        "SLACK_API_URL": slack.api_url,
    } | {f"SLACK_{name}": value for name, value in changes.items()}
    return {name: value for name, value in found.items() if value}


async def examined(slack: FakeSlack, needs: Needs = NEEDS, **changes: str) -> dict[str, Check]:
    """Return the findings by name, and see that none holds a secret."""
    env = environ(slack, **changes)
    found = await examine(needs, env, clock=SystemClock())
    said = str(found)
    assert not any(value in said for name, value in env.items() if "URL" not in name)
    return {check.name: check for check in found}


def problems(found: dict[str, Check]) -> set[str]:
    assert all(check.fix for check in found.values() if check.state == "problem")
    return {name for name, check in found.items() if check.state == "problem"}


# The whole


async def test_a_good_set_up_by_socket_mode(slack: FakeSlack) -> None:
    found = await examined(slack)
    assert problems(found) == set()
    assert "@agent" in found["bot token"].said
    assert "Acme" in found["bot token"].said
    assert "Socket Mode" in found["variables"].said
    assert found["scopes"].state == found["clock"].state == found["socket"].state == "ok"
    assert found["messages tab"].state == found["events"].state == "note"
    assert "message.im" in found["events"].fix
    await slack.until(lambda: not slack.sockets())


async def test_a_good_set_up_by_http(slack: FakeSlack) -> None:
    secret = slack.app.signing_secret
    config = Config(slack.app.bot_token, None, secret, slack.api_url)
    channel = SlackChannel(config=config)
    agent = Agent(name="A", instructions="x", harness=Scripted(), channels={"slack": channel})
    async with TestHost(agent, channel_id="slack") as host:
        env = environ(slack, SIGNING_SECRET=secret, APP_TOKEN="")
        url = f"{host.url}/v1/channels/slack/events"

        async def check(url: str | None, **changes: str) -> Check:
            found = await examine(NEEDS, env | changes, events_url=url, clock=SystemClock())
            return next(one for one in found if one.name == "events address")

        assert (await check(url)).state == "ok"
        assert (await check(None)).state == "note"
        wrong = await check(url, SLACK_SIGNING_SECRET="another")
        assert (wrong.state, "refuses" in wrong.said) == ("problem", True)
        nowhere = await check(f"{host.url}/v1/channels/slak/events")
        assert (nowhere.state, "no route" in nowhere.said) == ("problem", True)
    gone = await check(url)
    assert (gone.state, "cannot be reached" in gone.said) == ("problem", True)


async def test_an_address_that_is_not_used_is_said_so(slack: FakeSlack) -> None:
    url = "https://a.example/events"
    found = await examine(NEEDS, environ(slack), events_url=url, clock=SystemClock())
    assert "Socket Mode" in next(one.said for one in found if one.name == "events address")


# Variables and tokens


@pytest.mark.parametrize(
    "changes",
    [
        {"BOT_TOKEN": ""},
        {"BOT_TOKEN": "xapp-1"},
        {"APP_TOKEN": "xoxb-1"},
        {"APP_TOKEN": ""},
        {"API_URL": "slack.example"},
        {"BOT_TOKEN": "", "CLIENT_ID": "1.2"},
    ],
)
async def test_variables(slack: FakeSlack, changes: dict[str, str]) -> None:
    found = await examine(NEEDS, environ(slack, **changes), clock=SystemClock())
    assert {check.name for check in found} == {"variables"}
    assert {check.state for check in found} == {"problem"}
    assert slack.calls() == []


async def test_the_variables_of_a_second_bot(slack: FakeSlack) -> None:
    second = {f"TRIAGE_{name}": value for name, value in environ(slack).items()}
    assert [c.name for c in await examine(NEEDS, second, clock=SystemClock())] == ["variables"] * 2
    found = await examine(NEEDS, second, prefix="TRIAGE_", clock=SystemClock())
    assert all(check.state != "problem" for check in found)


@pytest.mark.parametrize(
    ("error", "fix"),
    [("invalid_auth", "xoxb-"), ("token_revoked", "again"), ("token_expired", "rotation")],
)
async def test_a_bot_token_that_is_refused(slack: FakeSlack, error: str, fix: str) -> None:
    slack.fail("auth.test", error)
    found = await examined(slack)
    assert problems(found) == {"bot token"}
    assert error in found["bot token"].said
    assert fix in found["bot token"].fix
    assert "scopes" not in found


async def test_a_token_of_a_person(slack: FakeSlack) -> None:
    slack.stub("auth.test", {"ok": True, "user": "ada", "team": "Acme", "team_id": "T1"})
    found = await examined(slack)
    assert problems(found) == {"bot token"}
    assert "of a person" in found["bot token"].said


async def test_a_server_that_says_the_token_again(slack: FakeSlack) -> None:
    said = {"ok": True, "user": "agent", "bot_id": "B1", "team": slack.app.bot_token}
    slack.stub("auth.test", said)
    found = await examined(slack)
    assert "…" in found["bot token"].said


async def test_a_server_that_is_not_there(slack: FakeSlack) -> None:
    url = slack.api_url
    await slack.close()
    found = await examined(slack, API_URL=url)
    assert problems(found) == {"bot token", "socket"}
    assert "cannot be reached" in found["bot token"].said
    assert "SLACK_API_URL" in found["bot token"].fix


# Scopes and clock


async def test_scopes_that_are_missing(slack: FakeSlack) -> None:
    slack.app.install.scopes -= {"channels:history", "files:read"}
    found = await examined(slack)
    assert problems(found) == {"scopes"}
    assert found["scopes"].said == "Missing: channels:history, files:read."


def test_scopes_that_are_not_needed() -> None:
    held = ", ".join([*bot_scopes(NEEDS), "users:read.email"])
    check = findings.scopes_check(held, NEEDS)
    assert (check.state, "users:read.email" in check.said) == ("ok", True)
    assert findings.scopes_check("", NEEDS).state == "problem"
    assert findings.scopes_check(None, NEEDS).state == "note"


@pytest.mark.parametrize(
    ("ahead", "state", "said"),
    [
        (0, "ok", "agrees"),
        (60, "ok", ""),
        (-60, "ok", ""),
        (61, "problem", "ahead of"),
        (-3600, "problem", "3600 seconds behind"),
    ],
)
def test_the_clock(ahead: int, state: str, said: str) -> None:
    date = format_datetime(NOW, usegmt=True)
    check = findings.clock(date, NOW + timedelta(seconds=ahead))
    assert (check.state, said in check.said) == (state, True)


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_no_date(date: str | None) -> None:
    assert findings.clock(date, NOW).state == "note"


async def test_a_clock_that_is_wrong(slack: FakeSlack) -> None:
    class Late(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(minutes=10)

    found = await examine(NEEDS, environ(slack), clock=Late())
    assert [check.name for check in found if check.state == "problem"] == ["clock"]


# Sockets


@pytest.mark.parametrize(
    ("error", "fix"), [("invalid_auth", "connections:write"), ("link_disabled", "Socket Mode")]
)
async def test_an_app_token_that_is_refused(slack: FakeSlack, error: str, fix: str) -> None:
    slack.fail("apps.connections.open", error)
    found = await examined(slack)
    assert problems(found) == {"socket"}
    assert fix in found["socket"].fix


async def test_an_app_token_of_another_app(slack: FakeSlack) -> None:
    other = slack.add_app("A0OTHER001", "other")
    found = await examined(slack, APP_TOKEN=other.app_token)
    assert problems(found) == {"socket"}
    assert "A0OTHER001" in found["socket"].said


async def test_too_many_sockets(slack: FakeSlack) -> None:
    import aiohttp

    async with aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {slack.app.app_token}"}
        sockets = []
        for _ in range(10):
            async with http.post(f"{slack.api_url}apps.connections.open", headers=headers) as one:
                sockets.append(await http.ws_connect((await one.json())["url"]))
        await slack.until(lambda: len(slack.sockets()) == 10)
        found = await examined(slack)
        assert problems(found) == {"socket"}
        assert "too_many_websockets" in found["socket"].said
        await asyncio.gather(*(socket.close() for socket in sockets))


async def test_a_ticket_is_not_shown(slack: FakeSlack) -> None:
    slack.stub("apps.connections.open", {"ok": True, "url": f"{slack.url}/link/?ticket=secret-1"})
    found = await examined(slack)
    assert problems(found) == {"socket"}
    assert "secret-1" not in str(found)


# Channels


async def test_channels_that_the_bot_is_not_in(slack: FakeSlack) -> None:
    slack.add_channel("C0ALERTS01", "alerts")
    watching = replace(NEEDS, watch=("#alerts", "#general", CHANNEL, "C0ALERTS01"))
    found = await examine(watching, environ(slack), clock=SystemClock())
    states = [check.state for check in found if check.name == "channel"]
    assert states == ["problem", "ok", "ok", "problem"]
    (first, _) = [check for check in found if check.state == "problem"]
    assert "/invite @agent" in first.fix


# Addresses


@pytest.mark.parametrize(
    ("status", "answer", "seconds", "said"),
    [
        (200, {"challenge": "c"}, 0.1, "answers, and checks"),
        (200, {"challenge": "d"}, 0.1, "challenge"),
        (200, "hello", 0.1, "challenge"),
        (200, {"challenge": "c"}, 4.0, "4 seconds"),
        (302, {}, 0.1, "redirects"),
        (401, {}, 0.1, "refuses"),
        (404, {}, 0.1, "no route"),
        (502, {}, 0.1, "answers 502"),
    ],
)
def test_what_an_address_answers(status: int, answer: Any, seconds: float, said: str) -> None:
    check = findings.events_check("https://x.example", status, answer, "c", seconds)
    assert said in check.said
    assert (check.state == "ok") == (said == "answers, and checks")


async def test_an_app_for_many_workspaces(slack: FakeSlack) -> None:
    async def install(request: web.Request) -> web.Response:
        del request
        raise web.HTTPFound(f"{slack.url}/oauth/v2/authorize?client_id=1.2")

    application = web.Application()
    application.router.add_get("/install", install)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    oauth = {"BOT_TOKEN": "", "CLIENT_ID": "1.2", "CLIENT_SECRET": "hush", "ENCRYPTION_KEY": KEY}
    env = environ(slack, **oauth)

    async def check(path: str | None) -> Check:
        where = None if path is None else url + path
        found = await examine(NEEDS, env, install_url=where, clock=SystemClock())
        assert "hush" not in str(found)
        return next(one for one in found if one.name == "install address")

    assert (await check("/install")).state == "ok"
    assert (await check("/instal")).state == "problem"
    assert (await check(None)).state == "note"
    await runner.cleanup()
    assert (await check("/install")).state == "problem"


def test_what_nobody_is_told_of_an_agent() -> None:
    assert "agent" in {check.name for check in findings.untold(replace(NEEDS, agent=True))}
    assert {check.state for check in findings.untold(NEEDS)} == {"note"}
