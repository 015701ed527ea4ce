"""Handlers and their posts on a whole agent: at least once, visible once, through any crash."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs
from tests.channel.outside import Fault, Full, Room, Searchable
from tests.host.serving import agent, by_header, serve, until

from threadline import (
    Accepted,
    Agent,
    Channel,
    Event,
    EventContext,
    MessageAppended,
    MessageCompleted,
    ReasoningCompleted,
    RouteContext,
    TryAgain,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from threadline.channel.context import Context
from threadline.channel.outbox import PROGRESS_SECONDS
from threadline.errors import NotFound, StoreUnavailable
from threadline.harness.base import TurnResult
from threadline.harness.scripted import Scripted
from threadline.host.agent import AgentRuntime
from threadline.host.logs import LogBook
from threadline.host.routes import AgentRoutes
from threadline.project import Project
from threadline.store import embedded, ledger, writer
from threadline.store.base import OutboundRecord
from threadline.store.embedded import EmbeddedStore
from threadline.testing.clock import ManualClock
from threadline.testing.faults import Crashed, FaultyDisk, crash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from threadline.channel.context import Delivery
    from threadline.harness.base import Turn


@pytest.fixture(autouse=True)
def _unsynced_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power only fails in FaultyDisk here, so that a real sync only takes time."""

    def quick(path: Path) -> sqlite3.Connection:
        connection = ledger.connect(path)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    monkeypatch.setattr(embedded, "connect", quick)


class Speaker:
    """Turns that say their words one after the other, then an answer, as far as a test lets them.

    The answer of a resumed turn says so.
    """

    def __init__(self) -> None:
        self.words = asyncio.Semaphore(0)
        self.ending = asyncio.Event()
        self.ending.set()
        self.said = 0

    async def run(self, turn: Turn) -> TurnResult:
        """Say it."""
        name, attempt = f"{turn.id}.m1", turn.attempt
        for word in turn.prompt.text.split()[1:]:
            await self.words.acquire()
            turn.message_delta(name, f"{word} ")
            self.said += 1
        answer = turn.prompt.text if attempt == 1 else f"{turn.prompt.text} (attempt {attempt})"
        turn.message_completed(name, answer)
        await self.ending.wait()
        return TurnResult(answer)


def answering(target: Room) -> Channel:
    """Return a channel that posts each final answer."""
    channel = Channel(admission="coalesce")

    @channel.on("message.completed")
    async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
        if event.data.finish_reason == "stop":
            await ctx.post(target, event.data.text)

    return channel


class Desk:
    """One agent with one channel on one state root, and its restarts."""

    def __init__(self, root: Path, make: Callable[[], Channel], disk: FaultyDisk | None = None):
        self.root = root
        self.make = make
        self.disk = disk or FaultyDisk()
        self.clock = ManualClock()
        self.speaker = Speaker()
        self.boot = 1
        self.agent: AgentRuntime

    async def start(self) -> Desk:
        """Start a process."""
        made = Agent(
            name="Desk",
            instructions="Answer.",
            harness=Scripted(self.speaker.run),
            channels={"desk": self.make()},
            settle_seconds=1.0,
        )
        project = Project.of(made, slug="desk")
        store = EmbeddedStore(self.root, disk=self.disk, clock=self.clock, boot=f"boot {self.boot}")
        self.agent = AgentRuntime(project, self.root, clock=self.clock, store=store)
        await self.agent.start()
        return self

    async def say(self, text: str, delivery_id: str | None = None, token: str = "t") -> Delivery:
        """Let somebody say something."""
        ctx = Context(self.agent.runtimes["desk"])
        return await ctx.send(text, continuation_token=token, delivery_id=delivery_id)

    async def until(self, check: Callable[[], Any], *, tick: float = 0.0) -> Any:
        """Let everything run until something is so, and time pass if wanted."""
        async with asyncio.timeout(20):
            while not (found := check()):
                if self.disk.dead:
                    raise Crashed
                for _ in range(20):
                    await asyncio.sleep(0)
                self.clock.advance(tick)
        return found

    def rests(self) -> bool:
        """Tell whether nothing runs and every handler has run."""
        core, dispatcher = self.agent.core, self.agent.dispatcher
        owners = core._owners.values()
        busy = core._loading or core._early or core._reopening
        return not busy and all(
            owner.at_rest and dispatcher.caught_up(owner.record.id) for owner in owners
        )

    async def rest(self, *, tick: float = 0.01) -> None:
        """Return when all is done."""
        await self.until(self.rests, tick=tick)

    async def rest_of_handlers(self) -> None:
        """Return when everything recorded so far was handled."""
        owners = self.agent.core._owners
        await self.until(lambda: all(self.agent.dispatcher.caught_up(one) for one in owners))

    async def kill(self, *, power_cut: bool = False) -> None:
        """End the process without warning, and start no other."""
        await crash(self.agent.core, self.disk)
        if power_cut:
            self.disk.lose_unsynced(self.root)
            self.boot += 1
        self.disk.revive()

    async def close(self, seconds: float = 0.0) -> None:
        """End it as SIGTERM does."""
        await self.agent.drain(seconds)
        await self.agent.close()

    async def outbound(self, delivery_id: str) -> list[dict[str, Any]]:
        """Return what ``GET /v1/deliveries/:id`` shows."""
        (delivery,) = self.agent.store.delivery(delivery_id)
        return await AgentRoutes(self.agent, LogBook())._outbound(delivery)

    def events(self, session_id: str) -> list[dict[str, Any]]:
        """Return a session's log."""
        return [dict(event) for event in self.agent.store.replay(session_id, 0)]

    def rows(self, table: str) -> int:
        """Count the rows of a table of the ledger."""
        connection = sqlite3.connect(self.root / "threadline.db")
        try:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        finally:
            connection.close()


