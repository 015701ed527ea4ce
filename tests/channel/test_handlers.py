"""Event handlers, deferred work and what a channel's code may do, on a real host."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.serving import Gate, Served, agent, by_header, serve, until

from threadline import (
    Accepted,
    Channel,
    ChannelEventHandlers,
    Event,
    EventContext,
    MessageReceived,
    TurnCompleted,
    TurnFailed,
)
from threadline.channel.context import Context, RouteContext
from threadline.testing.laws import check_laws

if TYPE_CHECKING:
    from pathlib import Path


class Desk:
    """A channel that says a text under a token, and remembers what its handlers heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.channel = Channel(auth=[by_header], admission="coalesce")
        self.channel.post("/say/{token}")(self.say)
        for type_ in ("message.received", "turn.completed", "session.waiting", "turn.failed"):
            self.channel.on(type_)(self.hear)

    async def say(self, ctx: RouteContext, body: str) -> Accepted:
        """Say something."""
        return Accepted(await ctx.send(body, continuation_token=ctx.params["token"]))

    async def hear(self, event: Event[Any], ctx: EventContext) -> None:
        """Remember."""
        assert ctx.session().id == event.session_id  # type: ignore[union-attr]
        self.heard.append((event.type, event.index))

    async def tell(self, served: Served, text: str, token: str = "t") -> dict[str, Any]:
        """Send a text through the channel."""
        status, answer = await served.ask("POST", f"/v1/channels/desk/say/{token}", text)
        assert status == 202, answer
        return dict(answer)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_handlers_run_in_order_once_each(tmp_path: Path, desk: Desk) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        for number in range(10):
            answer = await desk.tell(served, f"n{number}")
            await served.rest(answer["sessionId"], number + 1)
        await until(lambda: len(desk.heard) >= 30)
        assert [kind for kind, _ in desk.heard] == [
            "message.received",
            "turn.completed",
            "session.waiting",
        ] * 10
        indices = [index for _, index in desk.heard]
        assert indices == sorted(set(indices))


async def test_many_at_once_are_one_session(tmp_path: Path, desk: Desk) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        answers = await asyncio.gather(*(desk.tell(served, f"n{n}") for n in range(20)))
        (session,) = {answer["sessionId"] for answer in answers}
        assert "started" in {answer["admitted"] for answer in answers}

        async def all_prompted() -> bool:
            events = await served.events(session)
            ids = [i for e in events for i in e["data"].get("deliveryIds", [])]
            return len(ids) == 20 and events[-1]["type"] == "session.waiting"

        await until(all_prompted)
        log = (served.state / "sessions" / session / "events.ndjson").read_bytes()
        check_laws(log, [answer["deliveryId"] for answer in answers])


async def test_only_its_own_sessions_are_heard(tmp_path: Path, desk: Desk) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        first = await served.start()
        await served.rest(first["sessionId"])
        assert desk.heard == []


async def test_the_cursor_survives_a_restart(tmp_path: Path, desk: Desk) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        answer = await desk.tell(served, "one")
        await served.rest(answer["sessionId"])
        await until(lambda: len(desk.heard) == 3)
    again = Desk()
    async with serve(tmp_path, agent(channels={"desk": again.channel})) as served:
        await again.tell(served, "two")
        await served.rest(answer["sessionId"], 2)
        await until(lambda: len(again.heard) >= 3)
        assert min(index for _, index in again.heard) > max(index for _, index in desk.heard)


async def test_what_was_not_handled_is_handled_after_a_restart(tmp_path: Path, desk: Desk) -> None:
    stuck: list[int] = []
    channel = Channel(auth=[by_header])
    channel.post("/say/{token}")(desk.say)

    @channel.on("turn.completed")
    async def hang(event: Event[TurnCompleted], ctx: EventContext) -> None:
        stuck.append(event.index)
        await asyncio.Event().wait()

    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        answer = await desk.tell(served, "one")
        await served.rest(answer["sessionId"])
        await until(lambda: len(stuck) == 1)
    again = Desk()
    async with serve(tmp_path, agent(channels={"desk": again.channel})):
        await until(lambda: ("turn.completed", stuck[0]) in again.heard)


