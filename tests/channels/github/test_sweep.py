"""The sweep: what was not delivered is taken once, in order, when it can be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.channels.github.world import served

from threadline import Channel, Context
from threadline.errors import InvalidRequest, StoreUnavailable
from threadline.harness.scripted import Say, Scripted
from threadline.testing import ManualClock, TestHost
from threadline_github.config import Config
from threadline_github.hub import Hub
from threadline_github.inbound import sweep
from threadline_github.inbound.sweep import SECONDS, Owed, State, Sweep, leads_to
from threadline_github.testing import DEFAULTS, FakeGitHub

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
NAME = DEFAULTS["repository"]
PATH = "/v1/channels/github"
DELIVERIES = "/app/hook/deliveries"
HOUR = 3600.0
DAY = 24 * HOUR


class Receiver:
    """Remembers what it took; fails for some as it is told."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.payloads: list[Mapping[str, Any]] = []
        self.tries = 0
        self.failing: dict[str, Exception] = {}

    async def take(
        self, ctx: Context, event: str, payload: Mapping[str, Any], delivery_id: str
    ) -> None:
        self.tries += 1
        error = self.failing.get(delivery_id, self.failing.get("*"))
        if error is not None:
            raise error
        self.taken.append((event, delivery_id))
        self.payloads.append(payload)

    @property
    def guids(self) -> list[str]:
        return [guid for _, guid in self.taken]


@dataclass
class World:
    """A bot whose host cannot be reached, and the context that its sweep has."""

    github: FakeGitHub
    clock: ManualClock
    ctx: Context
    hub: Hub
    receiver: Receiver = field(default_factory=Receiver)
    sweep: Sweep = field(init=False)

    def __post_init__(self) -> None:
        self.again()

    def again(self, **options: Any) -> None:
        """Begin anew, as another process would."""
        self.sweep = Sweep(self.hub, self.receiver, **options)

    async def miss(self, count: int = 1) -> list[str]:
        """Have so many events that nobody is there for; return their GUIDs."""
        pull = self.github.pull(7)
        before = len(self.github.deliveries())
        for number in range(count):
            self.github.user(DEFAULTS["person"]).comment(pull, f"Comment {number}.")
        await self.github.settled()
        return list(dict.fromkeys(one.guid for one in self.github.deliveries()[before:]))

    async def round(self, seconds: float = SECONDS) -> list[str]:
        """Let a round be due, and return what it took."""
        self.clock.advance(seconds)
        before = len(self.receiver.taken)
        await self.sweep.run_once(self.ctx)
        return self.receiver.guids[before:]

    def asked(self, path: str = f"{DELIVERIES}*") -> int:
        return len(self.github.calls("GET", path))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async for made in worlds():
        yield made


async def worlds(*, token: bool = False) -> AsyncIterator[World]:
    """Make a world of an App, or of a bot with a token."""
    clock = ManualClock(START)
    async with FakeGitHub(clock=clock) as github:
        github.app.webhook_url = "http://127.0.0.1:9/v1/channels/github"
        github.user(DEFAULTS["person"]).open_pull(number=7)
        await github.settled()
        clock.advance(60)
        config = Config.read(github.environ)
        if token:
            given = github.personal_token(DEFAULTS["other"])
            config = Config(config.webhook_secret, given, api_url=config.api_url)
        async with TestHost(Channel(), clock=clock, channel_id="github") as host:
            ctx = Context(host.agent().runtimes["github"])
            hub = Hub()
            await hub.open(ctx, config)
            made = World(github, clock, ctx, hub)
            await made.sweep.run_once(ctx)
            yield made
            await hub.close()


# What is taken


async def test_nothing_older_than_the_first_start(world: World) -> None:
    assert world.github.deliveries()
    assert world.receiver.taken == []
    assert await world.round() == []


async def test_what_was_missed_is_taken_once_in_order_under_its_guid(world: World) -> None:
    missed = await world.miss(3)
    assert await world.round() == missed
    assert world.receiver.taken[0] == ("issue_comment", missed[0])
    assert [one["comment"]["body"] for one in world.receiver.payloads] == [
        "Comment 0.",
        "Comment 1.",
        "Comment 2.",
    ]
    for _ in range(4):
        assert await world.round() == []
    world.again()
    assert await world.round() == []