@pytest.fixture
async def desks(tmp_path: Path) -> AsyncIterator[Callable[..., Desk]]:
    made: list[Desk] = []
    before = asyncio.all_tasks()

    def make(channel: Callable[[], Channel], disk: FaultyDisk | None = None) -> Desk:
        made.append(Desk(tmp_path / f"state{len(made)}", channel, disk))
        return made[-1]

    yield make
    for desk in made:
        await desk.close()
    left = {one for one in asyncio.all_tasks() - before if one is not asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=10)
    assert not left


# Crashes


async def scenario(desk: Desk) -> None:
    """Two turns that each have an answer, then the end of the process."""
    await desk.start()
    await desk.say("first", "d1")
    await desk.rest()
    await desk.say("second", "d2")
    await desk.rest()
    await desk.agent.drain(0.0)
    await desk.agent.close()
    if desk.disk.dead:
        raise Crashed


async def survive(desk: Desk, *, power_cut: bool = False) -> None:
    """Run the scenario until it dies, then let the next process finish it."""
    try:
        await scenario(desk)
    except (Crashed, StoreUnavailable):
        assert desk.disk.dead
    if desk.disk.dead:
        await desk.kill(power_cut=power_cut)
    desk.disk.revive()
    await desk.start()
    await desk.rest()
    for name in ("d1", "d2"):
        await desk.say({"d1": "first", "d2": "second"}[name], name)
        await desk.rest()


async def check(desk: Desk, target: Room) -> None:
    """Each of the two prompts has one answer at the target, its newest, and a receipt for it."""
    (record,) = desk.agent.store.sessions()
    answers: dict[str, str] = {}
    origins = await desk.agent.core.origins(record.id)
    for event in desk.events(record.id):
        if event["type"] == "message.completed":
            answers[origins.get(event["turnId"], event["turnId"])] = event["data"]["text"]
    assert sorted(target.texts()) == sorted(answers.values())
    for name in ("d1", "d2"):
        (shown,) = await desk.outbound(name)
        assert shown["ref"] in target.posts
    await desk.close()


@pytest.mark.parametrize("when", ["before", "after", "power cut"])
async def test_a_process_may_die_at_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(writer, "LAZY_SECONDS", 0.0)
    target = Full()
    whole = Desk(tmp_path / "whole", lambda: answering(target))
    await scenario(whole)
    count = whole.disk.operations
    assert count > 20
    for number in range(1, count + 3):
        target = Full()
        disk = FaultyDisk(number, "before" if when == "before" else "after")
        desk = Desk(tmp_path / str(number), lambda target=target: answering(target), disk)  # type: ignore[misc]
        await survive(desk, power_cut=when == "power cut")
        await check(desk, target)


@pytest.mark.parametrize("lost", [False, True], ids=["", "no answer"])
@pytest.mark.parametrize("number", range(1, 9))
async def test_a_process_may_die_at_every_call(tmp_path: Path, number: int, lost: bool) -> None:
    target, steps = Full(), 0
    desk = Desk(tmp_path, lambda: answering(target))

    def die(_: str) -> None:
        nonlocal steps
        steps += 1
        if steps == number:
            desk.disk.die()
            raise Crashed

    target.on_call = die
    if lost:
        target.faults["send"] = [Fault(ConnectionError("reset"), arrives=True)] * 2
    await survive(desk)
    await check(desk, target)


async def test_the_next_attempt_edits_the_answer(desks: Callable[..., Desk]) -> None:
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    desk.speaker.ending.clear()
    await desk.say("hello", "d1")
    for attempt, text in ((1, "hello"), (2, "hello (attempt 2)"), (3, "hello (attempt 3)")):
        await desk.until(lambda text=text: target.texts() == [text], tick=0.01)
        (post,) = target.posts.values()
        assert post.id.partition("/answer/")[2].startswith("turn_")
        # An answer whose receipt is lost is found; one of another text is changed.
        if attempt == 1:
            await desk.kill()
        elif attempt == 2:
            await desk.close()
        if attempt < 3:
            await desk.start()
    desk.speaker.ending.set()
    await desk.rest()
    assert target.texts() == ["hello (attempt 3)"]
    assert target.calls.count("send") == 1
    (shown,) = await desk.outbound("d1")
    assert shown["ref"] == "ref-1"
    await desk.say("and", "d2")
    await desk.rest()
    assert target.texts() == ["hello (attempt 3)", "and"]
    assert len(await desk.outbound("d2")) == 1


