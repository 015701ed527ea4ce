"""FakeSlack streams as Slack does: limits, expiry, the shape of a stream, who may."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.models.messages.chunk import MarkdownTextChunk, TaskUpdateChunk
from slack_sdk.web.async_client import AsyncWebClient

from threadline.testing import ManualClock
from threadline_slack.testing import DEFAULTS, FakeSlack, Message

CHANNEL, PERSON, TEAM = DEFAULTS["channel"], DEFAULTS["person"], DEFAULTS["team"]
DM = DEFAULTS["dm"]
RECIPIENT = {"recipient_user_id": PERSON, "recipient_team_id": TEAM}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def slack(clock: ManualClock) -> AsyncIterator[FakeSlack]:
    async with FakeSlack(clock=clock) as running:
        yield running


@pytest.fixture
def client(slack: FakeSlack) -> AsyncWebClient:
    return AsyncWebClient(token=slack.app.bot_token, base_url=slack.api_url)


@pytest.fixture
def asked(slack: FakeSlack) -> Message:
    return slack.user(PERSON).post(CHANNEL, "tell me")


@pytest.fixture
async def ts(client: AsyncWebClient, asked: Message) -> str:
    """The timestamp of a stream that has just been opened."""
    answer = await client.chat_startStream(channel=CHANNEL, thread_ts=asked.ts, **RECIPIENT)
    return str(answer["ts"])


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


async def test_chat_stream_from_end_to_end(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    stream = await client.chat_stream(
        channel=CHANNEL, thread_ts=asked.ts, buffer_size=8, **RECIPIENT
    )
    await stream.append(markdown_text="**hel")
    assert slack.calls() == []
    await stream.append(markdown_text="lo** you")
    assert slack.visible(CHANNEL, asked.ts) == ["tell me", "**hello** you"]
    assert slack.message(stream.ts or "").streaming
    await stream.append(markdown_text=", and others")
    feedback = {
        "type": "context_actions",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "feedback",
                "positive_button": {"text": {"type": "plain_text", "text": "Good"}, "value": "1"},
                "negative_button": {"text": {"type": "plain_text", "text": "Bad"}, "value": "0"},
            }
        ],
    }
    ended = await stream.stop(
        markdown_text="!",
        blocks=[feedback],
        metadata={"event_type": "threadline", "event_payload": {}},
    )
    assert ended["message"]["text"] == "**hello** you, and others!"
    message = slack.message(stream.ts or "")
    assert not message.streaming
    assert message.metadata == {"event_type": "threadline", "event_payload": {}}
    assert [call.method for call in slack.calls()] == [
        "chat.startStream",
        "chat.appendStream",
        "chat.stopStream",
    ]


async def test_a_stream_that_only_stops_is_a_whole_answer(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    stream = await client.chat_stream(channel=CHANNEL, thread_ts=asked.ts, **RECIPIENT)
    await stream.stop(markdown_text="all at once")
    assert slack.visible(CHANNEL, asked.ts) == ["tell me", "all at once"]


async def test_a_channels_stream_names_its_recipient(
    client: AsyncWebClient, asked: Message
) -> None:
    start = client.chat_startStream
    assert await refused(start(channel=CHANNEL, thread_ts=asked.ts)) == "missing_recipient_user_id"
    call = start(channel=CHANNEL, thread_ts=asked.ts, recipient_user_id=PERSON)
    assert await refused(call) == "missing_recipient_team_id"


async def test_a_direct_message_needs_no_recipient(
    slack: FakeSlack, client: AsyncWebClient
) -> None:
    asked = slack.user(PERSON).post(DM, "hi")
    answer = await client.chat_startStream(channel=DM, thread_ts=asked.ts, markdown_text="a")
    await client.chat_appendStream(channel=DM, ts=answer["ts"], markdown_text="b")
    await client.chat_stopStream(channel=DM, ts=answer["ts"])
    assert slack.visible(DM, asked.ts) == ["hi", "ab"]


async def test_one_call_takes_twelve_thousand_characters(
    slack: FakeSlack, client: AsyncWebClient, ts: str
) -> None:
    append = client.chat_appendStream
    assert await refused(append(channel=CHANNEL, ts=ts, markdown_text="x" * 12_001)) == (
        "msg_too_long"
    )
    await append(channel=CHANNEL, ts=ts, markdown_text="x" * 12_000)


async def test_a_stream_holds_so_much_and_no_more(
    slack: FakeSlack, client: AsyncWebClient, ts: str
) -> None:
    append = client.chat_appendStream
    await append(channel=CHANNEL, ts=ts, markdown_text="x" * 11_977)
    for _ in range(2):
        call = append(channel=CHANNEL, ts=ts, markdown_text="y" * 24)
        assert await refused(call) == "msg_too_long"
    await append(channel=CHANNEL, ts=ts, markdown_text="y" * 23)
    slack.options.stream_characters = 40_000
    await append(channel=CHANNEL, ts=ts, markdown_text="z" * 12_000)


async def test_a_beginning_that_is_too_long_leaves_no_message(
    slack: FakeSlack, client: AsyncWebClient, asked: Message
) -> None:
    chunks = [MarkdownTextChunk(text="x" * 12_000), MarkdownTextChunk(text="y")]
    call = client.chat_startStream(channel=CHANNEL, thread_ts=asked.ts, chunks=chunks, **RECIPIENT)
    assert await refused(call) == "msg_too_long"
    assert slack.visible(CHANNEL, asked.ts) == ["tell me"]


async def test_a_stream_dies_after_five_minutes(
    slack: FakeSlack, client: AsyncWebClient, clock: ManualClock, ts: str
) -> None:
    clock.advance(299)
    await client.chat_appendStream(channel=CHANNEL, ts=ts, markdown_text="still ")
    clock.advance(2)
    append = client.chat_appendStream(channel=CHANNEL, ts=ts, markdown_text="late")
    assert await refused(append) == "message_not_in_streaming_state"
    stop = client.chat_stopStream(channel=CHANNEL, ts=ts)
    assert await refused(stop) == "message_not_in_streaming_state"
    assert slack.message(ts).text == "still "
    await client.chat_update(channel=CHANNEL, ts=ts, text="the whole answer")
    assert slack.visible(CHANNEL)[0] == "tell me"
    assert slack.message(ts).text == "the whole answer"


async def test_a_stopped_stream_takes_no_more(
    client: AsyncWebClient, slack: FakeSlack, ts: str
) -> None:
    await client.chat_stopStream(channel=CHANNEL, ts=ts, markdown_text="done")
    call = client.chat_appendStream(channel=CHANNEL, ts=ts, markdown_text="more")
    assert await refused(call) == "message_not_in_streaming_state"
    assert await refused(client.chat_stopStream(channel=CHANNEL, ts=ts)) == (
        "message_not_in_streaming_state"
    )


async def test_an_open_stream_is_not_edited_or_deleted(client: AsyncWebClient, ts: str) -> None:
    update = client.chat_update(channel=CHANNEL, ts=ts, text="x")
    assert await refused(update) == "streaming_state_conflict"
    assert await refused(client.chat_delete(channel=CHANNEL, ts=ts)) == "cant_delete_message"
    await client.chat_appendStream(channel=CHANNEL, ts=ts, markdown_text="unharmed")


async def test_a_stream_keeps_its_shape(client: AsyncWebClient, ts: str) -> None:
    append = client.chat_appendStream
    chunks = [MarkdownTextChunk(text="a")]
    both = append(channel=CHANNEL, ts=ts, markdown_text="a", chunks=chunks)
    assert await refused(both) == "cannot_provide_both_markdown_text_and_chunks"
    await append(channel=CHANNEL, ts=ts, chunks=chunks)
    text = append(channel=CHANNEL, ts=ts, markdown_text="b")
    assert await refused(text) == "streaming_mode_mismatch"


async def test_tasks_and_plans(slack: FakeSlack, client: AsyncWebClient, ts: str) -> None:
    await client.chat_appendStream(
        channel=CHANNEL,
        ts=ts,
        chunks=[
            {"type": "plan_update", "title": "Looking"},
            TaskUpdateChunk(id="t1", title="Search", status="in_progress"),
        ],
    )
    await client.chat_appendStream(
        channel=CHANNEL,
        ts=ts,
        chunks=[TaskUpdateChunk(id="t1", title="Search", status="complete", output="found")],
    )
    stream = slack.message(ts).stream
    assert stream is not None
    assert stream.plan == "Looking"
    assert stream.tasks["t1"]["status"] == "complete"
    for wrong in (
        {"type": "task_update", "id": "t1"},
        {"type": "task_update", "id": "t1", "title": "x", "status": "cancelled"},
        {"type": "task_update", "id": "t1", "title": "x" * 257, "status": "complete"},
        {"type": "other"},
    ):
        call = client.chat_appendStream(channel=CHANNEL, ts=ts, chunks=[wrong])
        assert await refused(call) == "invalid_chunks"


async def test_nothing_to_append_is_refused(client: AsyncWebClient, ts: str) -> None:
    assert await refused(client.chat_appendStream(channel=CHANNEL, ts=ts)) == "no_text"


async def test_a_stream_belongs_to_its_app(
    slack: FakeSlack, client: AsyncWebClient, ts: str, asked: Message
) -> None:
    other = slack.add_app("A0OTHERAPP", "other")
    slack.install(other)
    slack.user(PERSON).invite(CHANNEL, other.bot_user)
    stranger = AsyncWebClient(token=other.bot_token, base_url=slack.api_url)
    call = stranger.chat_appendStream(channel=CHANNEL, ts=ts, markdown_text="x")
    assert await refused(call) == "message_not_owned_by_app"
    call = client.chat_appendStream(channel=CHANNEL, ts="1.0", markdown_text="x")
    assert await refused(call) == "message_not_found"
    call = client.chat_appendStream(channel=CHANNEL, ts=asked.ts, markdown_text="x")
    assert await refused(call) == "message_not_owned_by_app"


async def test_a_stream_goes_through_a_session(
    slack: FakeSlack, client: AsyncWebClient, asked: Message, ts: str
) -> None:
    assert slack.session(CHANNEL, asked.ts) == "processing"
    await client.chat_stopStream(
        channel=CHANNEL, ts=ts, markdown_text="?", session_status="suspended"
    )
    assert slack.session(CHANNEL, asked.ts) == "suspended"
