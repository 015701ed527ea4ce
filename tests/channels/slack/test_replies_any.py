"""Whatever fails, whenever the host dies: the answer stands in the thread once, nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels.slack.test_replies import ended
from tests.channels.slack.world import BOT, EVENTS, World, served

from threadline.harness.base import Capabilities, TurnResult

STREAMS = "chat.startStream", "chat.appendStream", "chat.stopStream"
SHOWN = (*STREAMS, "chat.postMessage", "chat.update")
ALL = (*SHOWN, "chat.delete", "conversations.replies")


@dataclass
class Puppet:
    """A harness that says what it is told, and after a crash all of it again."""

    name = "puppet"
    model: str | None = None
    capabilities = Capabilities()
    said: list[str] = field(default_factory=list)
    whole: bool = False
    fails: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, turn: Any) -> TurnResult:
        turn.step_started()
        told = 0
        while True:
            for delta in self.said[told:]:
                turn.message_delta(f"{turn.id}.m", delta)
            told = len(self.said)
            if self.fails:
                raise RuntimeError("boom")
            if self.whole:
                break
            self.news.clear()
            await self.news.wait()
        text = "".join(self.said)
        turn.message_completed(f"{turn.id}.m", text, "stop")
        turn.step_completed({}, "stop")
        messages = [] if turn.prompt_in_history else [{"role": "user", "content": "go"}]
        return TurnResult(text, usage={}, messages=messages)


async def step(world: World, puppet: Puppet, number: int, what: tuple[Any, ...]) -> None:
    match what:
        case ("say", count):
            words = [f"w{number}x{one} " for one in range(count)]
            for at in range(59, count, 60):
                words[at] += "\n\n"
            puppet.said.append("".join(words))
            puppet.news.set()
            await world.host.elapse(0.1)
        case ("elapse", seconds):
            await world.host.elapse(seconds, step=max(seconds / 40, 1.0))
        case ("fail", method, error, effect):
            world.slack.fail(method, error, effect=effect)
        case ("drop", method, place):
            world.slack.drop(method, place)
        case ("crash",):
            await world.host.kill()
            await world.slack.settled()
            await world.host.start()
            world.slack.app.request_url = world.host.url + EVENTS


faults = st.one_of(
    st.tuples(st.just("fail"), st.sampled_from(ALL), st.just("ratelimited"), st.just(False)),
    st.tuples(st.just("fail"), st.sampled_from(ALL), st.just("internal_error"), st.booleans()),
    st.tuples(
        st.just("fail"),
        st.sampled_from(STREAMS),
        st.sampled_from(["message_not_in_streaming_state", "msg_too_long", "unknown_method"]),
        st.just(False),
    ),
    st.tuples(
        st.just("fail"),
        st.just("chat.update"),
        st.sampled_from(["cant_update_message", "edit_window_closed", "msg_too_long"]),
        st.just(False),
    ),
    st.tuples(st.just("drop"), st.sampled_from(ALL), st.sampled_from(["before", "after"])),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from([1, 3, 50, 900])),
        st.tuples(st.just("elapse"), st.sampled_from([2, 30, 200, 320])),
        faults,
        st.just(("crash",)),
    ),
    min_size=1,
    max_size=10,
).filter(lambda program: program.count(("crash",)) < 3)  # a third restart ends the turn


async def play(program: list[tuple[Any, ...]], *, streams: bool, end: str) -> None:
    puppet = Puppet()
    async with served(puppet, reply="stream") as world:
        if not streams:
            world.slack.fail("chat.startStream", "unknown_method", times=None)
        ts = world.say(f"<@{BOT}> go")
        await world.host.until(lambda: world.session(ts) is not None)
        await world.session(ts).event("turn.started")
        for number, what in enumerate(program):
            await step(world, puppet, number, what)
        if end == "answer":
            puppet.said.append("end.")
        puppet.whole, puppet.fails = end == "answer", end == "failure"
        if end == "stop":
            world.say("stop", thread=ts)
            await world.slack.settled()
        puppet.news.set()
        said = await world.passing(ended(world, ts), step=1.0)
        judge(said, "".join(puppet.said).split(), end)


def judge(said: list[str], words: list[str], end: str) -> None:
    """Check that the whole answer is there once, or what was said of it, and then why not more."""
    if end == "answer":
        assert [word for one in said for word in one.split()] == words
        return
    notes = [one for one in said if one == "Stopped." or one.startswith("There is no answer")]
    assert len(notes) == 1
    before = [word for one in said if one not in (*notes, "stop") for word in one.split()]
    assert before == words[: len(before)]


@pytest.mark.timeout(900)
@settings(deadline=None, max_examples=20)
@given(steps, st.booleans(), st.sampled_from(["answer", "answer", "stop", "failure"]))
def test_the_answer_is_there_once(program: list[tuple[Any, ...]], streams: bool, end: str) -> None:
    asyncio.run(play(program, streams=streams, end=end))
