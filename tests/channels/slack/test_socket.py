"""Socket Mode against FakeSlack: acknowledgements, renewal, dead peers, refusals, goodbyes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import AsyncMock

import pytest
import structlog
from structlog.testing import LogCapture
from tests.channels.slack.world import BOT, served
from tests.passing import passing

from threadline.testing import Gated, ManualClock
from threadline_slack.inbound.socket import Disconnect, Envelope, Hello, parse
from threadline_slack.inbound.sockets import Sockets, backoff
from threadline_slack.testing import DEFAULTS, FakeSlack, Socket

PERSON, CHANNEL, DM = DEFAULTS["person"], DEFAULTS["channel"], DEFAULTS["dm"]
OPEN = "apps.connections.open"


@dataclass
class Taker:
    """What takes payloads: their texts, in order; it may wait, and may refuse."""

    taken: list[str] = field(default_factory=list)
    answer: Any = None
    refuse: bool = False
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.opened.set()

    async def __call__(self, payload: Mapping[str, Any]) -> Any:
        self.taken.append(payload.get("event", payload).get("text", ""))
        await self.opened.wait()
        if self.refuse:
            raise OSError("The disk is full.")
        return self.answer


@dataclass
class World:
    """A workspace, and what listens to it."""

    slack: FakeSlack
    clock: ManualClock
    take: Taker
    logs: LogCapture

    def say(self, text: str) -> None:
        self.slack.user(PERSON).post(DM, text)

    def sockets(self, **options: Any) -> Sockets:
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.logs])
        token, url = self.slack.app.app_token, self.slack.api_url
        options = {"clock": self.clock, "log": log, "chance": lambda: 1.0, **options}
        return Sockets(token, url, self.take, **options)

    @asynccontextmanager
    async def connected(self, count: int = 1, **options: Any) -> AsyncIterator[Sockets]:
        sockets = self.sockets(count=count, **options)
        await sockets.start()
        try:
            yield sockets
        finally:
            await sockets.close()

    async def up(self, sockets: Sockets) -> list[Socket]:
        """Return Slack's ends when all that are wanted are up."""
        await self.slack.until(lambda: sockets.health.connected == sockets.health.wanted)
        return self.slack.sockets()

    def said(self, event: str, level: str | None = None) -> list[Any]:
        """Return what was logged of an event."""
        return [
            entry
            for entry in self.logs.entries
            if entry["event"] == event and level in (None, entry["log_level"])
        ]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock()
    async with FakeSlack(clock=clock) as slack:
        slack.app.socket_mode = True
        yield World(slack, clock, Taker(), LogCapture())


# Connections


async def test_every_connection_has_an_address_of_its_own(world: World) -> None:
    async with world.connected(3) as sockets:
        assert len(await world.up(sockets)) == 3
        assert len(world.slack.calls(OPEN)) == 3
        health = sockets.health
        assert (health.wanted, health.connected, health.trouble) == (3, 3, None)
        assert health.last_hello == world.clock.now()
    assert world.slack.sockets() == []


@pytest.mark.parametrize("count", [0, 11])
def test_slack_allows_one_to_ten(world: World, count: int) -> None:
    with pytest.raises(ValueError, match="sockets must be 1 to 10"):
        world.sockets(count=count)


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_connection_that_ends_is_replaced_at_once(world: World, end: str) -> None:
    async with world.connected() as sockets:
        (first,) = await world.up(sockets)
        if end == "close":
            await first.close()
        else:
            first.abort()
        await world.slack.until(lambda: [one for one in world.slack.sockets() if one is not first])
        await world.up(sockets)
        world.say("still there?")
        await world.slack.until(lambda: world.take.taken == ["still there?"])


async def test_a_peer_that_is_gone_without_a_word_is_replaced(world: World) -> None:
    async with world.connected(heartbeat=0.1) as sockets:
        (first,) = await world.up(sockets)
        first.silent = True
        await world.slack.until(lambda: [one for one in world.slack.sockets() if one is not first])
        await world.slack.until(lambda: not first.open)
        await world.up(sockets)
        assert "PONG" in world.said("slack.socket_ends", "warning")[0]["error"]


