"""The channel at work: a real host, a FakeSlack that signs, the real Slack client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.channels.slack.world import (
    BOT,
    CHANNEL,
    DM,
    EVENTS,
    OTHER,
    PERSON,
    TEAM,
    deliver,
    served,
)

from threadline import Context
from threadline.errors import ProjectError
from threadline.harness.scripted import Call, Say, Scripted
from threadline.principal import Principal
from threadline.testing import Gated, TestHost
from threadline_slack import SlackChannel
from threadline_slack.config import Config

CASES = {
    case["id"]: case
    for case in map(
        json.loads, (Path(__file__).parent / "inbound_cases.jsonl").read_text("utf-8").splitlines()
    )
}


@pytest.mark.parametrize("socket", [False, True])
async def test_a_mention_has_one_answer_in_its_thread(socket: bool) -> None:
    async with served(socket=socket) as world:
        ts = world.say(f"<@{BOT}> why is checkout slow?")
        shown = await world.shown(2, ts)
        session = world.session(ts)
        await session.rest()
        assert shown[1:] == ["why is checkout slow?"]
        (prompt,) = session.events("message.received")
        assert prompt["data"]["deliveryIds"] == [f"{TEAM}:{CHANNEL}:{ts}"]
        assert prompt["data"]["parts"][0]["sender"]["id"] == f"{TEAM}:{PERSON}"
        assert "dev1" in prompt["data"]["context"][0]
        world.host.check_laws()


async def test_follow_ups_while_busy_go_into_one_more_turn() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> one")
        await harness.gates["answer"].reached()
        world.say("two", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        world.say("three", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 3)
        harness.release()
        shown = await world.shown(5, ts)
        assert shown[-2:] == ["one", "two\n\nthree"]


async def test_a_direct_message_is_answered_in_its_thread() -> None:
    async with served() as world:
        ts = world.say("hello", channel=DM)
        assert (await world.shown(2, ts, DM))[1:] == ["hello"]


@pytest.mark.parametrize("text", ["stop", f"<@{BOT}> Stop!"])
async def test_a_stop_ends_the_turn_and_clears_what_waits(text: str) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> long job")
        await harness.gates["answer"].reached()
        world.say("and this", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        world.say(text, thread=ts)
        shown = await world.shown(4, ts)
        session = world.session(ts)
        await session.rest()
        assert shown[-1] == "Stopped."
        assert harness.prompts == [harness.prompts[0]]
        (failed,) = session.events("turn.failed")
        assert failed["data"]["status"] == "cancelled"
        (cleared,) = session.events("deliveries.cleared")
        assert len(cleared["data"]["deliveryIds"]) == 1
        assert not world.slack.whispers(PERSON)


async def test_a_stop_of_nothing_says_so_to_who_said_it() -> None:
    async with served() as world:
        ts = world.say(f"<@{BOT}> stop")
        await world.slack.until(lambda: world.slack.whispers(PERSON))
        assert "Nothing is running" in world.slack.whispers(PERSON)[0].text
        assert world.session(ts) is None


async def test_the_twin_or_retry_of_a_stop_changes_nothing_more() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        first, _, stop = [step["body"] for step in CASES["S-51"]["steps"]]
        await deliver(world, first)
        await harness.gates["answer"].reached()
        await deliver(world, stop)
        session = world.session("1760000600.000100")
        await session.rest()
        assert (await deliver(world, stop)).status == 200
        await world.host.stop()
        assert not world.slack.calls("chat.postEphemeral")


@pytest.mark.parametrize("socket", [False, True])
async def test_s45_a_burst_is_acknowledged_while_turns_are_busy(socket: bool) -> None:
    harness = Gated(hold=["answer"])
    async with served(harness, socket=socket) as world:
        roots = [world.say(f"<@{BOT}> question {number}") for number in range(20)]
        await world.slack.until(lambda: len(world.accepted) == 20)
        await world.slack.settled()
        harness.release()
        for root in roots:
            await world.session(root).rest()
            assert len(await world.shown(2, root)) == 2


async def test_a_host_starts_and_stops_while_there_is_no_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(socket=True) as world:
        await world.host.stop()
        monkeypatch.setattr("threadline_slack.inbound.sockets._CONNECT_SECONDS", 0.01)
        gate = world.slack.hold("apps.connections.open", "before")
        await world.host.start()
        assert not world.slack.sockets()
        gate.release()
        monkeypatch.undo()
        await world.in_time(world.slack.sockets)
        ts = world.say(f"<@{BOT}> hello")
        assert (await world.shown(2, ts))[1:] == ["hello"]
        await world.host.stop()
        world.slack.hold("apps.connections.open", "before")
        await world.host.start()


async def test_s46_follow_ups_keep_the_order_in_which_they_arrived() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        first, *rest = [step["body"] for step in CASES["S-46"]["steps"] if "body" in step]
        await deliver(world, first)
        await harness.gates["answer"].reached()
        for body in rest:
            await deliver(world, body)
        harness.release()
        event = first["event"]
        session = world.session(event.get("thread_ts") or event["ts"])
        await session.rest()
        prompt = session.events("message.received")[-1]["data"]
        assert prompt["deliveryIds"] == [f"{TEAM}:{CHANNEL}:{b['event']['ts']}" for b in rest]


async def test_a_late_stop_spares_what_was_asked_behind_it() -> None:
    """S-51: the stop's own time counts, not that of its arrival."""
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        first, second, stop = [step["body"] for step in CASES["S-51"]["steps"]]
        assert (await deliver(world, first)).status == 200
        await harness.gates["answer"].reached()
        world.clock.advance(10)
        assert (await deliver(world, second)).status == 200
        world.clock.advance(55)
        assert (await deliver(world, stop)).status == 200
        harness.release()
        session = world.session("1760000600.000100")
        await session.rest()
        assert not session.events("deliveries.cleared")
        (failed,) = session.events("turn.failed")
        assert failed["data"]["code"] == "stopped"
        assert session.replies == ["B"]