async def test_the_oldest_is_first_over_rounds_of_events(world: World) -> None:
    first = await world.miss(2)
    world.clock.advance(HOUR)
    second = await world.miss(2)
    world.clock.advance(HOUR)
    assert await world.round() == [*first, *second]


async def test_what_was_missed_while_the_host_was_away(world: World) -> None:
    world.clock.advance(HOUR)
    missed = await world.miss(2)
    world.clock.advance(DAY)
    world.again()
    assert await world.round() == missed


async def test_what_came_is_not_taken(world: World) -> None:
    missed = await world.miss()
    assert await world.round() == missed
    details = f"{DELIVERIES}/*"
    assert world.asked(details) == 1
    world.github.deliveries()[-1].status_code = 202
    assert await world.round() == []
    assert world.asked(details) == 1


async def test_the_newest_attempt_counts(world: World) -> None:
    (guid,) = await world.miss()
    lost = world.github.deliveries()[-1]
    again = world.github.webhooks.redeliver(lost)
    await world.github.settled()
    again.status, again.status_code = "OK", 202
    assert await world.round() == []
    third = world.github.webhooks.redeliver(lost)
    await world.github.settled()
    assert third.status_code == 502
    assert await world.round() == [guid]


async def test_a_form_is_read_too(world: World) -> None:
    world.github.app.content_type = "form"
    missed = await world.miss()
    assert await world.round() == missed
    assert world.receiver.payloads[0]["action"] == "created"


async def test_only_what_is_new_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 3)
    missed = await world.miss(7)
    before = world.asked(DELIVERIES)
    assert await world.round() == missed
    assert world.asked(DELIVERIES) - before == 3
    for _ in range(2):
        world.clock.advance(HOUR)
        before = world.asked(DELIVERIES)
        missed = await world.miss()
        assert await world.round() == missed
    assert world.asked(DELIVERIES) - before == 1


async def test_what_turns_up_late_in_the_list(world: World) -> None:
    (late,) = await world.miss()
    slow = world.github.deliveries()[-1]
    slow.done = False
    world.clock.advance(5)
    (other,) = await world.miss()
    assert await world.round(5) == [other]
    slow.done = True
    assert await world.round() == [late]
    assert await world.round() == []


# What goes wrong


async def test_a_bad_one_does_not_stop_the_rest(world: World) -> None:
    bad, good = await world.miss(2)
    world.receiver.failing[bad] = RuntimeError("a payload like no other")
    assert await world.round() == [good]
    for _ in range(6):
        assert await world.round() == []
    assert world.receiver.tries == 1 + 5


async def test_what_is_refused_is_not_tried_again(world: World) -> None:
    bad, good = await world.miss(2)
    world.receiver.failing[bad] = InvalidRequest("It is no payload.")
    assert await world.round() == [good]
    assert await world.round() == []
    assert world.receiver.tries == 2


async def test_a_full_disk_is_waited_for(world: World) -> None:
    missed = await world.miss(2)
    world.receiver.failing["*"] = StoreUnavailable("The disk is full.")
    for _ in range(3):
        assert await world.round() == []
    world.again()
    world.receiver.failing.clear()
    assert await world.round() == missed


async def test_a_full_disk_costs_no_more_calls_than_it_must(world: World) -> None:
    await world.miss(12)
    world.receiver.failing["*"] = StoreUnavailable("The disk is full.")
    assert await world.round() == []
    assert world.receiver.tries == 10


async def test_after_three_days_it_is_lost(world: World) -> None:
    await world.miss()
    world.receiver.failing["*"] = StoreUnavailable("The disk is full.")
    assert await world.round() == []
    world.receiver.failing.clear()
    world.clock.advance(3 * DAY)
    assert await world.round() == []
    assert world.receiver.taken == []
    kept = await world.ctx.kv.get(f"sweep{DELIVERIES}")
    assert kept["owed"] == {}


