"""conversations.*: histories, threads, and what channels there are."""

from __future__ import annotations

from collections.abc import Iterable

from threadline_slack.testing.model import Channel, Json, Kind, Message
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import channel_json, message_json, thread_info

__all__: list[str] = []

_PREFIX = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
_HISTORY = tuple(f"{prefix}:history" for prefix in _PREFIX.values())
_READ = tuple(f"{prefix}:read" for prefix in _PREFIX.values())
_TYPES: dict[str, Kind] = {
    "public_channel": "channel",
    "private_channel": "group",
    "im": "im",
    "mpim": "mpim",
}
_MOST_USERS = 8


@method("conversations.history", *_HISTORY, tier=3)
def history(ask: Ask) -> Json:
    """Return what stands in a channel, the newest first, without replies in threads."""
    channel = _readable(ask)
    posts = [
        message
        for message in channel.posts.values()
        if message.root is None or message.subtype == "thread_broadcast"
    ]
    posts.sort(key=lambda message: message.ts, reverse=True)
    page, more = ask.page(_between(ask, posts), 100)
    return _listing(ask, page, more)


@method("conversations.replies", *_HISTORY, tier=3)
def replies(ask: Ask) -> Json:
    """Return a thread, its root first whatever ``oldest`` says; of a reply's ts, that reply."""
    channel = _readable(ask)
    root = channel.posts.get(ask.text("ts"))
    if root is None:
        raise Refusal("thread_not_found")
    answers = sorted(
        (channel.posts[ts] for ts in root.replies if ts in channel.posts),
        key=lambda message: message.ts,
    )
    page, more = ask.page([root, *_between(ask, answers)], 1_000)
    return _listing(ask, page, more)


def _readable(ask: Ask) -> Channel:
    """Return the channel, if the app is in it and may read its kind."""
    channel = ask.channel()
    ask.require(f"{_PREFIX[channel.kind]}:history")
    if ask.install.bot_user not in channel.members:
        raise Refusal("not_in_channel")
    return channel


def _between(ask: Ask, messages: Iterable[Message]) -> list[Message]:
    oldest, latest = ask.text("oldest"), ask.text("latest")
    for name, value in (("oldest", oldest), ("latest", latest)):
        if value and not value.replace(".", "", 1).isdigit():
            raise Refusal(f"invalid_ts_{name}")
    inclusive = ask.flag("inclusive")

    def fits(ts: str) -> bool:
        if inclusive and ts in (oldest, latest):
            return True
        return (not oldest or float(ts) > float(oldest)) and (
            not latest or float(ts) < float(latest)
        )

    return [message for message in messages if fits(message.ts)]


def _listing(ask: Ask, page: list[Message], more: dict[str, str]) -> Json:
    metadata = ask.flag("include_all_metadata")
    return {
        "messages": [
            {
                **message_json(ask.state, message, metadata=metadata),
                **thread_info(ask.state, message),
            }
            for message in page
        ],
        "has_more": bool(more["next_cursor"]),
        "response_metadata": more,
    }


@method("conversations.info", *_READ, tier=3)
def info(ask: Ask) -> Json:
    """Return one conversation."""
    channel = ask.channel()
    ask.require(f"{_PREFIX[channel.kind]}:read")
    return {"channel": _seen(ask, channel)}


@method("conversations.list", *_READ, tier=2)
def list_(ask: Ask) -> Json:
    """Return the conversations of a team that the app can see."""
    team = ask.team
    found = [
        channel
        for channel in ask.state.channels.values()
        if team in channel.teams and ask.state.sees(ask.install, channel)
    ]
    return _channels(ask, found)


@method("users.conversations", *_READ, tier=3)
def of_user(ask: Ask) -> Json:
    """Return the conversations that a user, or the bot, is a member of."""
    user = ask.user().id if ask.text("user") else ask.install.bot_user
    found = [
        channel
        for channel in ask.state.channels.values()
        if user in channel.members and ask.state.sees(ask.install, channel)
    ]
    return _channels(ask, found)


def _channels(ask: Ask, found: list[Channel]) -> Json:
    types = ask.text("types", "public_channel").replace(" ", "").split(",")
    if any(name not in _TYPES for name in types):
        raise Refusal("invalid_types")
    kinds = [_TYPES[name] for name in types]
    fitting = [
        channel
        for channel in found
        if channel.kind in kinds and not (ask.flag("exclude_archived") and channel.archived)
    ]
    page, more = ask.page(fitting, 100)
    return {"channels": [_seen(ask, one) for one in page], "response_metadata": more}


def _seen(ask: Ask, channel: Channel) -> Json:
    return channel_json(channel, viewer=ask.install.bot_user, viewer_team=ask.install.team)


@method("conversations.members", *_READ, tier=4)
def members(ask: Ask) -> Json:
    """Return who is in a conversation."""
    channel = ask.channel()
    page, more = ask.page(list(channel.members), 100)
    return {"members": page, "response_metadata": more}


@method("conversations.open", "im:write", "mpim:write", tier=3)
def open_(ask: Ask) -> Json:
    """Open a direct or group message."""
    if ask.text("channel"):
        return {"channel": {"id": ask.channel().id}, "no_op": True, "already_open": True}
    users = [user for user in ask.text("users").split(",") if user]
    if not users:
        raise Refusal("users_list_not_supplied")
    if len(users) > _MOST_USERS:
        raise Refusal("too_many_users")
    if any(user not in ask.state.users for user in users):
        raise Refusal("user_not_found")
    before = len(ask.state.channels)
    channel = ask.state.im(ask.install.bot_user, *users)
    body: Json = {"channel": _seen(ask, channel) if ask.flag("return_im") else {"id": channel.id}}
    if len(ask.state.channels) == before:
        body |= {"no_op": True, "already_open": True}
    return body


@method("conversations.join", "channels:join", tier=3)
def join(ask: Ask) -> Json:
    """Join a public channel."""
    channel = ask.channel()
    if channel.kind != "channel":
        raise Refusal("method_not_supported_for_channel_type")
    if channel.archived:
        raise Refusal("is_archived")
    if ask.install.bot_user in channel.members:
        warning = "already_in_channel"
        return {
            "channel": _seen(ask, channel),
            "warning": warning,
            "response_metadata": {"warnings": [warning]},
        }
    ask.desk.activity.join(channel, ask.state.user(ask.install.bot_user))
    return {"channel": _seen(ask, channel)}
