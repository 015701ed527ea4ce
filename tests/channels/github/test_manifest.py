"""The manifest: what an App is asked for is what its channel needs, no less and no more."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from threadline import tool
from threadline_github import Check, GitHubChannel, Review, report_check, set_labels
from threadline_github.config import API_URL
from threadline_github.inbound.decide import DEFAULT_ON, TRIGGERS
from threadline_github.setup.manifest import (
    EVENT_PERMISSIONS,
    Needs,
    address,
    events,
    link,
    manifest,
    needs_of,
    page,
    permissions,
    register_at,
    site,
)

URL = "https://agents.example.com/review"
HOOK = f"{URL}/v1/channels/github"
PLAIN = Needs(name="Reviewer")
CODE = replace(PLAIN, on=frozenset({"opened", "synchronize"}))


def test_the_whole() -> None:
    made = manifest(replace(PLAIN, description=" Reads\nwhat changed. "), url=URL, hook_url=HOOK)
    assert made == {
        "name": "Reviewer",
        "description": "Reads what changed.",
        "url": URL,
        "hook_attributes": {"url": HOOK, "active": True},
        "public": False,
        "default_permissions": {
            "contents": "read",
            "issues": "write",
            "metadata": "read",
            "pull_requests": "write",
        },
        "default_events": [
            "issue_comment",
            "issues",
            "pull_request",
            "pull_request_review",
            "pull_request_review_comment",
            "repository",
        ],
    }


def test_a_name_is_as_long_as_github_takes() -> None:
    made = manifest(
        replace(PLAIN, name="A reviewer of all that everybody changes"), url="", hook_url=""
    )
    assert len(made["name"]) <= 34
    assert "description" not in made


def test_code_alone_needs_nothing_of_issues() -> None:
    assert "issues" not in permissions(CODE)
    assert events(CODE) == ["pull_request", "repository"]


def test_words_alone_need_no_pull_requests_unless_there_is_a_worktree() -> None:
    spoken = replace(PLAIN, on=frozenset({"mention"}), worktree=False)
    assert "contents" not in permissions(spoken)
    assert "pull_request" not in events(spoken)
    assert "pull_request" in events(replace(spoken, worktree=True))


def test_checks() -> None:
    assert "checks" not in permissions(PLAIN)
    assert "check_run" not in events(PLAIN)
    reporting = replace(PLAIN, checks=True)
    assert permissions(reporting)["checks"] == "write"
    told = replace(PLAIN, on=DEFAULT_ON | {"check_failed"})
    assert permissions(told)["checks"] == "read"
    for needs in (reporting, told):
        assert {"check_run", "check_suite"} <= set(events(needs))


@pytest.mark.parametrize("trigger", sorted(TRIGGERS))
def test_every_event_has_its_permission(trigger: str) -> None:
    for checks in (False, True):
        needs = replace(PLAIN, on=frozenset({trigger}), checks=checks)
        held = permissions(needs)
        assert {EVENT_PERMISSIONS[event] for event in events(needs)} <= set(held)


# What a channel says of itself


def test_a_channel_as_it_is() -> None:
    channel = GitHubChannel()
    channel.id = "github"
    needs = needs_of(channel, name="Reviewer", description=None)
    assert needs == PLAIN


def test_a_channel_with_options() -> None:
    channel = GitHubChannel(
        on=["opened"], repositories=["Octo/Widget"], worktree=False, check="Review"
    )
    channel.id = "second"
    needs = needs_of(channel, name="R", description="It reads.")
    assert needs == Needs(
        name="R",
        description="It reads.",
        on=frozenset({"opened"}),
        checks=True,
        worktree=False,
        repositories=frozenset({"octo/widget"}),
        path="/v1/channels/second",
    )


@tool
def lint() -> Review | Check:
    """Check the style."""
    return Check(conclusion="success", title="Clean", summary="Nothing found.")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_a_tool_that_reports_checks_needs_them() -> None:
    channel = GitHubChannel()
    assert not needs_of(channel, name="R", tools=[set_labels, add]).checks
    assert needs_of(channel, name="R", tools=[report_check]).checks
    assert needs_of(channel, name="R", tools=[add, lint]).checks


@pytest.mark.parametrize("base", [URL, f"{URL}/", HOOK, f"{HOOK}/"])
def test_the_address_of_the_webhook(base: str) -> None:
    channel = GitHubChannel()
    channel.id = "github"
    assert address(base, channel) == HOOK


# How an App is registered


@pytest.mark.parametrize(
    ("api_url", "shown"),
    [
        (API_URL, "https://github.com"),
        ("https://api.octo.ghe.com", "https://octo.ghe.com"),
        ("https://git.example.com/api/v3", "https://git.example.com"),
        ("http://127.0.0.1:4630", "http://127.0.0.1:4630"),
    ],
)
def test_where_the_pages_are(api_url: str, shown: str) -> None:
    assert site(api_url) == shown
    assert register_at(api_url) == f"{shown}/settings/apps/new"
    assert register_at(api_url, "octo") == f"{shown}/organizations/octo/settings/apps/new"


def test_a_link_has_all_settings() -> None:
    made = manifest(replace(PLAIN, name="R & D", description="50 % less"), url=URL, hook_url=HOOK)
    query = parse_qsl(urlsplit(link(made, register_at(API_URL))).query)
    plain = dict(query)
    assert (plain["name"], plain["description"]) == ("R & D", "50 % less")
    assert (plain["url"], plain["webhook_url"]) == (URL, HOOK)
    assert (plain["public"], plain["webhook_active"]) == ("false", "true")
    assert {key: plain[key] for key in made["default_permissions"]} == made["default_permissions"]
    assert [value for key, value in query if key == "events[]"] == made["default_events"]


def test_a_page_posts_the_manifest() -> None:
    made = manifest(replace(PLAIN, name='<"R">'), url=URL, hook_url=HOOK)
    shown = page(made, register_at(API_URL), API_URL, "TRIAGE_")
    found = re.search(r'name="manifest" value="([^"]*)"', shown)
    assert found is not None
    assert json.loads(html.unescape(found[1])) == made | {"redirect_url": URL}
    assert '<form action="https://github.com/settings/apps/new" method="post">' in shown
    assert '<"R">' not in shown
    assert "TRIAGE_GITHUB_APP_ID" in shown
