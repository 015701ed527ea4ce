"""FakeSlack fails as a test wants it to: errors, limits, lost answers, gates, rate limits."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import (
    AsyncConnectionErrorRetryHandler,
    AsyncRateLimitErrorRetryHandler,
)
from slack_sdk.http_retry.builtin_interval_calculators import FixedValueRetryIntervalCalculator
from slack_sdk.web.async_client import AsyncWebClient

from threadline.clock import SystemClock
from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack

CHANNEL, PERSON = DEFAULTS["channel"], DEFAULTS["person"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=clock) as running:
        yield running


@pytest.fixture
def client(slack: FakeSlack) -> AsyncWebClient:
    """A client that does not try again by itself."""
    return AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url, retry_handlers=[])


async def failed(call: Any) -> Any:
    with pytest.raises(SlackApiError) as caught:
        await call
    return caught.value.response


async def test_an_error_so_many_times(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.fail("chat.postMessage", "channel_not_found", times=2)
    for _ in range(2):
        response = await failed(client.chat_postMessage(channel=CHANNEL, text="x"))
        assert (response.status_code, response["error"]) == (200, "channel_not_found")
    await client.chat_postMessage(channel=CHANNEL, text="x")
    assert slack.visible(CHANNEL) == ["x"]


async def test_a_rate_limit_says_when(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.fail("chat.postMessage", error="ratelimited", retry_after=2, times=1)
    response = await failed(client.chat_postMessage(channel=CHANNEL, text="x"))
    assert (response.status_code, response["error"]) == (429, "ratelimited")
    assert response.headers["Retry-After"] == "2"


async def test_the_sdk_obeys_a_rate_limit(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def no_sleep(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    handler = AsyncRateLimitErrorRetryHandler(max_retry_count=1)
    client = AsyncWebClient(
        token=slack.app.bot_token, base_url=slack.api_url, retry_handlers=[handler]
    )
    slack.fail("chat.postMessage", error="ratelimited", retry_after=7)
    monkeypatch.setattr("slack_sdk.http_retry.builtin_async_handlers.asyncio.sleep", no_sleep)
    await client.chat_postMessage(channel=CHANNEL, text="x")
    assert int(max(slept)) == 7
    assert [call.ok for call in slack.calls()] == [False, True]


async def test_only_some_calls_fail(slack: FakeSlack, client: AsyncWebClient) -> None:
    root = slack.user(PERSON).post(CHANNEL, "root")
    slack.fail(
        "chat.postMessage",
        "cannot_reply_to_message",
        times=None,
        when=lambda args: "thread_ts" in args,
    )
    await failed(client.chat_postMessage(channel=CHANNEL, text="x", thread_ts=root.ts))
    await client.chat_postMessage(channel=CHANNEL, text="y")
    assert slack.visible(CHANNEL) == ["root", "y"]
    slack.heal()
    await client.chat_postMessage(channel=CHANNEL, text="x", thread_ts=root.ts)


async def test_slack_is_down(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.fail("*", status=503, times=2)
    assert (await failed(client.auth_test())).status_code == 503
    assert (await failed(client.chat_postMessage(channel=CHANNEL, text="x"))).status_code == 503
    assert slack.visible(CHANNEL) == []
    await client.auth_test()


async def test_an_error_although_it_was_done(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.fail("chat.postMessage", status=500, effect=True)
    await failed(client.chat_postMessage(channel=CHANNEL, text="x"))
    assert slack.visible(CHANNEL) == ["x"]
    assert slack.calls()[0].took_effect


async def test_the_connection_drops_before_or_after(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.drop("chat.postMessage", "before")
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.chat_postMessage(channel=CHANNEL, text="never")
    slack.drop("chat.postMessage", "after")
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.chat_postMessage(channel=CHANNEL, text="there")
    assert slack.visible(CHANNEL) == ["there"]
    before, after = slack.calls()
    assert (before.took_effect, after.took_effect) == (False, True)
    assert before.dropped
    assert after.dropped
    assert not after.ok
    await slack.settled()


async def test_the_sdks_own_retry_posts_twice(slack: FakeSlack) -> None:
    """What a client by default does: it tries again after a lost connection, posts included."""
    at_once = FixedValueRetryIntervalCalculator(fixed_internal=0)
    client = AsyncWebClient(
        token=slack.app.bot_token,
        base_url=slack.api_url,
        retry_handlers=[AsyncConnectionErrorRetryHandler(interval_calculator=at_once)],
    )
    assert [type(one) for one in AsyncWebClient().retry_handlers] == [
        AsyncConnectionErrorRetryHandler
    ]
    slack.drop("chat.postMessage", "after")
    await client.chat_postMessage(channel=CHANNEL, text="twice")
    assert slack.visible(CHANNEL) == ["twice", "twice"]


async def test_a_late_answer(slack: FakeSlack, client: AsyncWebClient, clock: ManualClock) -> None:
    slack.delay("chat.postMessage", 30)
    call = asyncio.ensure_future(client.chat_postMessage(channel=CHANNEL, text="x"))
    await clock.sleeping(1)
    await slack.settled()
    assert slack.visible(CHANNEL) == ["x"]
    assert not call.done()
    clock.advance(30)
    assert (await call)["ok"]


async def test_a_call_is_held_before_its_effect(slack: FakeSlack, client: AsyncWebClient) -> None:
    gate = slack.hold("chat.postMessage", "before", times=1)
    call = asyncio.ensure_future(client.chat_postMessage(channel=CHANNEL, text="x"))
    await slack.until(lambda: gate.arrived == 1)
    assert slack.visible(CHANNEL) == []
    gate.release()
    assert (await call)["ok"]
    assert slack.visible(CHANNEL) == ["x"]


async def test_a_call_is_held_before_its_answer(slack: FakeSlack, client: AsyncWebClient) -> None:
    gate = slack.hold("chat.postMessage", "after")
    call = asyncio.ensure_future(client.chat_postMessage(channel=CHANNEL, text="x"))
    await slack.until(lambda: gate.arrived == 1)
    assert slack.visible(CHANNEL) == ["x"]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    slack.heal()
    await slack.until(lambda: slack.calls()[0].done)
    await client.chat_postMessage(channel=CHANNEL, text="y")


async def test_any_answer_at_all(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.stub("chat.startStream", {"ok": True, "channel": CHANNEL, "ts": "1760000009.000100"})
    answer = await client.chat_startStream(channel=CHANNEL, thread_ts="1.0")
    assert answer["ts"] == "1760000009.000100"
    assert slack.visible(CHANNEL) == []
    slack.stub("chat.postMessage", {"ok": False, "error": "rate_limited"}, status=429, times=1)
    assert (await failed(client.chat_postMessage(channel=CHANNEL, text="x"))).status_code == 429


async def test_a_chosen_timestamp(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.stub("chat.postMessage", {"ok": True, "ts": "1760000011.000100"}, effect=True, times=1)
    answer = await client.chat_postMessage(channel=CHANNEL, text="x")
    assert answer["ts"] == "1760000011.000100"
    assert answer["message"]["text"] == "x"
    assert slack.message("1760000011.000100").text == "x"


async def test_the_newest_fault_comes_first(slack: FakeSlack, client: AsyncWebClient) -> None:
    first = slack.fail("*", "internal_error", times=None)
    slack.fail("auth.test", "token_revoked", times=1)
    assert (await failed(client.auth_test()))["error"] == "token_revoked"
    assert (await failed(client.auth_test()))["error"] == "internal_error"
    slack.heal(first)
    await client.auth_test()


# Rate limits


async def test_tiers_hold_when_they_are_switched_on(
    slack: FakeSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    for _ in range(30):
        await client.users_list()
    slack.options.rate_limits = True
    for _ in range(20):
        await client.users_list()
    clock.advance(15)
    response = await failed(client.users_list())
    assert (response.status_code, response.headers["Retry-After"]) == (429, "45")
    await client.team_info()
    clock.advance(45)
    await client.users_list()


async def test_posts_are_limited_by_channel(
    slack: FakeSlack, client: AsyncWebClient, clock: ManualClock
) -> None:
    slack.options.rate_limits = True
    for number in range(3):
        await client.chat_postMessage(channel=CHANNEL, text=str(number))
    response = await failed(client.chat_postMessage(channel=CHANNEL, text="x"))
    assert response["error"] == "ratelimited"
    await client.chat_postMessage(channel=DEFAULTS["dm"], text="elsewhere")
    clock.advance(int(response.headers["Retry-After"]))
    await client.chat_postMessage(channel=CHANNEL, text="x")


async def test_history_as_distributed_apps_have_it(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    slack.options.rate_limits, slack.options.history_limit = True, 1
    await client.conversations_history(channel=CHANNEL)
    response = await failed(client.conversations_history(channel=CHANNEL))
    assert response.headers["Retry-After"] == "60"


async def test_streams_are_of_two_tiers(slack: FakeSlack, client: AsyncWebClient) -> None:
    slack.options.rate_limits = True
    slack.options.stream_characters = 10**6
    asked = slack.user(PERSON).post(CHANNEL, "tell me")
    where: dict[str, Any] = {
        "channel": CHANNEL,
        "thread_ts": asked.ts,
        "recipient_user_id": PERSON,
        "recipient_team_id": DEFAULTS["team"],
    }
    streams = [(await client.chat_startStream(**where))["ts"] for _ in range(20)]
    assert (await failed(client.chat_startStream(**where)))["error"] == "ratelimited"
    for number in range(100):
        await client.chat_appendStream(channel=CHANNEL, ts=streams[number % 20], markdown_text="x")
    call = client.chat_appendStream(channel=CHANNEL, ts=streams[0], markdown_text="x")
    assert (await failed(call))["error"] == "ratelimited"


# Life


async def test_it_ends_whatever_is_under_way(clock: ManualClock) -> None:
    before = asyncio.all_tasks()
    slack = FakeSlack(clock=clock)
    await slack.start()
    slack.app.request_url = slack.url + "/nowhere"
    slack.hold("auth.test", "before")
    slack.delay("api.test", 60)
    client = AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url, retry_handlers=[])
    calls = [
        asyncio.ensure_future(client.auth_test()),
        asyncio.ensure_future(client.api_test()),
    ]
    slack.user(PERSON).post(CHANNEL, "retried for ever")
    slack.events.delay(60)
    slack.user(PERSON).post(CHANNEL, "late")
    await slack.until(lambda: len(slack.calls()) == 2)
    await slack.close()
    await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    await slack.close()


async def test_it_starts_again_where_it_was(clock: ManualClock) -> None:
    slack = FakeSlack(clock=clock)
    await slack.start()
    url = slack.url
    with pytest.raises(RuntimeError, match="runs already"):
        await slack.start()
    await slack.close()
    await slack.start()
    assert slack.url == url
    await slack.close()


async def test_it_says_that_it_does_not_run() -> None:
    slack = FakeSlack()
    assert isinstance(slack.clock, SystemClock)
    slack.app.request_url = "http://127.0.0.1:9/"
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="does not run"):
        slack.user(PERSON).post(CHANNEL, "x")