async def test_a_limit_is_waited_for(world: World) -> None:
    missed = await world.miss(3)
    world.github.limit(method="GET", path=f"{DELIVERIES}/*", times=1)
    assert await world.round() == []
    assert world.asked(f"{DELIVERIES}/*") == 1
    assert await world.round() == missed


async def test_a_list_that_cannot_be_read_now(world: World) -> None:
    missed = await world.miss()
    world.github.fail("GET", DELIVERIES, status=502, times=None)
    assert await world.round() == []
    world.github.heal()
    assert await world.round() == missed


async def test_a_limit_in_the_middle_loses_nothing(world: World) -> None:
    first, second = await world.miss(2)
    world.github.limit(
        method="GET", path=f"{DELIVERIES}/{world.github.deliveries()[-1].id}", times=1
    )
    assert await world.round() == [first]
    world.again()
    assert await world.round() == [second]


async def test_a_delivery_that_is_gone(world: World) -> None:
    _, kept = await world.miss(2)
    gone = world.github.deliveries()[-2].id
    world.github.fail("GET", f"{DELIVERIES}/{gone}", status=404)
    assert await world.round() == [kept]
    assert await world.round() == []


async def test_a_server_without_the_list(world: World) -> None:
    world.github.fail("GET", DELIVERIES, status=404, times=None)
    assert await world.round() == []
    assert await world.round() == []


async def test_a_bot_that_did_not_know_itself(world: World) -> None:
    missed = await world.miss()
    world.hub.me = type(world.hub.me)()
    assert await world.round() == missed
    assert world.hub.me.login == DEFAULTS["bot"]


# Tokens


@pytest.fixture
async def tokened() -> AsyncIterator[World]:
    async for made in worlds(token=True):
        yield made


async def test_the_webhook_of_a_repository(tokened: World) -> None:
    world = tokened
    world.github.app.webhook_url = None
    ours = world.github.add_hook(NAME, f"https://127.0.0.1:9/agent{PATH}/")
    world.github.add_hook(NAME, "https://ci.example.com/hook")
    world.again(repositories=[NAME])
    assert await world.round() == []
    await world.miss(2)
    missed = [one.guid for one in world.github.deliveries() if one.hook is ours]
    assert len(missed) == 2
    assert await world.round() == missed
    assert await world.round() == []


async def test_webhooks_are_looked_up_once_an_hour(tokened: World) -> None:
    world = tokened
    world.github.add_hook(NAME, f"https://127.0.0.1:9{PATH}")
    world.again(repositories=[NAME])
    hooks = f"/repos/{NAME}/hooks"
    for _ in range(5):
        await world.round()
    assert world.asked(hooks) == 1
    await world.round(HOUR)
    assert world.asked(hooks) == 2


@pytest.mark.parametrize("status", [403, 404])
async def test_a_token_that_may_not_see_webhooks(tokened: World, status: int) -> None:
    world = tokened
    world.github.fail("GET", f"/repos/{NAME}/hooks*", status=status, times=None)
    world.again(repositories=[NAME])
    assert await world.round() == []
    assert await world.round() == []


async def test_a_token_without_names(tokened: World) -> None:
    before = tokened.asked("*")
    assert await tokened.round() == []
    assert tokened.asked("*") == before


# A host that was away


async def test_a_host_that_was_away() -> None:
    async with served(Scripted([Say("It looks good.")])) as world:
        github, host = world.github, world.host
        await github.until(lambda: github.calls("GET", DELIVERIES))
        await host.stop()
        world.clock.advance(HOUR)
        pull = github.user(DEFAULTS["person"]).open_pull()
        await github.settled()
        (lost,) = github.deliveries("pull_request", "opened")
        assert lost.status_code == 502
        await host.start()
        await github.until(lambda: any("It looks good." in one for one in github.visible(pull)))
        session = world.session(f"pr:{NAME}#{pull.number}")
        await session.rest()
        github.app.webhook_url = host.url + PATH
        again = github.webhooks.redeliver(lost)
        await github.settled()
        assert again.ok
        await session.rest()
        assert session.outcomes(lost.guid) == ["prompted"]
        assert sum("It looks good." in one for one in github.visible(pull)) == 1
        host.check_laws()


