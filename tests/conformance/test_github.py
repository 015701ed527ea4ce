"""The GitHub channel keeps the promises of every channel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from threadline import Channel
from threadline.testing import ChannelKit, Inbound, Posted, channel_conformance, signed_request
from threadline_github import GitHubChannel
from threadline_github.config import Config
from threadline_github.testing import DEFAULTS, FakeGitHub

SECRET = DEFAULTS["webhook_secret"]


class GitHubKit(ChannelKit):
    """A repository in which each of the kit's conversations is an issue."""

    channel_id = "github"
    signed = True
    live_mentions = ("@octo-fixture/everybody",)

    def __init__(self) -> None:
        self.github = FakeGitHub()
        self.issues: dict[str, Any] = {}

    async def open(self) -> None:
        await self.github.start()

    async def close(self) -> None:
        await self.github.close()

    def channel(self) -> Channel:
        app = self.github.app
        config = Config(
            SECRET,
            app_id=str(app.id),
            private_key=app.private_key,
            api_url=self.github.api_url,
        )
        return GitHubChannel(config=config, worktree=False, working=False)

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        return self._said(conversation, text, delivery_id, "dev-one")

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        return self._said(conversation, text, delivery_id, "dev-two")

    def forged(self, inbound: Inbound) -> Inbound:
        wrong = {"x-hub-signature-256": "sha256=" + "0" * 64}
        return replace(inbound, headers={**inbound.headers, **wrong})

    def carried(self, text: str) -> str:
        # No log holds a NUL, and GitHub sends none.
        return text.replace("\0", "\ufffd")

    def raw(self, body: bytes) -> Inbound:
        return self._signed(body, "raw")

    async def posted(self) -> Sequence[Posted]:
        found = []
        for name, issue in self.issues.items():
            found += [Posted(name, text) for text in self.github.visible(issue)]
        return found

    def fail_next(self, status: int, retry_after: float | None) -> None:
        headers = {} if retry_after is None else {"retry-after": str(int(retry_after))}
        self.github.fail("POST", "/repos/*/issues/*/comments", status, headers=headers)

    def _said(self, conversation: str, text: str, delivery_id: str, login: str) -> Inbound:
        if conversation not in self.issues:
            self.issues[conversation] = self.github.user("dev-one").open_issue(title=conversation)
        issue = self.issues[conversation]
        person = {"login": login, "id": 501 if login == "dev-one" else 502, "type": "User"}
        body = {
            "action": "created",
            "issue": {"number": issue.number, "title": conversation, "user": person},
            "comment": {
                "id": _number(f"{conversation}/{delivery_id}"),
                "user": person,
                "author_association": "MEMBER",
                "body": f"@{DEFAULTS['slug']} {text}",
            },
            "repository": {"id": DEFAULTS["repository_id"], "full_name": DEFAULTS["repository"]},
            "installation": {"id": DEFAULTS["installation"]},
            "sender": person,
        }
        return self._signed(body, f"{conversation}/{delivery_id}")

    def _signed(self, body: Any, name: str) -> Inbound:
        inbound = signed_request(SECRET, body, scheme="github")
        more = {
            "x-github-event": "issue_comment",
            "x-github-delivery": str(UUID(int=_number(name))),
        }
        return replace(inbound, headers={**inbound.headers, **more})


def _number(name: str) -> int:
    """Return a number that only this name has."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:10], 16)


async def test_it_keeps_its_promises() -> None:
    report = await channel_conformance(GitHubKit())
    assert report.passed, str(report)
    proved = [result.id for result in report.results if result.verdict == "passed"]
    assert len(proved) >= 25, str(report)
