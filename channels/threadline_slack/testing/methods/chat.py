"""chat.postMessage, update, delete, postEphemeral, meMessage and getPermalink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from threadline_slack.testing.activity import Author, CannotReply
from threadline_slack.testing.blocks import MARKDOWN_LIMIT, check_blocks, identified
from threadline_slack.testing.model import Channel, Json, Message
from threadline_slack.testing.refusal import Refusal, invalid
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import message_json

__all__ = ["blocks_of", "metadata_of", "owned"]

_TEXT = 40_000
_UPDATE = 4_000
_ATTACHMENTS = 100


@method("chat.postMessage", "chat:write", "chat:write.public", tier=5)
def post_message(ask: Ask) -> Json:
    """Post a message; a text beyond 40,000 characters is cut, as Slack cuts it."""
    channel = ask.channel(open_im=True)
    _may_post(ask, channel)
    content = _content(ask)
    text, truncated = content.pop("text"), False
    if len(text) > _TEXT:
        text, truncated = text[:_TEXT], True
    messages = []
    for number, piece in enumerate(_pieces(ask, text, content)):
        messages.append(_post(ask, channel, piece, content if number == 0 else {}))
    first = messages[0]
    body: Json = {"channel": channel.id, "ts": first.ts, "message": message_json(ask.state, first)}
    if truncated:
        body |= {
            "warning": "message_truncated",
            "response_metadata": {"warnings": ["message_truncated"]},
        }
    return body


def _post(ask: Ask, channel: Channel, text: str, content: Json) -> Message:
    author, subtype = _author(ask)
    ts, ask.forced_ts = ask.forced_ts, None
    try:
        return ask.desk.activity.post(
            channel,
            author,
            text,
            thread_ts=ask.maybe("thread_ts"),
            broadcast=ask.flag("reply_broadcast"),
            subtype=subtype,
            ts=ts,
            **content,
        )
    except CannotReply:
        raise Refusal("cannot_reply_to_message") from None


def _pieces(ask: Ask, text: str, content: Json) -> list[str]:
    """Return what becomes a message of its own: the whole, or what Slack splits it into."""
    most = ask.state.options.split_posts_over
    if most is None or len(text) <= most or content.get("blocks"):
        return [text]
    return [text[start : start + most] for start in range(0, len(text), most)]


def _may_post(ask: Ask, channel: Channel) -> None:
    if channel.archived:
        raise Refusal("is_archived")
    if ask.install.bot_user in channel.members:
        ask.require("chat:write")
        return
    if channel.kind == "channel" and "chat:write.public" in ask.install.scopes:
        return
    raise Refusal("not_in_channel")


def _author(ask: Ask) -> tuple[Author, str | None]:
    """Return who posts; under another name it is a classic bot message."""
    author = ask.bot()
    icons = {name: ask.args[name] for name in ("icon_emoji", "icon_url") if ask.args.get(name)}
    if not ask.maybe("username") and not icons:
        return author, None
    ask.require("chat:write.customize")
    renamed = replace(author, user=None, username=ask.maybe("username"), icons=icons or None)
    return renamed, "bot_message"


def _content(ask: Ask) -> Json:
    """Return text, blocks, attachments and metadata; raises :class:`Refusal`."""
    markdown = ask.text("markdown_text")
    text = ask.text("text")
    blocks = blocks_of(ask)
    attachments = ask.value("attachments", "invalid_attachments")
    if markdown and (text or blocks):
        raise Refusal("markdown_text_conflict")
    if len(markdown) > MARKDOWN_LIMIT:
        raise Refusal("msg_too_long")
    if not (markdown or text or blocks or attachments):
        raise Refusal("no_text")
    if attachments is not None and len(attachments) > _ATTACHMENTS:
        raise Refusal("too_many_attachments")
    if markdown:
        blocks = [{"type": "markdown", "text": markdown}]
    return {
        "text": markdown or text,
        "blocks": blocks or None,
        "attachments": attachments or None,
        "metadata": metadata_of(ask),
    }


def blocks_of(ask: Ask) -> list[Json] | None:
    """Return the blocks argument, None when it is missing; raises :class:`Refusal`."""
    blocks = ask.value("blocks", "invalid_blocks_format")
    if blocks is None:
        return None
    problems = check_blocks(blocks)
    if any("msg_blocks_too_long" in problem for problem in problems):
        raise Refusal("msg_blocks_too_long")
    if problems:
        raise invalid(*problems, error="invalid_blocks")
    made: list[Json] = blocks
    return made


def metadata_of(ask: Ask) -> Json | None:
    """Return the metadata argument; raises :class:`Refusal`."""
    metadata = ask.value("metadata", "invalid_metadata_format")
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("event_type"), str):
        raise Refusal("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), dict):
        raise Refusal("invalid_metadata_schema")
    return metadata


def owned(ask: Ask, channel: Channel, error: str) -> Message:
    """Return the app's own message that ``ts`` names; raises :class:`Refusal`."""
    message = channel.posts.get(ask.need("ts"))
    if message is None:
        raise Refusal("message_not_found")
    if message.app != ask.install.app.id:
        raise Refusal(error)
    return message