async def test_a_host_whose_clock_is_ahead() -> None:
    """Its first hour is later than GitHub's: what fails in it is its own all the same."""
    clock = ManualClock(START)
    async with FakeGitHub(clock=clock) as github:
        github.app.webhook_url = "http://127.0.0.1:9/v1/channels/github"
        github.user(DEFAULTS["person"]).open_pull(number=7, tell=False)
        ahead = ManualClock(START + timedelta(hours=1))
        async with TestHost(Channel(), clock=ahead, channel_id="github") as host:
            hub = Hub()
            made = World(github, clock, Context(host.agent().runtimes["github"]), hub)
            await hub.open(made.ctx, Config.read(github.environ))
            await made.sweep.run_once(made.ctx)
            clock.advance(60)
            ahead.advance(60)
            missed = await made.miss(1)
            clock.advance(HOUR / 2)
            ahead.advance(HOUR / 2)
            await made.sweep.run_once(made.ctx)
            assert [guid for _, guid in made.receiver.taken] == missed
            await hub.close()


# Round by round


async def test_it_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rounds = ManualClock(START), 0

    async def run_once(ctx: Context) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise StoreUnavailable("The disk is full.")

    monkeypatch.setattr(world.sweep, "run_once", run_once)
    monkeypatch.setattr(Context, "clock", clock)
    task = asyncio.create_task(world.sweep.run(world.ctx))
    for number in range(1, 5):
        await clock.sleeping()
        assert rounds == number
        clock.advance(SECONDS - 1)
        await asyncio.sleep(0)
        assert rounds == number
        clock.advance(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# What is kept


def listed(
    guid: str, at: datetime, code: int = 502, number: int = 1, **more: Any
) -> dict[str, Any]:
    made = {"id": number, "guid": guid, "delivered_at": at.isoformat(), "status_code": code}
    return made | {"event": "issues", "status": "x", **more}


def test_it_is_kept_as_json() -> None:
    state = State(START, {"a": Owed(5, "2026-01-31T12:00:00.000Z", "issues", 2)}, {"b": "x"})
    assert State.load(json.loads(json.dumps(state.dump()))) == state


def test_what_waits_for_an_answer_is_left_alone() -> None:
    state = State(START)
    pending = listed("a", START, 0, status="pending")
    state.read([pending], START + timedelta(seconds=5))
    assert state.owed == {}
    state.read([pending], START + timedelta(minutes=2))
    assert set(state.owed) == {"a"}


def test_a_time_that_is_no_time() -> None:
    state = State(START)
    state.read([listed("a", START) | {"delivered_at": None}, {}], START)
    assert set(state.owed) == {"a"}
    assert state.seen == START


def test_a_time_to_come_hides_nothing() -> None:
    state = State(START)
    state.read([listed("a", START + timedelta(days=9))], START)
    assert state.seen == START


def test_there_is_no_end_to_what_is_owed() -> None:
    state = State(START)
    many = [listed(f"g{n}", START + timedelta(seconds=n), number=n) for n in range(2_500)]
    now = START + timedelta(hours=1)
    state.read(many[::-1], now)
    lost = state.forget(now)
    assert set(lost) == {f"g{n}" for n in range(500)}
    assert len(state.owed) == 2_000
    assert state.oldest_first()[0][0] == "g500"


def test_what_is_done_is_forgotten_in_time() -> None:
    state = State(START)
    state.read([listed("a", START)], START)
    state.settle("a")
    state.forget(START)
    state.read([listed("a", START)], START)
    assert (state.owed, set(state.done)) == ({}, {"a"})
    state.read([listed("b", START + timedelta(hours=1), 200)], START + timedelta(hours=2))
    state.forget(START + timedelta(hours=2))
    assert state.done == {}


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        (f"https://a.example{PATH}", True),
        (f"https://a.example/agent{PATH}/", True),
        (f"https://a.example{PATH}?x=1", True),
        ("https://a.example/v1/channels/github2", False),
        ("https://a.example", False),
        ("http://[", False),
        (None, False),
    ],
)
def test_which_webhooks_lead_here(url: str | None, ours: bool) -> None:
    assert leads_to({"config": {"url": url}}, PATH) is ours
    assert leads_to({}, PATH) is False
