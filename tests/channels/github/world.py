"""An agent at GitHub: a real host, a FakeGitHub that signs, the real client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tests.passing import passing

from threadline import Agent, tool
from threadline.harness.base import Harness
from threadline.harness.scripted import Scripted
from threadline.testing import ManualClock, TestHost, github_signature
from threadline_github import GitHubChannel
from threadline_github.config import Config
from threadline_github.testing import DEFAULTS, FakeGitHub

__all__ = ["HOOK", "REPOSITORY", "SECRET", "World", "at", "deliver", "deploy", "served"]

HOOK = "/v1/channels/github"
REPOSITORY = DEFAULTS["repository"]
SECRET = DEFAULTS["webhook_secret"]


def at(seconds: int = 1_760_000_000) -> ManualClock:
    return ManualClock(datetime.fromtimestamp(seconds, UTC))


@dataclass
class World:
    """A GitHub and a host that serves its agent."""

    github: FakeGitHub
    host: TestHost
    harness: Harness
    clock: ManualClock

    @property
    def channel(self) -> GitHubChannel:
        """The channel at work."""
        found = self.host.agent().runtimes["github"].channel
        assert isinstance(found, GitHubChannel)
        return found

    async def in_time(self, done: Callable[[], object], *, step: float = 1.0) -> None:
        """Let time pass until something is so."""
        await passing(self.clock, self.github.until(done), step=step)
        await self.github.settled()

    def session(self, token: str) -> Any:
        """Return the session of a conversation, by its token."""
        record = self.host.agent().store.session_by_token("github", token)
        return None if record is None else self.host.session(record.id)


@tool(effect="write")
async def deploy(service: str) -> str:
    """Deploy a service."""
    return f"deployed {service}"


@asynccontextmanager
async def served(
    harness: Harness | None = None,
    *,
    tools: Sequence[Any] = (),
    declare: Callable[[GitHubChannel], object] = lambda _: None,
    arrange: Callable[[FakeGitHub], object] = lambda _: None,
    personal: bool = False,
    **options: Any,
) -> AsyncIterator[World]:
    """Serve an agent at GitHub, as an App, or with the ``personal`` token of dev-two.

    ``declare`` is given each process's channel before it is served, ``arrange`` the GitHub before
    the host starts. Code is not checked out unless
    a test says ``worktree=True``.
    """
    clock = at()
    harness = harness or Scripted()
    options = {"worktree": False, **options}
    async with FakeGitHub(clock=clock) as github:
        app = github.app
        config = Config(
            SECRET,
            token=github.personal_token("dev-two") if personal else None,
            app_id=None if personal else str(app.id),
            private_key=None if personal else app.private_key,
            api_url=github.api_url,
        )

        def agent() -> Agent:
            channel = GitHubChannel(config=config, **options)
            declare(channel)
            return Agent(
                name="Helper",
                instructions="Answer.",
                harness=harness,
                tools=[deploy, *tools],
                channels={"github": channel},
            )

        arrange(github)
        async with TestHost(agent, clock=clock, channel_id="github") as host:
            app.webhook_url = host.url + HOOK
            yield World(github, host, harness, clock)


async def deliver(
    world: World, event: str, body: Any, number: int = 1, *, secret: str = SECRET
) -> Any:
    """Send a payload as GitHub does, signed; ``number`` makes the delivery's id."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": str(UUID(int=number)),
        "x-hub-signature-256": github_signature(secret, raw),
    }
    return await world.host.post(HOOK, body=raw, headers=headers)