async def test_a_quiet_workspace_is_not_a_dead_connection(world: World) -> None:
    async with world.connected(heartbeat=0.02) as sockets:
        (first,) = await world.up(sockets)
        world.clock.advance(24 * 3600)
        await world.slack.until(lambda: len(first.pings) >= 5)
        assert world.slack.all_sockets == [first]


async def test_a_connection_that_never_stays_is_tried_more_and_more_slowly(world: World) -> None:
    async with world.connected() as sockets:
        for wait in (0.0, 1.0, 2.0):
            (last,) = await world.up(sockets)
            last.abort()
            count = len(world.slack.all_sockets)
            if wait:
                await world.slack.until(lambda: world.clock.sleepers == 1)
                world.clock.advance(wait - 0.01)
                assert len(world.slack.all_sockets) == count
                world.clock.advance(0.01)
            await world.slack.until(lambda seen=count: len(world.slack.all_sockets) == seen + 1)


async def test_one_that_stayed_long_is_replaced_at_once_again(world: World) -> None:
    async with world.connected() as sockets:
        for number in range(4):
            (last,) = await world.up(sockets)
            world.clock.advance(31)
            last.abort()
            await world.slack.until(lambda: not last.open)  # noqa: B023
            await world.slack.until(lambda seen=number: len(world.slack.all_sockets) == seen + 2)
        assert world.clock.sleepers == 0


# Renewal


@pytest.mark.parametrize("reason", ["warning", "refresh_requested", "something new"])
async def test_s42_the_next_connection_is_up_before_the_old_one_ends(
    world: World, reason: Any
) -> None:
    async with world.connected() as sockets:
        (old,) = await world.up(sockets)
        gate = world.slack.hold(OPEN, "before")
        await old.disconnect(reason)
        await world.slack.until(lambda: gate.arrived == 1)
        assert sockets.health.connected == 0
        world.say("in between")
        await world.slack.until(lambda: old.received)
        world.slack.heal()
        await world.up(sockets)
        await old.disconnect("refresh_requested")
        assert old.open
        world.say("and now")
        await world.slack.settled()
        await old.close()
        world.say("after it")
        await world.slack.settled()
        assert world.take.taken == ["in between", "and now", "after it"]
        assert all(len(one.attempts) == 1 for one in world.slack.deliveries())
        assert len(world.slack.all_sockets) == 2
        assert not world.said("slack.socket_ends", "warning")


async def test_an_acknowledgement_goes_where_its_envelope_came_from(world: World) -> None:
    async with world.connected() as sockets:
        (old,) = await world.up(sockets)
        world.take.opened.clear()
        world.say("a slow one")
        await world.slack.until(lambda: world.take.taken)
        await old.disconnect("warning")
        await world.slack.until(lambda: len(world.slack.sockets()) == 2)
        _, new = await world.up(sockets)
        world.take.opened.set()
        await world.slack.until(lambda: old.received)
        assert new.received == []
        assert world.slack.deliveries()[0].accepted


async def test_an_old_connection_is_left_even_when_slack_does_not_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadline_slack.inbound.socket._LINGER_SECONDS", 0.05)
    async with world.connected() as sockets:
        (old,) = await world.up(sockets)
        await old.disconnect("warning")
        await world.slack.until(lambda: not old.open)
        assert len(await world.up(sockets)) == 1


async def test_too_many_connections_are_waited_out(world: World) -> None:
    async with world.connected(9) as others:
        await world.up(others)
        async with world.connected(2) as sockets:
            await world.slack.until(lambda: sockets.health.trouble)
            await world.slack.until(lambda: world.clock.sleepers == 1)
            assert sockets.health.connected == 1
            assert sockets.health.trouble == "too_many_websockets"
            await others.close()
            world.clock.advance(1)
            await world.up(sockets)
            assert sockets.health.trouble is None


# Refusals


