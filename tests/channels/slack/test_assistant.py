"""An agent's threads: what they offer, what the agent is told, their sessions, the native stop."""

from __future__ import annotations

from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient
from tests.channels.slack.world import (
    BOT,
    CHANNEL,
    DM,
    EVENTS,
    OTHER,
    PERSON,
    TEAM,
    World,
    deliver,
    served,
)

from threadline.harness.scripted import Call, Say, Scripted
from threadline.testing import Gated
from threadline_slack import SlackChannel
from threadline_slack.assistant import Assistant, Opened, looking_at, read, title_of
from threadline_slack.inbound.decide import Person, Place, Stop
from threadline_slack.testing import Message

PROMPTS = [("Weather", "How is the weather?"), ("On call", "Who is on call?")]
WIRE = [{"title": heading, "message": message} for heading, message in PROMPTS]
STOPPED = "agent_session_stopped"


def envelope(type_: str, **event: Any) -> dict[str, Any]:
    """Return an event as Slack sends it."""
    return {
        "type": "event_callback",
        "team_id": TEAM,
        "authorizations": [{"team_id": TEAM, "user_id": BOT, "is_bot": True}],
        "event": {"type": type_, "event_ts": "1760000100.000200", **event},
    }


def stopped(thread: str, ts: str, channel: str = CHANNEL, user: str = PERSON) -> dict[str, Any]:
    """Return the event of the stop button."""
    more = {"channel": channel, "thread_ts": thread, "user": user, "streaming_message_ts": []}
    return envelope(STOPPED, **more | {"event_ts": ts})


async def again(world: World) -> None:
    """Start the host again, and tell Slack where it is."""
    await world.host.start()
    if world.slack.app.request_url is not None:
        world.slack.app.request_url = world.host.url + EVENTS


async def status(world: World, thread: str, wanted: str | None, channel: str = CHANNEL) -> None:
    """Wait until the session of a thread has a status, and keeps it."""
    await world.slack.until(lambda: world.slack.session(channel, thread) == wanted)
    await world.slack.settled()
    assert world.slack.session(channel, thread) == wanted


def statuses(world: World) -> list[str]:
    """Return the statuses that were asked for, in order."""
    return [call.args["status"] for call in world.slack.calls("agents.sessions.setStatus")]


async def asked(world: World, thread: str, *last: str) -> None:
    """Wait until these statuses, the newest last, were asked for, and the last is kept.

    What a session shows does not say that: the end of the status line changes it too.
    """
    await world.slack.until(lambda: tuple(statuses(world)[-len(last) :]) == last)
    await status(world, thread, last[-1])


# What events say


def test_an_assistant_thread_is_read() -> None:
    context = {"channel_id": CHANNEL, "team_id": TEAM, "enterprise_id": None}
    thread = {"user_id": PERSON, "context": context, "channel_id": DM, "thread_ts": "1.2"}
    said = read(envelope("assistant_thread_started", assistant_thread=thread))
    assert said == Opened(TEAM, DM, PERSON, "1.2", fresh=True, seen=(CHANNEL,))
    thread["context"] = {}
    said = read(envelope("assistant_thread_context_changed", assistant_thread=thread))
    assert said == Opened(TEAM, DM, PERSON, "1.2", fresh=False)


def test_the_messages_tab_is_read_and_the_home_tab_is_not() -> None:
    assert read(envelope("app_home_opened", tab="messages", user=PERSON, channel=DM)) == Opened(
        TEAM, DM, PERSON, None, fresh=True
    )
    assert read(envelope("app_home_opened", tab="home", user=PERSON, channel=DM)) is None


def test_a_stop_is_read() -> None:
    place = Place(TEAM, CHANNEL, "1760000100.000100")
    body = stopped("1760000100.000100", "1760000100.000200")
    assert read(body) == Stop(place, "1760000100.000200", Person(TEAM, PERSON))


@pytest.mark.parametrize(
    "event",
    [
        {"thread_ts": None},
        {"thread_ts": "x"},
        {"event_ts": 17},
        {"channel": "nowhere"},
        {"user": ""},
    ],
)
def test_a_stop_without_a_place_is_none(event: dict[str, Any]) -> None:
    body = stopped("1760000100.000100", "1760000100.000200")
    body["event"] |= event
    assert read(body) is None


@pytest.mark.parametrize(
    "event", ["message", "agent_session_title_changed", "reaction_added", "app_context_changed"]
)
def test_other_events_are_nothing_here(event: str) -> None:
    assert read(envelope(event, channel=CHANNEL, thread_ts="1.2", user=PERSON)) is None
    assert read({"type": "event_callback", "event": None}) is None


