"""How Slack writes things as JSON; pure. Shapes after docs.slack.dev, trimmed to what apps read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from threadline_slack.testing.model import Channel, Json, Message, StoredFile, Team, User, View
from threadline_slack.testing.state import State

__all__ = [
    "bot_json",
    "channel_json",
    "channel_type",
    "elements_of",
    "file_json",
    "is_system",
    "mentions",
    "message_json",
    "rich_text",
    "team_json",
    "thread_info",
    "user_json",
    "view_json",
    "visible_text",
]

_TYPES = {"channel": "channel", "group": "group", "im": "im", "mpim": "mpim"}
_TOKEN = re.compile(r"<([^<>]+)>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_SYSTEM = frozenset(
    {
        "channel_join",
        "channel_leave",
        "channel_topic",
        "channel_purpose",
        "channel_name",
        "channel_archive",
        "group_join",
        "group_leave",
        "tombstone",
    }
)
_UPDATED = 1_750_000_000
_SHOWN = ("pretext", "author_name", "title", "text", "footer", "alt_text")
_UNSEEN = frozenset({"confirm", "metadata", "options", "option_groups", "filters"})


def channel_type(channel: Channel) -> str:
    """Return the ``channel_type`` of a message event."""
    return _TYPES[channel.kind]


def mentions(text: str) -> list[str]:
    """Return the ids of the users that a mrkdwn text mentions."""
    return _MENTION.findall(text)


def is_system(message: Message) -> bool:
    """Whether Slack wrote a message itself; nobody can reply to it."""
    return message.subtype in _SYSTEM


# Messages


def message_json(state: State, message: Message, *, metadata: bool = False) -> Json:
    """Return a message as events and history have it, without what is known of its thread."""
    state.expire(message)
    body: Json = {
        "type": "message",
        "subtype": message.subtype,
        "user": message.user,
        "ts": message.ts,
        "client_msg_id": message.client_msg_id,
        "bot_id": message.bot_id,
        "app_id": message.app,
        "text": message.text,
        "team": message.team,
        "username": message.username,
        "icons": message.icons,
        "bot_profile": _bot_profile(state, message),
        "thread_ts": message.root,
        "parent_user_id": _parent(state, message),
        "blocks": message.blocks,
        "attachments": message.attachments,
        "edited": message.edited,
        "streaming_state": _streaming_state(message),
    }
    body = {name: value for name, value in body.items() if value is not None}
    if message.files:
        body |= {
            "files": [file_json(state, file) for file in message.files],
            "upload": False,
            "display_as_bot": False,
        }
    if message.reactions:
        body["reactions"] = [
            {"name": name, "users": list(users), "count": len(users)}
            for name, users in message.reactions.items()
        ]
    if metadata and message.metadata:
        body["metadata"] = message.metadata
    return body | message.extra


def thread_info(state: State, message: Message) -> Json:
    """Return what history says of the thread of a root; empty for other messages."""
    if not message.replies:
        return {}
    posts = state.channels[message.channel].posts
    users = dict.fromkeys(
        posts[ts].user or posts[ts].bot_id or "" for ts in message.replies if ts in posts
    )
    return {
        "thread_ts": message.ts,
        "reply_count": len(message.replies),
        "reply_users_count": len(users),
        "latest_reply": message.replies[-1],
        "reply_users": list(users),
        "is_locked": False,
        "subscribed": False,
    }


def _parent(state: State, message: Message) -> str | None:
    root = state.root(message) if message.root else None
    return (root.user or root.bot_id) if root else None


def _streaming_state(message: Message) -> str | None:
    if message.stream is None:
        return None
    return "completed" if message.stream.state == "stopped" else message.stream.state


def _bot_profile(state: State, message: Message) -> Json | None:
    if message.bot_id is None or message.user is None:
        return None
    user = state.users.get(message.user)
    return {
        "id": message.bot_id,
        "deleted": False,
        "name": user.name if user else message.bot_id,
        "updated": _UPDATED,
        "app_id": message.app or "",
        "icons": {},
        "team_id": message.team,
    }


def rich_text(text: str) -> list[Json]:
    """Return the blocks that Slack's editor makes of a text without formatting."""
    elements: list[Json] = []
    end = 0
    for found in _TOKEN.finditer(text):
        elements += _plain(text[end : found.start()])
        elements.append(_element(found.group(1)))
        end = found.end()
    elements += _plain(text[end:])
    section = {"type": "rich_text_section", "elements": elements}
    return [{"type": "rich_text", "block_id": "b1", "elements": [section]}] if elements else []


