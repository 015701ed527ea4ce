"""Installing the app by a browser, and serving who did."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from openapi_spec_validator import validate
from tests.channels.slack.many import ROUTES, SECOND, SECOND_CHANNEL, SECOND_PERSON, Many, many
from tests.channels.slack.world import CHANNEL, PERSON, TEAM, served

from threadline.channel.auth import AuthRequest
from threadline.principal import Principal
from threadline_slack import SlackChannel
from threadline_slack.installing.oauth import INSTALLER, browsers
from threadline_slack.setup.manifest import bot_scopes, needs_of


def tokens(world: Many, method: str = "chat.postMessage") -> list[str | None]:
    return [call.token for call in world.slack.calls(method)]


@pytest.mark.parametrize("socket", [False, True])
async def test_a_browser_installs_and_the_bot_answers(socket: bool) -> None:
    async with many(socket=socket) as world:
        await world.install()
        await world.asked(TEAM, CHANNEL, PERSON)
        assert tokens(world) == [world.token]


async def test_the_way_to_slack_says_what_is_wanted() -> None:
    async with many() as world:
        status, _, answer = await world.browse(f"{ROUTES}/install", follow=False)
        assert status == 302
        address = urlsplit(answer.headers["Location"])
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        assert f"{address.scheme}://{address.netloc}" == world.slack.url
        assert query["client_id"] == world.slack.app.client_id
        assert query["redirect_uri"] == f"{world.host.url}{ROUTES}/oauth_redirect"
        assert query["scope"].split(",") == bot_scopes(
            needs_of(world.channel, name="Helper", many=True)
        )
        cookie = answer.headers["Set-Cookie"]
        assert query["state"] in cookie
        assert "HttpOnly" in cookie
        assert "Secure" in cookie
        assert answer.headers["Cache-Control"] == "no-store"


async def test_only_a_workspace_id_is_handed_on() -> None:
    async with many() as world:
        path = f"{ROUTES}/install?team=T1%26redirect_uri%3Dhttps://evil.example&scope=admin"
        _, _, answer = await world.browse(path, follow=False)
        assert "evil" not in answer.headers["Location"]
        assert "admin" not in answer.headers["Location"]


async def test_two_workspaces_are_served_each_by_its_own_token() -> None:
    async with many() as world:
        await world.install(TEAM)
        await world.install(SECOND)
        await world.asked(SECOND, SECOND_CHANNEL, SECOND_PERSON)
        await world.asked(TEAM, CHANNEL, PERSON)
        first, second = (one.token for one in world.slack.app.installs)
        assert tokens(world) == [second, first]
        assert first != second
        world.host.check_laws()


async def test_installations_survive_a_restart() -> None:
    async with many() as world:
        await world.install()
        await world.restart()
        await world.asked(TEAM, CHANNEL, PERSON)
        assert tokens(world) == [world.token]


@pytest.mark.parametrize(
    ("query", "cookie", "status"),
    [
        ("code=c&state={state}", "", 400),
        ("code=c&state=other", "{cookie}", 400),
        ("code=c&state=other", "slack-app-oauth-state=other", 401),
        ("state={state}", "{cookie}", 401),
        ("code=nonsense&state={state}", "{cookie}", 401),
        ("error=access_denied", "", 200),
    ],
)
async def test_a_way_back_that_is_not_right_installs_nothing(
    query: str, cookie: str, status: int
) -> None:
    async with many() as world:
        _, _, answer = await world.browse(f"{ROUTES}/install", follow=False)
        state = parse_qs(urlsplit(answer.headers["Location"]).query)["state"][0]
        known = {"state": state, "cookie": answer.headers["Set-Cookie"].partition(";")[0]}
        path = f"{ROUTES}/oauth_redirect?{query.format(**known)}"
        got, text, _ = await world.browse(path, Cookie=cookie.format(**known))
        assert got == status
        assert "Something Went Wrong" in text
        assert not await world.bots.hears(world.context, {"team_id": TEAM})


async def test_a_state_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadline_slack.installing.oauth._STATE_SECONDS", -1)
    async with many() as world:
        assert await world.come_back(world.slack.app.install) == 401


async def test_a_state_of_before_a_restart_is_good() -> None:
    async with many() as world:
        _, _, answer = await world.browse(f"{ROUTES}/install", follow=False)
        await world.host.crash()
        state = parse_qs(urlsplit(answer.headers["Location"]).query)["state"][0]
        code = world.slack.grant_code(world.slack.app.install)
        path = f"{ROUTES}/oauth_redirect?code={code}&state={state}"
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        status, text, _ = await world.browse(path, Cookie=cookie)
        assert status == 200
        assert "Thank you" in text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/install"),
        ("POST", "/oauth_redirect"),
        ("POST", "/events"),
        ("GET", "/install/"),
        ("GET", "/installs"),
    ],
)
async def test_nothing_else_is_open_to_browsers(method: str, path: str) -> None:
    async with many() as world:
        answer = await world.host.request(method, ROUTES + path)
        assert answer.status in (401, 404, 405)


@pytest.mark.parametrize(
    ("path", "admitted"),
    [
        (f"{ROUTES}/install", True),
        (f"/on-call{ROUTES}/oauth_redirect", True),
        (f"{ROUTES}/install/", False),
        (f"{ROUTES}/events", False),
        (f"/{ROUTES}/install", False),
        (f"/v1/session/ses_1/blobs/{ROUTES}/install", False),
        (f"/a/b{ROUTES}/install", False),
        ("/v1/channels/other/install", False),
    ],
)
def test_the_policy_admits_two_paths(path: str, admitted: bool) -> None:
    channel = SlackChannel()
    channel.id = "slack"
    assert (browsers(channel)(AuthRequest("GET", path)) is not None) is admitted
    assert browsers(channel)(AuthRequest("POST", path)) is None


async def test_an_installer_may_do_nothing_in_a_session() -> None:
    async with many() as world:
        await world.install()
        token = await world.asked(TEAM, CHANNEL, PERSON)
        record = world.host.agent().store.session_by_token("slack", token)
        assert record is not None
        assert not world.channel.may(Principal(INSTALLER, "slack"), record, "read")
        assert world.channel.may(Principal("slack", "x"), record, "read")


async def test_with_a_bot_token_there_is_nothing_to_install() -> None:
    async with served() as world:
        for path in ("/install", "/oauth_redirect"):
            answer = await world.host.get(ROUTES + path)
            assert answer.status == 404
            assert "SLACK_CLIENT_ID" in answer.json()["message"]


async def test_an_event_of_a_stranger_workspace_is_answered_and_nothing_more() -> None:
    async with many() as world:
        bot = world.slack.app.install.bot_user
        world.slack.user(PERSON).post(CHANNEL, f"<@{bot}> hello")
        await world.slack.settled()
        assert all(
            attempt.answer.status == 200
            for one in world.slack.deliveries()
            for attempt in one.attempts
        )
        assert world.slack.deliveries()
        assert not world.accepted


async def test_the_document_has_the_routes() -> None:
    async with many() as world:
        answer = await world.host.get("/v1/openapi.json")
        validate(answer.json())
        paths = answer.json()["paths"]
        assert "302" in paths[f"{ROUTES}/install"]["get"]["responses"]
        assert {f"{ROUTES}/oauth_redirect", f"{ROUTES}/events"} <= paths.keys()