def test_what_a_message_says_of_its_writer() -> None:
    entities = [
        {"type": "slack#/types/channel_id", "value": CHANNEL, "team_id": TEAM},
        {
            "type": "slack#/types/message_context",
            "value": {"channel_id": CHANNEL, "message_ts": "1.2"},
        },
        {"type": "slack#/types/canvas_id", "value": "F0CANVAS01"},
        {"type": "slack#/types/list_id", "value": "F0LIST0001"},
    ]
    seen = looking_at({"app_context": {"entities": entities}})
    assert seen == (CHANNEL, f"{CHANNEL}/1.2", "F0CANVAS01")
    assert looking_at({"app_context": {"entities": [{"value": "<!channel>"}, None, {}]}}) == ()
    assert looking_at({"app_context": []}) == looking_at({}) == ()


def test_a_title_is_the_first_line_and_not_long() -> None:
    assert title_of("  why is\tcheckout slow?\nIt was fine.") == "why is checkout slow?"
    long = title_of("word " * 100)
    assert len(long) <= 80
    assert long.endswith("…")


def test_prompts_are_checked() -> None:
    assert Assistant.of(PROMPTS, None).to_wire() == WIRE
    with pytest.raises(ValueError, match="4 suggested prompts, not 5"):
        SlackChannel(suggested_prompts=[("a", "b")] * 5)
    for wrong in ("ab", ("a", ""), ("a", "b", "c")):
        with pytest.raises(ValueError, match="is \\(title, message\\)"):
            SlackChannel(suggested_prompts=[wrong])  # type: ignore[list-item]


def test_what_a_channel_says_of_itself() -> None:
    assert SlackChannel().assistant is None
    assert SlackChannel(assistant=True).assistant == Assistant()
    prompts = SlackChannel(suggested_prompts=PROMPTS, suggested_prompts_title="Ask").assistant
    assert prompts == Assistant(tuple(PROMPTS), "Ask")


# What a new conversation offers


@pytest.mark.parametrize("socket", [False, True])
async def test_an_assistant_thread_offers_prompts(socket: bool) -> None:
    async with served(
        socket=socket, suggested_prompts=PROMPTS, suggested_prompts_title="Ask"
    ) as world:
        root = world.slack.user(PERSON).open_assistant_thread(context=CHANNEL)
        await world.slack.until(lambda: world.slack.thread(DM, root.ts).prompts == WIRE)
        (call,) = world.slack.calls("assistant.threads.setSuggestedPrompts")
        assert call.args["title"] == "Ask"


async def test_the_messages_tab_offers_prompts() -> None:
    async with served(suggested_prompts=PROMPTS) as world:
        world.slack.user(PERSON).open_home("home")
        world.slack.user(PERSON).open_home("messages")
        await world.slack.until(lambda: world.slack.thread(DM).prompts == WIRE)
        assert len(world.slack.calls("assistant.threads.setSuggestedPrompts")) == 1


async def test_nothing_is_offered_to_who_may_not_ask_and_without_prompts() -> None:
    for options in ({"suggested_prompts": PROMPTS, "blocked": [PERSON]}, {"assistant": True}):
        async with served(**options) as world:
            world.slack.user(PERSON).open_assistant_thread()
            world.slack.user(PERSON).open_home("messages")
            await world.slack.settled()
            await world.host.stop()
            assert not world.slack.calls("assistant.threads.setSuggestedPrompts")


async def test_prompts_that_slack_refuses_hold_nothing_up() -> None:
    async with served(suggested_prompts=PROMPTS) as world:
        world.slack.fail("assistant.threads.setSuggestedPrompts", "missing_scope", times=None)
        root = world.slack.user(PERSON).open_assistant_thread()
        world.say("hello", thread=root.ts, channel=DM)
        assert (await world.shown(3, root.ts, DM))[-1] == "hello"
        (delivery,) = world.slack.deliveries("assistant_thread_started")
        assert delivery.accepted


# What the agent is told


async def question(world: World, root: Message, text: str = "hello") -> str:
    """Ask in an assistant thread; return what the model was told beside it."""
    before = len(world.slack.messages(DM, root.ts))
    world.say(text, thread=root.ts, channel=DM)
    await world.shown(before + 2, root.ts, DM)
    await world.session(root.ts, DM).rest()
    prompts = world.session(root.ts, DM).events("message.received")
    return "\n".join(prompts[-1]["data"].get("context", []))


