"""FakeSlack's Socket Mode with Bolt's handler and slack_sdk's client; sockets that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack, Socket

CHANNEL, PERSON, BOT = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["bot_user"]
DM = DEFAULTS["dm"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=clock) as running:
        running.app.socket_mode = True
        yield running


class Raw:
    """A client that does nothing by itself."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, socket: Socket) -> None:
        self.ws = ws
        self.socket = socket

    async def read(self) -> dict[str, Any]:
        return dict(json.loads((await self.ws.receive()).data))

    async def ack(self, frame: dict[str, Any], payload: Any = None) -> None:
        body = {"envelope_id": frame["envelope_id"]}
        await self.ws.send_json(body if payload is None else {**body, "payload": payload})


@pytest.fixture
async def connect(slack: FakeSlack) -> AsyncIterator[Callable[[], Any]]:
    """Return what opens connections, past their greeting."""
    client = AsyncWebClient(token=slack.app.app_token, base_url=slack.api_url)
    async with aiohttp.ClientSession() as http:

        async def open_() -> Raw:
            address = (await client.apps_connections_open(app_token=slack.app.app_token))["url"]
            ws = await http.ws_connect(address)
            hello = json.loads((await ws.receive()).data)
            assert hello["type"] == "hello"
            assert hello["num_connections"] == len(slack.sockets())
            return Raw(ws, slack.sockets()[-1])

        yield open_


@asynccontextmanager
async def bolt_connected(slack: FakeSlack) -> AsyncIterator[AsyncApp]:
    """Connect a Bolt app that answers mentions."""
    client = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
    bolt = AsyncApp(client=client)

    @bolt.event("app_mention")
    async def mentioned(event: dict[str, Any], say: Any) -> None:
        await say("here", thread_ts=event["ts"])

    @bolt.event("message")
    async def said() -> None: ...

    handler = AsyncSocketModeHandler(
        bolt,
        slack.app.app_token,
        web_client=AsyncWebClient(token=slack.app.app_token, base_url=slack.api_url),
        ping_interval=0.5,
    )
    await handler.connect_async()
    try:
        await slack.until(lambda: slack.sockets())
        yield bolt
    finally:
        await handler.close_async()
        await asyncio.sleep(0)


def answers(slack: FakeSlack) -> list[str]:
    return [one.args["text"] for one in slack.calls("chat.postMessage")]


# Bolt


async def test_bolt_hears_answers_and_acknowledges(slack: FakeSlack) -> None:
    async with bolt_connected(slack):
        slack.user(PERSON).post(CHANNEL, f"<@{BOT}> hello")
        await slack.until(lambda: answers(slack) == ["here"])
        await slack.until(lambda: all(one.done for one in slack.deliveries()))
        assert all(one.accepted for one in slack.deliveries())
        assert all(len(one.attempts) == 1 for one in slack.deliveries())


async def test_bolt_gets_buttons_commands_and_answers_them(slack: FakeSlack) -> None:
    async with bolt_connected(slack) as bolt:

        @bolt.command("/ask")
        async def ask(ack: Any) -> None:
            await ack("for you")

        @bolt.shortcut("open")
        async def open_(ack: Any) -> None:
            await ack()

        answer = await slack.user(PERSON).command("/ask", channel=CHANNEL)
        assert (answer.status, answer.body) == (200, {"text": "for you"})
        assert slack.visible(CHANNEL, user=PERSON) == ["for you"]
        assert (await slack.user(PERSON).shortcut("open")).ok


@pytest.mark.parametrize("end", ["warning", "refresh_requested", "close", "abort"])
async def test_bolt_comes_back(slack: FakeSlack, end: str) -> None:
    async with bolt_connected(slack):
        first = slack.sockets()[0]
        if end == "close":
            await first.close()
        elif end == "abort":
            first.abort()
        elif end == "warning":
            await first.disconnect("warning")
        else:
            await first.disconnect("refresh_requested")
        await slack.until(lambda: [one for one in slack.sockets() if one is not first])
        await slack.until(lambda: not first.open)
        slack.user(PERSON).post(CHANNEL, f"<@{BOT}> still there?")
        await slack.until(lambda: answers(slack) == ["here"])