async def test_an_answer_without_its_receipt_is_found(desks: Callable[..., Desk]) -> None:
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    target.faults["send"] = [Fault(arrives=True, hangs=True)]
    await desk.say("hello", "d1")
    await desk.until(lambda: target.posts)
    assert await desk.outbound("d1") == [
        {"channel": "desk", "intentAt": desk.agent.services.stamp()}
    ]
    await desk.kill()
    await desk.start()
    await desk.rest()
    assert target.calls == ["send", "find"]
    assert [post["ref"] for post in await desk.outbound("d1")] == ["ref-1"]


def in_parts(target: Room) -> Channel:
    """Return a channel whose first attempt answers in three posts, and every other in one."""
    channel = Channel(admission="coalesce")

    @channel.on("message.completed")
    async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
        again = "attempt" in event.data.text
        for text in ["again"] if again else ["one", "two", "three"]:
            await ctx.post(target, text)
        await ctx.take_back_rest(target)

    @channel.on("turn.failed")
    async def failed(event: Event[TurnFailed], ctx: EventContext) -> None:
        if event.data.code == "resume_limit" and not await ctx.answered():
            await ctx.post(target, "no answer")

    return channel


@pytest.mark.parametrize("fault", [None, "lost", "fails"])
async def test_a_shorter_answer_takes_back_the_rest_of_a_longer_one(
    desks: Callable[..., Desk], fault: str | None
) -> None:
    target = Full()
    desk = await desks(lambda: in_parts(target)).start()
    desk.speaker.ending.clear()
    await desk.say("hello", "d1")
    await desk.until(lambda: len(target.posts) == 3, tick=0.01)
    await desk.rest_of_handlers()
    await desk.kill()
    if fault is not None:
        error = ConnectionResetError("reset")
        target.faults["remove"] = [Fault(arrives=fault == "lost", error=error)]
    await desk.start()
    await desk.until(lambda: target.texts() == ["again"], tick=0.5)
    desk.speaker.ending.set()
    await desk.rest()
    assert target.texts() == ["again"]
    assert target.calls.count("send") == 3


async def test_a_target_that_takes_nothing_back_is_named(desks: Callable[..., Desk]) -> None:
    target = Searchable()
    with capture_logs() as logs:
        desk = await desks(lambda: in_parts(target)).start()
        await desk.say("hello", "d1")
        await desk.rest()
    assert "Searchable has no remove()" in str([one for one in logs if "failed" in one["event"]])


async def test_a_turn_that_fails_behind_its_answer_was_answered(
    desks: Callable[..., Desk],
) -> None:
    target = Full()
    desk = await desks(lambda: in_parts(target)).start()
    desk.speaker.ending.clear()
    session = (await desk.say("hello", "d1")).session_id
    for _ in range(4):
        await desk.until(lambda: target.posts, tick=0.01)
        await desk.rest_of_handlers()
        await desk.kill()
        await desk.start()
    await desk.rest()
    (failed,) = [e for e in desk.events(session) if e["data"].get("code") == "resume_limit"]
    assert failed["type"] == "turn.failed"
    assert target.texts() == ["again"]


async def test_what_is_said_outside_is_on_stable_storage_here(desks: Callable[..., Desk]) -> None:
    target, unsynced = Full(), []
    desk = await desks(lambda: answering(target)).start()
    target.on_call = lambda _: unsynced.append(dict(desk.agent.store._dirty))
    desk.speaker.ending.clear()
    await desk.say("hello")
    await desk.until(target.texts)
    desk.speaker.ending.set()
    await desk.rest()
    assert unsynced == [{}, {}]


async def test_an_intent_forgets_its_text_when_it_may_be_another(
    desks: Callable[..., Desk],
) -> None:
    desk = await desks(lambda: answering(Full())).start()
    session = (await desk.say("hello")).session_id
    await desk.rest()
    store, post = desk.agent.store, OutboundRecord("p", session, "desk", None, "now", digest="a")
    assert await store.intent(post) == (post, True)
    assert await store.intent(post) == (post, False)
    for digest in ("b", "a"):
        kept, fresh = await store.intent(replace(post, digest=digest))
        assert (kept, fresh) == (replace(post, digest=None), False)
    settled = replace(post, ref="r", settled_at="later")
    await store.receipt(settled)
    assert await store.intent(replace(post, digest="b")) == (settled, False)
    assert settled in store.outbound(session)
    with pytest.raises(NotFound):
        await store.intent(replace(post, session_id="ses_none"))


# The end of a process