async def test_the_agent_knows_what_the_person_looks_at() -> None:
    async with served() as world:
        person = world.slack.user(PERSON)
        root = person.open_assistant_thread(context=CHANNEL)
        await world.slack.settled()
        assert f"looking at #general ({CHANNEL})" in await question(world, root)
        await world.slack.settled()
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        assert f"looking at #general ({CHANNEL})" in await question(world, root, "and now?")
        person.look_at(root, None)
        await world.slack.settled()
        assert "looking at" not in await question(world, root, "and now?")


async def test_a_message_says_itself_what_its_writer_looks_at() -> None:
    async with served() as world:
        ts = world.slack.state.ts()
        entity = {"type": "slack#/types/channel_id", "value": CHANNEL, "team_id": TEAM}
        event = {"channel": DM, "channel_type": "im", "user": PERSON, "team": TEAM, "ts": ts}
        body = envelope("message", text="hello", app_context={"entities": [entity]}, **event)
        assert (await deliver(world, body)).status == 200
        session = world.session(ts, DM)
        await session.rest()
        (prompt,) = session.events("message.received")
        assert f"[They are looking at #general ({CHANNEL})]" in prompt["data"]["context"]


async def test_a_thread_is_named_after_its_first_question() -> None:
    async with served() as world:
        root = world.slack.user(PERSON).open_assistant_thread()
        await question(world, root, "why is checkout slow?\nSince noon.")
        await question(world, root, "and search?")
        assert world.slack.thread(DM, root.ts).title == "why is checkout slow?"
        assert len(world.slack.calls("assistant.threads.setTitle")) == 1


async def test_a_session_is_named_after_its_first_question() -> None:
    async with served() as world:
        ts = world.say("why is checkout slow?", channel=DM)
        await world.shown(2, ts, DM)
        world.say("and search?", thread=ts, channel=DM)
        await world.shown(4, ts, DM)
        assert world.slack.thread(DM, ts).title == "why is checkout slow?"
        (first, *_) = world.slack.calls("agents.sessions.setStatus")
        assert first.args["initiator_user_id"] == PERSON
        assert not world.slack.calls("assistant.threads.setTitle")


async def test_a_session_that_the_status_line_made_is_named_too() -> None:
    async with served() as world:
        root = world.say("it is slow")
        client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
        where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": root}
        await client.assistant_threads_setStatus(status="is thinking…", **where)
        world.say(f"<@{BOT}> why?", thread=root)
        await world.shown(3, root)
        await status(world, root, "active")
        assert world.slack.thread(CHANNEL, root).title == "why?"


async def test_a_title_that_a_person_gave_stays() -> None:
    async with served() as world:
        ts = world.say("why is checkout slow?", channel=DM)
        await world.shown(2, ts, DM)
        await status(world, ts, "active", DM)
        world.slack.user(PERSON).rename_session(DM, ts, "Checkout")
        world.say("and search?", thread=ts, channel=DM)
        await world.shown(4, ts, DM)
        await status(world, ts, "active", DM)
        assert world.slack.thread(DM, ts).title == "Checkout"


# The status of a session


@pytest.mark.parametrize("socket", [False, True])
async def test_a_session_is_processing_while_a_turn_runs(socket: bool) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=socket) as world:
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        harness.release()
        await world.shown(2, ts)
        await status(world, ts, "active")


async def test_a_turn_that_fails_leaves_its_session_active() -> None:
    harness = Gated(hold=["answer"])
    harness.failures.append(RuntimeError("boom"))
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        harness.release()
        await world.shown(2, ts)
        await status(world, ts, "active")


async def test_a_session_that_waits_for_a_person_is_suspended() -> None:
    script = Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")])
    async with served(script) as world:
        ts = world.say(f"<@{BOT}> deploy the shop")
        await world.shown(2, ts)
        await world.slack.until(lambda: statuses(world)[-1:] == ["suspended"])
        card = world.slack.messages(CHANNEL, ts)[1]
        await world.slack.user(PERSON).click(card, "threadline:approve")
        await world.shown(3, ts)
        await asked(world, ts, "processing", "active")


async def test_a_long_turn_keeps_its_stop_button() -> None:
    """Slack takes what is processing for an hour for something that hangs."""
    harness = Gated(calls=2, hold=["call"])
    async with served(harness) as world:
        world.slack.stub("assistant.threads.setStatus", {"ok": True})
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        world.clock.advance(1_900)
        harness.release("call")
        await world.shown(2, ts)
        await asked(world, ts, "processing", "processing", "active")
        assert len(statuses(world)) == 3