async def test_a_dead_socket_is_noticed_by_its_pongs(slack: FakeSlack) -> None:
    async with bolt_connected(slack):
        first = slack.sockets()[0]
        await slack.until(lambda: first.pings)
        first.silent = True
        await slack.until(lambda: [one for one in slack.sockets() if one is not first])


# The protocol


async def test_an_envelope(slack: FakeSlack, connect: Callable[[], Any]) -> None:
    raw = await connect()
    slack.user(PERSON).post(DM, "hi")
    envelope = await raw.read()
    assert envelope["type"] == "events_api"
    assert envelope["accepts_response_payload"] is False
    assert (envelope["retry_attempt"], envelope["retry_reason"]) == (0, "")
    assert envelope["payload"]["event"]["text"] == "hi"
    assert slack.pulse.under_way
    await raw.ack(envelope)
    await slack.settled()
    assert slack.deliveries()[0].accepted
    assert raw.socket.received == [{"envelope_id": envelope["envelope_id"]}]


async def test_a_ticket_is_good_once(slack: FakeSlack) -> None:
    client = AsyncWebClient(token=slack.app.app_token, base_url=slack.api_url)
    address = (await client.apps_connections_open(app_token=slack.app.app_token))["url"]
    async with aiohttp.ClientSession() as http:
        await http.ws_connect(address)
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(address)
    bot = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)
    with pytest.raises(SlackApiError, match="not_allowed_token_type"):
        await bot.apps_connections_open(app_token=slack.app.bot_token)


async def test_what_is_not_acknowledged_comes_again(
    slack: FakeSlack, connect: Callable[[], Any], clock: ManualClock
) -> None:
    raw = await connect()
    slack.user(PERSON).post(DM, "hi")
    seen = [await raw.read()]
    for seconds in (3, 63, 303):
        await clock.sleeping(1)
        await clock.elapse(seconds)
        seen.append(await raw.read())
    assert [one["retry_attempt"] for one in seen] == [0, 1, 2, 3]
    assert [one["retry_reason"] for one in seen] == ["", "timeout", "timeout", "timeout"]
    assert len({one["payload"]["event_id"] for one in seen}) == 1
    await raw.ack(seen[-1])
    await slack.settled()
    assert slack.deliveries()[0].accepted


async def test_an_event_waits_for_a_socket(
    slack: FakeSlack, connect: Callable[[], Any], clock: ManualClock
) -> None:
    slack.user(PERSON).post(DM, "anybody?")
    await slack.settled()
    raw = await connect()
    clock.advance(60)
    envelope = await raw.read()
    assert envelope["retry_attempt"] == 2
    await raw.ack(envelope)
    await slack.settled()


async def test_a_connection_that_ends_fails_at_once(
    slack: FakeSlack, connect: Callable[[], Any]
) -> None:
    first = await connect()
    slack.user(PERSON).post(DM, "hi")
    await first.read()
    second = await connect()
    first.socket.abort()
    envelope = await second.read()
    assert envelope["retry_attempt"] == 1
    await second.ack(envelope)
    await slack.settled()


async def test_envelopes_go_round(slack: FakeSlack, connect: Callable[[], Any]) -> None:
    both = [await connect(), await connect()]
    for text in ("one", "two"):
        slack.user(PERSON).post(DM, text)
    for raw in both:
        await raw.ack(await raw.read())
    await slack.settled()
    assert [len(raw.socket.received) for raw in both] == [1, 1]


