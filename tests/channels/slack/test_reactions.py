"""Reactions at messages that came while the agent was busy say what became of them, and no more."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.channels.slack.world import BOT, CHANNEL, DM, EVENTS, OTHER, PERSON, TEAM, World, served

from threadline import Delivery
from threadline.events import parse_event
from threadline.testing import Gated
from threadline_slack.outbound.reactions import Board, Reactions

WAITS, STEERED = "hourglass_flowing_sand", "eyes"
ANSWERED, CLEARED = "white_check_mark", "no_entry_sign"


def marks(world: World, ts: str, channel: str = CHANNEL) -> set[str]:
    """Return the agent's reactions at a message."""
    found = world.slack.message(ts, channel).reactions
    return {name for name, users in found.items() if BOT in users}


async def marked(world: World, ts: str, *names: str, channel: str = CHANNEL) -> None:
    """Wait until these are the reactions of a message, and stay."""
    await world.slack.until(lambda: marks(world, ts, channel) == set(names))
    await world.slack.settled()
    assert marks(world, ts, channel) == set(names)


async def kept(world: World) -> Any:
    """Return which messages the channel would look after in another process, at rest."""
    await world.host.rest()
    store = world.host.agent().store
    with contextlib.suppress(AssertionError):
        await world.host.until(lambda: _none(store), seconds=2)
    return await store.kv_get("channel/slack/reactions")


async def _none(store: Any) -> bool:
    return not await store.kv_get("channel/slack/reactions")


async def again(world: World) -> None:
    """Start the host again, and tell Slack where it is."""
    await world.host.start()
    if world.slack.app.request_url is not None:
        world.slack.app.request_url = world.host.url + EVENTS


def busy(*, steers: bool = False) -> Gated:
    """A harness that is held: before a tool call, so that it can be steered, or before its end."""
    return Gated(calls=1, hold=["call"]) if steers else Gated(hold=["answer"])


async def asked(world: World, harness: Gated, text: str = "one") -> str:
    """Ask the first question, and wait until the agent is busy with it."""
    ts = world.say(f"<@{BOT}> {text}")
    await harness.gates["call" if harness.gates["call"].held else "answer"].reached()
    return ts


# What the log says


def board(*events: tuple[str, str | None, dict[str, Any]]) -> Board:
    """Return a board that has read a log."""
    made = Board()
    for index, (type_, turn, data) in enumerate(events):
        made.apply(event(index, type_, turn, data))
    return made


def event(index: int, type_: str, turn: str | None, data: dict[str, Any]) -> Any:
    at = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    raw = {"type": type_, "index": index, "sessionId": "s", "at": at, "data": data}
    return parse_event(raw | ({"turnId": turn} if turn else {}))


FIRST = ("message.received", "t1", {"deliveryIds": ["first"]})
SECOND = ("message.received", "t2", {"deliveryIds": ["m"]})
NUDGE = ("nudge.delivered", "t1", {"deliveryId": "m"})
WAITING: tuple[str, None, dict[str, Any]] = ("session.waiting", None, {})


@pytest.mark.parametrize(
    ("log", "state"),
    [
        ([FIRST], "queued"),
        ([FIRST, NUDGE], "steered"),
        ([FIRST, NUDGE, ("turn.completed", "t1", {})], "answered"),
        ([FIRST, NUDGE, ("turn.completed", "t1", {}), WAITING], "answered"),
        ([FIRST, ("turn.completed", "t1", {}), WAITING], "queued"),
        ([FIRST, ("turn.completed", "t1", {}), WAITING, SECOND], "prompted"),
        ([FIRST, WAITING, SECOND, ("turn.completed", "t2", {})], "answered"),
        ([FIRST, NUDGE, ("turn.failed", "t1", {"code": "boom"}), WAITING], "ended"),
        ([FIRST, ("deliveries.cleared", None, {"deliveryIds": ["m"]})], "cleared"),
        # An interrupted turn goes on in another one, which is the one that answers.
        ([FIRST, NUDGE, ("turn.failed", "t1", {"code": "host_restarted"})], "steered"),
        (
            [
                FIRST,
                NUDGE,
                ("turn.failed", "t1", {"code": "host_restarted"}),
                ("turn.started", "t2", {"attempt": 2, "resumes": "t1"}),
                ("turn.completed", "t2", {}),
            ],
            "answered",
        ),
        ([FIRST, NUDGE, ("turn.failed", "t1", {"code": "host_restarted"}), WAITING], "ended"),
    ],
)
def test_the_log_says_what_became_of_a_message(
    log: list[tuple[str, str | None, dict[str, Any]]], state: str
) -> None:
    assert board(*log).mark("m").state == state