async def test_a_handler_that_raises_or_hangs_breaks_nothing(tmp_path: Path, desk: Desk) -> None:
    errors: list[BaseException] = [
        ValueError("no"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        TimeoutError(),
    ]

    @desk.channel.on("message.received")
    async def fail(event: Event[MessageReceived], ctx: EventContext) -> None:
        if event.data.text == "hang":
            await asyncio.Event().wait()
        if errors:
            raise errors.pop()

    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        for number in range(6):
            answer = await desk.tell(served, "again")
            await served.rest(answer["sessionId"], number + 1)
        await until(lambda: len(desk.heard) == 18)
        assert errors == []
        hanging = await desk.tell(served, "hang", "h")
        await served.rest(hanging["sessionId"])
        for number in range(2):
            # The session whose handler hangs goes on, and so do the others.
            await desk.tell(served, "again", "h")
            await served.rest(hanging["sessionId"], number + 2)
        other = await desk.tell(served, "again", "o")
        await served.rest(other["sessionId"])
        await until(lambda: len(desk.heard) == 18 + 1 + 3)


async def test_a_handler_is_given_up_after_a_while(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadline.channel.outbound.HANDLER_SECONDS", 0.05)

    @desk.channel.on("message.received")
    async def hang(event: Event[MessageReceived], ctx: EventContext) -> None:
        await asyncio.Event().wait()

    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        await desk.tell(served, "one")
        await until(lambda: len(desk.heard) == 3)


async def test_handlers_as_a_mapping_with_and_without_a_context(tmp_path: Path) -> None:
    seen: list[str] = []

    async def received(event: Event[MessageReceived], ctx: EventContext) -> None:
        seen.append(event.data.text)

    async def completed(event: Event[TurnCompleted]) -> None:
        seen.append(str(event.data.result))

    events: ChannelEventHandlers = {"message.received": received}
    channel = Channel(auth=[by_header], events=events)
    channel.on("turn.completed")(completed)
    desk = Desk()
    channel.post("/say/{token}")(desk.say)
    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        await desk.tell(served, "hi")
        await until(lambda: seen == ["hi", "hi"])


async def test_an_event_of_another_shape_is_skipped(tmp_path: Path, desk: Desk) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk.channel})) as served:
        answer = await desk.tell(served, "one")
        session = answer["sessionId"]
        await served.rest(session)
        owner = await served.runtime.core.owner(session)
        owner.emit("message.received", {"text": {"not": "text"}, "deliveryIds": []})
        owner.emit("session.waiting", {})
        await until(lambda: [kind for kind, _ in desk.heard[3:]] == ["session.waiting"])


# What channel code may do


async def test_handlers_may_send_dispatch_stop_and_keep(tmp_path: Path, desk: Desk) -> None:
    gate, seen = Gate(), []

    @desk.channel.on("turn.completed")
    async def act(event: Event[TurnCompleted], ctx: EventContext) -> None:
        text = event.data.result
        if text == "send":
            await ctx.send("sent", continuation_token="other")
        elif text == "dispatch":
            delivery = await ctx.dispatch("a task")
            seen.append((await delivery.settled()).result)
        elif text == "tally":
            await ctx.kv.put("count", (await ctx.kv.get("count") or 0) + 1)
        elif text == "stop":
            seen.append(await ctx.stop("busy"))

    @desk.channel.on("turn.failed")
    async def failed(event: Event[TurnFailed], ctx: EventContext) -> None:
        seen.append(event.data.code)

    async with serve(tmp_path, agent(gate, channels={"desk": desk.channel})) as served:
        await desk.tell(served, "work", "busy")
        await gate.held()
        for text in ("send", "dispatch", "tally", "tally", "stop"):
            answer = await desk.tell(served, text, f"for {text}".replace(" ", "-"))
            await served.rest(answer["sessionId"])
        await until(lambda: {"a task", True, "stopped"} <= set(seen))
        sessions = (await served.ask("GET", "/v1/sessions"))[1]["sessions"]
        tasks = [s for s in sessions if s["mode"] == "task"]
        assert [s["status"] for s in tasks] == ["completed"]

        async def counted() -> bool:
            return bool(await served.runtime.store.kv_get("channel/desk/count") == 2)

        await until(counted)
        assert served.runtime.store.session_by_token("desk", "other") is not None


async def test_a_route_may_wait_for_the_answer(tmp_path: Path) -> None:
    gate = Gate()
    channel = Channel(auth=[by_header], admission="coalesce")

    @channel.post("/ask/{token}")
    async def ask(ctx: RouteContext, body: str) -> dict[str, Any]:
        delivery = await ctx.send(body, continuation_token=ctx.params["token"])
        outcome = await delivery.outcome()
        settled = await delivery.settled()
        return {"outcome": outcome.outcome, "status": settled.status, "result": settled.result}

    async with serve(tmp_path, agent(gate, channels={"desk": channel})) as served:
        path = "/v1/channels/desk/ask/t"
        status, answer = await served.ask("POST", path, "hello")
        assert (status, answer) == (
            200,
            {"outcome": "prompted", "status": "completed", "result": "hello"},
        )
        waiting = asyncio.create_task(served.ask("POST", path, "work"))
        await gate.held()
        steered = asyncio.create_task(served.ask("POST", path, "more"))
        owner = served.runtime.core._owners
        await until(lambda: any(o.pending for o in owner.values()))
        gate.release()
        assert (await steered)[1]["outcome"] == "steered"
        assert (await waiting)[1]["status"] == "completed"
        failed = (await served.ask("POST", path, "fail"))[1]
        assert failed == {"outcome": "prompted", "status": "failed", "result": None}