async def test_a_session_whose_host_was_killed_does_not_hang() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        gate = world.slack.hold("agents.sessions.setStatus", "before")
        harness.release()
        await world.slack.until(lambda: gate.arrived)
        await world.slack.settled()
        await world.host.kill()
        world.slack.heal()
        await world.slack.settled()
        # The call that was on its way arrived all the same; say that it did not.
        client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
        where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": ts}
        await client.agents_sessions_setStatus(status="processing", **where)
        await again(world)
        await status(world, ts, "active")


async def test_a_turn_that_goes_on_after_a_restart_is_processing() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        world.slack.stub("assistant.threads.setStatus", {"ok": True})
        world.slack.delay("agents.sessions.setStatus", 1)
        await world.host.stop()
        await status(world, ts, "active")
        await again(world)
        await status(world, ts, "processing")
        harness.release()
        await world.shown(2, ts)
        await status(world, ts, "active")


async def test_the_end_of_a_turn_is_told_as_soon_as_slack_lets_us() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        world.slack.stub("assistant.threads.setStatus", {"ok": True})
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        world.slack.fail("agents.sessions.setStatus", "ratelimited", retry_after=30)
        harness.release()
        assert len(await world.shown(2, ts)) == 2
        assert world.slack.session(CHANNEL, ts) == "processing"
        await world.session(ts).rest()
        await world.slack.until(lambda: statuses(world) == ["processing", "active"])
        await world.clock.elapse(29)
        await world.slack.settled()
        assert len(statuses(world)) == 2
        await world.passing(status(world, ts, "active"))
        assert world.clock.monotonic() < 60


async def test_what_is_overtaken_while_slack_is_slow_is_never_shown() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        world.slack.stub("assistant.threads.setStatus", {"ok": True})
        gate = world.slack.hold("agents.sessions.setStatus", "before")
        ts = world.say(f"<@{BOT}> one")
        await harness.gates["answer"].reached()
        await world.slack.until(lambda: gate.arrived)
        world.say("two", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        harness.release("answer")
        await world.slack.until(lambda: len(world.slack.messages(CHANNEL, ts)) == 3)
        world.slack.heal()
        await world.shown(4, ts)
        await status(world, ts, "active")


async def test_an_app_that_is_no_agent_is_asked_once() -> None:
    async with served() as world:
        world.slack.app.is_agent = False
        for text in ("one", "two"):
            ts = world.say(f"<@{BOT}> {text}")
            assert len(await world.shown(2, ts)) == 2
            await world.session(ts).rest()
        assert len(world.slack.calls("agents.sessions.setStatus")) == 1


async def test_a_server_without_sessions_is_asked_once() -> None:
    async with served() as world:
        world.slack.fail("agents.sessions.setStatus", "unknown_method", times=None)
        for text in ("one", "two"):
            ts = world.say(f"<@{BOT}> {text}")
            assert len(await world.shown(2, ts)) == 2
            await world.session(ts).rest()
        assert len(world.slack.calls("agents.sessions.setStatus")) == 1


async def test_who_is_no_member_starts_a_session_all_the_same() -> None:
    async with served() as world:
        world.slack.fail("agents.sessions.setStatus", "user_not_found")
        ts = world.say(f"<@{BOT}> one")
        await world.shown(2, ts)
        await asked(world, ts, "processing", "processing", "active")
        assert len(statuses(world)) == 3
        first, second, _ = world.slack.calls("agents.sessions.setStatus")
        assert first.args == second.args | {"initiator_user_id": PERSON}


# The stop button


@pytest.mark.parametrize("socket", [False, True])
async def test_the_stop_button_ends_the_turn_and_clears_what_waits(socket: bool) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=socket) as world:
        ts = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        world.say("and this", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        await status(world, ts, "processing")
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        shown = await world.shown(3, ts)
        session = world.session(ts)
        await session.rest()
        assert shown[-1] == "Stopped."
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"
        (cleared,) = session.events("deliveries.cleared")
        assert len(cleared["data"]["deliveryIds"]) == 1
        assert len(harness.prompts) == 1
        await status(world, ts, "active")
        assert not world.slack.whispers(PERSON)
        world.host.check_laws()


async def test_a_stop_goes_ahead_of_the_queue() -> None:
    """Fifty follow-ups wait; the stop is not one of them."""
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        for number in range(50):
            world.say(f"more {number}", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 51)
        await status(world, ts, "processing")
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        session = world.session(ts)
        await session.event("deliveries.cleared")
        await session.rest()
        assert len(session.events("deliveries.cleared")[0]["data"]["deliveryIds"]) == 50
        assert len(harness.prompts) == 1


@pytest.mark.parametrize("socket", [False, True])
async def test_the_retry_of_a_stop_changes_nothing_more(socket: bool) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=socket) as world:
        ts = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        await status(world, ts, "processing")
        world.slack.events.duplicate(new_id=True, when=lambda event: event["type"] == STOPPED)
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        session = world.session(ts)
        await session.event("turn.failed")
        await session.rest()
        await world.slack.settled()
        world.say("go on", thread=ts)
        await harness.gates["answer"].reached(2)
        (first, *_) = world.slack.deliveries(STOPPED)
        if not socket:
            assert (await deliver(world, first.body)).status == 200
        await status(world, ts, "processing")
        harness.release()
        await session.rest()
        await asked(world, ts, "active", "processing", "active")
        assert session.replies == ["go on"]
        assert len(session.events("turn.failed")) == 1
        await world.host.stop()
        assert not world.slack.whispers(PERSON)