async def test_a_drain_waits_a_moment_for_handlers(desks: Callable[..., Desk]) -> None:
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    target.faults["send"] = [Fault(TimeoutError(), arrives=True)]
    await desk.say("hello", "d1")
    await desk.until(lambda: target.calls == ["send"])
    draining = asyncio.create_task(desk.agent.drain(5.0))
    await desk.until(draining.done, tick=0.01)
    assert target.calls == ["send", "find"]
    await desk.agent.close()
    await desk.start()
    await desk.rest()
    assert target.calls == ["send", "find"]


@pytest.mark.parametrize("arrives", [False, True])
async def test_what_a_drain_cuts_off_is_looked_up_later(
    desks: Callable[..., Desk], arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadline.host.agent._LAST_WORDS_SECONDS", 0.01)
    target = Full()
    closed: list[int] = []

    class Closing(Channel):
        async def on_stop(self, ctx: Context) -> None:
            closed.append(sum(line.worker is not None for line in dispatcher._lines.values()))

    def make() -> Channel:
        channel = Closing()
        channel.events = answering(target).events
        return channel

    desk = await desks(make).start()
    dispatcher = desk.agent.dispatcher
    target.faults["send"] = [Fault(arrives=arrives, hangs=True)]
    await desk.say("hello", "d1")
    await desk.until(lambda: target.calls == ["send"])
    await desk.until(
        lambda: desk.events(desk.agent.store.sessions()[0].id)[-1]["type"] == ("session.waiting")
    )
    await desk.close()
    # When a channel closes its client, nobody posts with it any more.
    assert closed == [0]
    await desk.start()
    assert (await desk.outbound("d1"))[0].keys() == {"channel", "intentAt"}
    await desk.rest()
    assert target.texts() == ["hello"]
    assert target.calls == (["send", "find"] if arrives else ["send", "find", "send"])
    assert (await desk.outbound("d1"))[0]["ref"] == "ref-1"


class Slow(Channel):
    """A channel that takes its time to start."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.go = asyncio.Event()
        self.on("message.completed")(self.answered)

    async def on_start(self, ctx: Context) -> None:
        """Connect."""
        await self.go.wait()
        self.log.append("started")

    async def answered(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        """Use the connection."""
        self.log.append("answered")


async def test_no_handler_runs_before_its_channel_has_started(desks: Callable[..., Desk]) -> None:
    hung, slow = Full(), Slow()
    channels = [slow, slow, answering(hung)]
    hung.faults["send"] = [Fault(hangs=True)]
    desk = await desks(lambda: channels.pop()).start()
    await desk.say("hello", "d1")
    await desk.until(lambda: hung.calls == ["send"])
    await desk.kill()
    starting = asyncio.create_task(desk.start())
    await desk.until(lambda: desk.agent.core._owners)
    for _ in range(200):
        await asyncio.sleep(0)
    # What is not handled keeps the session from its rest: it may be all that a next process has.
    assert slow.log == []
    assert not desk.rests()
    starting.cancel()
    await asyncio.wait([starting])
    await desk.kill()
    slow.go.set()
    await desk.start()
    await desk.rest()
    assert slow.log == ["started", "answered"]


# Deletion


async def test_a_deleted_session_posts_no_more(desks: Callable[..., Desk]) -> None:
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    await desk.say("hello", "d1", "other")
    await desk.rest()
    target.always["send"] = Fault(ConnectionError("down"))
    session = (await desk.say("hello", "d2")).session_id
    await desk.until(lambda: target.calls.count("send") > 3, tick=0.5)
    assert desk.rows("outbound") == 2
    await desk.agent.core.delete(session)
    assert desk.rows("outbound") == 1
    calls = len(target.calls)
    with capture_logs() as logs:
        await desk.until(
            lambda: any(e["event"] == "handler.session_deleted" for e in logs), tick=1.0
        )
    assert failures(logs) == 0
    assert session not in desk.agent.dispatcher._lines
    assert len(target.calls) == calls
    await desk.until(lambda: desk.rows("cursors") == 1, tick=0.01)
    assert (desk.rows("outbound"), desk.rows("cursors")) == (1, 1)
    assert await desk.outbound("d2") == []


async def test_a_handler_may_delete_its_session(desks: Callable[..., Desk]) -> None:
    target, seen = Full(), []

    def make() -> Channel:
        channel = Channel()

        @channel.on("message.completed")
        async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
            seen.append(await ctx.delete(event.session_id))
            try:
                await ctx.post(target, "gone")
            except NotFound as error:
                seen.append(error.code)

        return channel

    desk = await desks(make).start()
    await desk.say("hello", "d1")
    await desk.until(lambda: len(seen) == 2)
    assert seen == [True, "not_found"]
    await desk.rest()
    assert list((desk.root / "sessions").glob("ses_*")) == []
    assert desk.rows("outbound") == 0


# Names of posts


async def test_each_post_of_each_handler_has_its_own_name(desks: Callable[..., Desk]) -> None:
    target, records = Full(), []

    def make() -> Channel:
        channel = Channel()

        @channel.on("message.completed")
        async def first(event: Event[MessageCompleted], ctx: EventContext) -> None:
            records.extend([await ctx.post(target, text) for text in ("one", "two")])

        @channel.on("message.completed")
        async def second(event: Event[MessageCompleted], ctx: EventContext) -> None:
            records.append(await ctx.post(target, "three"))
            for text in ("working", "done"):
                await ctx.post(target, text, key="status")

        @channel.on("turn.completed")
        async def third(event: Event[TurnCompleted], ctx: EventContext) -> None:
            records.append(await ctx.post(target, "four", metadata={"a": 1}))

        return channel

    desk = await desks(make).start()
    await desk.say("hello", "d1")
    await desk.rest()
    session = desk.agent.store.sessions()[0].id
    events = desk.events(session)
    turn = next(event["turnId"] for event in events if event["type"] == "turn.completed")
    index = next(event["index"] for event in events if event["type"] == "turn.completed")
    place = f"{session}/desk"
    assert target.texts() == ["one", "two", "three", "done", "four"]
    assert [post.id for post in target.posts.values()] == [
        f"{place}/answer/{turn}",
        f"{place}/answer/{turn}/2",
        f"{place}/answer/{turn}#1",
        f"{place}/key/status",
        f"{place}/event/{index}",
    ]
    assert {post.turn_id for post in target.posts.values()} == {turn}
    assert target.posts["ref-5"].metadata == {"a": 1}
    assert {shown["ref"] for shown in await desk.outbound("d1")} == set(target.posts)


async def test_only_the_turns_own_final_message_is_its_answer(desks: Callable[..., Desk]) -> None:
    names: list[str] = []

    def make() -> Channel:
        channel = Channel()

        @channel.on("message.completed")
        async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
            names.append(ctx._identity.partition("/")[0])

        return channel

    desk = await desks(make).start()

    async def run(turn: Turn) -> TurnResult:
        turn.message_completed("a", "let me see", "tool_calls")
        turn._emit(
            "message.completed",
            {"messageId": "b", "text": "x", "finishReason": "stop", "parentCallId": "call_1"},
        )
        turn.message_completed("c", "that is it")
        return TurnResult("that is it")

    desk.agent.services.harness = Scripted(run)
    await desk.say("hello")
    await desk.rest()
    assert names == ["event", "event", "answer"]


# One broken channel


def broken(target: Room, hanging: list[str]) -> Channel:
    """Return a channel in which nothing works, except that it takes messages."""
    channel = Channel(auth=[by_header])

    @channel.post("/say/{token}")
    async def say(ctx: RouteContext, body: str) -> Accepted:
        return Accepted(await ctx.send(body, continuation_token=ctx.params["token"]))

    @channel.get("/raises")
    async def raises(ctx: RouteContext) -> None:
        raise KeyError("no such thing")

    @channel.get("/hangs")
    async def hangs(ctx: RouteContext) -> None:
        hanging.append("route")
        await asyncio.Event().wait()

    @channel.get("/nonsense")
    async def nonsense(ctx: RouteContext) -> Any:
        return object()

    @channel.on("message.received")
    async def always_raises(event: Event[Any], ctx: EventContext) -> None:
        raise ZeroDivisionError

    @channel.on("message.completed")
    async def never_posted(event: Event[Any], ctx: EventContext) -> None:
        await ctx.post(target, event.data.text)

    @channel.on("turn.completed")
    async def always_hangs(event: Event[Any], ctx: EventContext) -> None:
        hanging.append("handler")
        await asyncio.Event().wait()

    return channel


async def test_a_broken_channel_breaks_no_other(tmp_path: Path) -> None:
    target, well, hanging = Full(), Full(), []
    target.always["send"] = Fault(ConnectionError("reset"), arrives=True)
    target.always["find"] = Fault(ConnectionError("search is down"))
    desk = answering(well)
    desk.auth = [by_header]

    @desk.post("/say/{token}")
    async def say(ctx: RouteContext, body: str) -> Accepted:
        return Accepted(await ctx.send(body, continuation_token=ctx.params["token"]))

    channels = {"broken": broken(target, hanging), "desk": desk}
    with capture_logs() as logs:
        async with serve(tmp_path, agent(channels=channels)) as served:
            prefix = "/v1/channels/broken"
            hung = asyncio.create_task(served.ask("GET", f"{prefix}/hangs"))
            for path in ("raises", "nonsense"):
                status, answer = await served.ask("GET", f"{prefix}/{path}")
                assert (status, answer["error"]) == (500, "internal_error")
            stuck = (await served.ask("POST", f"{prefix}/say/t", "hello"))[1]
            await served.rest(stuck["sessionId"])
            await until(lambda: target.calls[:2] == ["send", "find"])
            # The session whose answer cannot be looked up goes on, and so does everybody else.
            for number in range(3):
                await served.ask("POST", f"{prefix}/say/t", "again")
                await served.rest(stuck["sessionId"], number + 2)
                path = f"/v1/channels/desk/say/{number}"
                fine = (await served.ask("POST", path, f"fine {number}"))[1]
                await served.rest(fine["sessionId"])
            await until(lambda: len(well.texts()) == 3)
            web = await served.start("over HTTP")
            await served.rest(web["sessionId"])
            wire = (await served.ask("GET", f"/v1/deliveries/{stuck['deliveryId']}"))[1]
            assert [set(post) for post in wire["outbound"]] == [{"channel", "intentAt"}]
            wire = (await served.ask("GET", f"/v1/deliveries/{fine['deliveryId']}"))[1]
            assert [post["ref"] for post in wire["outbound"]] == ["ref-3"]
            assert target.texts() == ["hello"]
            hung.cancel()
            await asyncio.wait([hung])
    assert hanging == ["route"]
    said = {(entry["event"], entry.get("error")) for entry in logs}
    assert ("handler.failed", "ZeroDivisionError: ") in said
    assert ("outbound.again", "ConnectionError: search is down") in said


async def test_agents_of_one_host_share_their_limits(tmp_path: Path) -> None:
    """They may share a credential, and what its target asks of one it asks of all."""
    targets = [Full(), Full()]
    targets[0].faults["send"] = [Fault(TryAgain("busy", retry_after=60, sent=False))]
    desks = [answering(target) for target in targets]
    for desk in desks:
        desk.auth = [by_header]
        desk.post("/say")(say_it)
    agents = [agent(channels={"desk": desk}) for desk in desks]
    async with serve(tmp_path, *agents) as served:
        await served.ask("POST", "/v1/channels/desk/say", "hello")
        second = served.host.agents["bot1"].runtimes["desk"].outbox
        await until(lambda: second._limiter.busy("token", "post"))
        assert targets[1].calls == []


async def say_it(ctx: RouteContext, body: str) -> Accepted:
    """Pass a message on."""
    return Accepted(await ctx.send(body, continuation_token="t"))


# Progress


class Streaming:
    """A channel that shows progress and posts answers; ``hold`` keeps the progress in its call."""

    def __init__(self, *, finals: bool = True) -> None:
        self.target = Full()
        self.seen: list[tuple[str, str]] = []
        self.finals = finals
        self.running = 0
        self.hold = asyncio.Event()
        self.hold.set()

    def make(self) -> Channel:
        """Return the channel."""
        channel = Channel()
        channel.on("message.appended")(self.appended)
        if self.finals:
            channel.on("message.completed")(self.completed)
        return channel

    async def appended(self, event: Event[MessageAppended], ctx: EventContext) -> None:
        """Show the latest."""
        text = event.data.model_dump()["text"]
        self.seen.append((event.data.delta, text))
        self.running += 1
        try:
            await self.hold.wait()
        finally:
            self.running -= 1

    async def completed(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        """Post the answer, when no progress can arrive behind it any more."""
        assert self.running == 0
        self.seen.append(("final", event.data.text))
        await ctx.post(self.target, event.data.text)


async def test_progress_has_the_whole_text_so_far(desks: Callable[..., Desk]) -> None:
    streaming = Streaming(finals=False)
    desk = await desks(streaming.make).start()
    await desk.say("say a b c d")
    for count, text in enumerate(("a ", "a b ", "a b c "), 1):
        desk.speaker.words.release()
        await desk.until(lambda count=count: len(streaming.seen) == count)
        # The worker has ended in between, and knows what was said before.
        await desk.until(
            lambda: all(w.worker is None for w in desk.agent.dispatcher._lines.values())
        )
        assert streaming.seen[-1][1] == text
    desk.speaker.words.release()
    await desk.rest()
    (line,) = desk.agent.dispatcher._lines.values()
    assert not line.texts


async def test_progress_gets_the_latest_not_each_piece(desks: Callable[..., Desk]) -> None:
    streaming = Streaming()
    desk = await desks(streaming.make).start()
    streaming.hold.clear()
    await desk.say("say a b c d e")
    for count in range(1, 5):
        desk.speaker.words.release()
        await desk.until(lambda count=count: desk.speaker.said == count and streaming.seen)
        await desk.until(
            lambda: (
                desk.agent.core._owners
                and all(not owner.log.flushing for owner in desk.agent.core._owners.values())
            )
        )
    await desk.until(lambda: all(w.worker is None for w in desk.agent.dispatcher._lines.values()))
    streaming.hold.set()
    await desk.until(lambda: len(streaming.seen) == 2)
    assert streaming.seen == [("a ", "a "), ("b c d ", "a b c d ")]
    desk.speaker.words.release()
    await desk.rest()
    assert streaming.seen[-1] == ("final", "say a b c d e")


async def test_progress_that_hangs_delays_no_answer(desks: Callable[..., Desk]) -> None:
    streaming = Streaming()
    desk = await desks(streaming.make).start()
    streaming.hold.clear()
    await desk.say("say a b")
    desk.speaker.words.release()
    await desk.until(lambda: streaming.seen)
    began = desk.clock.monotonic()
    desk.speaker.words.release()
    await desk.until(streaming.target.texts, tick=0.01)
    # Not the second of grace itself: the clock also runs while the disk does real work.
    assert desk.clock.monotonic() - began < PROGRESS_SECONDS
    await desk.rest()
    assert streaming.seen == [("a ", "a "), ("final", "say a b")]


async def test_progress_that_raises_or_hangs_is_logged(desks: Callable[..., Desk]) -> None:
    broken = [ValueError("no"), asyncio.CancelledError()]

    def make() -> Channel:
        channel = Channel()

        @channel.on("message.appended")
        async def appended(event: Event[MessageAppended], ctx: EventContext) -> None:
            if broken:
                raise broken.pop()
            await asyncio.Event().wait()

        return channel

    desk = await desks(make).start()
    with capture_logs() as logs:
        await desk.say("say a b c d")
        for count in (1, 2, 3):
            desk.speaker.words.release()
            await desk.until(lambda count=count: failures(logs) == count, tick=1.0)
        desk.speaker.words.release()
        await desk.rest()
    assert [entry["error"] for entry in logs if entry["event"] == "handler.failed"] == [
        "CancelledError",
        "ValueError: no",
        "it was cut off after 10 seconds",
    ]


def failures(logs: list[Any]) -> int:
    return sum(entry["event"] == "handler.failed" for entry in logs)


async def test_a_crash_shows_no_progress_from_before(
    desks: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = EmbeddedStore.read

    async def in_parts(
        store: EmbeddedStore, session_id: str, start: int = 0, *, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """A long log is read in parts, and the first does not say how a later one ends the turn."""
        async for chunk in read(store, session_id, start, follow=follow):
            for line in chunk.splitlines(keepends=True):
                yield line
                await asyncio.sleep(0)

    monkeypatch.setattr(EmbeddedStore, "read", in_parts)
    streaming = Streaming()
    desk = await desks(streaming.make).start()
    await desk.say("say a b")
    desk.speaker.words.release()
    await desk.until(lambda: streaming.seen)
    await desk.kill()
    streaming.seen.clear()
    await desk.start()
    session = desk.agent.store.sessions()[0].id
    await desk.until(lambda: desk.events(session)[-1]["type"] == "turn.started")
    await desk.until(lambda: desk.agent.dispatcher.caught_up(session))
    assert streaming.seen == []
    for _ in range(2):
        desk.speaker.words.release()
    await desk.rest()
    assert streaming.seen[-1] == ("final", "say a b (attempt 2)")


async def test_a_turn_that_fails_ends_its_progress(desks: Callable[..., Desk]) -> None:
    streaming = Streaming()
    desk = await desks(streaming.make).start()
    session = (await desk.say("say a b")).session_id
    desk.speaker.words.release()
    await desk.until(lambda: streaming.seen)
    await desk.agent.core.stop(session)
    await desk.rest()
    (line,) = desk.agent.dispatcher._lines.values()
    assert not line.texts
    assert streaming.target.texts() == []


# Handlers


async def test_a_handler_that_hangs_is_cut_off_and_posting_does_not_count(
    desks: Callable[..., Desk],
) -> None:
    target, heard = Full(), []

    def make() -> Channel:
        channel = Channel()

        @channel.on("message.completed")
        async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
            heard.extend([(await ctx.post(target, text)).failure for text in ("one", "two")])
            await asyncio.Event().wait()

        @channel.on("message.completed")
        async def next_one(event: Event[MessageCompleted], ctx: EventContext) -> None:
            heard.append("next")

        return channel

    desk = await desks(make).start()
    target.always["send"] = Fault(ConnectionError("down"))
    with capture_logs() as logs:
        await desk.say("hello", "d1")
        await desk.until(lambda: "next" in heard, tick=1.0)
    # Twice a quarter of an hour is more than a handler has; each is recorded nevertheless.
    assert heard == ["ConnectionError: down", "ConnectionError: down", "next"]
    assert desk.clock.monotonic() >= 2 * 900 + 1200
    shown = await desk.outbound("d1")
    assert [post["failure"] for post in shown] == ["ConnectionError: down"] * 2
    (failed,) = [entry for entry in logs if entry["event"] == "handler.failed"]
    assert failed["error"] == "it was cut off after 1200 seconds"


class Unspeakable(Exception):
    """An error that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("not even this")

    __str__ = __repr__


async def test_an_error_that_cannot_be_shown_is_logged(desks: Callable[..., Desk]) -> None:
    heard: list[str] = []

    def make() -> Channel:
        channel = Channel()

        @channel.on("message.completed")
        async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
            raise Unspeakable

        @channel.on("turn.completed")
        async def ended(event: Event[TurnCompleted], ctx: EventContext) -> None:
            heard.append("ended")

        return channel

    desk = await desks(make).start()
    with capture_logs() as logs:
        await desk.say("hello")
        await desk.rest()
    assert heard == ["ended"]
    assert [e["error"] for e in logs if e["event"] == "handler.failed"] == ["Unspeakable"]


async def test_a_log_that_cannot_be_read_for_a_while_delays_its_handlers(
    desks: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    session = (await desk.say("hello", "d1")).session_id
    await desk.rest()
    read, broken = desk.agent.store.read, [OSError("too many open files")] * 3

    def failing(session_id: str, start: int = 0, *, follow: bool = False) -> Any:
        if broken and not follow:
            raise broken.pop()
        return read(session_id, start, follow=follow)

    monkeypatch.setattr(desk.agent.store, "read", failing)
    with capture_logs() as logs:
        await desk.say("again", "d2")
        await desk.until(lambda: len(broken) < 3)
        assert not desk.agent.dispatcher.caught_up(session)
        await desk.rest(tick=0.1)
    assert target.texts() == ["hello", "again"]
    assert [entry["event"] for entry in logs].count("handlers.delayed") == 3


async def test_a_disk_that_fails_to_sync_loses_no_answer(desks: Callable[..., Desk]) -> None:
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    await desk.say("hello", "d1")
    await desk.rest()
    desk.speaker.ending.clear()
    await desk.say("again", "d2")
    await desk.until(lambda: target.texts() == ["hello", "again"])
    desk.disk.failing_syncs = 1
    desk.speaker.ending.set()
    await desk.until(lambda: desk.disk.failing_syncs == 0, tick=0.01)
    await desk.rest(tick=0.1)
    await desk.say("third", "d3")
    await desk.rest(tick=0.1)
    assert target.texts()[-1].startswith("third")
    assert len(target.posts) == 3


async def test_handlers_of_another_event_hold_nothing_up(desks: Callable[..., Desk]) -> None:
    """Progress of a block whose end nobody handles is dropped when it is complete."""
    heard: list[str] = []

    def make() -> Channel:
        channel = Channel()

        @channel.on("reasoning.appended")
        async def thinking(event: Event[Any], ctx: EventContext) -> None:
            heard.append(event.data.model_dump()["text"])

        @channel.on("reasoning.completed")
        async def thought(event: Event[ReasoningCompleted], ctx: EventContext) -> None:
            heard.append(f"all: {event.data.text}")

        return channel

    desk = await desks(make).start()

    async def run(turn: Turn) -> TurnResult:
        turn.reasoning_delta("r", "hm")
        turn.reasoning_completed("r", "hm")
        turn.message_completed("m", "well")
        return TurnResult("well")

    desk.agent.services.harness = Scripted(run)
    await desk.say("hello")
    await desk.rest()
    assert heard == ["all: hm"]


async def test_idle_sessions_are_forgotten_and_their_places_kept(
    desks: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadline.channel.outbound._REMEMBERED", 3)
    target = Full()
    desk = await desks(lambda: answering(target)).start()
    for number in range(8):
        await desk.say("hello", f"d{number}", f"t{number}")
        await desk.rest()
    assert len(desk.agent.dispatcher._lines) == 3
    await desk.agent.store.kv_put("after", "what was written before")
    await desk.say("again", "again", "t0")
    await desk.rest()
    assert len(target.posts) == 9
    assert target.calls == ["send"] * 9


def announcing(target: Room) -> Channel:
    """Return a channel whose first words of a turn become its answer, or why there is none."""
    channel = answering(target)

    @channel.on("turn.started")
    async def started(event: Event[TurnStarted], ctx: EventContext) -> None:
        await ctx.post(target, "Working…", answers=True)
        await ctx.post(target, "A note of its own.")

    @channel.on("turn.failed")
    async def failed(event: Event[TurnFailed], ctx: EventContext) -> None:
        if event.data.code == "stopped":
            await ctx.post(target, "Stopped.", answers=True)

    return channel


async def test_what_a_turn_begins_with_becomes_its_answer(desks: Callable[..., Desk]) -> None:
    target = Full()
    desk = await desks(lambda: announcing(target)).start()
    desk.speaker.ending.clear()
    await desk.say("hello", "d1")
    await desk.until(lambda: target.texts() == ["hello", "A note of its own."], tick=0.01)
    await desk.kill()
    await desk.start()
    desk.speaker.ending.set()
    await desk.rest()
    assert target.texts() == ["hello (attempt 2)", "A note of its own.", "A note of its own."]
    assert len({post.id for post in target.posts.values()}) == 3


async def test_what_a_turn_begins_with_may_say_that_it_was_stopped(
    desks: Callable[..., Desk],
) -> None:
    target = Full()
    desk = await desks(lambda: announcing(target)).start()
    delivery = await desk.say("say one two", "d1")
    await desk.until(lambda: len(target.posts) == 2, tick=0.01)
    assert target.texts()[0] == "Working…"
    await desk.agent.core.stop(delivery.session_id)
    await desk.rest()
    assert target.texts()[0] == "Stopped."
