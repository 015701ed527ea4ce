"""The doctor: each thing that can be wrong with a set-up is named, with the fix, and no secret."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from threadline.cli.checks import Check
from threadline.clock import SystemClock
from threadline_github.setup import findings, hooks
from threadline_github.setup.doctor import examine
from threadline_github.setup.findings import Answer
from threadline_github.setup.manifest import Needs, events, permissions
from threadline_github.testing import DEFAULTS, FakeGitHub

NAME = DEFAULTS["repository"]
NEEDS = Needs(name="Reviewer", checks=True)
HOOK = "https://agents.example.com/v1/channels/github"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SETTINGS = "https://github.com/settings/apps/reviewer"


@pytest.fixture
async def github() -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=SystemClock()) as github:
        github.app.permissions = dict(permissions(NEEDS))
        github.app.events = set(events(NEEDS))
        github.app.webhook_url = HOOK
        for one in github.app.installations:
            one.permissions = dict(permissions(NEEDS))
        yield github


async def examined(github: FakeGitHub, needs: Needs = NEEDS, **changes: str) -> dict[str, Check]:
    """Return the findings by name, and see that none holds a secret."""
    env = github.environ | {f"GITHUB_{name}": value for name, value in changes.items()}
    env = {name: value for name, value in env.items() if value}
    found = await examine(needs, env, clock=SystemClock())
    assert not any(env[name] in str(found) for name in env if name.endswith(("KEY", "SECRET")))
    assert env.get("GITHUB_TOKEN", "no token") not in str(found)
    assert all(check.fix for check in found if check.state == "problem")
    return {check.name: check for check in found}


def problems(found: dict[str, Check]) -> set[str]:
    return {name for name, check in found.items() if check.state == "problem"}


# An App


async def test_a_good_app(github: FakeGitHub) -> None:
    found = await examined(github, replace(NEEDS, repositories=frozenset({NAME})))
    assert problems(found) == set()
    assert DEFAULTS["slug"] in found["app"].said
    assert NAME in found["repository"].said
    assert HOOK in found["webhook"].said
    assert found["address"].state == found["deliveries"].state == "note"
    names = ("clock", "permissions", "events", "installation", "rate limit", "git")
    assert {found[name].state for name in names} == {"ok"}


async def test_variables() -> None:
    found = await examine(NEEDS, {"GITHUB_TOKEN": "t"}, prefix="TRIAGE_", clock=SystemClock())
    assert {check.name for check in found} == {"variables"}
    assert any("TRIAGE_GITHUB_WEBHOOK_SECRET" in check.said for check in found)


async def test_a_key_that_is_none(github: FakeGitHub) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----"
    found = await examined(github, APP_PRIVATE_KEY=key)
    assert problems(found) == {"private key"}
    assert github.calls("GET", "/app*") == []


async def test_a_key_of_another_app(github: FakeGitHub) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    found = await examined(github, APP_PRIVATE_KEY=other.decode())
    assert problems(found) == {"app"}
    assert "GITHUB_APP_PRIVATE_KEY" in found["app"].fix
    assert "permissions" not in found


async def test_a_server_that_is_not_there(github: FakeGitHub) -> None:
    env = github.environ
    await github.close()
    found = await examine(NEEDS, env, clock=SystemClock())
    (problem,) = [check for check in found if check.state == "problem"]
    assert problem.said == "GitHub cannot be reached: Connection refused."
    assert "GITHUB_API_URL" in problem.fix


def test_why_a_connection_failed() -> None:
    assert findings.cause(ValueError("with a secret")) == "ValueError"
    error = ValueError("with a secret")
    error.__cause__ = OSError(-2, "Name or service not known")
    assert findings.cause(error) == "Name or service not known"


async def test_permissions_and_events_that_are_missing(github: FakeGitHub) -> None:
    github.app.permissions = {"metadata": "read", "pull_requests": "read", "checks": "write"}
    github.app.events = {"pull_request"}
    found = await examined(github)
    assert {"permissions", "events"} <= problems(found)
    assert "contents: read, issues: write, pull_requests: write" in found["permissions"].said
    assert "issue_comment" in found["events"].said


async def test_an_installation_that_has_not_accepted(github: FakeGitHub) -> None:
    (one,) = github.app.installations
    one.permissions = {**permissions(NEEDS), "checks": "read"}
    found = await examined(github)
    assert problems(found) == {"installation"}
    assert "does not allow checks: write" in found["installation"].said


async def test_an_installation_that_is_suspended(github: FakeGitHub) -> None:
    (one,) = github.app.installations
    one.suspended = True
    found = await examined(github)
    assert problems(found) == {"installation"}
    assert "suspended" in found["installation"].said


async def test_a_repository_without_the_app(github: FakeGitHub) -> None:
    github.add_repository("elsewhere/thing")
    found = await examined(github, replace(NEEDS, repositories=frozenset({"elsewhere/thing"})))
    assert problems(found) == {"repository"}
    assert "not installed in elsewhere/thing" in found["repository"].said


async def test_deliveries_that_failed(github: FakeGitHub) -> None:
    github.webhooks.lose()
    github.user(DEFAULTS["person"]).open_pull()
    await github.settled()
    found = await examined(github)
    assert problems(found) == {"deliveries"}
    assert "pull_request opened" in found["deliveries"].said


async def test_a_clock_that_is_wrong(github: FakeGitHub) -> None:
    class Late(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(minutes=10)

    found = await examine(NEEDS, github.environ, clock=Late())
    assert [check.name for check in found if check.state == "problem"] == ["clock"]


async def test_no_git(github: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert problems(await examined(github)) == {"git"}
    assert "git" not in await examined(github, replace(NEEDS, worktree=False))


# A token


async def tokened(github: FakeGitHub, needs: Needs, *scopes: str) -> dict[str, Check]:
    token = github.personal_token(DEFAULTS["person"], scopes=", ".join(scopes))
    return await examined(github, needs, TOKEN=token, APP_ID="", APP_PRIVATE_KEY="")


async def test_a_good_token(github: FakeGitHub) -> None:
    github.add_hook(NAME, HOOK, secret="s", events=None)
    needs = replace(NEEDS, checks=False, repositories=frozenset({NAME}))
    found = await tokened(github, needs, "repo", "admin:repo_hook")
    assert problems(found) == set()
    assert DEFAULTS["person"] in found["token"].said
    assert found["webhook"].state == found["scopes"].state == "ok"


async def test_a_token_makes_no_check_runs(github: FakeGitHub) -> None:
    found = await tokened(github, NEEDS, "repo")
    assert problems(found) == {"check runs"}
    assert found["repository"].state == "note"


async def test_a_token_that_is_refused(github: FakeGitHub) -> None:
    found = await examined(github, TOKEN="ghp_no", APP_ID="", APP_PRIVATE_KEY="")
    assert problems(found) == {"token"}
    assert "401" in found["token"].said


async def test_a_repository_without_a_webhook(github: FakeGitHub) -> None:
    github.add_hook(NAME, "https://ci.example.com/hooks", secret="s")
    needs = replace(NEEDS, checks=False, repositories=frozenset({NAME}))
    found = await tokened(github, needs, "repo", "admin:repo_hook")
    assert problems(found) == {"webhook"}
    assert "No webhook" in found["webhook"].said
    assert NEEDS.path in found["webhook"].fix


async def test_a_repository_that_is_not_there(github: FakeGitHub) -> None:
    needs = replace(NEEDS, checks=False, repositories=frozenset({"octo-fixture/nothing"}))
    found = await tokened(github, needs, "repo")
    assert problems(found) == {"repository"}


# What answers mean


@pytest.mark.parametrize(
    ("ahead", "state", "said"),
    [
        (0, "ok", "agrees"),
        (30, "ok", ""),
        (-30, "ok", ""),
        (31, "problem", "ahead of"),
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


@pytest.mark.parametrize(
    ("expires", "state"),
    [
        ("2026-02-01 12:00:00 UTC", "problem"),
        ("2026-02-01 12:00:00 +0200", "problem"),
        ("2026-06-01 12:00:00 UTC", "ok"),
        ("never", "ok"),
    ],
)
def test_when_a_token_expires(expires: str, state: str) -> None:
    headers = {"github-authentication-token-expiration": expires}
    check = findings.token_check({"login": "bot", "type": "Bot"}, headers, NOW)
    assert check.state == state


def test_a_token_of_a_person() -> None:
    check = findings.token_check({"login": "ada", "type": "User"}, {}, NOW)
    assert (check.state, "never starts a turn" in check.said) == ("note", True)


@pytest.mark.parametrize(
    ("held", "state"),
    [
        (permissions(NEEDS), "ok"),
        ({**permissions(NEEDS), "contents": "write", "members": "read"}, "ok"),
        ({**permissions(NEEDS), "issues": "admin"}, "ok"),
        ({**permissions(NEEDS), "issues": "read"}, "problem"),
        ({}, "problem"),
    ],
)
def test_permissions(held: dict[str, Any], state: str) -> None:
    check = findings.permissions_check(held, NEEDS, SETTINGS)
    assert check.state == state
    assert ("members: read" in check.said) == ("members" in held)


def test_all_events_at_once() -> None:
    assert findings.events_check(["*"], NEEDS, SETTINGS).state == "ok"
    assert findings.events_check(["push"], NEEDS, SETTINGS).state == "problem"


def test_an_app_that_is_installed_nowhere() -> None:
    (check,) = findings.installation_checks([], NEEDS, "https://github.com/apps/reviewer")
    assert "https://github.com/apps/reviewer/installations/new" in check.fix


def test_an_installation_of_less_events() -> None:
    one = {"id": 1, "permissions": permissions(NEEDS), "events": ["pull_request"]}
    (check,) = findings.installation_checks([one], NEEDS, SETTINGS)
    assert (check.state, "issue_comment" in check.said) == ("problem", True)


@pytest.mark.parametrize(
    ("scopes", "states"),
    [
        ("repo, gist", ["ok"]),
        ("public_repo", ["ok"]),
        ("gist", ["problem"]),
        ("", ["note"]),
        (None, ["note"]),
    ],
)
def test_scopes(scopes: str | None, states: list[str]) -> None:
    found = findings.scopes_check(scopes, replace(NEEDS, checks=False))
    assert [check.state for check in found] == states


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({}, "ok", "signed"),
        ({"content_type": "form"}, "ok", "signed"),
        ({"url": ""}, "problem", "no webhook"),
        ({"secret": None}, "problem", "no secret"),
        ({"url": "https://a.example/"}, "problem", "does not end in"),
        ({"content_type": "xml"}, "problem", "content type"),
        ({"insecure_ssl": "1"}, "note", "certificate"),
    ],
)
def test_the_webhook_of_an_app(change: dict[str, Any], state: str, said: str) -> None:
    config = {"url": HOOK, "content_type": "json", "insecure_ssl": "0", "secret": "********"}
    (check,) = hooks.app_hook_check(config | change, NEEDS, SETTINGS)
    assert (check.state, said in check.said) == (state, True)


def test_the_webhook_of_a_repository() -> None:
    config = {"url": HOOK, "content_type": "json", "secret": "********"}
    hook = {"id": 5, "active": True, "events": ["*"], "config": config}
    other = hook | {"id": 6, "config": config | {"url": "https://ci.example.com"}}
    asleep = hook | {"id": 4, "active": False}
    assert hooks.hook_of([other, asleep, hook], NEEDS.path) == hook
    assert hooks.hook_of([asleep], NEEDS.path) == asleep
    assert hooks.hook_of([other], NEEDS.path) is None

    def states(one: dict[str, Any] | None) -> list[str]:
        checks = hooks.repository_hook_checks(NAME, one, NEEDS, "https://github.com")
        return [check.state for check in checks]

    assert states(hook) == ["ok", "ok"]
    assert states(hook | {"events": ["push"]}) == ["ok", "problem"]
    assert states(asleep) == states(None) == ["problem"]


@pytest.mark.parametrize(
    ("status", "seconds", "said"),
    [
        (200, 0.1, "answers, and checks"),
        (202, 0.1, "answers, and checks"),
        (200, 11.0, "11 seconds"),
        (302, 0.1, "redirects"),
        (401, 0.1, "refuses"),
        (404, 0.1, "no route"),
        (502, 0.1, "answers 502"),
    ],
)
def test_what_an_address_answers(status: int, seconds: float, said: str) -> None:
    check = hooks.address_check("https://x.example", status, seconds)
    assert said in check.said
    assert (check.state == "ok") == (said == "answers, and checks")


def delivered(guid: str, code: int, status: str = "OK") -> dict[str, Any]:
    return {
        "guid": guid,
        "status_code": code,
        "status": status,
        "event": "issue_comment",
        "action": "created",
        "delivered_at": "2026-01-31T11:00:00Z",
    }


@pytest.mark.parametrize(
    ("deliveries", "state", "said"),
    [
        ([], "note", "No deliveries"),
        ([delivered("a", 200), delivered("b", 202)], "ok", "last 2"),
        ([delivered("a", 502, "Bad Gateway"), delivered("b", 200)], "problem", "1 of the last 2"),
        ([delivered("b", 200), delivered("a", 502), delivered("c", 401)], "note", "502 × 1"),
        ([delivered("a", 200), delivered("a", 502)], "ok", "last 1"),
        ([delivered("a", 0, "pending")], "ok", "last 1"),
        ([delivered("a", 0, "timed out")], "problem", "no answer × 1"),
    ],
)
def test_how_deliveries_went(deliveries: list[dict[str, Any]], state: str, said: str) -> None:
    check = hooks.deliveries_check(deliveries)
    assert (check.state, said in check.said) == (state, True)


@pytest.mark.parametrize(
    ("core", "state"),
    [
        ({"remaining": 4990, "limit": 5000, "reset": 0}, "ok"),
        ({"remaining": 3, "limit": 5000, "reset": int(NOW.timestamp()) + 600}, "problem"),
        ({"remaining": 4990, "limit": 5000}, "ok"),
        ({"remaining": "many", "limit": 5000}, "note"),
        ({}, "note"),
        (None, "note"),
    ],
)
def test_how_many_calls_are_left(core: dict[str, int] | None, state: str) -> None:
    check = findings.rate_check({"resources": {"core": core}}, NOW)
    assert check.state == state
    assert ("In 10 minutes" in check.fix) == (state == "problem")


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("git version 2.39.5", "ok"),
        ("git version 2.31.0.windows.1", "ok"),
        ("git version 3.0.0", "ok"),
        ("git version 2.30.2", "problem"),
        ("git?", "problem"),
        (None, "problem"),
    ],
)
def test_git(version: str | None, state: str) -> None:
    assert findings.git_check(version).state == state


def test_what_is_refused() -> None:
    answer = Answer(403, {}, {"message": "Resource not accessible"})
    assert "403: Resource not accessible" in findings.refused("x", "No", answer, "Fix.").said
    assert "within 10 s" in findings.refused("x", "No", TimeoutError(), "").said
    secret = OSError(111, "Connection refused", "https://a.example?token=s3cret")
    assert "s3cret" not in findings.refused("x", "No", secret, "").said
