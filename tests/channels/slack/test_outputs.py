"""Artifacts as files, and what tools show as blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.channels.slack.world import BOT, CHANNEL, World, served

from threadline import ToolContext, tool
from threadline.harness.scripted import Call, Say, Scripted
from threadline_slack import SlackMessage
from threadline_slack.testing.model import Message

BLOCKS = [{"type": "section", "text": {"type": "mrkdwn", "text": "*All* green"}}]


@tool(effect="write")
async def report(ctx: ToolContext) -> str:
    """Write a report."""
    await ctx.artifacts.tag(
        key="report", title="The report", content=b"a,b\n1,2\n", filename="report.csv"
    )
    return "written"


@tool
async def board(blocks: list[dict[str, Any]]) -> SlackMessage:
    """Show the board."""
    return SlackMessage(text="Everything is **green**", blocks=blocks)


def files(world: World, ts: str) -> list[Message]:
    return [one for one in world.slack.messages(CHANNEL, ts) if one.files]


async def until(world: World, done: Callable[[], object]) -> None:
    """Let time pass until it is so, and a little more."""
    async with asyncio.timeout(30):
        while not done():
            await world.clock.elapse(0.5)
            await world.slack.settled()
            # The disk takes real time.
            await asyncio.sleep(0.005)
    await world.clock.elapse(2)
    await world.slack.settled()
    assert done(), world.slack.describe()


@pytest.mark.parametrize(
    "lost", [None, "files.completeUploadExternal", "files.getUploadURLExternal"]
)
async def test_an_artifact_is_a_file_in_the_thread_once(lost: str | None) -> None:
    async with served(Scripted([Call("report"), Say("Here it is.")]), tools=[report]) as world:
        if lost is not None:
            world.slack.drop(lost, "after")
        ts = world.say(f"<@{BOT}> report please")
        await until(world, lambda: len(world.slack.visible(CHANNEL, ts)) == 3)
        (message,) = files(world, ts)
        (file,) = message.files
        assert (file.name, file.title, file.content) == ("report.csv", "The report", b"a,b\n1,2\n")
        assert world.slack.visible(CHANNEL, ts)[-1] == "Here it is."


async def test_a_file_that_was_shared_before_a_crash_is_not_shared_again() -> None:
    async with served(Scripted([Call("report"), Say("Here it is.")]), tools=[report]) as world:
        gate = world.slack.hold("files.completeUploadExternal", "after")
        ts = world.say(f"<@{BOT}> report please")
        await world.slack.until(lambda: gate.arrived)
        await world.host.kill()
        gate.release()
        world.slack.heal()
        await world.host.start()
        await until(world, lambda: len(world.slack.visible(CHANNEL, ts)) == 3)
        assert len(files(world, ts)) == 1


async def test_a_tool_shows_blocks() -> None:
    script = Scripted([Call("board", {"blocks": BLOCKS}), Say("Done.")])
    async with served(script, tools=[board]) as world:
        ts = world.say(f"<@{BOT}> board")
        _, shown, answer = await world.shown(3, ts)
        assert "All" in shown
        assert answer == "Done."
        message = world.slack.messages(CHANNEL, ts)[1]
        assert message.blocks[0]["text"] == BLOCKS[0]["text"]
        assert "<!" not in message.text


async def test_blocks_that_slack_refuses_are_shown_as_text() -> None:
    script = Scripted([Call("board", {"blocks": [{"type": "nonsense"}]}), Say("Done.")])
    async with served(script, tools=[board]) as world:
        ts = world.say(f"<@{BOT}> board")
        shown = await world.shown(3, ts)
        assert "green" in shown[1]


def test_blocks_cannot_pass_for_the_channels_own() -> None:
    button = {"type": "button", "action_id": "threadline:approve", "value": "ses_1/call_1"}
    with pytest.raises(ValueError, match="action_id"):
        SlackMessage(text="x", blocks=[{"type": "actions", "elements": [button]}])