async def test_a_wrong_token_is_said_once_and_tried_slowly(world: World) -> None:
    fault = world.slack.fail(OPEN, "invalid_auth", times=None)
    async with world.connected(2) as sockets:
        for attempts in (2, 4, 6):
            await world.slack.until(lambda n=attempts: len(world.slack.calls(OPEN)) == n)
            await world.slack.until(lambda: world.clock.sleepers == 2)
            await world.clock.elapse(59)
            assert len(world.slack.calls(OPEN)) == attempts
            await world.clock.elapse(1)
        (said,) = world.said("slack.socket_refused", "error")
        assert "connections:write" in said["hint"]
        assert sockets.health.trouble == "invalid_auth"
        world.slack.heal(fault)
        await passing(world.clock, world.up(sockets), step=1)


async def test_socket_mode_switched_off_is_said_once_and_tried_slowly(world: World) -> None:
    async with world.connected(2) as sockets:
        for one in await world.up(sockets):
            await one.disconnect("link_disabled")
            await one.close()
        await world.slack.until(lambda: world.clock.sleepers == 2)
        await world.clock.elapse(59)
        assert len(world.slack.calls(OPEN)) == 2
        await world.clock.elapse(1)
        await world.up(sockets)
        (said,) = world.said("slack.socket_refused", "error")
        assert "Switch Socket Mode on" in said["hint"]


async def test_a_limit_is_obeyed_by_all_connections(world: World) -> None:
    async with world.connected(2) as sockets:
        first, second = await world.up(sockets)
        world.slack.fail(OPEN, "ratelimited", retry_after=40)
        first.abort()
        await world.slack.until(lambda: world.clock.sleepers == 1)
        second.abort()
        await world.slack.until(lambda: world.clock.sleepers == 2)
        await world.clock.elapse(39)
        assert len(world.slack.calls(OPEN)) == 3
        await world.clock.elapse(1)
        await world.up(sockets)


async def test_what_passes_is_tried_again_and_said_once(world: World) -> None:
    world.slack.fail(OPEN, "internal_error", times=2)
    world.slack.fail(OPEN, "any", status=503)
    async with world.connected() as sockets:
        for wait in (1, 2, 4):
            await world.slack.until(lambda: world.clock.sleepers == 1)
            await world.clock.elapse(wait)
        await world.up(sockets)
        assert [one["error"] for one in world.said("slack.socket_failed", "warning")][-1:] == [
            "internal_error"
        ]
        assert len(world.said("slack.socket_failed", "debug")) == 1


async def test_while_slack_is_away_the_start_returns_and_goes_on(world: World) -> None:
    port = int(world.slack.url.rpartition(":")[2])
    await world.slack.close()
    async with world.connected() as sockets:
        assert sockets.health.trouble is not None
        async with FakeSlack(clock=world.clock, port=port) as back:
            await back.until(lambda: world.clock.sleepers == 1)
            world.clock.advance(1)
            await back.until(lambda: sockets.health.connected == 1)


@pytest.mark.parametrize("missing", ["address", "greeting"])
async def test_what_slack_never_says_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr("threadline_slack.inbound.sockets._CONNECT_SECONDS", 0.1)
    if missing == "address":
        world.slack.hold(OPEN, "before", times=1)
    else:
        monkeypatch.setattr(world.slack._sockets, "_greet", AsyncMock())
    async with world.connected() as sockets:
        await world.slack.until(lambda: world.clock.sleepers == 1)
        assert sockets.health.trouble == "TimeoutError()"
        await world.slack.until(lambda: not world.slack.sockets())
        monkeypatch.undo()
        world.clock.advance(1)
        await world.up(sockets)