def test_events_that_come_again_change_nothing() -> None:
    made = board(FIRST, NUDGE, ("turn.completed", "t1", {}), WAITING)
    assert made.apply(event(1, *NUDGE)) == []
    assert made.mark("m").state == "answered"


def test_a_board_forgets_what_nobody_asks_for() -> None:
    made = Board()
    made.mark("kept").shown = set()
    for number in range(1_000):
        data = {"deliveryIds": [f"m{number}"]}
        made.apply(event(2 * number, "message.received", f"t{number}", data))
        made.apply(event(2 * number + 1, "turn.completed", f"t{number}", {}))
    assert "kept" in made.marks
    assert len(made.marks) < 300


def test_an_empty_name_says_nothing() -> None:
    assert Reactions(queued="").of("queued") == ""
    assert Reactions(answered=":tada:").of("answered") == "tada"


# What people see


@pytest.mark.parametrize("socket", [False, True])
async def test_a_follow_up_that_waits_is_marked_until_it_is_answered(socket: bool) -> None:
    harness = busy()
    async with served(harness, socket=socket) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        gate = harness.hold("start")
        harness.release("answer")
        await gate.reached(2)
        # Its own turn runs now: it does not wait any more, and was steered into nothing.
        await marked(world, more)
        harness.release()
        await marked(world, more, ANSWERED)
        assert marks(world, first) == set()
        world.host.check_laws(at_rest=False)


@pytest.mark.parametrize("socket", [False, True])
async def test_a_follow_up_that_is_steered_says_so(socket: bool) -> None:
    harness = busy(steers=True)
    async with served(harness, socket=socket) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        harness.hold("answer")
        harness.release("call")
        await marked(world, more, STEERED)
        harness.release()
        await marked(world, more, ANSWERED)
        assert len(await world.shown(2, first)) == 3


async def test_a_direct_message_is_marked_in_its_thread() -> None:
    harness = busy()
    async with served(harness) as world:
        first = world.say("one", channel=DM)
        await harness.gates["answer"].reached()
        more = world.say("two", thread=first, channel=DM)
        await marked(world, more, WAITS, channel=DM)
        harness.release()
        await marked(world, more, ANSWERED, channel=DM)


async def test_what_a_stop_cleared_says_so() -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        stop = world.say("stop", thread=first)
        await marked(world, more, CLEARED)
        assert marks(world, stop) == marks(world, first) == set()


async def test_a_turn_that_fails_has_answered_nothing() -> None:
    harness = busy(steers=True)
    harness.failures.append(RuntimeError("boom"))
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        harness.hold("answer")
        harness.release("call")
        await marked(world, more, STEERED)
        harness.release()
        await world.shown(3, first)
        await marked(world, more)
        assert not await kept(world)


async def test_a_turn_that_is_stopped_has_answered_nothing() -> None:
    harness = busy(steers=True)
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        harness.hold("answer")
        harness.release("call")
        await marked(world, more, STEERED)
        world.say("stop", thread=first)
        await marked(world, more)


async def test_other_emoji_may_be_chosen() -> None:
    harness = busy(steers=True)
    names = Reactions(queued="inbox_tray", steered="", answered=":tada:")
    async with served(harness, reactions=names) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, "inbox_tray")
        harness.hold("answer")
        harness.release("call")
        await marked(world, more)
        harness.release()
        await marked(world, more, "tada")


async def test_without_reactions_slack_is_not_asked_for_any() -> None:
    harness = busy()
    async with served(harness, reactions=False) as world:
        first = await asked(world, harness)
        world.say("two", thread=first)
        await world.slack.until(lambda: len(world.accepted) == 2)
        harness.release()
        await world.shown(4, first)
        assert not world.slack.calls("reactions.add")
        assert not world.channel.acks


async def test_nothing_is_marked_that_was_not_asked_while_busy() -> None:
    """S-29: ambient posts, refused people, other bots and first questions get no reaction."""
    harness = busy()
    async with served(harness, blocked=[OTHER], bots=True) as world:
        world.slack.add_bot("U0OTHERBOT", "alerts", bot_id="B0OTHERBOT", app="A0OTHERAPP")
        world.slack.user(OTHER).invite(CHANNEL, "U0OTHERBOT")
        first = await asked(world, harness)
        said = [
            first,
            world.say("lunch?"),
            world.slack.user(OTHER).post(CHANNEL, "me too", thread_ts=first).ts,
            world.slack.bot("B0OTHERBOT").post(CHANNEL, f"<@{BOT}> done", thread_ts=first).ts,
            world.say(f"<@{BOT}> another thing"),
        ]
        await world.slack.until(lambda: len(world.accepted) == 3)
        harness.release()
        await world.slack.settled()
        await world.host.rest()
        assert [marks(world, ts) for ts in said] == [set()] * 5
        assert not world.slack.calls("reactions.add")


