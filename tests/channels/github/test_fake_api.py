"""FakeGitHub's API: who may call, conversations, limits, faults, and the calls it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Literal

import httpx2 as httpx
import jwt
import pytest

from threadline.testing import ManualClock
from threadline_github.client import Client, GitHubRefused
from threadline_github.config import Config
from threadline_github.testing import FakeGitHub, Pull
from threadline_github.testing.seeding import new_key

WIDGET = "/repos/octo-fixture/widget"
COMMENTS = f"{WIDGET}/issues/1/comments"
APP = 4401


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def github(clock: ManualClock) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=clock) as running:
        yield running


@pytest.fixture
async def client(github: FakeGitHub, clock: ManualClock) -> AsyncIterator[Client]:
    made = Client(Config.read(github.environ), clock)
    yield made
    await made.close()


@pytest.fixture
async def http(github: FakeGitHub) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=github.api_url) as made:
        yield made


@pytest.fixture
def pull(github: FakeGitHub) -> Pull:
    return github.user("dev-one").open_pull()


async def refused(call: Any) -> tuple[int, str]:
    with pytest.raises(GitHubRefused) as caught:
        await call
    return caught.value.github_status, str(caught.value)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# Apps and tokens


def app_token(github: FakeGitHub, key: str | None = None, **claims: Any) -> str:
    now = int(github.clock.now().timestamp())
    whole = {"iat": now - 60, "exp": now + 540, "iss": "2201", **claims}
    return jwt.encode(whole, key or github.app.private_key, algorithm="RS256")


async def test_an_apps_token_is_checked(github: FakeGitHub, http: httpx.AsyncClient) -> None:
    now = int(github.clock.now().timestamp())
    good = await http.get("/app", headers=bearer(app_token(github)))
    assert (good.status_code, good.json()["slug"]) == (200, "agent-fixture")
    for token, words in {
        app_token(github, new_key()): "could not be decoded",
        app_token(github, exp=now): "'Expiration time' claim",
        app_token(github, exp=now + 601): "too far in the future",
        app_token(github, iat=now + 120): "'Issued at' claim",
        "a.b.c": "could not be decoded",
    }.items():
        bad = await http.get("/app", headers=bearer(token))
        assert bad.status_code == 401
        assert words in bad.json()["message"]
    unknown = await http.get("/app", headers=bearer(app_token(github, iss="77")))
    assert unknown.status_code == 404


async def test_a_token_lives_an_hour(
    github: FakeGitHub, http: httpx.AsyncClient, clock: ManualClock, pull: Pull
) -> None:
    path = f"/app/installations/{APP}/access_tokens"
    made = (await http.post(path, headers=bearer(app_token(github)))).json()
    assert made["expires_at"] == "2025-01-01T01:00:00Z"
    assert made["permissions"]["issues"] == "write"
    for seconds, status in ((0, 201), (3599, 201), (1, 401)):
        clock.advance(seconds)
        answer = await http.post(COMMENTS, headers=bearer(made["token"]), json={"body": "x"})
        assert answer.status_code == status
    assert answer.json()["message"] == "Bad credentials"
    assert len(github.visible(pull)) == 2


async def test_a_token_of_fewer_rights(
    github: FakeGitHub, http: httpx.AsyncClient, pull: Pull
) -> None:
    path = f"/app/installations/{APP}/access_tokens"
    body = {"permissions": {"issues": "read"}, "repositories": ["widget"]}
    made = await http.post(path, headers=bearer(app_token(github)), json=body)
    headers = bearer(made.json()["token"])
    assert (await http.get(COMMENTS, headers=headers)).status_code == 200
    denied = await http.post(COMMENTS, headers=headers, json={"body": "x"})
    assert denied.status_code == 403
    assert denied.json()["message"] == "Resource not accessible by integration"
    for wrong in ({"permissions": {"contents": "write"}}, {"repositories": ["none"]}):
        bad = await http.post(path, headers=bearer(app_token(github)), json=wrong)
        assert bad.status_code == 422


async def test_where_the_app_is_installed(github: FakeGitHub, client: Client) -> None:
    found = await client.request("GET", f"{WIDGET}/installation", as_app=True)
    assert (found["id"], found["permissions"]["checks"]) == (APP, "write")
    everywhere = await client.request("GET", "/app/installations", as_app=True)
    assert [one["id"] for one in everywhere] == [APP]
    github.add_repository("octo-fixture/other", installed=False)
    other = client.request("GET", "/repos/octo-fixture/other/installation", as_app=True)
    assert (await refused(other))[0] == 404
    github.app.installations[0].suspended = True
    assert (await refused(client.token(APP)))[0] == 403


async def test_whose_token_is_for_what(github: FakeGitHub, client: Client) -> None:
    status, words = await refused(client.request("GET", "/user", installation=APP))
    assert (status, words) == (403, "GitHub answered 403: Resource not accessible by integration")
    assert (await refused(client.request("GET", "/app", installation=APP)))[0] == 401
    assert (await refused(client.request("GET", COMMENTS, as_app=True)))[0] == 403
    github.add_repository("elsewhere/secret", private=True)
    hidden = client.request("GET", "/repos/elsewhere/secret", installation=APP)
    assert (await refused(hidden))[0] == 404


async def test_people_may_what_they_may(github: FakeGitHub, http: httpx.AsyncClient) -> None:
    secret = github.add_repository("elsewhere/secret", private=True)
    headers = bearer(github.personal_token("stranger"))
    assert (await http.get("/repos/elsewhere/secret", headers=headers)).status_code == 404
    github.associate("stranger", "COLLABORATOR", secret)
    assert (await http.get("/repos/elsewhere/secret", headers=headers)).status_code == 200
    user = await http.get("/user", headers=headers)
    assert (user.json()["login"], user.headers["X-OAuth-Scopes"]) == ("stranger", "repo")
    few = bearer(github.personal_token("dev-one", {"issues": "read"}))
    github.user("dev-one").open_issue()
    denied = await http.post(COMMENTS, headers=few, json={"body": "x"})
    assert denied.json()["message"] == "Resource not accessible by personal access token"
    assert (await http.post(COMMENTS, json={"body": "x"})).status_code == 401


async def test_what_somebody_may_do(github: FakeGitHub, client: Client) -> None:
    github.permit("dev-two", "admin")
    for login, permission in {"dev-one": "write", "dev-two": "admin", "stranger": "read"}.items():
        path = f"{WIDGET}/collaborators/{login}/permission"
        found = await client.request("GET", path, installation=APP)
        assert (found["permission"], found["user"]["login"]) == (permission, login)


async def test_letter_case_does_not_matter(github: FakeGitHub, client: Client, pull: Pull) -> None:
    path = "/repos/Octo-Fixture/WIDGET/pulls/1"
    found = await client.request("GET", path, installation=APP)
    assert found["head"]["sha"] == pull.head
    assert github.user("DEV-ONE").id == 501


async def test_an_old_name_leads_to_the_new_one(
    github: FakeGitHub, client: Client, http: httpx.AsyncClient
) -> None:
    github.rename(github.repository(), "gadget")
    answer = await http.get(f"{WIDGET}?a=b")
    assert answer.status_code == 301
    assert answer.headers["Location"] == f"{github.api_url}/repositories/900100?a=b"
    assert (await http.post(f"{WIDGET}/issues")).status_code == 307
    found = await client.request("GET", "/repositories/900100", installation=APP)
    assert found["full_name"] == "octo-fixture/gadget"
    again = github.add_repository("octo-fixture/widget")
    assert (await http.get(WIDGET)).json()["id"] == again.id


# Comments


async def test_a_comment_lives_and_dies(github: FakeGitHub, client: Client, pull: Pull) -> None:
    made = await client.request("POST", COMMENTS, {"body": "one"}, installation=APP)
    path = f"{WIDGET}/issues/comments/{made['id']}"
    await client.request("PATCH", path, {"body": "two"}, installation=APP)
    found = await client.request("GET", path, installation=APP)
    assert (found["body"], found["performed_via_github_app"]["slug"]) == ("two", "agent-fixture")
    await client.request("DELETE", path, installation=APP)
    assert (await refused(client.request("GET", path, installation=APP)))[0] == 404
    assert github.visible(pull) == []
    assert pull.comments[0].history == ["one"]


async def test_comments_by_page_and_time(
    github: FakeGitHub, client: Client, clock: ManualClock, pull: Pull
) -> None:
    for number in range(3):
        github.user("dev-two").comment(pull, str(number))
        clock.advance(60)
    path = f"{COMMENTS}?since=2025-01-01T00:01:00Z"
    found = await client.pages(path, installation=APP)
    assert [one["body"] for one in found] == ["1", "2"]
    assert (await refused(client.pages(f"{COMMENTS}?since=soon", installation=APP)))[0] == 422


async def test_the_links_between_pages(
    github: FakeGitHub, http: httpx.AsyncClient, pull: Pull
) -> None:
    for number in range(5):
        github.user("dev-two").comment(pull, str(number))
    answer = await http.get(COMMENTS, params={"per_page": 2, "page": 2})
    assert [one["body"] for one in answer.json()] == ["2", "3"]
    url = f"{github.api_url}{COMMENTS}?per_page=2&page="
    assert answer.headers["Link"] == (
        f'<{url}1>; rel="prev", <{url}1>; rel="first", <{url}3>; rel="next", <{url}3>; rel="last"'
    )
    assert "Link" not in (await http.get(COMMENTS)).headers
    beyond = await http.get(COMMENTS, params={"per_page": 2, "page": 9})
    assert beyond.json() == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "wasn't supplied"),
        ({"body": None}, "wasn't supplied"),
        ({"body": 7}, "is not a string"),
        ({"body": " \n"}, "'body'"),
        ({"body": "x" * 65_537}, "maximum is 65536 characters"),
    ],
)
async def test_a_body_that_is_not_taken(
    github: FakeGitHub, client: Client, pull: Pull, body: Any, words: str
) -> None:
    status, said = await refused(client.request("POST", COMMENTS, body, installation=APP))
    assert status == 422
    assert words in said
    assert github.visible(pull) == []


async def test_characters_are_counted_and_not_bytes(
    github: FakeGitHub, client: Client, pull: Pull
) -> None:
    await client.request("POST", COMMENTS, {"body": "ü" * 65_536}, installation=APP)
    assert len(github.visible(pull)[0]) == 65_536


async def test_a_locked_conversation(github: FakeGitHub, client: Client, pull: Pull) -> None:
    github.lock(pull)
    call = client.request("POST", COMMENTS, {"body": "x"}, installation=APP)
    assert await refused(call) == (
        403,
        "GitHub answered 403: Unable to create comment because issue is locked.",
    )


async def test_labels(github: FakeGitHub, client: Client, pull: Pull) -> None:
    path = f"{WIDGET}/issues/1/labels"
    await client.request("POST", path, {"labels": ["bug", "area/net"]}, installation=APP)
    await client.request("POST", path, {"labels": ["bug"]}, installation=APP)
    assert github.labels(pull) == ["bug", "area/net"]
    await client.request("DELETE", f"{path}/area%2Fnet", installation=APP)
    assert github.labels(pull) == ["bug"]
    gone = client.request("DELETE", f"{path}/area%2Fnet", installation=APP)
    assert await refused(gone) == (404, "GitHub answered 404: Label does not exist")
    await client.request("PUT", path, {"labels": ["late"]}, installation=APP)
    found = await client.request("GET", path, installation=APP)
    assert [one["name"] for one in found] == ["late"]


async def test_reactions(github: FakeGitHub, client: Client, pull: Pull) -> None:
    comment = github.user("dev-one").comment(pull, "hi")
    path = f"{WIDGET}/issues/comments/{comment.id}/reactions"
    made = await client.request("POST", path, {"content": "eyes"}, installation=APP)
    again = await client.request("POST", path, {"content": "eyes"}, installation=APP)
    assert made["id"] == again["id"]
    github.user("dev-two").react(comment, "eyes")
    assert [one.account.login for one in comment.reactions] == ["agent-fixture[bot]", "dev-two"]
    await client.request("DELETE", f"{path}/{made['id']}", installation=APP)
    assert len(await client.pages(path, installation=APP)) == 1
    bad = client.request("POST", path, {"content": "shrug"}, installation=APP)
    assert (await refused(bad))[0] == 422


async def test_a_pull_request_is_changed_by_the_api(
    github: FakeGitHub, client: Client, pull: Pull
) -> None:
    path = f"{WIDGET}/pulls/1"
    await client.request("PATCH", path, {"title": "T", "state": "closed"}, installation=APP)
    assert (pull.title, pull.state) == ("T", "closed")
    assert await client.pages(f"{WIDGET}/pulls", installation=APP) == []
    assert len(await client.pages(f"{WIDGET}/pulls?state=all", installation=APP)) == 1
    as_issue = await client.request("GET", f"{WIDGET}/issues/1", installation=APP)
    assert as_issue["state"] == "closed"


async def test_what_is_not_there(client: Client) -> None:
    for path in ("/nothing", "/repos/a/b", f"{WIDGET}/nothing", f"{WIDGET}/pulls/1", COMMENTS):
        assert (await refused(client.request("GET", path, installation=APP)))[0] == 404


# Faults and calls


async def test_a_fault_meets_what_fits(
    github: FakeGitHub, http: httpx.AsyncClient, pull: Pull
) -> None:
    github.fail("POST", "/repos/*/issues/*/comments", 500, times=2)
    github.fail("*", "*/PULLS/*", 404)
    headers = bearer(github.personal_token("dev-two"))
    statuses = [
        (await http.post(COMMENTS, headers=headers, json={"body": "x"})).status_code
        for _ in range(3)
    ]
    assert statuses == [500, 500, 201]
    assert (await http.get(f"{WIDGET}/pulls/1")).status_code == 404
    assert (await http.get(f"{WIDGET}/pulls/1")).status_code == 200
    fault = github.fail("GET", "*", times=None, when=lambda call: "page" in call.query)
    assert (await http.get(COMMENTS)).status_code == 200
    assert (await http.get(f"{COMMENTS}?page=1")).status_code == 500
    github.heal(fault)
    assert (await http.get(f"{COMMENTS}?page=1")).status_code == 200
    assert github.visible(pull) == ["x"]


async def test_an_error_although_it_was_done(
    github: FakeGitHub, http: httpx.AsyncClient, pull: Pull
) -> None:
    github.fail("POST", COMMENTS, 502, effect=True)
    headers = bearer(github.personal_token("dev-two"))
    answer = await http.post(COMMENTS, headers=headers, json={"body": "x"})
    assert (answer.status_code, answer.headers["content-type"]) == (502, "text/html; charset=utf-8")
    assert github.visible(pull) == ["x"]
    assert github.calls("POST")[0].took_effect


@pytest.mark.parametrize("place", ["before", "after"])
async def test_gates(
    github: FakeGitHub, http: httpx.AsyncClient, pull: Pull, place: Literal["before", "after"]
) -> None:
    headers = bearer(github.personal_token("dev-two"))
    gate = github.hold("POST", COMMENTS, place, times=1)
    call = asyncio.create_task(http.post(COMMENTS, headers=headers, json={"body": "x"}))
    await github.until(lambda: gate.arrived)
    assert len(github.visible(pull)) == (place == "after")
    assert not github.calls("POST")[-1].done
    gate.release()
    assert (await call).status_code == 201
    assert github.visible(pull) == ["x"]


async def test_an_answer_that_takes_its_time(
    github: FakeGitHub, http: httpx.AsyncClient, clock: ManualClock, pull: Pull
) -> None:
    github.delay("GET", COMMENTS, 30)
    call = asyncio.create_task(http.get(COMMENTS))
    await clock.sleeping()
    clock.advance(30)
    assert (await call).json() == []
    assert pull.number == 1


async def test_how_many_calls_are_left(github: FakeGitHub, http: httpx.AsyncClient) -> None:
    first, second = await http.get(WIDGET), await http.get(WIDGET)
    assert first.headers["X-RateLimit-Limit"] == "5000"
    assert int(first.headers["X-RateLimit-Remaining"]) == 4999
    assert int(second.headers["X-RateLimit-Remaining"]) == 4998
    reset = github.clock.now() + timedelta(hours=1)
    assert first.headers["X-RateLimit-Reset"] == str(int(reset.timestamp()))
    assert first.headers["Date"] == "Wed, 01 Jan 2025 00:00:00 GMT"


async def test_calls_are_kept(github: FakeGitHub, client: Client, pull: Pull) -> None:
    await client.request("POST", COMMENTS, {"body": "x"}, installation=APP)
    asked, made = github.calls()
    assert (asked.path, asked.caller) == (f"/app/installations/{APP}/access_tokens", "app")
    assert (made.method, made.path, made.caller) == ("POST", COMMENTS, "agent-fixture[bot]")
    assert made.token == github.tokens[0].value
    assert made.body == {"body": "x"}
    assert made.status == 201
    assert made.ok
    assert made.reply["id"] == pull.comments[0].id
    assert github.calls("POST", "/repos/*/issues/*/comments") == [made]
    assert github.calls("GET") == []
    assert github.tokens[0].value not in repr(made)


async def test_what_was_waited_for_in_vain(github: FakeGitHub, http: httpx.AsyncClient) -> None:
    await http.get("/nothing")
    with pytest.raises(AssertionError, match="GET /nothing by None -> 404"):
        await github.until(lambda: False, patience=0.01)


async def test_it_has_to_run(clock: ManualClock) -> None:
    github = FakeGitHub(clock=clock)
    github.app.webhook_url = "http://127.0.0.1:1/"
    with pytest.raises(RuntimeError, match="does not run"):
        github.user("dev-one").open_issue()
    async with github:
        with pytest.raises(RuntimeError, match="runs already"):
            await github.start()