async def test_a_dead_socket_still_gets_its_share(
    slack: FakeSlack, connect: Callable[[], Any], clock: ManualClock
) -> None:
    dead, alive = await connect(), await connect()
    dead.socket.silent = True
    for text in ("one", "two"):
        slack.user(PERSON).post(DM, text)
    await alive.ack(await alive.read())
    await slack.settled()
    assert [one.accepted for one in slack.deliveries()].count(False) == 1
    await dead.ws.ping(b"are you there")
    clock.advance(3)
    again = await alive.read()
    assert again["retry_attempt"] == 1
    await alive.ack(again)
    await slack.settled()
    assert all(one.accepted for one in slack.deliveries())
    assert dead.socket.pings == []


async def test_acknowledgements_that_never_arrive(
    slack: FakeSlack, connect: Callable[[], Any], clock: ManualClock
) -> None:
    raw = await connect()
    raw.socket.ignores_acks = True
    slack.user(PERSON).post(DM, "hi")
    await raw.ack(await raw.read())
    await slack.until(lambda: raw.socket.received)
    await slack.settled()
    raw.socket.ignores_acks = False
    clock.advance(3)
    again = await raw.read()
    assert again["retry_attempt"] == 1
    await raw.ack(again)
    await slack.settled()


async def test_pings_both_ways(slack: FakeSlack, connect: Callable[[], Any]) -> None:
    raw = await connect()
    await raw.socket.ping(b"Ping from applink")
    reading = asyncio.ensure_future(raw.ws.receive())
    await slack.until(lambda: raw.socket.pongs == [b"Ping from applink"])
    await raw.ws.ping(b"sdk-ping-pong:1")
    await slack.until(lambda: raw.socket.pings == [b"sdk-ping-pong:1"])
    await raw.socket.send({"type": "anything"})
    assert json.loads((await reading).data) == {"type": "anything"}


async def test_ten_connections_and_no_more(slack: FakeSlack, connect: Callable[[], Any]) -> None:
    kept = [await connect() for _ in range(10)]
    client = AsyncWebClient(token=slack.app.app_token, base_url=slack.api_url)
    address = (await client.apps_connections_open(app_token=slack.app.app_token))["url"]
    async with aiohttp.ClientSession() as http, http.ws_connect(address) as ws:
        frame = json.loads((await ws.receive()).data)
        assert (frame["type"], frame["reason"]) == ("disconnect", "too_many_websockets")
        assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
    assert slack.sockets() == [raw.socket for raw in kept]


async def test_an_interaction_is_asked_once(
    slack: FakeSlack, connect: Callable[[], Any], clock: ManualClock
) -> None:
    raw = await connect()
    interaction = slack.user(PERSON).shortcut("open")
    envelope = await raw.read()
    assert (envelope["type"], envelope["accepts_response_payload"]) == ("interactive", True)
    assert "retry_attempt" not in envelope
    await clock.sleeping(1)
    clock.advance(3)
    assert (await interaction).failure == "timeout"
    command = slack.user(PERSON).command("/ask", "why", channel=CHANNEL)
    envelope = await raw.read()
    assert (envelope["type"], envelope["payload"]["text"]) == ("slash_commands", "why")
    await raw.ack(envelope, {"text": "so", "response_type": "in_channel"})
    assert (await command).ok
    await slack.until(lambda: slack.visible(CHANNEL) == ["so"])


async def test_refresh_leaves_the_old_socket_to_finish(
    slack: FakeSlack, connect: Callable[[], Any]
) -> None:
    old = await connect()
    await old.socket.disconnect("warning")
    assert (await old.read())["reason"] == "warning"
    slack.user(PERSON).post(DM, "in between")
    envelope = await old.read()
    new = await connect()
    await old.ack(envelope)
    await slack.settled()
    await old.socket.disconnect("refresh_requested")
    assert (await old.read())["reason"] == "refresh_requested"
    await old.socket.close()
    assert (await old.ws.receive()).type is aiohttp.WSMsgType.CLOSE
    assert slack.sockets() == [new.socket]
    assert slack.deliveries()[0].accepted