@method("chat.update", "chat:write", tier=3)
def update(ask: Ask) -> Json:
    """Change a message; what is left out stays as it was, blocks and attachments too."""
    channel = ask.channel()
    message = owned(ask, channel, "cant_update_message")
    ask.state.expire(message)
    if message.streaming:
        raise Refusal("streaming_state_conflict")
    changes = _changes(ask)
    plain = not (changes.get("blocks") or changes.get("attachments"))
    message.stream = None
    ask.desk.activity.edit(message, by=ask.install.bot_user if plain else None, **changes)
    return {
        "channel": channel.id,
        "ts": message.ts,
        "text": message.text,
        "message": message_json(ask.state, message),
    }


def _changes(ask: Ask) -> Json:
    changes: Json = {}
    if ask.text("markdown_text"):
        if ask.text("text") or ask.value("blocks"):
            raise Refusal("markdown_text_conflict")
        if len(ask.text("markdown_text")) > MARKDOWN_LIMIT:
            raise Refusal("msg_too_long")
        changes["text"] = ask.text("markdown_text")
        changes["blocks"] = [{"type": "markdown", "text": changes["text"]}]
    elif ask.args.get("text") is not None:
        changes["text"] = ask.text("text")
        if len(changes["text"]) > _UPDATE:
            raise Refusal("msg_too_long")
    if (blocks := blocks_of(ask)) is not None:
        changes["blocks"] = identified(blocks) or None
    if (attachments := ask.value("attachments", "invalid_attachments")) is not None:
        changes["attachments"] = attachments or None
    if (metadata := metadata_of(ask)) is not None:
        changes["metadata"] = metadata
    if not changes:
        raise Refusal("no_text")
    return changes


@method("chat.delete", "chat:write", tier=3)
def delete(ask: Ask) -> Json:
    """Delete a message of the app."""
    channel = ask.channel()
    message = owned(ask, channel, "cant_delete_message")
    ask.state.expire(message)
    if message.streaming:
        raise Refusal("cant_delete_message")
    ask.desk.activity.delete(message)
    return {"channel": channel.id, "ts": message.ts}


@method("chat.postEphemeral", "chat:write", tier=4)
def post_ephemeral(ask: Ask) -> Json:
    """Show a message to one member of the channel."""
    channel = ask.channel()
    _may_post(ask, channel)
    user = ask.user()
    if user.id not in channel.members:
        raise Refusal("user_not_in_channel")
    content: dict[str, Any] = _content(ask)
    message = ask.desk.activity.whisper(
        channel,
        ask.bot(),
        content.pop("text"),
        to=user.id,
        root=ask.maybe("thread_ts"),
        **content,
    )
    return {"message_ts": message.ts}


@method("chat.meMessage", "chat:write", tier=3)
def me_message(ask: Ask) -> Json:
    """Post what the bot does, as ``/me`` does."""
    channel = ask.channel()
    _may_post(ask, channel)
    message = ask.desk.activity.post(channel, ask.bot(), ask.need("text"), subtype="me_message")
    return {"channel": channel.id, "ts": message.ts}


@method("chat.getPermalink", tier=5)
def get_permalink(ask: Ask) -> Json:
    """Return the address of a message."""
    channel = ask.channel()
    message = channel.posts.get(ask.need("message_ts"))
    if message is None:
        raise Refusal("message_not_found")
    domain = ask.state.teams[channel.teams[0]].domain
    link = f"https://{domain}.slack.com/archives/{channel.id}/p{message.ts.replace('.', '')}"
    if message.root is not None:
        link += f"?thread_ts={message.root}&cid={channel.id}"
    return {"channel": channel.id, "permalink": link}
