"""What people see of a turn in each mode: once, whole, and nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.channels.slack.world import BOT, CHANNEL, DM, PERSON, TEAM, World, served

from threadline.harness.base import TurnResult
from threadline.harness.scripted import Call, Say, Scripted, Wait
from threadline.testing import Gated
from threadline_slack import SlackChannel
from threadline_slack.interaction.cards import STOP
from threadline_slack.testing import Message

LONG = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(100))


def unfinished(messages: list[Message]) -> list[Message]:
    """Return the messages that still stream, or have a Stop button."""
    return [
        one
        for one in messages
        if one.streaming
        or (one.stream is not None and one.stream.state == "errored")
        or any(
            element.get("action_id") == STOP
            for block in one.blocks or []
            for element in block.get("elements") or []
        )
    ]


async def ended(world: World, ts: str, channel: str = CHANNEL) -> list[str]:
    """Return what the agent's messages show when all rests; none of them is unfinished."""
    await world.session(ts, channel).rest()
    await world.slack.settled()
    shown = world.slack.messages(channel, ts)
    assert not unfinished(shown)
    await world.slack.until(lambda: world.slack.status(channel, ts) == "")
    kv = world.host.agent().store
    assert await kv.kv_get(f"channel/slack/live/{world.session(ts, channel).id}") is None
    return world.slack.visible(channel, ts)[1:]


def calls(world: World) -> list[str]:
    """Return the methods that were called to show something, in order."""
    return [
        call.method
        for call in world.slack.calls()
        if call.method.startswith("chat.") and call.method != "chat.getPermalink"
    ]


def streaming(*steps: Any) -> tuple[Scripted, asyncio.Event]:
    """Return a harness that waits in the middle, and what lets it go on."""
    gate = asyncio.Event()
    return Scripted([one if one is not None else Wait(gate) for one in steps]), gate


class Halves:
    """A harness that says the first half of its answer, waits, and says the rest."""

    name = "halves"
    model = None

    def __init__(self, first: str, rest: str) -> None:
        self.gate = asyncio.Event()
        self.first, self.rest = first, rest
        self.capabilities = Scripted().capabilities

    async def run(self, turn: Any) -> Any:
        turn.step_started()
        text = self.first + self.rest
        turn.message_delta(f"{turn.id}.m", self.first)
        await self.gate.wait()
        turn.message_delta(f"{turn.id}.m", self.rest)
        turn.message_completed(f"{turn.id}.m", text, "stop")
        turn.step_completed({"inputTokens": 1, "outputTokens": 1}, "stop")
        messages = [] if turn.prompt_in_history else [{"role": "user", "content": turn.prompt.text}]
        return TurnResult(
            text, usage={}, messages=[*messages, {"role": "assistant", "content": text}]
        )


def test_a_mode_that_is_not_one_is_refused() -> None:
    with pytest.raises(ValueError, match="reply"):
        SlackChannel(reply="loud")  # type: ignore[arg-type]


# agent


async def test_agent_mode_posts_each_message_in_order() -> None:
    script = Scripted([Say("Let me look."), Call("nothing"), Say("Once more."), Call("nothing")])
    async with served(script, reply="agent") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(4, ts)
        assert await ended(world, ts) == ["Let me look.", "Once more.", "Done."]


async def test_post_mode_posts_the_answer_alone() -> None:
    script = Scripted([Say("Let me look."), Call("nothing"), Say("Here it is.")])
    async with served(script) as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        assert await ended(world, ts) == ["Here it is."]


async def test_each_message_is_there_once_across_a_crash() -> None:
    script = Scripted([Say("Let me look."), Call("nothing"), Say("Here it is.")])
    async with served(script, reply="agent") as world:
        hold = world.slack.hold("chat.postMessage")
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: hold.arrived)
        await world.host.kill()
        world.slack.heal()
        await world.slack.settled()
        await world.host.start()
        assert await ended(world, ts) == ["Let me look.", "Here it is."]


# A native stream