async def test_a_failed_turn_says_so_with_its_id() -> None:
    harness = Gated()
    harness.failures.append(RuntimeError("boom"))
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> go")
        shown = await world.shown(2, ts)
        await world.session(ts).rest()
        (failed,) = world.session(ts).events("turn.failed")
        assert "There is no answer" in shown[1]
        assert failed["turnId"] in shown[1]


async def test_a_button_decides_and_the_card_says_who() -> None:
    script = Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")])
    async with served(script) as world:
        ts = world.say(f"<@{BOT}> deploy the shop")
        await world.shown(2, ts)
        card = world.slack.messages(CHANNEL, ts)[1]
        await world.host.crash()
        world.slack.app.request_url = world.host.url + EVENTS
        await world.slack.user(OTHER).click(card, "threadline:approve")
        shown = await world.shown(3, ts)
        assert shown[-1] == "It is out."
        assert "Approved" in shown[1]
        assert not [b for b in world.slack.message(card.ts).blocks or [] if b["type"] == "actions"]
        (resolved,) = world.session(ts).events("action.approval_resolved")
        assert resolved["data"]["by"]["id"] == f"{TEAM}:{OTHER}"


async def test_an_answer_sent_before_a_crash_is_found_again() -> None:
    """S-127: the identity in the metadata says that it is there."""
    async with served() as world:
        hold = world.slack.hold("chat.postMessage")
        ts = world.say(f"<@{BOT}> once")
        await world.slack.until(lambda: world.slack.calls("chat.postMessage"))
        await world.host.kill()
        hold.release()
        await world.slack.settled()
        await world.host.start()
        await world.session(ts).rest()
        await world.slack.settled()
        assert len(world.slack.messages(CHANNEL, ts)) == 2


async def test_a_restart_in_the_middle_leaves_one_answer() -> None:
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> once")
        await harness.gates["answer"].reached()
        await world.host.kill()
        harness.release()
        await world.host.start()
        shown = await world.shown(2, ts)
        await world.session(ts).rest()
        assert shown[1:] == ["once"]


