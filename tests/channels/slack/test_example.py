"""examples/slack-helper does in a workspace what its README says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from threadline.project import load_project
from threadline.testing import TestHost
from threadline_slack.testing import DEFAULTS, FakeSlack
from threadline_slack.testing.model import Message

EXAMPLE = Path(__file__).parents[3] / "examples" / "slack-helper"
CHANNEL, DM, BOT = DEFAULTS["channel"], DEFAULTS["dm"], DEFAULTS["bot_user"]
PERSON, OTHER = DEFAULTS["person"], DEFAULTS["other"]
UNSET = ("THREADLINE_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SLACK_SIGNING_SECRET")


@dataclass
class World:
    """A workspace with the example in it, by Socket Mode."""

    slack: FakeSlack
    host: TestHost

    def ask(self, text: str, thread: str | None = None) -> str:
        return self.slack.user(PERSON).post(CHANNEL, text, thread_ts=thread).ts

    @property
    def sessions(self) -> list[Any]:
        records = self.host.agent().store.sessions(None, limit=9)
        return [self.host.session(record.id) for record in records]

    async def works(self) -> None:
        """Return when the agent has called a tool."""
        await self.host.until(lambda: any(one.events("actions.requested") for one in self.sessions))

    async def answer(self, thread: str, said: str, channel: str = CHANNEL) -> str:
        """Return the message of the agent that says so, once it is there."""

        def found() -> list[str]:
            messages = self.slack.messages(channel, thread)
            texts = self.slack.visible(channel, thread)
            return [t for m, t in zip(messages, texts, strict=True) if m.user == BOT and said in t]

        await self.slack.until(found)
        return found()[-1]

    async def card(self, thread: str) -> Message:
        """Return the approval card."""

        def found() -> list[Message]:
            return [m for m in self.slack.messages(CHANNEL, thread) if "actions" in str(m.blocks)]

        await self.slack.until(found)
        return found()[-1]


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch, pace: str = "0") -> AsyncIterator[World]:
    async with FakeSlack() as slack:
        for name in UNSET:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SLACK_HELPER_PACE", pace)
        monkeypatch.setenv("SLACK_BOT_TOKEN", slack.app.bot_token)
        monkeypatch.setenv("SLACK_APP_TOKEN", slack.app.app_token)
        monkeypatch.setenv("SLACK_API_URL", slack.api_url)
        slack.app.socket_mode = True
        async with TestHost(load_project(EXAMPLE), channel_id="slack") as host:
            yield World(slack, host)


def test_it_loads_without_a_warning() -> None:
    project = load_project(EXAMPLE)
    assert list(project.warnings) == []
    assert {tool.name for tool in project.tools} == {"run_check", "read_sheet", "move_launch"}
    assert list(project.channels) == ["slack"]


async def test_a_mention_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        answer = await world.answer(world.ask(f"<@{BOT}> check docs and support"), "ready")
        assert "Not ready: docs and support." in answer.replace("*", "")


async def test_what_is_written_meanwhile_is_steered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch, pace="0.4") as world:
        thread = world.ask(f"<@{BOT}> are we ready to launch?")
        await world.works()
        world.ask("and what about docs?", thread)
        await world.host.until(lambda: len(world.host.witness.accepted) >= 2)
        monkeypatch.setenv("SLACK_HELPER_PACE", "0")
        answer = await world.answer(thread, "You also asked")
        assert "and what about docs?" in answer
        (session,) = world.sessions
        await session.rest()
        assert len(session.events("nudge.delivered")) == 1
        assert len(session.events("turn.completed")) == 1


async def test_a_stop_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch, pace="10") as world:
        thread = world.ask(f"<@{BOT}> are we ready to launch?")
        await world.works()
        world.ask("stop", thread)
        assert await world.answer(thread, "Stopped.") == "Stopped."


async def test_the_launch_moves_when_somebody_approves(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        thread = world.ask(f"<@{BOT}> move the launch to Monday")
        world.slack.user(OTHER).click(await world.card(thread), "threadline:approve")
        assert "Monday" in await world.answer(thread, "The launch is now on")
        assert f"<@{OTHER}>" in await world.answer(thread, "Approved")


async def test_a_table_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        table = b"item,costs\nstage,1200.50\nlights,800\n"
        text = f"<@{BOT}> add this up"
        thread = world.slack.user(PERSON).upload(CHANNEL, "costs.csv", table, text=text).ts
        assert "2,000.50" in await world.answer(thread, "2 rows")


async def test_a_direct_message_needs_no_mention(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        thread = world.slack.user(PERSON).post(DM, "check the build").ts
        assert "4.2.0" in await world.answer(thread, "build", DM)


async def test_without_a_wish_it_says_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(monkeypatch) as world:
        await world.answer(world.ask(f"<@{BOT}> hello"), "offline demo")
