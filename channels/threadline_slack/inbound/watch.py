"""Alert-watch: the channels whose posts need no mention, and what is told of a post there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from threadline_slack.words.text import read

__all__ = ["Posts", "Watch", "fingerprint", "own_content", "watch"]

Posts = Literal["all", "top_level"]

_CHANNEL = re.compile(r"[CG][A-Z0-9]{2,}|#[^\s#,]{1,80}")
_MOST_DEBOUNCE = 15.0  # names and history are fetched meanwhile, and all of it has 20 seconds
_MOST_STORM = 500
_UNFURLED = ("from_url", "is_msg_unfurl", "is_app_unfurl", "is_thread_root_unfurl")


@dataclass(frozen=True, slots=True)
class Watch:
    """Which channels are watched, and how; see :func:`watch`."""

    channels: tuple[str, ...]
    posts: Posts = "top_level"
    debounce: float = 2.0
    storm: int = 20


def watch(
    channels: Collection[str],
    *,
    posts: Posts = "top_level",
    debounce: float = 2.0,
    storm: int = 20,
) -> Watch:
    """Watch channels: posts of people and of other apps are heard there without a mention.

    ``channels`` are ids, or names as ``#alerts`` of channels that the bot is in. Each post has the
    session of its thread. ``posts``: ``"top_level"`` leaves out replies in threads that do not
    mention the agent; ``"all"`` is for apps that say in a reply how it ended. What comes to a
    thread within ``debounce`` seconds, at most 15, is one prompt. When more than ``storm`` posts a
    minute would start sessions, the further ones go to the session of the first that was too many,
    until there are half as many. Raises ValueError.
    """
    wanted = () if isinstance(channels, str) else tuple(dict.fromkeys(channels))
    wrong = [one for one in wanted if _CHANNEL.fullmatch(one) is None]
    if not wanted or wrong:
        raise ValueError(
            f"channels must be a list of ids such as 'C0123456' or names such as '#alerts', not "
            f"{wrong or channels!r}."
        )
    if posts not in get_args(Posts):
        raise ValueError(f"posts must be 'all' or 'top_level', not {posts!r}.")
    if not 0 <= debounce <= _MOST_DEBOUNCE:
        raise ValueError(f"debounce must be 0 to {_MOST_DEBOUNCE:g} seconds, not {debounce!r}.")
    if not 1 <= storm <= _MOST_STORM:
        raise ValueError(f"storm must be 1 to {_MOST_STORM}, not {storm!r}.")
    return Watch(wanted, posts, debounce, storm)


def own_content(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without what Slack added to it: the previews of its links."""
    attachments = message.get("attachments")
    if not isinstance(attachments, list):
        return message
    own = [one for one in attachments if not (isinstance(one, dict) and _is_unfurled(one))]
    return {**message, "attachments": own}


def fingerprint(message: Mapping[str, Any]) -> str:
    """Return a name of what a message says: the same for the same words, whatever its ids are."""
    return hashlib.sha256(read(own_content(message)).text.encode()).hexdigest()[:16]


def _is_unfurled(attachment: Mapping[str, Any]) -> bool:
    return any(attachment.get(key) for key in _UNFURLED)