async def test_an_answer_streams_and_is_complete() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        (shown,) = world.slack.messages(CHANNEL, ts)[1:]
        assert shown.streaming
        assert shown.stream is not None
        assert shown.stream.recipient == (PERSON, TEAM)
        assert shown.text == "The first half, "
        harness.gate.set()
        assert await ended(world, ts) == ["The first half, and the second."]
        assert calls(world) == ["chat.startStream", "chat.stopStream"]


async def test_an_answer_that_comes_at_once_is_one_message() -> None:
    async with served(reply="stream") as world:
        ts = world.say(f"<@{BOT}> what is new?")
        await world.shown(2, ts)
        assert await ended(world, ts) == ["what is new?"]


async def test_each_message_of_a_turn_streams_by_itself() -> None:
    script, gate = streaming(Say("Let me look."), Call("nothing"), None, Say("Here it is."))
    async with served(script, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        gate.set()
        await world.shown(3, ts)
        assert await ended(world, ts) == ["Let me look.", "Here it is."]


async def test_s113_a_stream_that_died_is_mended() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        world.slack.fail("chat.appendStream", "message_not_in_streaming_state", times=None)
        world.slack.fail("chat.stopStream", "message_not_in_streaming_state", times=None)
        first = world.slack.messages(CHANNEL, ts)[1]
        assert first.stream is not None
        first.stream.state = "errored"
        harness.gate.set()
        assert "".join(await ended(world, ts)) == "The first half, and the second."


async def test_s113_a_stream_is_left_before_it_dies() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        await world.host.elapse(430, step=5)
        first = world.slack.messages(CHANNEL, ts)[1]
        assert first.stream is not None
        assert first.stream.state == "completed"
        assert world.slack.calls("chat.stopStream")[0].args["session_status"] == "processing"
        harness.gate.set()
        assert await ended(world, ts) == ["The first half, ", "and the second."]


async def test_s114_what_is_left_goes_into_the_end() -> None:
    harness = Halves("The first half, ", " ".join(str(number) for number in range(200)))
    async with served(harness, reply="stream") as world:
        gate = world.slack.hold("chat.startStream")
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: gate.arrived)
        harness.gate.set()
        session = world.session(ts)
        await session.event("turn.completed")
        gate.release()
        (said,) = await ended(world, ts)
        assert said == harness.first + harness.rest
        assert not [one for one in world.slack.calls() if one.error]


class Pieces:
    """A harness that says pieces of its answer, each when it is let."""

    name = "pieces"
    model: str | None = None
    capabilities = Scripted().capabilities

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.gates = [asyncio.Event() for _ in pieces]

    async def run(self, turn: Any) -> TurnResult:
        turn.step_started()
        for piece, gate in zip(self.pieces, self.gates, strict=True):
            turn.message_delta("m", piece)
            await gate.wait()
        text = "".join(self.pieces)
        turn.message_completed("m", text, "stop")
        turn.step_completed({}, "stop")
        return TurnResult(text, usage={}, messages=[])


