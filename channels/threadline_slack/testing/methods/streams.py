"""chat.startStream, appendStream and stopStream.

What is documented: one call takes 12,000 characters, a channel's stream names its recipient, a
stream that a person stopped answers ``stopped_by_user``. What is only reported: a message holds
about 12,000 characters in all, a stream dies five minutes after it was opened
(slackapi/python-slack-sdk#1859), and it keeps to the shape, text or chunks, it was opened with
(``streaming_mode_mismatch``).
"""

from __future__ import annotations

from typing import Any, Literal

from threadline_slack.testing.activity import CannotReply
from threadline_slack.testing.blocks import MARKDOWN_LIMIT, check_blocks, identified
from threadline_slack.testing.methods.agents import STATUSES, begin_session, set_session
from threadline_slack.testing.methods.chat import blocks_of, metadata_of
from threadline_slack.testing.model import Channel, Json, Message, Stream
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import message_json

__all__: list[str] = []

_CHUNKS = {
    "markdown_text": ("text",),
    "task_update": ("id", "title", "status"),
    "plan_update": ("title",),
    "blocks": ("blocks",),
}
_TASK_STATUSES = ("pending", "in_progress", "complete", "error")
_TASK_TEXT = 256


@method("chat.startStream", "chat:write", tier=2)
def start(ask: Ask) -> Json:
    """Open a stream: a message that grows."""
    channel = ask.channel()
    if ask.install.bot_user not in channel.members:
        raise Refusal("not_in_channel")
    if channel.kind != "im":
        for name in ("recipient_user_id", "recipient_team_id"):
            if not ask.text(name):
                raise Refusal(f"missing_{name}")
        ask.user("recipient_user_id")
    text, chunks, mode = _given(ask)
    stream = Stream(
        ask.state.clock.monotonic(),
        recipient=(ask.maybe("recipient_user_id"), ask.maybe("recipient_team_id")),
    )
    _room(ask, "", text, chunks)
    message = _open(ask, channel, stream)
    _take(ask, message, stream, text, chunks, mode)
    begin_session(ask, channel, message.root or message.ts)
    ask.desk.publisher.posted(message)
    return {"channel": channel.id, "ts": message.ts}


def _open(ask: Ask, channel: Channel, stream: Stream) -> Message:
    if channel.kind == "im" and not ask.text("thread_ts"):
        raise Refusal("invalid_arguments")
    try:
        return ask.desk.activity.post(
            channel,
            ask.bot(),
            thread_ts=ask.maybe("thread_ts"),
            ts=ask.forced_ts,
            quiet=True,
            stream=stream,
        )
    except CannotReply:
        raise Refusal("cannot_reply_to_message") from None


@method("chat.appendStream", "chat:write", tier=4)
def append(ask: Ask) -> Json:
    """Let a stream grow; apps hear of the end of a stream only, for want of a better source."""
    channel = ask.channel()
    message, stream = _streaming(ask, channel)
    if stream.state == "stopped":
        raise Refusal("stopped_by_user")
    if stream.state != "in_progress":
        raise Refusal("message_not_in_streaming_state")
    text, chunks, mode = _given(ask)
    if mode is None:
        raise Refusal("no_text")
    _take(ask, message, stream, text, chunks, mode)
    return {"channel": channel.id, "ts": message.ts}


@method("chat.stopStream", "chat:write", tier=2)
def stop(ask: Ask) -> Json:
    """End a stream; its session becomes ``session_status``, active unless given."""
    channel = ask.channel()
    message, stream = _streaming(ask, channel)
    if stream.state != "in_progress":
        raise Refusal("message_not_in_streaming_state")
    status = ask.text("session_status", "active")
    if status not in STATUSES:
        raise Refusal("invalid_arguments")
    blocks, metadata = blocks_of(ask), metadata_of(ask)
    text, chunks, mode = _given(ask)
    before = message_json(ask.state, message)
    _take(ask, message, stream, text, chunks, mode)
    if blocks:
        message.blocks = [*(message.blocks or []), *identified(blocks)]
    message.metadata = metadata or message.metadata
    stream.state = "completed"
    set_session(ask, channel, message.root or message.ts, status)
    ask.desk.publisher.edited(message, before)
    return {
        "channel": channel.id,
        "ts": message.ts,
        "message": message_json(ask.state, message),
    }


def _streaming(ask: Ask, channel: Channel) -> tuple[Message, Stream]:
    message = channel.posts.get(ask.need("ts"))
    if message is None:
        raise Refusal("message_not_found")
    if message.app != ask.install.app.id:
        raise Refusal("message_not_owned_by_app")
    stream = message.stream
    if stream is None:
        raise Refusal("message_not_in_streaming_state")
    ask.state.expire(message)
    return message, stream


def _given(ask: Ask) -> tuple[str, list[Json], Literal["text", "chunks"] | None]:
    """Return the text, the chunks and which of the two it was; raises :class:`Refusal`."""
    text = ask.text("markdown_text")
    chunks = ask.value("chunks", "invalid_chunks") or []
    if text and chunks:
        raise Refusal("cannot_provide_both_markdown_text_and_chunks")
    if not isinstance(chunks, list):
        raise Refusal("invalid_chunks")
    for chunk in chunks:
        _check(chunk)
    streamed = [chunk["text"] for chunk in chunks if chunk["type"] == "markdown_text"]
    if max([len(text), *map(len, streamed)]) > MARKDOWN_LIMIT:
        raise Refusal("msg_too_long")
    mode: Literal["text", "chunks"] | None = "text" if text else "chunks" if chunks else None
    return text, chunks, mode


def _check(chunk: Any) -> None:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if kind not in _CHUNKS or any(chunk.get(name) is None for name in _CHUNKS[kind]):
        raise Refusal("invalid_chunks")
    if kind == "task_update":
        shown = [chunk["title"], chunk.get("details") or "", chunk.get("output") or ""]
        if chunk["status"] not in _TASK_STATUSES or any(len(t) > _TASK_TEXT for t in shown):
            raise Refusal("invalid_chunks")
    if kind == "blocks" and check_blocks(chunk["blocks"]):
        raise Refusal("invalid_blocks")


def _room(ask: Ask, there: str, text: str, chunks: list[Json]) -> str:
    """Return the text that is added; raises :class:`Refusal` where it would be too much."""
    added = text + "".join(c["text"] for c in chunks if c["type"] == "markdown_text")
    if len(there) + len(added) > ask.state.options.stream_characters:
        raise Refusal("msg_too_long")
    return added


def _take(
    ask: Ask,
    message: Message,
    stream: Stream,
    text: str,
    chunks: list[Json],
    mode: Literal["text", "chunks"] | None,
) -> None:
    """Add to a stream; raises :class:`Refusal`, and then adds nothing."""
    if mode is not None and stream.mode not in (None, mode):
        raise Refusal("streaming_mode_mismatch")
    added = _room(ask, message.text, text, chunks)
    stream.mode = mode or stream.mode
    message.text += added
    for chunk in chunks:
        if chunk["type"] == "task_update":
            known = stream.tasks.get(chunk["id"], {})
            stream.tasks[chunk["id"]] = {**known, **chunk}
        elif chunk["type"] == "plan_update":
            stream.plan = chunk["title"]
        elif chunk["type"] == "blocks":
            message.blocks = [*(message.blocks or []), *identified(chunk["blocks"])]
