"""FakeGitHub's webhooks: what they say, how they are signed, and the deliveries API."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.channels.github.listening import Listener, listening

from threadline.testing import ManualClock
from threadline_github.client import Client, GitHubRefused
from threadline_github.config import Config
from threadline_github.inbound.decide import Ask, Closed, Ignore, Me, Moved, Rules, decide
from threadline_github.inbound.webhook import is_signed, parse
from threadline_github.testing import DEFAULTS, Delivery, FakeGitHub

SECRET = DEFAULTS["webhook_secret"]
ME = Me("agent-fixture[bot]", 9001, 2201)
RULES = Rules()
EVERY = Rules(on=frozenset({"check_failed", "closed", "comment", "edited", "review", "mention"}))
DELIVERIES = "/app/hook/deliveries"
GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def hook() -> AsyncIterator[Listener]:
    async with listening() as running:
        yield running


@pytest.fixture
async def github(clock: ManualClock, hook: Listener) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(clock=clock) as running:
        running.app.webhook_url = hook.url
        hook.made = lambda: [one.guid for one in running.deliveries()]
        yield running


@pytest.fixture
async def client(github: FakeGitHub, clock: ManualClock) -> AsyncIterator[Client]:
    made = Client(Config.read(github.environ), clock)
    yield made
    await made.close()


def last(hook: Listener) -> Any:
    return hook.sent[-1].payload


# What is sent


@pytest.mark.parametrize("kind", ["json", "form"])
async def test_it_is_signed_over_its_bytes(github: FakeGitHub, hook: Listener, kind: Any) -> None:
    github.app.content_type = kind
    issue = github.user("dev-one").open_issue(title="a+b & 100% ü")
    await github.settled()
    sent = hook.got[0]
    headers = sent.headers
    assert is_signed(SECRET, sent.raw, headers["X-Hub-Signature-256"])
    assert parse(headers["Content-Type"], sent.raw)["issue"]["title"] == "a+b & 100% ü"
    assert headers["User-Agent"].startswith("GitHub-Hookshot/")
    assert headers["X-GitHub-Event"] == "issues"
    assert GUID.fullmatch(headers["X-GitHub-Delivery"])
    assert headers["X-GitHub-Hook-ID"] == "33001"
    assert headers["X-GitHub-Hook-Installation-Target-Type"] == "integration"
    assert headers["X-GitHub-Hook-Installation-Target-ID"] == "2201"
    assert issue.number == 1


async def test_nothing_is_sent_without_an_address(github: FakeGitHub, hook: Listener) -> None:
    github.app.webhook_url = None
    github.user("dev-one").open_pull()
    await github.settled()
    assert github.deliveries() == []
    assert hook.got == []


async def test_only_events_that_are_subscribed(github: FakeGitHub, hook: Listener) -> None:
    github.app.events = {"issue_comment"}
    pull = github.user("dev-one").open_pull()
    github.user("dev-one").comment(pull, "hi")
    await github.settled()
    assert hook.what == ["issue_comment created"]


async def test_a_pull_request_from_its_opening_to_its_end(
    github: FakeGitHub, hook: Listener
) -> None:
    dev = github.user("dev-one")
    pull = dev.open_pull(draft=True)
    await github.settled()
    dev.ready(pull)
    await github.settled()
    before, sha = pull.head, dev.push(pull)
    await github.settled()
    changed = last(hook)
    assert (changed["before"], changed["after"]) == (before, sha)
    assert changed["pull_request"]["head"]["sha"] == sha
    dev.edit(pull, title="Another")
    await github.settled()
    assert last(hook)["changes"] == {"title": {"from": "Add retry to uploader"}}
    dev.request_review(pull)
    await github.settled()
    assert last(hook)["requested_reviewer"]["id"] == 9001
    dev.close(pull)
    await github.settled()
    dev.reopen(pull)
    await github.settled()
    dev.close(pull, merge=True)
    await github.settled()
    assert last(hook)["pull_request"]["merged"] is True
    assert hook.what == [
        "push",
        "pull_request opened",
        "pull_request ready_for_review",
        "push",
        "pull_request synchronize",
        "pull_request edited",
        "pull_request review_requested",
        "pull_request closed",
        "pull_request reopened",
        "pull_request closed",
    ]


async def test_what_a_payload_says(github: FakeGitHub, hook: Listener) -> None:
    pull = github.user("dev-one").open_pull(number=7)
    github.user("stranger").comment(pull, "@agent-fixture hi")
    await github.settled()
    said = last(hook)
    assert said["repository"]["id"] == 900100
    assert said["repository"]["full_name"] == "octo-fixture/widget"
    assert said["organization"]["login"] == "octo-fixture"
    assert said["installation"]["id"] == 4401
    assert said["sender"] == said["comment"]["user"]
    assert said["comment"]["author_association"] == "NONE"
    assert said["comment"]["performed_via_github_app"] is None
    assert said["issue"]["number"] == 7
    assert said["issue"]["author_association"] == "MEMBER"
    assert said["issue"]["pull_request"]["url"].endswith("/repos/octo-fixture/widget/pulls/7")
    issue = github.user("dev-two").open_issue()
    github.user("dev-two").comment(issue, "hm")
    await github.settled()
    assert "pull_request" not in last(hook)["issue"]


async def test_what_the_channel_makes_of_it(github: FakeGitHub, hook: Listener) -> None:
    dev, other = github.user("dev-one"), github.user("dev-two")
    pull = dev.open_pull(fork=True)
    await github.settled()
    [asked] = decide("pull_request", last(hook), ME, RULES)
    assert isinstance(asked, Ask)
    assert (asked.trigger, asked.head, asked.fork) == ("opened", pull.head, True)
    assert asked.person.association == "MEMBER"
    other.comment(pull, "@agent-fixture look")
    await github.settled()
    [asked] = decide("issue_comment", last(hook), ME, RULES)
    assert isinstance(asked, Ask)
    assert (asked.place.kind, asked.place.number, asked.trigger) == ("pr", 1, "mention")
    line = other.review_comment(pull, text="@agent-fixture why?")
    await github.settled()
    [asked] = decide("pull_request_review_comment", last(hook), ME, RULES)
    assert isinstance(asked, Ask)
    assert asked.about["path"] == "src/upload.py"
    assert asked.about["line"] == 2
    assert asked.about["comment"] == line.id
    other.review(pull, "hm", event="REQUEST_CHANGES")
    await github.settled()
    [asked] = decide("pull_request_review", last(hook), ME, EVERY)
    assert isinstance(asked, Ask)
    assert "changes requested" in asked.context[0]
    dev.delete_fork(pull)
    dev.close(pull)
    await github.settled()
    closed, asked = decide("pull_request", last(hook), ME, EVERY)
    assert isinstance(closed, Closed)
    assert isinstance(asked, Ask)
    assert asked.fork
    assert last(hook)["pull_request"]["head"]["repo"] is None


async def test_checks_as_the_channel_sees_them(
    github: FakeGitHub, hook: Listener, client: Client
) -> None:
    dev = github.user("dev-one")
    pull = dev.open_pull()
    dev.fail_check(pull)
    await github.settled()
    [asked] = decide("check_run", last(hook), ME, EVERY)
    assert isinstance(asked, Ask)
    assert (asked.trigger, asked.head) == ("check_failed", pull.head)
    body = {
        "name": "agent",
        "head_sha": pull.head,
        "status": "completed",
        "conclusion": "neutral",
        "actions": [{"label": "Fix", "description": "Fixes it", "identifier": "fix"}],
    }
    path = "/repos/octo-fixture/widget/check-runs"
    await client.request("POST", path, body, installation=4401)
    await github.settled()
    assert hook.what[-2:] == ["check_run created", "check_run completed"]
    assert all(isinstance(one, Ignore) for one in decide("check_run", last(hook), ME, RULES))
    [check] = [one for one in github.checks(pull) if one.app is github.app]
    dev.rerun(check)
    await github.settled()
    [asked] = decide("check_run", last(hook), ME, RULES)
    assert isinstance(asked, Ask)
    assert (asked.trigger, asked.person.login) == ("rerequested", "dev-one")
    dev.press(check, "fix")
    await github.settled()
    [asked] = decide("check_run", last(hook), ME, RULES)
    assert isinstance(asked, Ask)
    assert "'fix'" in asked.text
    dev.rerun_all(pull)
    await github.settled()
    [asked] = decide("check_suite", last(hook), ME, RULES)
    assert isinstance(asked, Ask)
    assert (asked.trigger, asked.head) == ("rerequested", pull.head)
    dev.end_workflow(pull)
    await github.settled()
    [asked] = decide("workflow_run", last(hook), ME, EVERY)
    assert isinstance(asked, Ask)
    assert (asked.trigger, asked.place.number) == ("check_failed", 1)
    with pytest.raises(LookupError):
        dev.press(check, "no such button")


async def test_edits_and_deletions(github: FakeGitHub, hook: Listener) -> None:
    dev = github.user("dev-one")
    pull = dev.open_pull()
    comment = dev.comment(pull, "one")
    await github.settled()
    dev.edit_comment(comment, "two")
    await github.settled()
    assert last(hook)["changes"] == {"body": {"from": "one"}}
    assert last(hook)["comment"]["body"] == "two"
    assert comment.history == ["one"]
    dev.delete_comment(comment)
    await github.settled()
    assert hook.what[-1] == "issue_comment deleted"
    assert github.visible(pull) == []


async def test_the_apps_own_doing_comes_back(
    github: FakeGitHub, hook: Listener, client: Client
) -> None:
    github.user("dev-one").open_pull()
    path = "/repos/octo-fixture/widget/issues/1/comments"
    await client.request("POST", path, {"body": "@agent-fixture hm"}, installation=4401)
    await github.settled()
    said = last(hook)
    assert said["sender"]["login"] == "agent-fixture[bot]"
    assert said["sender"]["type"] == "Bot"
    assert said["comment"]["performed_via_github_app"]["id"] == 2201
    assert isinstance(decide("issue_comment", said, ME, RULES)[0], Ignore)


async def test_a_repositorys_own_hook(github: FakeGitHub, hook: Listener) -> None:
    github.add_hook(None, hook.url, secret="another", events={"issue_comment"})
    pull = github.user("dev-one").open_pull(tell=False)
    github.user("dev-one").comment(pull, "hi")
    await github.settled()
    app, own = sorted(hook.got, key=lambda one: "installation" not in one.payload)
    assert app.guid != own.guid
    assert app.payload["comment"] == own.payload["comment"]
    assert "installation" not in own.payload
    assert own.headers["X-GitHub-Hook-Installation-Target-Type"] == "repository"
    assert own.headers["X-GitHub-Hook-Installation-Target-ID"] == "900100"
    assert is_signed("another", own.raw, own.headers["X-Hub-Signature-256"])


async def test_renamed_and_transferred(github: FakeGitHub, hook: Listener) -> None:
    repository = github.repository()
    github.rename(repository, "gadget")
    await github.settled()
    assert decide("repository", last(hook), ME, RULES) == [Moved(900100, "octo-fixture/gadget")]
    github.transfer(repository, "other-owner")  # where the app is not installed
    await github.settled()
    assert len(hook.got) == 1
    github.install("other-owner")
    github.transfer(repository, "octo-fixture")
    await github.settled()
    assert last(hook)["changes"]["owner"]["from"]["organization"]["login"] == "other-owner"
    assert github.repository("octo-fixture/WIDGET") is repository


async def test_any_payload_and_ping(github: FakeGitHub, hook: Listener) -> None:
    delivery = github.send("issues", {"action": "opened"}, guid="d0000001")
    github.ping()
    await github.settled()
    assert (delivery.guid, delivery.ok) == ("d0000001", True)
    assert sorted(hook.what) == ["issues opened", "ping"]


# How it ends


async def test_nothing_is_sent_twice_by_itself(
    github: FakeGitHub, hook: Listener, clock: ManualClock
) -> None:
    hook.statuses = [503]
    github.user("dev-one").open_issue()
    await github.settled()
    await clock.elapse(86_400)
    [delivery] = github.deliveries()
    assert (delivery.status, delivery.status_code) == ("Invalid HTTP Response: 503", 503)
    assert len(hook.got) == 1


async def test_an_answer_that_takes_longer_than_ten_seconds(
    github: FakeGitHub, hook: Listener, clock: ManualClock
) -> None:
    hook.silent = True
    github.user("dev-one").open_issue()
    await github.until(lambda: hook.got)
    clock.advance(9.9)
    assert not github.deliveries()[0].done
    clock.advance(0.1)
    await github.settled()
    assert github.deliveries()[0].status == "timed out"
    assert github.deliveries()[0].status_code == 504


async def test_nobody_is_at_home(github: FakeGitHub, hook: Listener) -> None:
    github.webhooks.lose()
    github.user("dev-one").open_issue()
    github.app.webhook_url = "http://127.0.0.1:1/"
    github.user("dev-one").open_issue()
    await github.settled()
    assert hook.got == []
    for delivery in github.deliveries():
        assert (delivery.status, delivery.status_code) == ("failed to connect to host", 502)


async def test_lost_doubled_late_and_out_of_order(
    github: FakeGitHub, hook: Listener, clock: ManualClock
) -> None:
    dev, pull = github.user("dev-one"), github.user("dev-one").open_pull(tell=False)

    def comments(one: Delivery) -> bool:
        return one.event == "issue_comment"

    github.webhooks.lose(when=comments)
    github.webhooks.duplicate(when=comments)
    github.webhooks.delay(60, when=comments)
    github.webhooks.reorder(2, when=comments)
    for text in ("lost", "double", "late", "first", "second"):
        dev.comment(pull, text)
    await github.settled()
    said = [one.payload["comment"]["body"] for one in hook.got]
    assert sorted(said) == ["double", "double", "first", "second"]
    assert len({one.guid for one in hook.got if one.payload["comment"]["body"] == "double"}) == 1
    order = [one.payload["comment"]["body"] for one in github.deliveries()]
    assert order.index("second") < order.index("first")
    await clock.sleeping()
    clock.advance(60)
    await github.until(lambda: len(hook.got) == 5)
    assert hook.got[-1].payload["comment"]["body"] == "late"
    await github.settled()


async def test_held_and_let_go(github: FakeGitHub, hook: Listener) -> None:
    dev, pull = github.user("dev-one"), github.user("dev-one").open_pull(tell=False)
    github.webhooks.hold()
    dev.comment(pull, "one")
    dev.comment(pull, "two")
    await github.settled()
    assert hook.got == []
    assert github.webhooks.kept == 2
    github.webhooks.release(lambda held: held[::-1])
    await github.settled()
    assert [one.payload["comment"]["body"] for one in github.deliveries()] == ["two", "one"]


# The deliveries API


async def test_deliveries_are_listed_newest_first(
    github: FakeGitHub, hook: Listener, client: Client
) -> None:
    hook.statuses = [500]
    issue = github.user("dev-one").open_issue()
    await github.settled()
    github.user("dev-one").comment(issue, "hi")
    await github.settled()
    good, bad = await client.request("GET", DELIVERIES, as_app=True)
    assert (good["event"], good["action"], good["status"]) == ("issue_comment", "created", "OK")
    assert (bad["event"], bad["status_code"]) == ("issues", 500)
    assert bad["guid"] == hook.got[0].guid
    assert bad["redelivery"] is False
    assert bad["delivered_at"] == "2025-01-01T00:00:00Z"
    assert (bad["installation_id"], bad["repository_id"]) == (4401, 900100)
    failed = await client.request("GET", f"{DELIVERIES}?status=failure", as_app=True)
    assert [one["id"] for one in failed] == [bad["id"]]
    whole = await client.request("GET", f"{DELIVERIES}/{bad['id']}", as_app=True)
    assert whole["request"]["payload"] == hook.got[0].payload
    assert whole["request"]["headers"]["X-GitHub-Event"] == "issues"
    assert whole["response"]["payload"] == '{"status": 500}'


async def test_it_is_delivered_again_under_its_guid(
    github: FakeGitHub, hook: Listener, client: Client
) -> None:
    hook.statuses = [500]
    github.user("dev-one").open_issue()
    await github.settled()
    [bad] = github.deliveries()
    await client.request("POST", f"{DELIVERIES}/{bad.id}/attempts", as_app=True)
    await github.settled()
    first, second = hook.got
    assert (first.guid, first.raw) == (second.guid, second.raw)
    again, before = await client.request("GET", DELIVERIES, as_app=True)
    assert (again["redelivery"], again["status"]) == (True, "OK")
    assert (before["redelivery"], before["id"]) == (False, bad.id)


async def test_deliveries_are_kept_for_three_days(
    github: FakeGitHub, client: Client, clock: ManualClock
) -> None:
    github.user("dev-one").open_issue()
    await github.settled()
    clock.advance(3 * 86_400)
    assert len(await client.request("GET", DELIVERIES, as_app=True)) == 1
    clock.advance(1)
    assert await client.request("GET", DELIVERIES, as_app=True) == []
    path = f"{DELIVERIES}/{github.deliveries()[0].id}"
    with pytest.raises(GitHubRefused) as caught:
        await client.request("GET", path, as_app=True)
    assert caught.value.github_status == 404


async def test_deliveries_of_a_repositorys_hook(
    github: FakeGitHub, hook: Listener, client: Client
) -> None:
    github.app.webhook_url = None
    own = github.add_hook(None, hook.url)
    github.user("dev-one").open_issue()
    await github.settled()
    base = f"/repos/octo-fixture/widget/hooks/{own.id}/deliveries"
    [one] = await client.pages(base, installation=4401)
    assert one["event"] == "issues"
    await client.request("POST", f"{base}/{one['id']}/attempts", installation=4401)
    await github.settled()
    assert [one.guid for one in hook.got] == [one.guid for one in github.deliveries()]
    assert await client.request("GET", DELIVERIES, as_app=True) == []


async def test_a_hook_that_is_made_by_the_api(
    github: FakeGitHub, hook: Listener, client: Client
) -> None:
    config = {"url": hook.url, "content_type": "json", "secret": "s"}
    body = {"name": "web", "events": ["issues"], "config": config}
    made = await client.request("POST", "/repos/octo-fixture/widget/hooks", body, installation=4401)
    await github.settled()
    assert hook.what == ["ping"]
    assert made["config"]["secret"] == "********"
    config_of_app = await client.request("GET", "/app/hook/config", as_app=True)
    assert config_of_app["url"] == hook.url
