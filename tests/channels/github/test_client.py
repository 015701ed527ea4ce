"""The client against a GitHub: credentials, limits, pages, broken connections, redirects."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest

import threadline_github.client as client_module
from threadline import TryAgain
from threadline.testing import ManualClock
from threadline_github.client import DIFF, Client, GitHubRefused
from threadline_github.config import Config
from threadline_github.testing import DEFAULTS, FakeGitHub
from threadline_github.testing.seeding import new_key

WIDGET = "/repos/octo-fixture/widget"
INSTALLATION = DEFAULTS["installation"]
COMMENTS = f"{WIDGET}/issues/1/comments"
TOKENS = "/app/installations/*/access_tokens"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC))


@pytest.fixture
async def github(clock: ManualClock) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=clock) as running:
        yield running


@pytest.fixture
async def client(github: FakeGitHub, clock: ManualClock) -> AsyncIterator[Client]:
    """A client as the app."""
    made = Client(Config.read(github.environ), clock)
    yield made
    await made.close()


async def say(client: Client, text: str = "x") -> Any:
    return await client.request("POST", COMMENTS, {"body": text}, installation=INSTALLATION)


async def again(call: Any) -> TryAgain:
    with pytest.raises(TryAgain) as caught:
        await call
    return caught.value


async def refused(call: Any) -> GitHubRefused:
    with pytest.raises(GitHubRefused) as caught:
        await call
    return caught.value


# Credentials


async def test_an_app_acts_as_its_installation(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    made = await say(client, "hello")
    assert made["user"]["login"] == "agent-fixture[bot]"
    assert github.visible(pull) == ["hello"]
    app = await client.request("GET", "/app", as_app=True)
    assert (app["id"], app["slug"]) == (2201, "agent-fixture")


async def test_a_token_is_used_until_five_minutes_before_its_end(
    github: FakeGitHub, client: Client, clock: ManualClock
) -> None:
    github.user("dev-one").open_pull()
    await say(client)
    clock.advance(54 * 60)
    await say(client)
    assert len(github.tokens) == 1
    clock.advance(60 + 1)
    await say(client)
    assert len(github.tokens) == 2
    assert github.calls("POST", COMMENTS)[-1].token == github.tokens[1].value


async def test_a_refused_token_is_renewed_once(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    await say(client, "one")
    github.revoke(github.tokens[0].value)
    await say(client, "two")
    assert github.visible(pull) == ["one", "two"]
    assert len(github.tokens) == 2
    assert [call.status for call in github.calls("POST", COMMENTS)] == [201, 401, 201]


async def test_a_new_token_that_is_not_known_yet(github: FakeGitHub, client: Client) -> None:
    """It takes GitHub some seconds: nothing is given up for that."""
    pull = github.user("dev-one").open_pull()
    github.fail("POST", COMMENTS, 401, times=4)
    first, second = await again(say(client)), await again(say(client))
    assert (first.retry_after, first.sent) == (5.0, False)
    assert (second.retry_after, second.sent) == (10.0, False)
    assert len(github.calls("POST", COMMENTS)) == 4
    await say(client)
    assert github.visible(pull) == ["x"]


async def test_many_calls_at_once_share_one_new_token(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    await asyncio.gather(*(say(client, str(number)) for number in range(8)))
    assert len(github.tokens) == 1
    github.revoke(github.tokens[0].value)
    await asyncio.gather(*(say(client, str(number)) for number in range(8)))
    assert len(github.tokens) == 2
    assert len(github.visible(pull)) == 16


async def test_each_installation_has_its_own_token(github: FakeGitHub, client: Client) -> None:
    other = github.add_repository("other-owner/thing")
    theirs = github.install("other-owner")
    github.user("dev-one").open_issue(other)
    github.user("dev-one").open_issue()
    await say(client)
    path = "/repos/other-owner/thing/issues/1/comments"
    await client.request("POST", path, {"body": "x"}, installation=theirs.id)
    assert [one.installation for one in github.tokens] == [
        github.app.installations[0],
        theirs,
    ]
    error = await refused(client.request("POST", path, {"body": "x"}, installation=INSTALLATION))
    assert error.github_status == 403


async def test_a_token_that_was_forgotten_is_asked_for_again(
    github: FakeGitHub, client: Client
) -> None:
    first = await client.token(INSTALLATION)
    assert await client.token(INSTALLATION) == first
    client.forget(INSTALLATION)
    assert await client.token(INSTALLATION) != first


async def test_an_installation_that_is_gone(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    await say(client)
    github.uninstall(github.app.installations[0])
    assert (await refused(say(client))).github_status == 404
    assert (await refused(client.token(None))).github_status == 404


async def test_a_personal_token(github: FakeGitHub, clock: ManualClock) -> None:
    pull = github.user("dev-one").open_pull()
    token = github.personal_token("dev-two")
    client = Client(Config("s", token=token, api_url=github.api_url), clock)
    assert (await client.request("GET", "/user"))["login"] == "dev-two"
    made = await client.request("POST", COMMENTS, {"body": "mine"})
    assert (made["user"]["login"], made["performed_via_github_app"]) == ("dev-two", None)
    assert github.visible(pull) == ["mine"]
    assert await client.token(None) == token
    github.revoke(token)
    assert (await refused(client.request("GET", "/user"))).github_status == 401
    assert len(github.calls("GET", "/user")) == 2
    await client.close()


async def test_a_key_of_another_app(github: FakeGitHub, clock: ManualClock) -> None:
    config = Config("s", app_id="2201", private_key=new_key(), api_url=github.api_url)
    client = Client(config, clock)
    error = await refused(client.request("GET", "/app", as_app=True))
    assert error.github_status == 401
    assert len(github.calls()) == 1
    await client.close()


async def test_a_key_that_is_none(github: FakeGitHub, clock: ManualClock) -> None:
    pem = "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"
    client = Client(Config("s", app_id="2201", private_key=pem, api_url=github.api_url), clock)
    error = await refused(client.request("GET", "/app", as_app=True))
    assert "c2VjcmV0" not in str(error)
    assert github.calls() == []


@pytest.mark.parametrize("minutes", [-25, 25])
async def test_a_clock_that_is_wrong(github: FakeGitHub, clock: ManualClock, minutes: int) -> None:
    wrong = ManualClock(clock.now() + timedelta(minutes=minutes))
    client = Client(Config.read(github.environ), wrong)
    assert (await client.request("GET", "/app", as_app=True))["id"] == 2201
    assert (await client.request("GET", "/app", as_app=True))["id"] == 2201
    assert [call.status for call in github.calls("GET", "/app")] == [401, 200, 200]
    github.user("dev-one").open_pull()
    await say(client)
    await say(client)
    assert len(github.tokens) == 1
    github.limit("primary", method="POST", path=COMMENTS, reset=100)
    assert (await again(say(client))).retry_after == 100.0
    await client.close()


async def test_a_jwt_is_short_lived_and_the_apps(github: FakeGitHub, client: Client) -> None:
    await client.request("GET", "/app", as_app=True)
    token = github.calls()[0].token
    assert token is not None
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["iss"] == "2201"
    assert claims["exp"] - claims["iat"] <= 600


async def test_no_secret_is_shown(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    await say(client)
    token = github.tokens[0].value
    github.fail("POST", COMMENTS, 403)
    shown = [repr(await refused(say(client))), repr(client), repr(client.__dict__)]
    github.drop("POST", COMMENTS)
    error = await again(say(client))
    chain: BaseException | None = error
    while chain is not None:
        shown += [str(chain), repr(chain)]
        chain = chain.__cause__ or chain.__context__
    everything = "\n".join(shown)
    assert token not in everything
    assert "PRIVATE KEY" not in everything


# Limits and refusals


@pytest.mark.parametrize("status", [403, 429])
async def test_a_secondary_limit_names_its_time(
    github: FakeGitHub, client: Client, status: Any
) -> None:
    pull = github.user("dev-one").open_pull()
    github.limit("secondary", method="POST", path=COMMENTS, status=status, retry_after=61)
    error = await again(say(client))
    assert (error.retry_after, error.sent) == (61.0, False)
    assert github.visible(pull) == []
    await say(client)
    assert github.visible(pull) == ["x"]


async def test_a_primary_limit_lasts_to_its_reset(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    github.limit("primary", method="POST", path=COMMENTS, reset=1234)
    error = await again(say(client))
    assert (error.retry_after, error.sent) == (1234.0, False)


async def test_the_hours_calls_are_used_up(clock: ManualClock) -> None:
    async with FakeGitHub(clock=clock, hourly=2) as github:
        client = Client(Config.read(github.environ), clock)
        for _ in range(2):
            await client.request("GET", WIDGET, installation=INSTALLATION)
        error = await again(client.request("GET", WIDGET, installation=INSTALLATION))
        assert error.retry_after == 400.0  # from 8:53:20 to nine
        clock.advance(400)
        await client.request("GET", WIDGET, installation=INSTALLATION)
        await client.close()


async def test_a_limit_without_a_time_grows(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    github.limit("bare", method="POST", path=COMMENTS, times=3)
    waits = []
    for _ in range(3):
        waits.append((await again(say(client))).retry_after)
        await client.request("GET", WIDGET, installation=INSTALLATION)  # reading goes on
    assert waits == [60.0, 120.0, 240.0]
    await say(client)
    github.limit("bare", method="POST", path=COMMENTS)
    assert (await again(say(client))).retry_after == 60.0


async def test_a_missing_permission_stands(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    github.app.installations[0].permissions = {"metadata": "read", "pull_requests": "read"}
    error = await refused(say(client))
    assert error.github_status == 403
    assert "Resource not accessible by integration" in str(error)
    assert len(github.calls("POST", COMMENTS)) == 1
    assert github.visible(pull) == []


async def test_what_is_wrong_is_said(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    error = await refused(say(client, "x" * 65_537))
    assert error.github_status == 422
    assert "too long" in str(error)
    await say(client, "x" * 65_536)
    gone = client.request("GET", f"{WIDGET}/issues/99", installation=INSTALLATION)
    assert (await refused(gone)).github_status == 404


# Whatever breaks


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_broken_server(github: FakeGitHub, client: Client, status: int) -> None:
    github.user("dev-one").open_pull()
    github.fail("POST", COMMENTS, status)
    error = await again(say(client))
    assert (error.sent, error.retry_after) == (None, None)
    assert len(github.calls("POST", COMMENTS)) == 1


async def test_a_server_that_is_away_for_a_time(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    github.fail("POST", COMMENTS, 503, "Unavailable", headers={"Retry-After": "20"})
    assert (await again(say(client))).retry_after == 20.0


async def test_reading_is_tried_twice_at_once(github: FakeGitHub, client: Client) -> None:
    github.fail("GET", WIDGET, 502)
    found = await client.request("GET", WIDGET, installation=INSTALLATION)
    assert found["id"] == 900100
    github.drop("GET", WIDGET)
    assert await client.request("GET", WIDGET, installation=INSTALLATION)
    github.fail("GET", WIDGET, 502, times=None)
    await again(client.request("GET", WIDGET, installation=INSTALLATION))
    assert len(github.calls("GET", WIDGET)) == 6


async def test_a_lost_token_is_asked_for_again(github: FakeGitHub, client: Client) -> None:
    github.drop("POST", TOKENS)
    assert await client.token(INSTALLATION) == github.tokens[1].value


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_lost_answer_leaves_it_open(github: FakeGitHub, client: Client, place: Any) -> None:
    pull = github.user("dev-one").open_pull()
    github.drop("POST", COMMENTS, place)
    error = await again(say(client))
    assert error.sent is None
    assert github.visible(pull) == (["x"] if place == "after" else [])
    assert len(github.calls("POST", COMMENTS)) == 1


async def test_nobody_listens(clock: ManualClock) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = Client(Config("s", token="t", api_url=f"http://127.0.0.1:{port}"), clock)
    error = await again(client.request("POST", COMMENTS, {"body": "x"}))
    assert (error.sent, error.retry_after) == (False, None)
    await client.close()


async def test_no_answer_in_time(
    github: FakeGitHub, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = github.user("dev-one").open_pull()
    await say(client, "one")
    monkeypatch.setattr(client_module, "_WHOLE_SECONDS", 0.05)
    gate = github.hold("POST", COMMENTS)
    error = await again(say(client, "two"))
    assert error.sent is None
    assert "TimeoutError" in str(error)
    gate.release()
    assert github.visible(pull) == ["one", "two"]
    await github.settled()


async def test_an_answer_that_cannot_be_read(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    await say(client)
    github.fail("POST", COMMENTS, 200, "no HTML", body=["not", "a", "comment"])
    assert await say(client) == ["not", "a", "comment"]
    fault = github.fail("POST", COMMENTS, 200)
    fault.body = None  # a page of HTML, as from a proxy that wants a password
    assert (await again(say(client))).sent is None
    github.fail("POST", COMMENTS, 599)
    assert (await again(say(client))).sent is None
    github.fail("POST", COMMENTS, 422, body={"what": "no message"})
    assert (await again(say(client))).sent is None


async def test_a_call_that_is_given_up(github: FakeGitHub, client: Client) -> None:
    github.user("dev-one").open_pull()
    gate = github.hold("POST", COMMENTS, "before")
    call = asyncio.create_task(say(client))
    await github.until(lambda: gate.arrived)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    github.heal()
    await github.settled()
    await say(client, "after")


# Pages, media types, addresses


async def test_all_pages(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    for number in range(5):
        github.user("dev-two").comment(pull, str(number))
    path = f"{COMMENTS}?per_page=2"
    found = await client.pages(path, installation=INSTALLATION)
    assert [one["body"] for one in found] == ["0", "1", "2", "3", "4"]
    assert [call.query.get("page") for call in github.calls("GET", COMMENTS)] == [None, "2", "3"]
    await client.pages(COMMENTS, installation=INSTALLATION)
    assert github.calls("GET", COMMENTS)[-1].query == {"per_page": "100"}


@pytest.mark.parametrize(("most", "calls"), [(1, 1), (2, 1), (3, 2), (4, 2)])
async def test_no_more_pages_than_needed(
    github: FakeGitHub, client: Client, most: int, calls: int
) -> None:
    pull = github.user("dev-one").open_pull()
    for number in range(5):
        github.user("dev-two").comment(pull, str(number))
    found = await client.pages(f"{COMMENTS}?per_page=2", installation=INSTALLATION, most=most)
    assert len(found) == most
    assert len(github.calls("GET", COMMENTS)) == calls


async def test_pages_until_something_is_found(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    for number in range(5):
        github.user("dev-two").comment(pull, str(number))
    found = await client.pages(
        f"{COMMENTS}?per_page=2",
        installation=INSTALLATION,
        until=lambda item: item["body"] == "3",
    )
    assert [one["body"] for one in found] == ["0", "1", "2"]
    assert len(github.calls("GET", COMMENTS)) == 2


async def test_a_list_in_an_object(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull()
    for name in ("a", "b", "c"):
        github.user("dev-one").fail_check(pull, name)
    path = f"{WIDGET}/commits/{pull.head}/check-runs?per_page=2"
    found = await client.pages(path, installation=INSTALLATION)
    assert sorted(one["name"] for one in found) == ["a", "b", "c"]
    everything = await client.pages("/installation/repositories", installation=INSTALLATION)
    assert [one["full_name"] for one in everything] == ["octo-fixture/widget"]


async def test_pages_by_cursor(github: FakeGitHub, client: Client) -> None:
    github.app.webhook_url = "http://127.0.0.1:1/nobody"
    pull = github.user("dev-one").open_pull()
    for number in range(4):
        github.user("dev-two").comment(pull, str(number))
    await github.settled()
    found = await client.pages("/app/hook/deliveries?per_page=2", as_app=True)
    assert [one["id"] for one in found] == [one.id for one in reversed(github.deliveries())]


async def test_a_diff_is_text(github: FakeGitHub, client: Client) -> None:
    pull = github.user("dev-one").open_pull(files={"a.py": ("x = 1\n", "x = 'ü'\n")})
    path = f"{WIDGET}/pulls/{pull.number}"
    text = await client.request("GET", path, installation=INSTALLATION, accept=DIFF)
    assert text == pull.diff
    assert "+x = 'ü'" in text


async def test_an_enterprise_server(clock: ManualClock) -> None:
    async with FakeGitHub(clock=clock, path="/api/v3") as github:
        assert github.api_url.endswith("/api/v3")
        client = Client(Config.read(github.environ), clock)
        pull = github.user("dev-one").open_pull()
        for number in range(3):
            await say(client, str(number))
        found = await client.pages(f"{COMMENTS}?per_page=1", installation=INSTALLATION)
        assert [one["body"] for one in found] == ["0", "1", "2"]
        github.rename(pull.repository, "gadget")
        await say(client, "3")
        assert len(github.visible(pull)) == 4
        await client.close()


@pytest.mark.parametrize("status", [None, 301, 302, 307, 308])
async def test_a_renamed_repository(github: FakeGitHub, client: Client, status: Any) -> None:
    pull = github.user("dev-one").open_pull()
    await say(client, "one")
    github.options.moved = status
    github.rename(pull.repository, "gadget")
    made = await say(client, "two")
    path = f"{WIDGET}/issues/comments/{made['id']}"
    await client.request("PATCH", path, {"body": "three"}, installation=INSTALLATION)
    assert github.visible(pull) == ["one", "three"]
    found = await client.pages(f"{COMMENTS}?per_page=1", installation=INSTALLATION)
    assert len(found) == 2
    await client.request("DELETE", path, installation=INSTALLATION)
    assert github.visible(pull) == ["one"]
    assert {call.method for call in github.calls(None, "/repositories/*")} == {
        "POST",
        "PATCH",
        "GET",
        "DELETE",
    }


async def test_credentials_do_not_go_elsewhere(
    github: FakeGitHub, client: Client, clock: ManualClock
) -> None:
    async with FakeGitHub(clock=clock) as elsewhere:
        github.fail("GET", WIDGET, 301, headers={"Location": f"{elsewhere.api_url}{WIDGET}"})
        await client.request("GET", WIDGET, installation=INSTALLATION)
        assert [call.token for call in elsewhere.calls()] == [None]


async def test_once_closed_it_makes_no_more_calls(github: FakeGitHub, client: Client) -> None:
    """A call that is repeated while the channel stops would open connections for nobody."""
    await client.request("GET", WIDGET, installation=INSTALLATION)
    await client.close()
    await client.close()
    before = len(github.calls())
    with pytest.raises(TryAgain, match="has stopped") as raised:
        await client.request("GET", WIDGET, installation=INSTALLATION)
    assert raised.value.sent is False
    assert len(github.calls()) == before
