"""Slack inbound: signatures, forms and sockets."""

from __future__ import annotations

import asyncio
import copy
import hmac
import itertools
import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

import pytest
from tests.cases.judges.posts import one_turn
from tests.cases.judges.registry import Case, judge, steps_of
from tests.cases.slack_world import BOT, CHANNEL, PERSON, SlackWorld
from tests.cases.told import Answer, Tool

from threadline.agent.tools import tool
from threadline.errors import ProjectError
from threadline_slack.interaction import forms

__all__: list[str] = []


@judge("S-33")
async def the_bytes_are_signed(world: SlackWorld, case: Case, _: Any) -> None:
    """The exact body is taken; one byte more, less or other is 401 and no work."""
    (step,) = steps_of(case)
    raw = step["raw_body"]
    await world.start()
    compared: list[bool] = []
    plain = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append(True)
        return plain(one, other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hmac, "compare_digest", compare)
        again = json.dumps(json.loads(raw), separators=(",", ":"))
        for other in (again, raw + " ", raw[:-1], raw.replace("\\/", "/"), *_flipped(raw)):
            assert other != raw
            answer = await world.post({**step, "raw_body": other}, plant=False)
            assert answer.status == 401
        await world.rest()
        world.untouched()
        assert compared
    assert (await world.post(step)).status == 200
    await world.rest()
    text = one_turn(world, "1760000250.000100")
    assert text == "olé /tmp/x \U0001f680"


def _flipped(text: str) -> list[str]:
    """Return the text with one character changed, here and there."""
    return [
        text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        for place in (*range(0, len(text), 23), len(text) - 1)
    ]


@judge("S-34")
async def a_form_is_signed_as_it_came(world: SlackWorld, case: Case, _: Any) -> None:
    """With ``*`` and ``~`` as they are it is taken, then read: a button works that way."""
    (step,) = steps_of(case)
    decided: list[str] = []

    @tool(effect="write", approval=True)
    async def deploy(service: str) -> str:
        """Deploy a service."""
        decided.append(service)
        return "done"

    world.agent["tools"] = [deploy]
    world.harness.waits = True
    await world.start()
    assert (await world.post(step)).status == 200
    await world.until(lambda: world.clicks, "the click")
    assert [(click.name, click.value) for click in world.clicks] == [("approve", "a*b~c")]
    world.untouched()
    ts = world.slack.user(PERSON).post(CHANNEL, f"<@{BOT}> deploy").ts
    world.harness.tell(Tool("deploy", {"service": "shop"}), Answer("it is out"))
    await world.until(lambda: world.said(ts), "the card")
    (card,) = world.said(ts)
    buttons = next(b for b in card.blocks or [] if b["type"] == "actions")["elements"]
    form = _clicked(step, buttons[0], card.ts)
    assert "*" in form
    assert "~" in form
    assert (await world.post({**step, "raw_body": form}, signed=True)).status == 200
    await world.until(lambda: world.events("turn.completed"), "the end")
    assert decided == ["shop"]


def _clicked(step: Mapping[str, Any], button: Mapping[str, Any], ts: str) -> str:
    """Return the form of a press of a button, with what need not be escaped as it is."""
    payload = forms.parse(step["headers"]["Content-Type"], step["raw_body"].encode())
    payload["actions"] = [{**button, "block_id": "b*1~", "action_ts": "1760000000.1"}]
    payload["container"] = {"type": "message", "message_ts": ts, "channel_id": CHANNEL}
    text = json.dumps(payload, separators=(",", ":"))
    return "payload=" + quote_plus(text, safe="*~")


@judge("S-35")
async def verification_fails_closed(world: SlackWorld, case: Case, _: Any) -> None:
    """Unsigned, empty, by another secret: 401; without a secret nothing is ever taken."""
    *unsigned, restart, last = steps_of(case)
    await world.start()
    for step in unsigned:
        answer = await world.play(step)
        assert answer is not None
        assert answer.status == 401
    await world.rest()
    world.untouched()
    with pytest.raises(ProjectError, match="SLACK_SIGNING_SECRET"):
        await world.play(restart)
    assert not world.host.running
    await world.at(last["at_s"])
    # Events by Socket Mode need no secret; then the route takes nothing.
    world.socket = True
    await world.start()
    for step in (*unsigned, last):
        assert (await world.post(step)).status in (401, 500)
        assert (await world.post(step, signed=True)).status in (401, 500)
    await world.rest()
    world.untouched()


@judge("S-38")
async def a_charset_changes_nothing(world: SlackWorld, case: Case, _: Any) -> None:
    """The media type counts, in any case and with any parameters; the button's text is whole."""
    (step,) = steps_of(case)
    await world.start()
    plain = "application/x-www-form-urlencoded"
    kinds = (step["headers"]["Content-Type"], plain, f"{plain.title()} ;Charset=UTF-8")
    for number, kind in enumerate(kinds):
        raw = step["raw_body"].replace("1.2.fixture", f"1.2.fixture{number or ''}")
        again = {**step, "raw_body": raw, "headers": {**step["headers"], "Content-Type": kind}}
        answer = await world.post(again, signed=number > 0)
        assert (answer.status, answer.body) == (200, b"")
        assert world.now_s == 0
        await world.until(lambda: len(world.clicks) == number + 1, "the click")  # noqa: B023
        click = world.clicks[number]
        assert click.label == "Approve & run +1 100%"
        wanted = {**case["decoded_payload"], "user": click.raw["user"]}
        wanted["trigger_id"] += str(number or "")
        assert {name: click.raw[name] for name in wanted} == wanted
        assert (click.user, click.value) == ("U0HUMAN001", "call_01")
    await world.rest()
    world.untouched()