# What goes wrong


async def test_no_answer_waits_for_a_reaction() -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        gate = world.slack.hold("reactions.add", "before")
        more = world.say("two", thread=first)
        await world.slack.until(lambda: gate.arrived)
        harness.release()
        await world.slack.until(lambda: len(world.slack.messages(CHANNEL, first)) == 4)
        assert marks(world, more) == set()
        gate.release()
        await marked(world, more, ANSWERED)


async def test_a_reaction_that_arrives_late_is_taken_back() -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        gate = world.slack.hold("reactions.add", "after")
        more = world.say("two", thread=first)
        await world.slack.until(lambda: gate.arrived)
        world.say("stop", thread=first)
        await world.host.until(lambda: world.session(first).events("deliveries.cleared"))
        gate.release()
        await marked(world, more, CLEARED)


@pytest.mark.parametrize("error", ["missing_scope", "unknown_method", "not_allowed_token_type"])
async def test_an_app_that_may_not_react_is_asked_once(error: str) -> None:
    harness = busy()
    async with served(harness) as world:
        world.slack.fail("reactions.add", error, times=None)
        with capture_logs() as logs:
            first = await asked(world, harness)
            for text in ("two", "three"):
                world.say(text, thread=first)
                await world.slack.until(lambda: world.slack.calls("reactions.add"))
            await world.slack.until(lambda: len(world.accepted) == 3)
            harness.release()
            await world.shown(5, first)
        assert len(world.slack.calls("reactions.add")) == 1
        assert len([one for one in logs if one["event"] == "slack.no_reactions"]) == 1


@pytest.mark.parametrize("error", ["too_many_reactions", "message_not_found", "account_inactive"])
async def test_what_cannot_be_shown_leaves_nothing_untrue(error: str) -> None:
    harness = busy(steers=True)
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        world.slack.fail(
            "reactions.add", error, times=None, when=lambda args: args["name"] != WAITS
        )
        harness.hold("answer")
        harness.release("call")
        await marked(world, more)
        harness.release()
        await world.shown(3, first)
        await marked(world, more)


async def test_what_stands_there_already_or_is_gone_is_fine() -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        with capture_logs() as logs:
            world.slack.fail("reactions.add", "already_reacted", effect=True)
            more = world.say("two", thread=first)
            await marked(world, more, WAITS)
            world.slack.fail("reactions.remove", "no_reaction", effect=True)
            harness.release()
            await marked(world, more, ANSWERED)
        assert not [one for one in logs if one["event"] == "slack.reaction_refused"]


@pytest.mark.parametrize(
    "fault",
    [
        lambda slack, method: slack.fail(method, "ratelimited", retry_after=30),
        lambda slack, method: slack.fail(method, "internal_error"),
        lambda slack, method: slack.fail(method, status=503),
        lambda slack, method: slack.drop(method, "after"),
    ],
)
async def test_what_is_not_true_goes_as_soon_as_slack_lets_it(
    fault: Callable[[Any, str], Any],
) -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        fault(world.slack, "reactions.remove")
        fault(world.slack, "reactions.add")
        harness.release()
        await world.shown(4, first)
        await world.in_time(lambda: marks(world, more) == {ANSWERED}, step=0.5)


# Restarts


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_message_is_followed_across_a_restart(end: str) -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        await getattr(world.host, end)()
        harness.release()
        await again(world)
        await marked(world, more, ANSWERED)
        assert not await kept(world)


async def test_what_a_killed_process_was_about_to_take_away_goes() -> None:
    """All is answered when the next process begins: no event will come again."""
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        gate = world.slack.hold("reactions.remove", "before")
        harness.release()
        await world.shown(4, first)
        await world.session(first).rest()
        await world.slack.settled()
        await world.host.kill()
        world.slack.heal()
        gate.release()
        await world.slack.settled()
        await again(world)
        await marked(world, more, ANSWERED)


async def test_what_a_killed_process_was_about_to_show_is_known() -> None:
    """The reaction arrives at Slack, its answer never comes back."""
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        gate = world.slack.hold("reactions.add", "after")
        more = world.say("two", thread=first)
        await world.slack.until(lambda: gate.arrived)
        await world.slack.settled()
        await world.host.kill()
        gate.release()
        await world.slack.settled()
        assert marks(world, more) == {WAITS}
        harness.release()
        await again(world)
        await marked(world, more, ANSWERED)