async def test_s114_an_end_waits_for_what_is_on_its_way() -> None:
    harness = Pieces("One ", "two ", "three.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        gate = world.slack.hold("chat.appendStream", "before")
        harness.gates[0].set()
        await world.in_time(lambda: gate.arrived)
        for one in harness.gates:
            one.set()
        await world.session(ts).event("turn.completed")
        await world.host.elapse(0.2, step=0.001)
        assert not world.slack.calls("chat.stopStream")
        gate.release()
        assert await ended(world, ts) == ["One two three."]
        assert not [one for one in world.slack.calls() if one.error]


async def test_s113_behind_a_dead_stream_another_goes_on() -> None:
    harness = Pieces("One ", "two ", "three.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        first = world.slack.messages(CHANNEL, ts)[1]
        assert first.stream is not None
        first.stream.state = "errored"
        harness.gates[0].set()
        await world.in_time(lambda: world.slack.visible(CHANNEL, ts)[1:] == ["One ", "two "])
        for one in harness.gates:
            one.set()
        assert await ended(world, ts) == ["One ", "two three."]


async def test_a_long_answer_rolls_over_in_good_places() -> None:
    harness = Halves(LONG[:30_000], LONG[30_000:])
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.in_time(lambda: len(world.slack.messages(CHANNEL, ts)) >= 4)
        harness.gate.set()
        said = await ended(world, ts)
        assert "\n\n".join(one.strip("\n") for one in said).split() == LONG.split()
        assert all(one.startswith("Paragraph") for one in said)
        assert "chat.update" not in calls(world)


async def test_another_text_than_the_one_that_grew_replaces_it() -> None:
    async def script(turn: Any) -> Any:
        turn.step_started()
        turn.message_delta("m", "A draft of it ")
        await gate.wait()
        turn.message_completed("m", "The answer.", "stop")
        turn.step_completed({}, "stop")
        return TurnResult("The answer.", usage={}, messages=[])

    gate = asyncio.Event()
    async with served(Scripted(script), reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        gate.set()
        assert await ended(world, ts) == ["The answer."]


@pytest.mark.parametrize("fault", ["drop", "error"])
async def test_an_append_of_which_nobody_knows_is_mended(fault: str) -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        if fault == "drop":
            world.slack.drop("chat.stopStream", "after")
        else:
            world.slack.fail("chat.stopStream", "internal_error", effect=True)
        harness.gate.set()
        said = await world.passing(ended(world, ts))
        assert said == ["The first half, and the second."]


# Without streams: a message that is edited


async def edited(world: World, harness: Halves, *, channel: str = CHANNEL) -> tuple[str, Message]:
    """Ask, and return the question and the message that stands for the answer."""
    ts = world.say(f"<@{BOT}> go", channel=channel)
    await world.shown(2, ts, channel)
    shown = world.slack.messages(channel, ts)[1]
    await world.slack.until(lambda: "first" in world.slack.visible(channel, ts)[1])
    return ts, shown


@pytest.mark.parametrize("error", ["unknown_method", "missing_scope", "invalid_arguments"])
async def test_s130_where_nothing_streams_a_message_is_edited(error: str) -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        world.slack.fail("chat.startStream", error, times=None)
        ts, shown = await edited(world, harness)
        assert unfinished([shown])
        harness.gate.set()
        assert await ended(world, ts) == ["The first half, and the second."]
        (call,) = world.slack.calls("chat.update")
        assert call.args["text"] == "The first half, and the second."
        assert call.args["attachments"] == []
        assert not [block for block in call.args["blocks"] if block["type"] == "actions"]
        assert calls(world) == ["chat.startStream", "chat.postMessage", "chat.update"]


async def test_where_nothing_streams_it_is_asked_once() -> None:
    async with served(Scripted([Say("So far "), Say("so good.")]), reply="stream") as world:
        world.slack.fail("chat.startStream", "unknown_method", times=None)
        first = world.say(f"<@{BOT}> go")
        await ended_soon(world, first)
        second = world.say(f"<@{BOT}> go")
        await ended_soon(world, second)
        assert len(world.slack.calls("chat.startStream")) <= 1


async def ended_soon(world: World, ts: str) -> list[str]:
    await world.slack.until(lambda: world.session(ts) is not None)
    return await ended(world, ts)


async def test_outside_of_threads_a_message_is_edited() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream", flat_dms=True) as world:
        world.slack.user(PERSON).post(DM, "go")
        await world.slack.until(lambda: len(world.slack.messages(DM)) == 2)
        # The next edit waits for its time, which begins when the first has been answered.
        await world.in_time(lambda: "first" in world.slack.visible(DM)[1])
        assert unfinished(world.slack.messages(DM))
        harness.gate.set()
        await world.slack.until(lambda: "second" in world.slack.visible(DM)[1])
        assert not unfinished(world.slack.messages(DM))
        assert not world.slack.calls("chat.startStream")


async def test_while_it_works_a_message_with_a_stop_button_stands_for_it() -> None:
    script, gate = streaming(None, Say("Here it is."))
    async with served(script, reply="stream", flat_dms=True) as world:
        world.slack.user(PERSON).post(DM, "go")
        await world.slack.until(lambda: len(world.slack.messages(DM)) == 2)
        assert "Working" in world.slack.visible(DM)[1]
        assert unfinished(world.slack.messages(DM))
        gate.set()
        await world.slack.until(lambda: world.slack.visible(DM)[1] == "Here it is.")
        assert not unfinished(world.slack.messages(DM))


async def test_s104_a_long_answer_fills_the_message_and_goes_on_behind_it() -> None:
    answer = LONG[:6_200]
    harness = Halves("The first half, " + answer[:100], answer[100:])
    async with served(harness, reply="stream") as world:
        world.slack.fail("chat.startStream", "unknown_method", times=None)
        ts, _ = await edited(world, harness)
        harness.gate.set()
        said = await ended(world, ts)
        assert len(said) > 1
        assert " ".join(said).split() == (harness.first + harness.rest).split()
        assert all(len(one.args["text"]) <= 4_000 for one in world.slack.calls("chat.update"))


@pytest.mark.parametrize(
    "error", ["message_not_found", "cant_update_message", "edit_window_closed", "msg_too_long"]
)
async def test_s129_a_message_that_cannot_be_edited_is_followed_by_the_answer(error: str) -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        world.slack.fail("chat.startStream", "unknown_method", times=None)
        ts, shown = await edited(world, harness)
        if error == "message_not_found":
            world.slack.user(BOT).delete(shown.ts)
        world.slack.fail("chat.update", error, times=None)
        harness.gate.set()
        assert await ended(world, ts) == ["The first half, and the second."]
        assert len(world.slack.calls("chat.update")) == 1


async def test_the_edits_keep_to_the_limits() -> None:
    async def script(turn: Any) -> Any:
        turn.step_started()
        for number in range(100):
            turn.message_delta("m", f"first {number} ")
            await world.clock.sleep(0.1)
        text = "".join(f"first {number} " for number in range(100))
        turn.message_completed("m", text, "stop")
        turn.step_completed({}, "stop")
        return TurnResult(text, usage={}, messages=[])

    async with served(Scripted(script), reply="stream") as world:
        world.slack.options.rate_limits = True
        world.slack.fail("chat.startStream", "unknown_method", times=None)
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: world.session(ts) is not None)
        (said,) = await world.passing(ended(world, ts))
        assert said.split()[-1] == "99"
        assert 3 < len(world.slack.calls("chat.update")) < 14


# Ends of a turn


@pytest.mark.parametrize("streams", [True, False])
async def test_a_stop_keeps_what_was_said_and_says_so(streams: bool) -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        if not streams:
            world.slack.fail("chat.startStream", "unknown_method", times=None)
        ts, _ = await edited(world, harness)
        world.say("stop", thread=ts)
        await world.slack.until(lambda: "Stopped." in world.slack.visible(CHANNEL, ts))
        said = [one for one in await ended(world, ts) if one != "stop"]
        assert [one.strip() for one in said] == ["The first half,", "Stopped."]


async def test_a_turn_that_says_nothing_leaves_nothing() -> None:
    async def script(turn: Any) -> Any:
        turn.step_started()
        turn.message_delta("m", "The first half ")
        await gate.wait()
        return TurnResult("", usage={}, messages=[])

    gate = asyncio.Event()
    async with served(Scripted(script), reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        gate.set()
        assert await ended(world, ts) == []


async def test_a_failure_is_said_below_what_was_said() -> None:
    async def script(turn: Any) -> Any:
        turn.step_started()
        turn.message_delta("m", "The first half ")
        await gate.wait()
        raise RuntimeError("boom")

    gate = asyncio.Event()
    async with served(Scripted(script), reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        gate.set()
        first, notice = await ended(world, ts)
        assert first.strip() == "The first half"
        assert notice.startswith("There is no answer")


# Crashes


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("method", ["begin", "end"])
async def test_a_crash_leaves_one_answer(streams: bool, place: str, method: str) -> None:
    harness = Halves("The first half, ", "and the second.")
    begin, end = "chat.startStream", "chat.stopStream"
    if not streams:
        begin, end = "chat.postMessage", "chat.update"
    async with served(harness, reply="stream") as world:
        if not streams:
            world.slack.fail("chat.startStream", "unknown_method", times=None)
        gate = world.slack.hold(begin if method == "begin" else end, place)  # type: ignore[arg-type]
        ts = world.say(f"<@{BOT}> go")
        if method == "end":
            await world.shown(2, ts)
            harness.gate.set()
        await world.slack.until(lambda: gate.arrived)
        await world.host.kill()
        world.slack.heal(None)
        await world.slack.settled()
        harness.gate.set()
        if not streams:
            world.slack.fail("chat.startStream", "unknown_method", times=None)
        await world.host.start()
        await world.host.until(lambda: world.session(ts) is not None)
        assert await ended(world, ts) == ["The first half, and the second."]


async def test_a_stream_that_is_cut_off_by_a_drain_is_completed_later() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        await world.host.stop()
        assert not unfinished(world.slack.messages(CHANNEL, ts))
        harness.gate.set()
        await world.host.start()
        assert await ended(world, ts) == ["The first half, and the second."]


async def test_a_shorter_answer_after_a_crash_leaves_nothing_of_the_longer() -> None:
    harness = Gated(hold=["end"], reply=lambda turn, _: next(answers))
    answers = iter([LONG, "Short."])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(4, ts)
        await world.host.until(
            lambda: world.host.agent().dispatcher.caught_up(world.session(ts).id)
        )
        await world.host.kill()
        harness.release()
        await world.host.start()
        assert await ended(world, ts) == ["Short."]


async def test_a_failure_behind_the_answer_is_not_said() -> None:
    harness = Gated(hold=["end"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> once")
        for _ in range(3):
            await world.shown(2, ts)
            session = world.session(ts)
            await world.host.until(lambda: world.host.agent().dispatcher.caught_up(session.id))  # noqa: B023
            await world.host.crash()
        session = world.session(ts)
        await session.event("turn.failed", where=lambda e: e["data"]["code"] == "resume_limit")
        assert await ended(world, ts) == ["once"]


@pytest.mark.parametrize("end", ["answer", "stop"])
async def test_a_stream_that_a_person_stopped_says_no_more(end: str) -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        shown = world.slack.messages(CHANNEL, ts)[1]
        assert shown.stream is not None
        shown.stream.state = "stopped"
        if end == "answer":
            harness.gate.set()
            assert await ended(world, ts) == ["The first half, and the second."]
        else:
            world.say("stop", thread=ts)
            await world.slack.until(lambda: "Stopped." in world.slack.visible(CHANNEL, ts))
            said = [one.strip() for one in await ended(world, ts) if one != "stop"]
            assert said == ["The first half,", "Stopped."]


async def test_a_message_on_the_way_leaves_the_session_at_work() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def script(turn: Any) -> str:
        turn.step_started()
        turn.message_delta("n", "Let me look ")
        await first.wait()
        turn.message_completed("n", "Let me look into it.", "tool_calls")
        await second.wait()
        return "Here it is."

    async with served(Scripted(script), reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        first.set()
        await world.slack.until(lambda: world.slack.calls("chat.stopStream"))
        (call,) = world.slack.calls("chat.stopStream")
        assert call.args["session_status"] == "processing"
        second.set()
        await world.shown(3, ts)
        assert await ended(world, ts) == ["Let me look into it.", "Here it is."]


async def test_while_a_person_is_asked_nothing_moves() -> None:
    script = Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")])
    async with served(script, reply="stream", flat_dms=True) as world:
        world.slack.user(PERSON).post(DM, "deploy it")
        await world.slack.until(lambda: "deploy" in " ".join(world.slack.visible(DM)[1:]))
        await world.slack.until(lambda: len(world.slack.messages(DM)) == 2)
        card = world.slack.messages(DM)[1]
        await world.slack.user(PERSON).click(card, "threadline:approve")
        await world.slack.until(lambda: "It is out." in world.slack.visible(DM))
        await world.slack.until(lambda: not unfinished(world.slack.messages(DM)))
        assert len(world.slack.messages(DM)) == 3


async def test_many_streams_keep_to_the_limits() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        world.slack.options.rate_limits = True
        asked = [world.say(f"<@{BOT}> question") for _ in range(14)]
        for ts in asked:
            await world.host.until(lambda: world.session(ts) is not None)  # noqa: B023
            await world.session(ts).event("message.appended")
        await world.in_time(lambda: len(world.slack.calls("chat.startStream")) >= 10)
        await world.host.elapse(50 - world.clock.monotonic())
        assert len(world.slack.calls("chat.startStream")) == 10
        harness.gate.set()
        await world.in_time(
            lambda: all(len(world.slack.messages(CHANNEL, ts)) == 2 for ts in asked), step=0.5
        )
        for ts in asked:
            said = await world.passing(ended(world, ts), step=0.5)
            assert said == ["The first half, and the second."]


# Feedback


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("reply", ["post", "stream"])
async def test_feedback_buttons_stand_below_the_answer_alone(known: bool, reply: Any) -> None:
    script, gate = streaming(Say("Let me look."), Call("nothing"), None, Say("Here it is."))
    async with served(script, reply=reply, feedback=True) as world:
        if not known:
            for method in ("chat.postMessage", "chat.update", "chat.stopStream"):
                world.slack.fail(
                    method,
                    "invalid_blocks",
                    times=None,
                    when=lambda args: "context_actions" in str(args.get("blocks")),
                )
        ts = world.say(f"<@{BOT}> go")
        gate.set()
        await world.slack.until(lambda: world.session(ts) is not None)
        await ended(world, ts)
        said = world.slack.messages(CHANNEL, ts)[1:]
        kinds = [[block["type"] for block in one.blocks or []] for one in said]
        rated = [one for one in kinds if "context_actions" in one or "actions" in one]
        assert rated == [kinds[-1]]
        assert ("context_actions" in rated[0]) is known
        assert "Here it is." in world.slack.visible(CHANNEL, ts)[-1]


async def test_an_answer_that_streamed_has_feedback_buttons() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream", feedback=True) as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        harness.gate.set()
        await ended(world, ts)
        (said,) = world.slack.messages(CHANNEL, ts)[1:]
        assert [block["type"] for block in said.blocks or []] == ["context_actions"]
        assert said.text == "The first half, and the second."
        assert calls(world) == ["chat.startStream", "chat.stopStream"]


async def test_what_grows_below_a_question_that_was_deleted_is_taken_away() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        ts = world.say(f"<@{BOT}> go")
        await world.shown(2, ts)
        world.slack.user(PERSON).delete(ts)
        await world.slack.settled()
        bot = await world.channel.bots.of(TEAM)
        await world.slack.until(lambda: list(bot.deleted._places))
        harness.gate.set()
        await world.session(ts).rest()
        await world.slack.settled()
        assert not [one for one in world.slack.messages(CHANNEL, ts) if one.user == BOT]


async def test_a_stream_that_is_found_is_known_from_then_on() -> None:
    harness = Halves("The first half, ", "and the second.")
    async with served(harness, reply="stream") as world:
        begun = world.slack.hold("chat.startStream")
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: begun.arrived)
        await world.host.kill()
        world.slack.heal()
        await world.slack.settled()
        world.slack.drop("chat.update", "before", times=None)
        harness.gate.set()
        await world.host.start()
        await world.slack.until(lambda: world.slack.calls("chat.update"))
        assert not world.slack.messages(CHANNEL, ts)[1].streaming
        await world.host.kill()
        world.slack.heal()
        await world.slack.settled()
        await world.host.start()
        assert await ended(world, ts) == ["The first half, and the second."]