@judge("S-06")
async def a_retried_envelope_is_heard(world: SlackWorld, case: Case, _: Any) -> None:
    """It is acknowledged by its id and runs; once more it is acknowledged and does not."""
    world.socket = True
    await world.start()
    for step in steps_of(case):
        await world.play(step)
    await world.rest()
    one_turn(world, "1760000000.000100")
    frame = {**steps_of(case)[1]["frame"], "envelope_id": "again", "retry_attempt": 2}
    await world.receive(frame)
    await world.until(lambda: {"envelope_id": "again"} in world.frames(), "the acknowledgement")
    await world.rest()
    one_turn(world, "1760000000.000100")


@judge("S-42")
async def a_socket_is_followed_by_another(world: SlackWorld, case: Case, _: Any) -> None:
    """Warned and refreshed: another one is up within 5 s; what comes in between is done once."""
    hello, *rest, between, refresh, close, up = steps_of(case)
    world.socket = True
    world.harness.waits = True
    await world.start()
    first = world.slack.sockets()
    old, opened = first[0], len(world.calls("apps.connections.open"))
    await world.play(hello)
    running = _frame(between, "1759999990.000100", "running")
    await world.receive(running, old)
    await world.until(lambda: world.events("step.started"), "a running turn")
    for step in (*rest, between, refresh):
        await world.at(step["at_s"])
        await world.receive(step["frame"], old)
    ack = {"envelope_id": between["frame"]["envelope_id"]}
    assert ack in old.received
    await world.at(close["at_s"])
    if old.open:
        await old.close()
    closed = world.now_s
    others = await world.within(
        5, lambda: [one for one in world.slack.sockets() if one not in first], "a new socket"
    )
    assert world.now_s <= max(up["at_s"], closed + 5)
    assert len(world.calls("apps.connections.open")) > opened
    assert len(world.events("turn.started")) == 2
    assert not world.events("turn.failed")
    # Sent again on the new socket, as what Slack did not see acknowledged is: nothing more.
    again = {**between["frame"], "envelope_id": "again", "retry_attempt": 1}
    await world.receive(again, others[0])
    await world.until(lambda: {"envelope_id": "again"} in others[0].received, "the new ack")
    world.harness.free()
    await world.rest()
    assert len(world.events("message.received")) == 2
    assert world.words("1760000000.000100") == ["why is checkout slow?"]
    assert world.words("1759999990.000100") == ["running"]
    last = _frame(between, "1760000020.000100", "last")
    await world.receive(last, others[0])
    await world.until(lambda: world.said("1760000020.000100"), "an answer over the new socket")


def _frame(step: Mapping[str, Any], ts: str, text: str) -> dict[str, Any]:
    """Return an envelope like a step's, of another post."""
    frame: dict[str, Any] = copy.deepcopy(step["frame"])
    frame["envelope_id"] = f"envelope-{ts}"
    frame["payload"]["event_id"] = f"Ev-{ts}"
    frame["payload"]["event"] |= {"ts": ts, "event_ts": ts, "text": f"<@{BOT}> {text}"}
    del frame["payload"]["event"]["blocks"]
    return frame


@judge("S-45")
async def envelopes_wait_for_no_turn(world: SlackWorld, case: Case, _: Any) -> None:
    """All are acknowledged while no turn ends and tools block; those over the cap are queued."""
    entered, release = threading.Event(), threading.Event()

    @tool
    def block() -> str:
        """Hold up the thread it runs in."""
        entered.set()
        release.wait(60)
        return "free"

    world.socket = True
    world.agent |= {"max_running_turns": 2, "tools": [block, world._idle()]}
    world.harness.waits = True
    await world.start()
    try:
        frames = [step["frame"] for step in steps_of(case)]
        world.harness.tell(Tool("block"))
        await world.receive(frames[0])
        await world.until(entered.is_set, "the tool that blocks")
        for frame in frames[1:]:
            await world.receive(frame)
        acks = [{"envelope_id": frame["envelope_id"]} for frame in frames]
        await world.until(lambda: all(a in world.frames() for a in acks), "the acknowledgements")
        assert world.now_s == 0
        socket = world.slack.sockets()[0]
        for number in range(5):
            await socket.ping(f"ping {number}".encode())
            await world.until(lambda: len(socket.pongs) > number, "an answer to a ping")  # noqa: B023
        assert len(world.sessions()) == 20
        await world.until(lambda: len(world.events("turn.queued")) == 18, "what is queued")
        assert len(world.events("turn.started")) == 2
        assert not world.events("turn.completed")
    finally:
        release.set()
    for _number in itertools.repeat(None, 20):
        world.harness.tell(Tool("idle", {"seconds": 30}), Answer())
    await asyncio.sleep(0)
    await world.rest()
    for frame in frames:
        event = frame["payload"]["event"]
        assert world.words(event["ts"]) == [event["text"].removeprefix(f"<@{BOT}> ")]
    assert all(frames.count(frame) == 1 for frame in frames)
    assert all(world.frames().count(ack) == 1 for ack in acks)