async def test_a_long_answer_is_several_messages_whole_and_in_order() -> None:
    """S-101: nothing is lost between two messages."""
    words = [f"Paragraph {number}. " + "word " * 60 for number in range(80)]
    answer = "\n\n".join(part.strip() for part in words)
    async with served(Scripted([Say(answer)])) as world:
        ts = world.say(f"<@{BOT}> long")
        await world.shown(4, ts)
        await world.session(ts).rest()
        said = world.slack.messages(CHANNEL, ts)[1:]
        blocks = [block["text"] for message in said for block in message.blocks or []]
        assert len(said) > 1
        assert "\n\n".join(blocks).split() == answer.split()


async def test_the_thread_before_the_mention_is_given_to_the_model() -> None:
    async with served() as world:
        root = world.say("the shop is slow")
        world.slack.user(OTHER).post(CHANNEL, "since noon", thread_ts=root)
        world.say(f"<@{BOT}> why?", thread=root)
        await world.shown(4, root)
        await world.session(root).rest()
        (prompt,) = world.session(root).events("message.received")
        context = "\n".join(prompt["data"]["context"])
        assert "dev1: the shop is slow\n- dev2: since noon" in context
        assert "why?" not in context


async def test_a_file_is_put_into_the_workspace() -> None:
    async with served() as world:
        world.slack.user(PERSON).upload(CHANNEL, "a b.txt", b"content", text=f"<@{BOT}> read")
        await world.slack.until(lambda: world.slack.calls("chat.postMessage"))
        (record,) = world.host.agent().store.sessions(None, limit=5)
        session = world.host.session(record.id)
        await session.rest()
        (path,) = world.host.root.glob("sessions/*/workspace/slack/*-a_b.txt")
        assert path.read_bytes() == b"content"
        (prompt,) = session.events("message.received")
        assert "a b.txt" in "\n".join(prompt["data"]["context"])


@pytest.mark.parametrize("how", ["in turn", "at once", "restart"])
async def test_other_bots_are_heard_only_so_often(how: str) -> None:
    """S-20: without a person in between, a cap holds."""
    async with served(bots=True, bot_turns=2) as world:
        bodies = [s["body"] for s in CASES["S-20"]["steps"] if s.get("do") == "post"]
        posts = [b for b in bodies if b["event"].get("bot_id")][:4]
        if how == "at once":
            answers = await asyncio.gather(*(deliver(world, body) for body in posts))
            assert {answer.status for answer in answers} == {200}
        for number, body in enumerate(posts):
            if how == "restart" and number == 2:
                await world.session(posts[0]["event"]["thread_ts"]).rest()
                await world.host.stop()
                await world.host.start()
            # A retry of what was heard, or of what was not, changes nothing.
            for _ in range(2):
                assert (await deliver(world, body)).status == 200
        assert len(world.accepted) == 2


async def test_the_status_line_comes_and_goes() -> None:
    """S-124: it never outlives its turn."""
    harness = Gated(hold=["answer"])
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> go")
        await world.slack.until(lambda: world.slack.status(CHANNEL, ts))
        world.say("stop", thread=ts)
        await world.shown(3, ts)
        assert world.slack.status(CHANNEL, ts) == ""


async def test_a_server_without_statuses_is_asked_once() -> None:
    async with served() as world:
        world.slack.fail("assistant.threads.setStatus", error="unknown_method")
        ts = world.say(f"<@{BOT}> one")
        await world.shown(2, ts)
        await world.session(ts).rest()
        asked = len(world.slack.calls("assistant.threads.setStatus"))
        world.say("two", thread=ts)
        await world.shown(4, ts)
        assert asked == 1
        assert len(world.slack.calls("assistant.threads.setStatus")) == 1


# The route


@pytest.mark.parametrize("case_id", ["S-33", "S-34", "S-38"])
async def test_the_signature_is_of_the_bytes_that_came(case_id: str) -> None:
    case = CASES[case_id]
    async with served() as world:
        raw = case["raw_body"].encode()
        answer = await world.host.post(EVENTS, body=raw, headers=case["headers"])
        assert (answer.status, answer.body) == (200, b"")
        changed = raw.replace(b"A0AGENT001", b"A0AGENT002")
        assert changed != raw
        refused = await world.host.post(EVENTS, body=changed, headers=case["headers"])
        assert refused.status == 401


