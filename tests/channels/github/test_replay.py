"""Deliveries by hand: what is saved and what is made is what GitHub would send, signed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from aiohttp import web

from threadline.cli.exits import HostUnreachableError, UsageError
from threadline.clock import SystemClock
from threadline_github.client import Client
from threadline_github.config import Config
from threadline_github.inbound.decide import Ask, Me, Rules, decide
from threadline_github.inbound.webhook import is_signed, parse
from threadline_github.setup.replay import (
    Answered,
    Asked,
    Delivery,
    guess,
    read,
    reasons,
    send,
    synthesised,
    target,
)
from threadline_github.testing import DEFAULTS, FakeGitHub

NAME = DEFAULTS["repository"]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
REPOSITORY = {"id": 9, "full_name": "octo/widget"}
COMMENT = {
    "action": "created",
    "issue": {"number": 7, "pull_request": {}},
    "comment": {"id": 5, "body": "@bot look", "user": {"login": "ada", "id": 1}},
    "repository": REPOSITORY,
}
PULL = {
    "action": "opened",
    "pull_request": {"number": 7, "updated_at": "2026-01-01T00:00:00Z"},
    "repository": REPOSITORY,
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("octo/widget#7", ("octo/widget", 7)),
        ("octo/my.widget-2#12", ("octo/my.widget-2", 12)),
        ("octo/widget#0", None),
        ("octo/widget", None),
        ("payloads/opened.json", None),
    ],
)
def test_what_is_meant(text: str, found: tuple[str, int] | None) -> None:
    assert target(text) == found


# What was saved


def test_a_payload_gets_an_id_of_its_own() -> None:
    first, second = (read(json.dumps(COMMENT), None, new_id=False, now=NOW) for _ in "ab")
    assert (first.event, first.payload) == ("issue_comment", COMMENT)
    assert first.guid != second.guid


@pytest.mark.parametrize("payload", [COMMENT, json.dumps(COMMENT)])
def test_a_saved_delivery_keeps_its_id(payload: Any) -> None:
    saved = {
        "id": 1,
        "guid": "g-1",
        "event": "issue_comment",
        "request": {"headers": {"X-GitHub-Delivery": "g-1"}, "payload": payload},
    }
    delivery = read(json.dumps(saved), None, new_id=False, now=NOW)
    assert delivery == Delivery("issue_comment", "g-1", COMMENT)
    assert read(json.dumps(saved), "issues", new_id=False, now=NOW).event == "issues"
    del saved["event"]
    saved["request"] = {"headers": None, "payload": payload}
    assert read(json.dumps(saved), None, new_id=False, now=NOW) == delivery


def test_as_something_new() -> None:
    saved = {"guid": "g-1", "request": {"headers": {}, "payload": COMMENT}}
    delivery = read(json.dumps(saved), None, new_id=True, now=NOW)
    assert delivery.guid != "g-1"
    assert delivery.payload["comment"]["id"] > 2**40
    assert delivery.payload["comment"]["body"] == "@bot look"
    pull = read(json.dumps(PULL), None, new_id=True, now=NOW).payload["pull_request"]
    assert pull == {"number": 7, "updated_at": "2026-01-31T12:00:00.000Z"}


def test_a_comment_on_a_line_is_answered_below_it() -> None:
    payload = {"pull_request": {"number": 7}, "comment": {"id": 5}}
    delivery = read(json.dumps(payload), None, new_id=True, now=NOW)
    assert delivery.event == "pull_request_review_comment"
    assert delivery.payload["comment"] == {"id": 5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ('{"hello": 1}', "--event"),
        ('{"request": {"payload": null}}', "no payload"),
        ('{"request": {"payload": "x"}}', "no payload"),
    ],
)
def test_a_file_that_is_something_else(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(text, None, new_id=False, now=NOW)


@pytest.mark.parametrize(
    ("keys", "event"),
    [
        ("issue", "issues"),
        ("issue comment", "issue_comment"),
        ("pull_request", "pull_request"),
        ("pull_request review", "pull_request_review"),
        ("pull_request comment", "pull_request_review_comment"),
        ("pull_request thread", "pull_request_review_thread"),
        ("check_run", "check_run"),
        ("check_suite", "check_suite"),
        ("workflow_run workflow", "workflow_run"),
        ("workflow_run deployment", "deployment"),
        ("ref commits", "push"),
        ("zen hook", "ping"),
        ("repository", None),
    ],
)
def test_the_event_is_guessed(keys: str, event: str | None) -> None:
    assert guess({key: {} for key in keys.split()}) == event


def test_a_repository_with_another_name() -> None:
    assert guess({"action": "renamed", "repository": {}}) == "repository"


# What is made of what GitHub says


@asynccontextmanager
async def made(
    github: FakeGitHub, asked: Asked, **environ: str
) -> AsyncIterator[tuple[Delivery, Me]]:
    found = {**github.environ, **environ}
    config = Config.read({name: value for name, value in found.items() if value})
    client = Client(config, SystemClock())
    try:
        yield await synthesised(client, asked, SystemClock())
    finally:
        await client.close()


@pytest.fixture
async def github() -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=SystemClock()) as github:
        yield github


async def test_a_pull_request_opens(github: FakeGitHub) -> None:
    pull = github.user(DEFAULTS["person"]).open_pull()
    async with made(github, Asked(NAME, pull.number)) as (delivery, me):
        assert me.login == DEFAULTS["bot"]
        (ask,) = decide(delivery.event, delivery.payload, me, Rules())
    assert isinstance(ask, Ask)
    assert (ask.trigger, ask.head, ask.place.number) == ("opened", pull.head, pull.number)
    assert ask.person.login == DEFAULTS["person"]
    assert delivery.payload["installation"]["id"] == DEFAULTS["installation"]
    assert github.calls("POST", "/repos/*") == []


async def test_each_time_it_is_another_thing(github: FakeGitHub) -> None:
    github.app.webhook_url = "http://127.0.0.1:9"
    pull = github.user(DEFAULTS["person"]).open_pull()
    async with made(github, Asked(NAME, pull.number)) as (delivery, me):
        (ask,) = decide(delivery.event, delivery.payload, me, Rules())
    opened = github.deliveries("pull_request", "opened")[-1].payload
    (before,) = decide("pull_request", opened, me, Rules())
    assert isinstance(ask, Ask)
    assert isinstance(before, Ask)
    assert ask.key != before.key


async def test_somebody_comments(github: FakeGitHub) -> None:
    dev = github.user(DEFAULTS["person"])
    pull, issue = dev.open_pull(), dev.open_issue(title="It breaks", body="Why?")
    text = f"@{DEFAULTS['slug']} look"
    for thing, kind in ((pull, "pr"), (issue, "issue")):
        asked = Asked(NAME, thing.number, text)
        async with made(github, asked) as (delivery, me):
            (ask,) = decide(delivery.event, delivery.payload, me, Rules())
        assert isinstance(ask, Ask)
        assert (ask.place.kind, ask.trigger, ask.text) == (kind, "mention", text)
    assert github.comments(pull) == []


@pytest.mark.parametrize(
    ("login", "permission", "association"),
    [("other", "write", "COLLABORATOR"), ("stranger", "read", "NONE")],
)
async def test_somebody_else_does_it(
    github: FakeGitHub, login: str, permission: Literal["write", "read"], association: str
) -> None:
    pull = github.user(DEFAULTS["person"]).open_pull()
    github.permit(DEFAULTS[login], permission)
    asked = Asked(NAME, pull.number, "/review", DEFAULTS[login])
    async with made(github, asked) as (delivery, _):
        comment = delivery.payload["comment"]
        assert delivery.payload["sender"]["login"] == DEFAULTS[login]
    assert comment["user"]["login"] == DEFAULTS[login]
    assert comment["author_association"] == association


async def test_a_token_reads_it_too(github: FakeGitHub) -> None:
    pull = github.user(DEFAULTS["other"]).open_pull()
    token = github.personal_token(DEFAULTS["person"])
    environ = {"GITHUB_TOKEN": token, "GITHUB_APP_ID": "", "GITHUB_APP_PRIVATE_KEY": ""}
    async with made(github, Asked(NAME, pull.number), **environ) as (delivery, me):
        assert me.login == DEFAULTS["person"]
        assert "installation" not in delivery.payload
    mine = github.user(DEFAULTS["person"]).open_pull()
    with pytest.raises(UsageError, match="--as"):
        async with made(github, Asked(NAME, mine.number), **environ):
            pass


async def test_what_is_not_there(github: FakeGitHub) -> None:
    with pytest.raises(UsageError, match="no pull request #99"):
        async with made(github, Asked(NAME, 99)):
            pass
    with pytest.raises(UsageError, match="not installed"):
        async with made(github, Asked("octo-fixture/nothing", 1)):
            pass
    pull = github.user(DEFAULTS["person"]).open_pull()
    with pytest.raises(UsageError, match="no user nobody"):
        async with made(github, Asked(NAME, pull.number, login="nobody")):
            pass


# Sending


async def test_it_is_signed_over_what_is_sent() -> None:
    heard: list[tuple[dict[str, str], bytes]] = []

    async def take(request: web.Request) -> web.Response:
        heard.append((dict(request.headers), await request.read()))
        return web.json_response({"ok": True, "deliveries": [{"sessionId": "ses_1"}]}, status=202)

    application = web.Application()
    application.router.add_post("/hook", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    delivery = Delivery("issue_comment", "g-1", {**COMMENT, "words": "schön"})
    answered = await send(f"{url}/hook", "hush", delivery)
    assert (answered.ok, answered.accepted) == (True, [{"sessionId": "ses_1"}])
    ((headers, body),) = heard
    assert is_signed("hush", body, headers["X-Hub-Signature-256"])
    assert headers["X-GitHub-Event"] == "issue_comment"
    assert headers["X-GitHub-Delivery"] == "g-1"
    assert parse(headers["Content-Type"], body) == delivery.payload
    missing = await send(f"{url}/elsewhere", "hush", delivery)
    assert (missing.ok, missing.status, missing.accepted) == (False, 404, [])
    await runner.cleanup()
    with pytest.raises(HostUnreachableError, match="threadline serve"):
        await send(f"{url}/hook", "hush", delivery)


def test_what_an_answer_says() -> None:
    one = {"ok": True, "sessionId": "ses_1", "admitted": "started"}
    assert Answered(202, one).accepted == [one]
    assert Answered(200, {"ok": True}).accepted == []
    assert Answered(200, "fine").accepted == []


def test_why_nothing_starts() -> None:
    rules = Rules(repositories=frozenset({"octo/other"}))
    delivery = Delivery("issue_comment", "g", COMMENT)
    assert reasons(delivery, Me("bot"), rules) == ["issue_comment: octo/widget is not listed"]