async def test_a_late_stop_spares_what_was_asked_behind_it() -> None:
    """S-51 for the button: its own time counts, not that of its arrival."""
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> A")
        await harness.gates["answer"].reached()
        await status(world, ts, "processing")
        world.slack.events.reorder(when=lambda event: event["type"] in (STOPPED, "message"))
        world.clock.advance(1)
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        world.clock.advance(1)
        world.say("B", thread=ts)
        session = world.session(ts)
        await session.event("turn.failed")
        harness.release()
        await session.rest()
        await world.slack.settled()
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"
        assert not session.events("deliveries.cleared")
        assert session.replies == ["B"]
        await status(world, ts, "active")


async def test_a_stop_from_before_a_restart_spares_what_came_after_it() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> A")
        await harness.gates["answer"].reached()
        await status(world, ts, "processing")
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        session = world.session(ts)
        await session.event("turn.failed")
        await session.rest()
        await world.slack.settled()
        await world.host.kill()
        world.clock.advance(10)
        await again(world)
        world.say("B", thread=ts)
        await harness.gates["answer"].reached(2)
        (stop,) = world.slack.deliveries(STOPPED)
        assert (await deliver(world, stop.body)).status == 200
        harness.release()
        await session.rest()
        assert session.replies == ["B"]


async def test_a_stop_is_durable_before_slack_is_answered() -> None:
    harness = Gated(hold=["answer", "settle"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        await status(world, ts, "processing")
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        await world.slack.until(lambda: [one.accepted for one in stops(world)] == [True])
        await world.slack.settled()
        await world.host.kill()
        harness.release()
        await again(world)
        session = world.session(ts)
        await session.rest()
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"
        assert session.replies == []
        assert (await world.shown(2, ts))[1:] == ["Stopped."]
        await status(world, ts, "active")


def stops(world: World) -> list[Any]:
    return world.slack.deliveries(STOPPED)


async def test_a_stop_of_nothing_sets_the_session_back() -> None:
    async with served() as world:
        ts = world.say(f"<@{BOT}> one")
        await world.shown(2, ts)
        await status(world, ts, "active")
        client = AsyncWebClient(world.slack.app.bot_token, world.slack.api_url)
        where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": ts}
        await client.agents_sessions_setStatus(status="processing", **where)
        world.slack.user(PERSON).press_stop(CHANNEL, ts)
        await status(world, ts, "active")
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert not world.session(ts).events("turn.failed")


async def test_a_stop_in_a_thread_without_a_session_is_answered() -> None:
    async with served() as world:
        root = world.say("just people talking")
        now = world.slack.state.ts()
        assert (await deliver(world, stopped(root, now))).status == 200
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert world.session(root) is None


async def test_who_may_not_ask_does_not_stop_either() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, blocked=[OTHER]) as world:
        ts = world.say(f"<@{BOT}> long job")
        await status(world, ts, "processing")
        world.slack.user(OTHER).press_stop(CHANNEL, ts)
        await world.slack.settled()
        await status(world, ts, "processing")
        harness.release()
        assert len(await world.shown(2, ts)) == 2
        assert not world.session(ts).events("turn.failed")


async def test_a_stop_while_a_person_decides_ends_the_turn() -> None:
    async with served(Scripted([Call("deploy", {"service": "shop"}), Say("Out.")])) as world:
        ts = world.say(f"<@{BOT}> deploy the shop")
        await world.slack.until(lambda: statuses(world)[-1:] == ["suspended"])
        now = world.slack.state.ts()
        assert (await deliver(world, stopped(ts, now))).status == 200
        session = world.session(ts)
        await session.rest()
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"
        await status(world, ts, "active")
