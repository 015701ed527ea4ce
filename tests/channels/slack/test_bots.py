"""The bot of one workspace, and of none."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.channels.slack.many import many
from tests.channels.slack.world import CHANNEL, PERSON, TEAM, deliver, served

from threadline import Context
from threadline.errors import ProjectError
from threadline_slack.bots import Bots

REMOVED = {"type": "event_callback", "team_id": TEAM, "event": {"type": "app_uninstalled"}}


async def test_before_the_start_there_is_no_bot() -> None:
    with pytest.raises(RuntimeError, match="not been started"):
        await Bots().of(TEAM)


async def test_with_a_token_there_is_one_bot_whatever_the_workspace() -> None:
    async with served() as world:
        bots = world.channel.bots
        assert await bots.of(TEAM) is await bots.of("T0ANYTEAM1")
        context = Context(world.host.agent().runtimes["slack"])
        assert await bots.hears(context, {"team_id": "T0ANYTEAM1"})
        assert bots.workspaces is None


async def test_a_store_of_installations_is_not_ignored() -> None:
    store: Any = object()
    with pytest.raises(ProjectError, match="SLACK_CLIENT_ID"):
        async with served(installations=store):
            pass


async def test_a_token_that_is_revoked_is_told_of() -> None:
    async with served() as world:
        with capture_logs() as logs:
            assert (await deliver(world, REMOVED)).status == 200
        (said,) = [one for one in logs if one["event"] == "slack.revoked"]
        assert said["log_level"] == "error"
        assert not world.accepted


async def test_a_workspace_has_the_same_bot_all_the_time() -> None:
    """What it remembers of its threads is not lost from one event to the next."""
    async with many() as world:
        await world.install()
        bot = await world.bots.of(TEAM)
        await world.asked(TEAM, CHANNEL, PERSON)
        await world.install()
        assert await world.bots.of(TEAM) is bot
        assert bot.me.user == world.slack.app.bot_user