def _plain(text: str) -> list[Json]:
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return [{"type": "text", "text": text}] if text else []


def _element(token: str) -> Json:
    target, _, label = token.partition("|")
    if target.startswith("@"):
        return {"type": "user", "user_id": target[1:]}
    if target.startswith("#"):
        return {"type": "channel", "channel_id": target[1:]}
    if target.startswith("!subteam^"):
        return {"type": "usergroup", "usergroup_id": target.removeprefix("!subteam^")}
    if target.startswith("!"):
        return {"type": "broadcast", "range": target[1:].partition("^")[0]}
    return {"type": "link", "url": target} | ({"text": label} if label else {})


def visible_text(message: Message) -> str:
    """Return the words of a message as people see them.

    Those of its blocks if it has any, else its text; then those of its attachments and the names
    of its files. A stream shows what was streamed, and then its blocks.
    """
    parts = []
    if message.stream is not None or not message.blocks:
        parts.append(message.text)
    parts += _words(message.blocks or [])
    for attachment in message.attachments or []:
        parts += _words(attachment)
    parts += [file.name for file in message.files]
    return "\n".join(part for part in parts if part)


def _words(node: Any) -> list[str]:
    """Return the words of a block, attachment or element, in order; one line for one section."""
    if isinstance(node, list):
        return [word for item in node for word in _words(item)]
    if not isinstance(node, Mapping):
        return []
    if (inline := _inline(node)) is not None:
        return [inline]
    found = [node[name] for name in _SHOWN if isinstance(node.get(name), str)]
    if "title" in node and isinstance(node.get("value"), str):  # a field of an attachment
        found.append(node["value"])
    for name, value in node.items():
        if isinstance(value, Mapping | list) and name not in _UNSEEN:
            found += _words(value)
    if not found and isinstance(node.get("fallback"), str):
        found.append(node["fallback"])
    if str(node.get("type", "")).startswith(("rich_text_section", "rich_text_preformatted")):
        return ["".join(found)]
    return found


def _inline(node: Mapping[str, Any]) -> str | None:
    match node.get("type"):
        case "user":
            return f"<@{node.get('user_id')}>"
        case "channel":
            return f"<#{node.get('channel_id')}>"
        case "usergroup":
            return f"<!subteam^{node.get('usergroup_id')}>"
        case "broadcast":
            return f"<!{node.get('range')}>"
        case "emoji":
            return f":{node.get('name')}:"
        case "link":
            return str(node.get("text") or node.get("url"))
    return None


# Everything else


def user_json(user: User) -> Json:
    """Return a user as ``users.info`` has it; the email is left to the caller's scopes."""
    return {
        "id": user.id,
        "team_id": user.team,
        "name": user.name,
        "deleted": user.deleted,
        "real_name": user.real_name,
        "tz": "Europe/London",
        "tz_label": "Greenwich Mean Time",
        "tz_offset": 0,
        "profile": {
            "real_name": user.real_name,
            "display_name": user.name,
            "real_name_normalized": user.real_name,
            "display_name_normalized": user.name,
            "team": user.team,
            **({"bot_id": user.bot_id, "api_app_id": user.app or ""} if user.bot_id else {}),
        },
        "is_admin": False,
        "is_owner": False,
        "is_primary_owner": False,
        "is_restricted": user.guest is not None,
        "is_ultra_restricted": user.guest == "single",
        "is_bot": user.bot_id is not None,
        "is_app_user": False,
        "updated": _UPDATED,
    }


def team_json(team: Team) -> Json:
    """Return a workspace as ``team.info`` has it."""
    body: Json = {
        "id": team.id,
        "name": team.name,
        "domain": team.domain,
        "email_domain": "",
        "icon": {"image_default": True},
    }
    return body | ({"enterprise_id": team.enterprise} if team.enterprise else {})


