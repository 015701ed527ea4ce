"""reactions.add, remove and get."""

from __future__ import annotations

import re

from threadline_slack.testing.model import Json, Message
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import message_json

__all__: list[str] = []

_NAME = re.compile(r"[a-z0-9_+'\-]+(?:::skin-tone-[2-6])?")
_MOST = 23  # distinct emoji of one person on a message


def _message(ask: Ask) -> Message:
    channel = ask.channel()
    message = channel.posts.get(ask.need("timestamp"))
    if message is None:
        raise Refusal("message_not_found")
    return message


def _name(ask: Ask) -> str:
    name = ask.need("name").strip(":")
    if not _NAME.fullmatch(name):
        raise Refusal("invalid_name")
    return name


@method("reactions.add", "reactions:write", tier=3)
def add(ask: Ask) -> Json:
    """React to a message."""
    message, name = _message(ask), _name(ask)
    bot = ask.state.user(ask.install.bot_user)
    if sum(bot.id in users for users in message.reactions.values()) >= _MOST:
        raise Refusal("too_many_reactions")
    if not ask.desk.activity.react(message, bot, name):
        raise Refusal("already_reacted")
    return {}


@method("reactions.remove", "reactions:write", tier=2)
def remove(ask: Ask) -> Json:
    """Take a reaction back."""
    message, name = _message(ask), _name(ask)
    bot = ask.state.user(ask.install.bot_user)
    if not ask.desk.activity.unreact(message, bot, name):
        raise Refusal("no_reaction")
    return {}


@method("reactions.get", "reactions:read", tier=3)
def get(ask: Ask) -> Json:
    """Return a message with its reactions."""
    message = _message(ask)
    return {
        "type": "message",
        "channel": message.channel,
        "message": message_json(ask.state, message),
    }