async def test_deferred_work_goes_on_and_is_awaited_at_shutdown(tmp_path: Path) -> None:
    done: list[str] = []
    go = asyncio.Event()
    channel = Channel(auth=[by_header])

    async def later(name: str) -> None:
        await go.wait()
        done.append(name)

    async def bad() -> None:
        raise SystemExit("not the host")

    @channel.post("/defer")
    async def defer(ctx: RouteContext) -> None:
        ctx.defer(later("first"))
        ctx.defer(bad())
        with pytest.raises(TypeError):
            ctx.defer(5)  # type: ignore[arg-type]

        async def nested() -> None:
            await go.wait()
            ctx.defer(later("nested"))

        ctx.defer(nested())

    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        assert await served.ask("POST", "/v1/channels/desk/defer") == (200, {"ok": True})
        assert done == []
        draining = asyncio.create_task(served.host.drain(2.0))
        await until(lambda: served.host.work.ending.is_set())
        go.set()
        await draining
        assert sorted(done) == ["first", "nested"]


async def test_deferred_work_that_hangs_does_not_hold_the_host(tmp_path: Path) -> None:
    cancelled: list[bool] = []
    channel = Channel(auth=[by_header])

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    @channel.post("/defer")
    async def defer(ctx: RouteContext) -> None:
        ctx.defer(hang())

    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        await served.ask("POST", "/v1/channels/desk/defer")
    assert cancelled == [True]


class Hooked(Channel):
    """Notes its life."""

    def __init__(self, said: list[str], fail: str = "") -> None:
        super().__init__(auth=[by_header])
        self.said = said
        self.fail = fail

    async def on_start(self, ctx: Context) -> None:
        """Note it, or fail."""
        self.said.append(f"start {ctx.channel}")
        if self.fail == "start":
            raise RuntimeError("cannot start")

    async def on_stop(self, ctx: Context) -> None:
        """Note it, or fail."""
        self.said.append(f"stop {ctx.channel}")
        if self.fail == "stop":
            raise RuntimeError("cannot stop")


async def test_a_channels_life(tmp_path: Path) -> None:
    said: list[str] = []
    channels = {"a": Hooked(said, fail="stop"), "b": Hooked(said)}
    async with serve(tmp_path, agent(channels=channels)):
        assert said == ["start a", "start b"]
    assert said[2:] == ["stop a", "stop b"]


async def test_a_channel_that_cannot_start_leaves_nothing_open(tmp_path: Path) -> None:
    said: list[str] = []
    channels = {"a": Hooked(said), "b": Hooked(said, fail="start"), "c": Hooked(said)}
    with pytest.raises(RuntimeError, match="cannot start"):
        async with serve(tmp_path, agent(channels=channels)):
            pass
    assert said == ["start a", "start b", "stop a", "stop b"]
    async with serve(tmp_path, agent()) as served:  # the lock is free again
        assert (await served.ask("GET", "/v1/sessions"))[0] == 200


async def test_sends_are_checked(tmp_path: Path) -> None:
    problems: list[str] = []
    channel = Channel(auth=[by_header])
    wrong: list[dict[str, Any]] = [
        {},
        {"continuation_token": ""},
        {"continuation_token": "a\nb"},
        {"continuation_token": "x" * 501},
        {"continuation_token": "t", "mode": "chats"},
        {"continuation_token": "t", "admission": "queue"},
        {"continuation_token": "t", "as_of": "2025-01-01T00:00:00"},
        {"continuation_token": "t", "as_of": datetime(2025, 1, 1)},  # noqa: DTZ001
        {"continuation_token": "t", "as_of": "9999-01-01T00:00:00Z"},
        {"continuation_token": "t", "cwd": "relative"},
        {"continuation_token": "t", "cwd": "/no/such/folder"},
        {"continuation_token": "t", "context": "one string"},
        {"continuation_token": "t", "context": [""]},
        {"continuation_token": "t", "delivery_id": "\n"},
        {"session_id": "../x", "continuation_token": "t"},
        {"session_id": "ses_x"},
        {"continuation_token": "t", "workspace_files": {"../x": ""}},
    ]

    @channel.post("/all")
    async def send_all(ctx: RouteContext) -> None:
        from threadline.errors import InvalidRequest

        for options in wrong:
            try:
                await ctx.send("hi", **options)
            except InvalidRequest as error:
                problems.append(error.message)

    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        assert (await served.ask("POST", "/v1/channels/desk/all"))[0] == 200
        assert len(problems) == len(wrong)
        assert (await served.ask("GET", "/v1/sessions"))[1] == {"sessions": []}
