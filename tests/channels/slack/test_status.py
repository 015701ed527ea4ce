"""The line under a thread: what it says, and that it belongs to its turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.channels.slack.world import BOT, CHANNEL, World, served

from threadline import tool
from threadline.harness.base import ToolCall, Turn
from threadline.harness.scripted import Call, Fail, Reason, Say, Scripted, Wait
from threadline.testing import Gated
from threadline_slack.outbound.status import StatusText, reasoning, using

METHOD = "assistant.threads.setStatus"


def said(world: World) -> list[str]:
    """Return the statuses that were set, in order."""
    return [call.args["status"] for call in world.slack.calls(METHOD)]


async def status(world: World, ts: str, text: str) -> None:
    """Let time pass until a thread's status holds a text."""
    await world.in_time(lambda: text in world.slack.status(CHANNEL, ts))


async def over(world: World, ts: str) -> None:
    """Let a turn end, and see that its status does, without any time passing."""
    await world.session(ts).rest()
    await world.slack.until(lambda: said(world)[-1:] == [""])
    await world.slack.settled()
    assert world.slack.status(CHANNEL, ts) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("\n", ""),
        ("**Checking the logs**\n\nThey are", "is thinking: Checking the logs…"),
        ("# A plan\nmore", "is thinking: A plan…"),
        ("ask <!channel>", "is thinking: ask !channel…"),
    ],
)
def test_the_first_line_of_what_it_thinks(text: str, shown: str) -> None:
    assert reasoning(text) == shown


def test_what_is_said_is_short() -> None:
    assert len(reasoning("x" * 500)) < 120
    assert using(["grep", "grep", "read"]) == "is using grep, read…"
    assert len(using([f"tool{number}" for number in range(100)])) < 120


async def test_it_says_what_the_agent_is_at() -> None:
    gates = [asyncio.Event() for _ in range(3)]

    async def grep() -> str:
        """Look."""
        await gates[1].wait()
        return "found"

    async def script(turn: Turn) -> str:
        turn.step_started()
        turn.reasoning_delta("r", "**Looking**\nsoon")
        await gates[0].wait()
        turn.reasoning_completed("r", "**Looking**\nsoon")
        await turn.call_tools([ToolCall("c", "grep", {})])
        await gates[2].wait()
        return "Found."

    async with served(Scripted(script), tools=[tool(grep)]) as world:
        ts = world.say(f"<@{BOT}> go")
        await status(world, ts, "is thinking: Looking…")
        gates[0].set()
        await status(world, ts, "is using grep…")
        gates[1].set()
        await status(world, ts, "is thinking…")
        gates[2].set()
        await over(world, ts)


async def test_what_it_says_can_be_chosen() -> None:
    gate = asyncio.Event()
    texts = StatusText("is on it", tools=False, reasoning=False, loading=["Thinking", "Pondering"])
    script = Scripted([Reason("Looking"), Call("grep"), Wait(gate)])
    async with served(script, status=texts) as world:
        ts = world.say(f"<@{BOT}> go")
        await status(world, ts, "is on it")
        assert world.slack.thread(CHANNEL, ts).loading_messages == ["Thinking", "Pondering"]
        gate.set()
        await over(world, ts)
        assert set(said(world)) == {"is on it", ""}


async def test_it_can_be_left_out() -> None:
    async with served(status=False) as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        await world.session(ts).rest()
        assert not said(world)


@pytest.mark.parametrize("end", ["completed", "empty", "failed", "stopped"])
async def test_s124_it_goes_with_every_end_of_a_turn(end: str) -> None:
    gate = asyncio.Event()
    steps: list[Any] = [Wait(gate)]
    if end == "failed":
        steps.append(Fail(RuntimeError("boom")))
    steps.append(Say("" if end == "empty" else "Here it is."))
    async with served(Scripted(steps)) as world:
        ts = world.say(f"<@{BOT}> go")
        await status(world, ts, "is thinking…")
        if end == "stopped":
            world.say("stop", thread=ts)
        else:
            gate.set()
        session = world.session(ts)
        await session.event("turn.completed" if end in ("completed", "empty") else "turn.failed")
        await over(world, ts)


async def test_s124_it_goes_though_the_answer_cannot_be_posted() -> None:
    async with served() as world:
        world.slack.fail("chat.postMessage", "internal_error", times=None)
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: said(world)[-1:] == [""])
        assert world.slack.status(CHANNEL, ts) == ""
        world.slack.heal()
        await world.passing(world.session(ts).rest())


async def test_s124_it_is_taken_away_again_when_that_fails() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> go")
        await status(world, ts, "is thinking…")
        world.slack.fail(METHOD, "internal_error", times=2)
        world.say("stop", thread=ts)
        await world.session(ts).event("turn.failed")
        await world.in_time(lambda: said(world)[-3:] == ["", "", ""])
        await world.slack.until(lambda: world.slack.status(CHANNEL, ts) == "")
        await world.session(ts).rest()


async def test_s124_a_call_that_hangs_is_not_overtaken() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        gate = world.slack.hold(METHOD, "before")
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: gate.arrived)
        world.say("stop", thread=ts)
        await world.session(ts).event("turn.failed")
        assert gate.arrived == 1
        gate.release()
        await over(world, ts)
        assert said(world) == ["is thinking…", ""]
        bot = await world.channel.bots.of("T0AGENT001")
        (place,) = bot.status._lines
        turn = world.session(ts).events("turn.started")[0]["turnId"]
        bot.status.show(None, place, turn, "is late")  # type: ignore[arg-type]
        assert not bot.status._lines[place].wanted


async def test_s124_a_long_turn_renews_it() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> go")
        await status(world, ts, "is thinking…")
        for count in range(2, 5):
            await world.in_time(
                lambda n=count: len(said(world)) >= n or not world.slack.status(CHANNEL, ts),  # type: ignore[misc]
                step=1,
            )
            assert world.slack.status(CHANNEL, ts)
            assert world.clock.monotonic() < 120 * count
        harness.release()
        await over(world, ts)


async def test_s125_the_end_of_a_turn_leaves_the_next_ones_status_alone() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> one")
        await harness.gates["answer"].reached()
        world.say("two", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        harness.release()
        harness.hold("answer")
        await harness.gates["answer"].held_up()
        await world.shown(3, ts)
        await status(world, ts, "is thinking…")
        bot = await world.channel.bots.of("T0AGENT001")
        first = world.session(ts).events("turn.started")[0]["turnId"]
        (line,) = bot.status._lines.values()
        bot.status.end(None, next(iter(bot.status._lines)), first)  # type: ignore[arg-type]
        assert line.wanted
        await world.host.elapse(5)
        assert world.slack.status(CHANNEL, ts)
        harness.release()
        await over(world, ts)


async def test_what_is_posted_on_the_way_does_not_end_it() -> None:
    gate = asyncio.Event()
    script = Scripted([Say("Let me look."), Call("grep"), Wait(gate), Say("Here it is.")])
    async with served(script, reply="agent") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        await status(world, ts, "is")
        gate.set()
        await over(world, ts)


async def test_while_a_person_is_asked_there_is_none() -> None:
    script = Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")])
    async with served(script) as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        await world.slack.until(lambda: said(world)[-1:] == [""])
        await world.host.elapse(200, step=10)
        assert world.slack.status(CHANNEL, ts) == ""
