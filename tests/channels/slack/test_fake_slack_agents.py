"""FakeSlack has assistant threads, agent sessions and the stop button."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack, Message

CHANNEL, PERSON, TEAM = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["team"]
DM = DEFAULTS["dm"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=clock) as running:
        running.app.request_url = "http://127.0.0.1:9/events"
        running.options.retries = ()
        yield running


@pytest.fixture
def client(slack: FakeSlack) -> AsyncWebClient:
    return AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)


@pytest.fixture
def asked(slack: FakeSlack) -> Message:
    return slack.user(PERSON).post(CHANNEL, "tell me")


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


# Assistant threads


async def test_an_assistant_thread_is_told_of(slack: FakeSlack) -> None:
    person = slack.user(PERSON)
    root = person.open_assistant_thread(context=CHANNEL)
    person.look_at(root, None)
    person.post(root.channel, "help me", thread_ts=root.ts)
    started, moved = (
        slack.deliveries("assistant_thread_started")[0].event,
        slack.deliveries("assistant_thread_context_changed")[0].event,
    )
    assert started["assistant_thread"] == {
        "user_id": PERSON,
        "context": {"channel_id": CHANNEL, "team_id": TEAM, "enterprise_id": None},
        "channel_id": DM,
        "thread_ts": root.ts,
    }
    assert moved["assistant_thread"]["context"] == {}
    said = slack.deliveries("message")[-1].event
    assert (said["thread_ts"], said["channel_type"]) == (root.ts, "im")


async def test_status_title_and_prompts(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": asked.ts}
    await client.assistant_threads_setStatus(
        status="is thinking…", loading_messages=["One moment"], **where
    )
    assert slack.status(CHANNEL, asked.ts) == "is thinking…"
    assert slack.thread(CHANNEL, asked.ts).loading_messages == ["One moment"]
    await client.assistant_threads_setTitle(title="A question", **where)
    prompts = [{"title": "Weather", "message": "How is the weather?"}]
    await client.assistant_threads_setSuggestedPrompts(prompts=prompts, **where)
    assert slack.thread(CHANNEL, asked.ts).title == "A question"
    assert slack.thread(CHANNEL, asked.ts).prompts == prompts
    nowhere: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": "1.0"}
    call = client.assistant_threads_setStatus(status="x", **nowhere)
    assert await refused(call) == "invalid_thread_ts"
    call = client.assistant_threads_setTitle(title="x", **nowhere)
    assert await refused(call) == "invalid_thread_ts"
    call = client.assistant_threads_setStatus(status="x", loading_messages=["x" * 51], **where)
    assert await refused(call) == "invalid_arguments"


async def test_prompts_of_the_messages_tab(slack: FakeSlack, client: AsyncWebClient) -> None:
    prompts = [{"title": "Weather", "message": "How is the weather?"}]
    await client.assistant_threads_setSuggestedPrompts(channel_id=DM, prompts=prompts)
    assert slack.thread(DM).prompts == prompts
    slack.app.is_agent = False
    call = client.assistant_threads_setSuggestedPrompts(channel_id=DM, prompts=prompts)
    assert await refused(call) == "not_agent_app"


async def test_a_status_goes_away(
    slack: FakeSlack, client: AsyncWebClient, clock: ManualClock, asked: Message
) -> None:
    where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": asked.ts}

    async def set_it(status: str) -> None:
        await client.assistant_threads_setStatus(status=status, **where)

    await set_it("is thinking…")
    await set_it("")
    assert slack.status(CHANNEL, asked.ts) == ""
    await set_it("is thinking…")
    clock.advance(119)
    assert slack.status(CHANNEL, asked.ts) == "is thinking…"
    clock.advance(1)
    assert slack.status(CHANNEL, asked.ts) == ""
    await set_it("is thinking…")
    await client.chat_postMessage(channel=CHANNEL, text="answer", thread_ts=asked.ts)
    assert slack.status(CHANNEL, asked.ts) == ""


# Sessions


async def test_a_session_is_made_and_moved(
    slack: FakeSlack, client: AsyncWebClient, clock: ManualClock, asked: Message
) -> None:
    where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": asked.ts}
    made = await client.agents_sessions_setStatus(
        status="processing", title="Diving", initiator_user_id=PERSON, **where
    )
    assert (made["status"], made["agent_status"], made["title"]) == (
        "processing",
        "processing",
        "Diving",
    )
    moved = await client.agents_sessions_setStatus(status="active", title="Other", **where)
    assert (moved["status"], moved["title"]) == ("active", "Diving")
    renamed = await client.agents_sessions_rename(title="Snorkelling", **where)
    assert renamed["title"] == "Snorkelling"
    await client.agents_sessions_setStatus(status="processing", **where)
    clock.advance(3600)
    assert slack.session(CHANNEL, asked.ts) == "active"


async def test_what_sessions_refuse(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": asked.ts}
    set_status = client.agents_sessions_setStatus
    assert await refused(set_status(status="thinking", **where)) == "invalid_status"
    call = set_status(status="active", channel_id=CHANNEL)
    assert await refused(call) == "thread_ts_required"
    call = set_status(status="active", initiator_user_id="U0NOBODY001", **where)
    assert await refused(call) == "user_not_found"
    call = client.agents_sessions_rename(title="x", **where)
    assert await refused(call) == "session_not_found"
    slack.app.is_agent = False
    assert await refused(set_status(status="active", **where)) == "not_authorized"


async def test_the_legacy_status_moves_the_session(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": asked.ts}
    await client.assistant_threads_setStatus(status="is thinking…", **where)
    assert slack.session(CHANNEL, asked.ts) == "processing"
    await client.assistant_threads_setStatus(status="", **where)
    assert slack.session(CHANNEL, asked.ts) == "active"


async def test_a_person_renames_a_session(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    await client.agents_sessions_setStatus(
        channel_id=CHANNEL, thread_ts=asked.ts, status="active", title="Old"
    )
    slack.user(PERSON).rename_session(CHANNEL, asked.ts, "New")
    event = slack.deliveries("agent_session_title_changed")[0].event
    assert (event["previous_title"], event["title"]) == ("Old", "New")


# The stop button


async def test_stop_ends_the_streams_and_tells_the_app(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    stream = await client.chat_startStream(
        channel=CHANNEL,
        thread_ts=asked.ts,
        markdown_text="once upon",
        recipient_user_id=PERSON,
        recipient_team_id=TEAM,
    )
    assert slack.user(PERSON).press_stop(CHANNEL, asked.ts) == [stream["ts"]]
    event = slack.deliveries("agent_session_stopped")[0].event
    assert event["streaming_message_ts"] == [stream["ts"]]
    assert (event["channel"], event["thread_ts"], event["user"]) == (CHANNEL, asked.ts, PERSON)
    append = client.chat_appendStream(channel=CHANNEL, ts=stream["ts"], markdown_text=" a time")
    assert await refused(append) == "stopped_by_user"
    stop = client.chat_stopStream(channel=CHANNEL, ts=stream["ts"])
    assert await refused(stop) == "message_not_in_streaming_state"
    assert slack.session(CHANNEL, asked.ts) == "processing"
    await client.chat_update(channel=CHANNEL, ts=stream["ts"], text="stopped")
    assert slack.message(stream["ts"]).text == "stopped"


async def test_without_work_there_is_no_stop_button(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    person = slack.user(PERSON)
    with pytest.raises(LookupError, match="no stop button"):
        person.press_stop(CHANNEL, asked.ts)
    where: dict[str, Any] = {"channel_id": CHANNEL, "thread_ts": asked.ts}
    await client.agents_sessions_setStatus(status="processing", **where)
    assert person.press_stop(CHANNEL, asked.ts) == []
    slack.app.events = {"app_mention"}
    answer = await client.agents_sessions_setStatus(status="processing", **where)
    assert answer["warning"] == "missing_agent_session_stopped_event_subscription"
    with pytest.raises(LookupError, match="no stop button"):
        person.press_stop(CHANNEL, asked.ts)


async def test_the_home_of_an_app_is_opened(slack: FakeSlack) -> None:
    slack.user(PERSON).open_home("messages")
    event = slack.deliveries("app_home_opened")[0].event
    assert (event["user"], event["channel"], event["tab"]) == (PERSON, DM, "messages")
