"""An agent in a workspace: a real host, a FakeSlack that signs, the real Slack client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from tests.passing import passing

from threadline import Agent, tool
from threadline.harness.base import Harness
from threadline.harness.scripted import Scripted
from threadline.testing import ManualClock, TestHost, slack_signature
from threadline_slack import SlackChannel
from threadline_slack.config import Config
from threadline_slack.testing import DEFAULTS, FakeSlack

__all__ = [
    "BOT",
    "CHANNEL",
    "DM",
    "EVENTS",
    "OTHER",
    "PERSON",
    "SECRET",
    "TEAM",
    "World",
    "at",
    "deliver",
    "deploy",
    "served",
]

CHANNEL, DM, BOT = DEFAULTS["channel"], DEFAULTS["dm"], DEFAULTS["bot_user"]
PERSON, OTHER, TEAM = DEFAULTS["person"], DEFAULTS["other"], DEFAULTS["team"]
EVENTS = "/v1/channels/slack/events"
SECRET = DEFAULTS["signing_secret"]

T = TypeVar("T")


def at(seconds: int = 1_760_000_000) -> ManualClock:
    return ManualClock(datetime.fromtimestamp(seconds, UTC))


@dataclass
class World:
    """A workspace and a host that serves its agent."""

    slack: FakeSlack
    host: TestHost
    harness: Harness
    clock: ManualClock

    @property
    def accepted(self) -> set[str]:
        """The ids of all that was accepted."""
        return {one.delivery.delivery_id for one in self.host.witness.accepted}

    def say(self, text: str, *, thread: str | None = None, channel: str = CHANNEL) -> str:
        """Post as a person; returns the message's ts."""
        return self.slack.user(PERSON).post(channel, text, thread_ts=thread).ts

    async def shown(self, count: int, thread: str, channel: str = CHANNEL) -> list[str]:
        """Return what a thread shows once it has so many messages."""
        await self.slack.until(lambda: len(self.slack.messages(channel, thread)) >= count)
        await self.slack.settled()
        return self.slack.visible(channel, thread)

    async def passing(self, work: Awaitable[T], *, step: float = 0.1) -> T:
        """Await something for which time must pass."""
        return await passing(self.clock, work, step=step)

    async def in_time(self, done: Callable[[], object], *, step: float = 0.1) -> None:
        """Let time pass until something is so."""
        await self.passing(self.slack.until(done), step=step)
        await self.slack.settled()

    @property
    def channel(self) -> SlackChannel:
        """The channel at work."""
        found = self.host.agent().runtimes["slack"].channel
        assert isinstance(found, SlackChannel)
        return found

    def session(self, thread: str, channel: str = CHANNEL) -> Any:
        """Return the session of a thread."""
        token = f"slack:{TEAM}:{channel}:{thread}"
        store = self.host.agent().store
        record = store.session_by_token("slack", token)
        return None if record is None else self.host.session(record.id)


@tool(effect="write", approval=True)
async def deploy(service: str) -> str:
    """Deploy a service."""
    return f"deployed {service}"


@asynccontextmanager
async def served(
    harness: Harness | None = None,
    *,
    socket: bool = False,
    tools: Sequence[Any] = (),
    declare: Callable[[SlackChannel], object] = lambda _: None,
    **options: Any,
) -> AsyncIterator[World]:
    """Serve an agent in a workspace, by HTTP or by Socket Mode.

    ``declare`` is given each process's channel before it is served.
    """
    clock = at()
    harness = harness or Scripted()
    async with FakeSlack(clock=clock) as slack:
        app = slack.app
        config = Config(
            app.bot_token,
            app.app_token if socket else None,
            None if socket else app.signing_secret,
            slack.api_url,
        )

        def agent() -> Agent:
            channel = SlackChannel(config=config, **options)
            declare(channel)
            return Agent(
                name="Helper",
                instructions="Answer.",
                harness=harness,
                tools=[deploy, *tools],
                channels={"slack": channel},
            )

        app.socket_mode = socket
        async with TestHost(agent, clock=clock, channel_id="slack") as host:
            app.request_url = None if socket else host.url + EVENTS
            yield World(slack, host, harness, clock)


async def deliver(world: World, body: dict[str, Any], secret: str = SECRET) -> Any:
    """Send an event as Slack does, signed now."""
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    stamp = int(world.clock.now().timestamp())
    headers = {
        "content-type": "application/json",
        "x-slack-request-timestamp": str(stamp),
        "x-slack-signature": slack_signature(secret, raw, stamp),
    }
    return await world.host.post(EVENTS, body=raw, headers=headers)