async def test_the_marks_of_a_session_that_was_deleted_go() -> None:
    harness = busy()
    async with served(harness) as world:
        first = await asked(world, harness)
        more = world.say("two", thread=first)
        await marked(world, more, WAITS)
        session = world.session(first)
        await world.host.agent().core.delete(session.id)
        await world.slack.settled()
        await world.host.crash()
        await marked(world, more)


# All of it at once


def outcome(world: World, session: Any, ts: str) -> set[str]:
    """Return what should stand at a message by the log alone, read anew."""
    name, turn, said = f"{TEAM}:{CHANNEL}:{ts}", None, {WAITS}
    for one in session.events():
        data, in_turn = one["data"], one.get("turnId")
        if one["type"] == "message.received" and name in data["deliveryIds"]:
            turn, said = in_turn, set()
        elif one["type"] == "nudge.delivered" and data.get("deliveryId") == name:
            turn, said = in_turn, {STEERED}
        elif one["type"] == "deliveries.cleared" and name in data["deliveryIds"]:
            return {CLEARED}
        elif one["type"] == "turn.started" and turn is not None and data.get("resumes") == turn:
            turn = in_turn
        elif one["type"] == "turn.completed" and in_turn == turn:
            return {ANSWERED}
        elif one["type"] == "session.waiting" and turn is not None:
            return set()
    return said


DEEDS = ["say", "go on", "finish", "stop", "press", "kill", "fail"]


def contains(world: World, name: str) -> bool:
    return name in world.accepted


def witnessed(world: World) -> set[str]:
    """Return the messages, as they come, that this process accepts behind what runs."""
    found: set[str] = set()
    acks = world.channel._acks
    follow = acks.queued

    def queued(delivery: Delivery) -> None:
        found.add(delivery.delivery_id)
        follow(delivery)

    acks.queued = queued  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("seed", range(12))
async def test_in_the_end_all_reactions_are_what_the_log_says(seed: int) -> None:
    """Follow-ups, tool boundaries, failures, stops, kills and a slow Slack, in any order."""
    chance = random.Random(seed)
    harness = Gated(calls=2, hold=["call", "answer"])
    async with served(harness) as world:
        world.slack.options.retries = ()
        processes = [witnessed(world)]
        first = world.say(f"<@{BOT}> begin")
        await harness.gates["call"].reached()
        said: list[str] = []
        unseen: set[str] = set()
        for step in range(14):
            match chance.choice([*DEEDS, "say", "say"]):
                case "say":
                    said.append(world.say(f"more {step}", thread=first))
                    if chance.random() < 0.7:
                        name = f"{TEAM}:{CHANNEL}:{said[-1]}"
                        await world.slack.until(partial(contains, world, name))
                case "go on":
                    harness.release("call")
                    await world.slack.settled()
                    harness.hold("call")
                case "finish":
                    harness.release("call", "answer")
                    await world.slack.settled()
                    harness.hold("call")
                    harness.hold("answer")
                case "stop":
                    world.say("stop", thread=first)
                    await world.slack.settled()
                case "press":
                    with contextlib.suppress(LookupError):
                        world.slack.user(PERSON).press_stop(CHANNEL, first)
                    await world.slack.settled()
                case "kill":
                    await world.slack.settled()
                    await world.host.kill()
                    unseen |= {ts for ts in said if not marks(world, ts)}
                    await again(world)
                    processes.append(witnessed(world))
                case "fail":
                    harness.failures.append(RuntimeError("boom"))
        await world.slack.settled()
        harness.failures.clear()
        harness.release()
        session = world.session(first)
        await session.rest()

        def wanted(ts: str) -> set[str]:
            queued = f"{TEAM}:{CHANNEL}:{ts}" in set().union(*processes)
            return outcome(world, session, ts) if queued else set()

        def true(ts: str) -> bool:
            # What a killed process has shown nothing of may stay without a reaction.
            return marks(world, ts) in ([wanted(ts), set()] if ts in unseen else [wanted(ts)])

        def agrees() -> bool:
            return all(true(ts) for ts in said)

        await world.slack.until(agrees)
        await world.slack.until(lambda: world.slack.session(CHANNEL, first) == "active")
        await world.slack.settled()
        assert agrees()
        assert WAITS not in set().union(*map(wanted, said))
        world.host.check_laws()