@pytest.mark.parametrize("signature", [None, "", "v0=", "v0=é", "v0=" + "0" * 64])
@pytest.mark.parametrize("stamp", ["1760000000", "1759999000", "now", None])
async def test_s35_what_is_not_signed_is_refused(signature: str | None, stamp: str | None) -> None:
    async with served() as world:
        headers = {"content-type": "application/json"}
        given = {"x-slack-signature": signature, "x-slack-request-timestamp": stamp}
        headers |= {name: value for name, value in given.items() if value is not None}
        body = json.dumps(CASES["S-01"]["steps"][0]["body"]).encode()
        answer = await world.host.post(EVENTS, body=body, headers=headers)
        assert answer.status == 401
        assert not world.accepted


async def test_s35_a_signature_with_another_secret_is_refused() -> None:
    async with served() as world:
        answer = await deliver(world, CASES["S-01"]["steps"][0]["body"], "another")
        assert answer.status == 401


async def test_s35_with_socket_mode_alone_the_route_takes_nothing() -> None:
    async with served(socket=True) as world:
        assert (await deliver(world, CASES["S-01"]["steps"][0]["body"])).status == 401


async def test_slack_checks_the_address() -> None:
    async with served() as world:
        assert (await world.slack.verify_url()).status == 200
        assert (await world.slack.check_ssl()).status == 200


async def test_what_is_signed_but_not_served_is_answered() -> None:
    async with served() as world:
        for body in ({}, {"type": "app_rate_limited"}, {"type": "event_callback", "event": {}}):
            assert (await deliver(world, body)).status == 200
        assert not world.accepted


async def test_s07_what_could_not_be_stored_is_not_acknowledged() -> None:
    body = CASES["S-01"]["steps"][0]["body"]
    async with served() as world:
        world.host.disk.full = True
        assert (await deliver(world, body)).status == 503
        world.host.disk.full = False
        assert (await deliver(world, body)).status == 200
        session = world.session(body["event"]["ts"])
        await session.rest()
        assert len(session.events("message.received")) == 1


# The configuration


def test_without_a_secret_and_an_app_token_nothing_starts() -> None:
    with pytest.raises(ProjectError, match="SLACK_SIGNING_SECRET"):
        Config.read({"SLACK_BOT_TOKEN": "xoxb-1"})
    with pytest.raises(ProjectError, match="TRIAGE_SLACK_BOT_TOKEN"):
        Config.read({"SLACK_BOT_TOKEN": "xoxb-1"}, "TRIAGE_")
    with pytest.raises(ProjectError, match="xapp-"):
        Config.read({"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xoxb-1"})
    read = Config.read(
        {
            "T_SLACK_BOT_TOKEN": "xoxb-1",
            "T_SLACK_SIGNING_SECRET": "s",
            "T_SLACK_API_URL": "http://x",
        },
        "T_",
    )
    assert read == Config("xoxb-1", None, "s", "http://x/")
    assert "xoxb" not in repr(read)


async def test_a_host_without_the_secret_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_SIGNING_SECRET", "SLACK_APP_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    with pytest.raises(ProjectError, match="could be trusted"):
        async with TestHost(SlackChannel(), channel_id="slack"):
            pass


def test_the_sdk_is_not_imported_before_the_host_starts() -> None:
    code = "import sys, threadline_slack as t; t.SlackChannel(); print('slack_sdk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_who_is_named_in_a_session_is_of_the_workspace() -> None:
    assert Principal("slack", "T1:U1") != Principal("slack", "T2:U1")


async def test_a_follow_up_is_heard_while_its_mention_is_being_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepting, go_on = asyncio.Event(), asyncio.Event()
    plain = Context.send

    async def send(self: Context, message: str, **options: Any) -> Any:
        if message == "one":
            accepting.set()
            await go_on.wait()
        return await plain(self, message, **options)

    monkeypatch.setattr(Context, "send", send)
    async with served() as world:
        ts = world.say(f"<@{BOT}> one")
        await accepting.wait()
        world.say("two", thread=ts)
        await world.slack.until(lambda: len(world.accepted) == 1)
        go_on.set()
        await world.slack.until(lambda: len(world.accepted) == 2)
        await world.session(ts).rest()
        assert {"one", "two"} <= set("\n".join(world.slack.visible(CHANNEL, ts)).split("\n"))