def bot_json(user: User) -> Json:
    """Return a bot as ``bots.info`` has it."""
    return {
        "id": user.bot_id,
        "deleted": user.deleted,
        "name": user.name,
        "updated": _UPDATED,
        "app_id": user.app or "",
        "user_id": user.id,
        "icons": {},
    }


def channel_json(channel: Channel, *, viewer: str, viewer_team: str | None) -> Json:
    """Return a conversation as ``viewer`` (a user id) sees it."""
    body: Json = {
        "id": channel.id,
        "created": channel.created,
        "creator": channel.creator,
        "is_archived": channel.archived,
        "is_im": channel.kind == "im",
        "is_mpim": channel.kind == "mpim",
        "is_org_shared": False,
        "is_ext_shared": channel.external,
        "is_shared": len(channel.teams) > 1,
        "context_team_id": viewer_team or channel.teams[0],
    }
    if channel.kind == "im":
        others = [user for user in channel.members if user != viewer]
        return body | {"user": (others or [viewer])[0], "is_open": True, "priority": 0}
    return body | {
        "name": channel.name,
        "name_normalized": channel.name,
        "is_channel": channel.kind == "channel",
        "is_group": channel.kind == "group",
        "is_private": channel.private,
        "is_member": viewer in channel.members,
        "is_general": False,
        "shared_team_ids": list(channel.teams),
        "num_members": len(channel.members),
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "", "creator": "", "last_set": 0},
        "previous_names": [],
    }


def file_json(state: State, file: StoredFile, *, full: bool = False) -> Json:
    """Return a file; only its id where the reader has to ask ``files.info`` for the rest."""
    if file.access == "check_file_info" and not full:
        return {"id": file.id, "mode": "file_access", "file_access": "check_file_info"}
    base = state.url
    path = f"{base}/files-pri/{file.team}-{file.id}"
    suffix = file.name.rpartition(".")[2] if "." in file.name else ""
    return {
        "id": file.id,
        "created": file.created,
        "timestamp": file.created,
        "name": file.name,
        "title": file.title,
        "mimetype": file.mimetype,
        "filetype": suffix or "binary",
        "pretty_type": suffix.upper() or "Binary",
        "user": file.user,
        "user_team": file.team,
        "editable": False,
        "size": file.size,
        "mode": "hosted",
        "is_external": False,
        "external_type": "",
        "is_public": False,
        "public_url_shared": False,
        "display_as_bot": False,
        "username": "",
        "url_private": f"{path}/{file.name}",
        "url_private_download": f"{path}/download/{file.name}",
        "permalink": f"{base}/files/{file.user}/{file.id}/{file.name}",
        "has_rich_preview": False,
        "file_access": "visible",
        "channels": list(file.channels),
    }


def view_json(view: View, *, values: Mapping[str, Any] | None = None) -> Json:
    """Return a view with its ids and what has been filled in."""
    body = view.body
    return {
        "id": view.id,
        "team_id": view.team,
        "type": body.get("type", "modal"),
        "title": body.get("title"),
        "close": body.get("close"),
        "submit": body.get("submit"),
        "blocks": body.get("blocks", []),
        "private_metadata": body.get("private_metadata", ""),
        "callback_id": body.get("callback_id", ""),
        "external_id": body.get("external_id", ""),
        "state": {"values": dict(values or {})},
        "hash": view.hash,
        "clear_on_close": bool(body.get("clear_on_close", False)),
        "notify_on_close": bool(body.get("notify_on_close", False)),
        "root_view_id": view.root,
        "previous_view_id": view.previous,
        "app_id": view.app,
        "app_installed_team_id": view.team,
        "bot_id": view.bot_id,
    }


def elements_of(blocks: Iterable[Json]) -> Iterator[Json]:
    """Yield the elements of blocks that people can use, each with its ``block_id``."""
    for block in blocks:
        inside = [*block.get("elements", []), block.get("accessory"), block.get("element")]
        for element in inside:
            if isinstance(element, Mapping) and "action_id" in element:
                yield {**element, "block_id": block.get("block_id", "")}