def test_backoff_grows_has_an_end_and_is_spread() -> None:
    assert [backoff(n, 1.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert [backoff(n, 0.0) for n in (1, 5, 99)] == [0.5, 8, 15]


# Envelopes


async def test_an_envelope_is_acknowledged_when_it_was_taken(world: World) -> None:
    async with world.connected() as sockets:
        (socket,) = await world.up(sockets)
        world.take.opened.clear()
        world.say("hello")
        await world.slack.until(lambda: world.take.taken == ["hello"])
        await socket.ping()
        await world.slack.until(lambda: socket.pongs)
        assert socket.received == []
        world.take.opened.set()
        await world.slack.settled()
        assert world.slack.deliveries()[0].accepted
        assert list(socket.received[0]) == ["envelope_id"]


async def test_s06_what_could_not_be_taken_comes_again_and_is_taken(world: World) -> None:
    async with world.connected() as sockets:
        await world.up(sockets)
        world.take.refuse = True
        world.say("hello")
        await world.slack.until(lambda: world.said("slack.not_acknowledged"))
        world.take.refuse = False
        accepted = world.slack.until(lambda: world.slack.deliveries()[0].accepted)
        await passing(world.clock, accepted)
        assert world.take.taken == ["hello", "hello"]
        assert [one.number for one in world.slack.deliveries()[0].attempts] == [0, 1]


async def test_s45_a_burst_is_taken_side_by_side_in_order_and_pings_are_answered(
    world: World,
) -> None:
    async with world.connected() as sockets:
        (socket,) = await world.up(sockets)
        world.take.opened.clear()
        texts = [f"job {number}" for number in range(20)]
        for text in texts:
            world.say(text)
        await world.slack.until(lambda: len(world.take.taken) == 20)
        assert world.take.taken == texts
        await socket.ping(b"still there?")
        await world.slack.until(lambda: socket.pongs == [b"still there?"])
        world.take.opened.set()
        await world.slack.settled()
        assert all(len(one.attempts) == 1 for one in world.slack.deliveries())


async def test_an_interaction_is_answered_with_its_acknowledgement(world: World) -> None:
    async with world.connected() as sockets:
        await world.up(sockets)
        world.take.answer = {"text": "for you"}
        answer = await world.slack.user(PERSON).command("/ask", "why", channel=CHANNEL)
        assert (answer.status, answer.body) == (200, {"text": "for you"})
        assert world.take.taken == ["why"]
        world.say("an event accepts no payload")
        await world.slack.settled()
        assert list(world.slack.sockets()[0].received[-1]) == ["envelope_id"]


async def test_what_is_not_known_is_acknowledged_and_not_taken(world: World) -> None:
    async with world.connected() as sockets:
        (socket,) = await world.up(sockets)
        for number, more in enumerate(
            ({"type": "novelty", "payload": {}}, {"type": "events_api", "payload": 7}, {})
        ):
            await socket.send({"envelope_id": f"e{number}", **more})
        await world.slack.until(lambda: len(socket.received) == 3)
        assert {one["envelope_id"] for one in socket.received} == {"e0", "e1", "e2"}
        assert world.take.taken == []
        assert len(world.said("slack.unknown_envelope", "warning")) == 3


async def test_a_frame_that_is_no_envelope_ends_nothing(world: World) -> None:
    async with world.connected() as sockets:
        (socket,) = await world.up(sockets)
        frames = ["", "{", "[]", "7", "null", "[" * 100_000, '{"type": "novelty"}', "{}"]
        for frame in frames:
            await socket._ws.send_str(frame)
        await socket._ws.send_bytes(b"\x00\xff")
        world.say("hello")
        await world.slack.until(lambda: world.slack.deliveries()[0].accepted)
        assert world.slack.all_sockets == [socket]
        assert len(world.said("slack.unknown_frame", "warning")) == len(frames) + 1


async def test_a_long_frame_is_read(world: World) -> None:
    async with world.connected() as sockets:
        (socket,) = await world.up(sockets)
        event = {"type": "event_callback", "event": {"text": "x" * 5_000_000}}
        await socket.send({"type": "events_api", "envelope_id": "e", "payload": event})
        await world.slack.until(lambda: socket.received == [{"envelope_id": "e"}])
        assert world.slack.all_sockets == [socket]


async def test_an_acknowledgement_that_is_lost_ends_nothing(world: World) -> None:
    async with world.connected() as sockets:
        (first,) = await world.up(sockets)
        world.take.opened.clear()
        world.say("hello")
        await world.slack.until(lambda: world.take.taken)
        first.abort()
        await world.slack.until(lambda: sockets.health.last_hello and world.slack.sockets())
        world.take.opened.set()
        await world.slack.until(lambda: world.said("slack.acknowledgement_lost"))
        accepted = world.slack.until(lambda: world.slack.deliveries()[0].accepted)
        await passing(world.clock, accepted, step=1)


# The end


async def test_the_end_acknowledges_what_was_taken_and_takes_nothing_more(world: World) -> None:
    sockets = world.sockets(count=2)
    await sockets.start()
    await world.up(sockets)
    world.take.opened.clear()
    world.say("hello")
    await world.slack.until(lambda: world.take.taken)
    closing = asyncio.ensure_future(sockets.close())
    await world.slack.until(lambda: sockets._closing)
    world.say("too late")
    world.take.opened.set()
    await closing
    await world.slack.until(lambda: world.slack.sockets() == [])
    assert world.take.taken == ["hello"]
    assert [one.accepted for one in world.slack.deliveries()] == [True, False]


async def test_the_end_does_not_wait_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadline_slack.inbound.sockets._DRAIN_SECONDS", 0.05)
    before = asyncio.all_tasks()
    async with world.connected(2) as sockets:
        await world.up(sockets)
        world.take.opened.clear()
        world.say("hello")
        await world.slack.until(lambda: world.take.taken)
    await world.slack.until(lambda: world.slack.sockets() == [])
    ours = [t for t in asyncio.all_tasks() - before if "threadline_slack/inbound/sock" in repr(t)]
    assert ours == []


async def test_the_end_may_come_while_nothing_is_connected(world: World) -> None:
    gate = world.slack.hold(OPEN, "before")
    sockets = world.sockets(count=2)
    starting = asyncio.ensure_future(sockets.start())
    await world.slack.until(lambda: gate.arrived == 2)
    await sockets.close()
    starting.cancel()
    await asyncio.wait([starting])


# With a host


async def test_s46_posts_of_a_thread_keep_the_order_in_which_their_envelopes_came() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=True, sockets=1) as world:
        thread = world.say(f"<@{BOT}> start")
        await harness.gates["answer"].reached()
        gate = world.slack.hold("users.info", "before")
        world.slack.events.hold()
        posts = [world.say(f"part {number}", thread=thread) for number in range(12)]
        order = [*posts[6:], *posts[:6]]
        world.slack.events.release(
            lambda events: sorted(events, key=lambda event: order.index(event["ts"]))
        )
        await world.slack.until(lambda: len(world.accepted) == 13)
        gate.release()
        harness.release()
        session = world.session(thread)
        await session.rest()
        _, prompt = session.events("message.received")
        assert [name.rpartition(":")[2] for name in prompt["data"]["deliveryIds"]] == order


async def test_s42_a_turn_goes_on_while_its_connection_is_renewed() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=True, sockets=1) as world:
        first = world.say(f"<@{BOT}> a long job")
        await harness.gates["answer"].reached()
        (old,) = world.slack.sockets()
        await old.disconnect("warning")
        await world.slack.until(lambda: len(world.slack.sockets()) == 2)
        await old.disconnect("refresh_requested")
        await old.close()
        second = world.say(f"<@{BOT}> another")
        await world.slack.until(lambda: len(world.accepted) == 2)
        harness.release()
        for thread in (first, second):
            assert len(await world.shown(2, thread)) == 2
            assert len(world.session(thread).events("turn.started")) == 1


# Frames


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('{"type": "hello", "num_connections": 2}', Hello(2)),
        ('{"type": "hello"}', Hello(None)),
        ('{"type": "disconnect", "reason": "warning"}', Disconnect("warning")),
        ('{"type": "disconnect"}', Disconnect("None")),
        (
            '{"type": "events_api", "envelope_id": "e", "payload": {"a": 1}}',
            Envelope("e", "events_api", {"a": 1}),
        ),
        (
            '{"type": "interactive", "envelope_id": "e", "payload": {},'
            ' "accepts_response_payload": true}',
            Envelope("e", "interactive", {}, True),
        ),
        ('{"type": "x", "envelope_id": "e"}', Envelope("e", "x", None)),
    ],
)
def test_parse(text: str, frame: Any) -> None:
    assert parse(text) == frame
