"""Text in: a Slack message, as an event or the history gives it, to what the model reads.

Everything takes the message object, or its ``text``, as Slack sent it: still encoded.
https://docs.slack.dev/reference/events/message
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from threadline_slack.words.flatten import attachments_text, blocks_text
from threadline_slack.words.reading import Reader, mentioned_users
from threadline_slack.words.tokens import clean, decode

__all__ = [
    "Command",
    "File",
    "Text",
    "command",
    "files",
    "is_stop",
    "mentions",
    "read",
    "unaddressed",
]

_PLACEHOLDERS = {"this content can't be displayed.", "[no preview available]"}
_ADDRESS_END = re.compile(r"^[\s\u200b\ufeff]*(?:[,:;\u2013\u2014-](?=\s|$))?[\s\u200b\ufeff]*")
_WORDS = re.compile(r"\w+")
_EMOJI = re.compile(r":[a-z0-9_+'-]+:")
_STOP_SIGNS = {":octagonal_sign:", ":stop_sign:", "\U0001f6d1"}
_STOP = re.compile(
    r"(?:please )?(?:stop|cancel|abort|halt)"
    r"(?: (?:it|this|that|now|please|everything|stop|cancel|abort|halt))*"
)
_COMMAND = re.compile(r"!([A-Za-z][A-Za-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message; ``size`` is in bytes, ``url`` needs the bot's token.

    ``access`` is Slack's ``file_access``: ``check_file_info`` means that nothing but the id is
    known until ``files.info`` is asked, as in channels shared with another organisation. ``kind``
    is there for what is no ordinary file: Slack's ``mode``, or ``external``.
    """

    id: str
    name: str
    mimetype: str
    size: int
    url: str | None = None
    access: str = "visible"
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """What a message says: plain text, and the ids of whom and what it mentions, in order.

    ``users`` leaves out the bot that was asked for: it is the one addressed.
    """

    text: str
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    broadcasts: tuple[str, ...] = ()
    files: tuple[File, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A message ``!name args``; the name is in lower case."""

    name: str
    args: str


def read(
    message: Mapping[str, Any], *, names: Mapping[str, str] | None = None, bot: str | None = None
) -> Text:
    """Return what a message says, whole: its text, and its blocks and attachments where they add.

    ``names`` maps ids of users, groups and channels to names; an id without one keeps the label
    Slack gave it, or stands for itself. ``bot`` is the user id whose leading mention is taken off.
    """
    reader = Reader(names or {})
    raw = clean(_string(message.get("text")))
    text = reader.mrkdwn(unaddressed(raw, bot) if bot else raw).strip()
    if text.casefold().replace("\u2019", "'") in _PLACEHOLDERS:
        text = ""
    blocks = message.get("blocks")
    if not (text and _is_typed(message)):
        text = _merged(text, clean(_unaddressed_blocks(blocks, reader, bot)))
    text = _merged(text, clean(attachments_text(message.get("attachments"), reader)))
    return Text(
        text=text,
        users=tuple(user for user in reader.users if user != bot),
        groups=tuple(reader.groups),
        channels=tuple(reader.channels),
        broadcasts=tuple(reader.broadcasts),
        files=files(message),
    )


def _is_typed(message: Mapping[str, Any]) -> bool:
    """True for what a person wrote: ``text`` then says all that the rich text says."""
    blocks = message.get("blocks")
    return not message.get("bot_id") and all(
        isinstance(block, dict) and block.get("type") == "rich_text"
        for block in (blocks if isinstance(blocks, list) else [])
    )


def _unaddressed_blocks(blocks: Any, reader: Reader, bot: str | None) -> str:
    said = blocks_text(blocks, reader).strip()
    address = reader.user(bot) if bot else ""
    if address and re.match(rf"{re.escape(address)}(?!\w)", said):
        return _ADDRESS_END.sub("", said[len(address) :])
    return said


def _merged(text: str, more: str) -> str:
    """Return both texts, or the one that holds all the words of the other."""
    ours, theirs = (f" {' '.join(_WORDS.findall(part.casefold()))} " for part in (text, more))
    if not more.strip() or (text.strip() and theirs in ours):
        return text
    if not text.strip() or ours in theirs:
        return more
    return f"{text}\n{more}"


def files(message: Mapping[str, Any]) -> tuple[File, ...]:
    """Return the message's files, without those that were deleted since."""
    listed = message.get("files")
    return tuple(
        _file(entry)
        for entry in (listed if isinstance(listed, list) else [])
        if isinstance(entry, dict) and entry.get("id") and entry.get("mode") != "tombstone"
    )


def _file(entry: Mapping[str, Any]) -> File:
    size = entry.get("size")
    return File(
        id=str(entry["id"]),
        name=clean(_string(entry.get("name")) or _string(entry.get("title")) or str(entry["id"])),
        mimetype=_string(entry.get("mimetype")) or "application/octet-stream",
        size=size if isinstance(size, int) else 0,
        url=_string(entry.get("url_private_download")) or _string(entry.get("url_private")) or None,
        access=_string(entry.get("file_access")) or "visible",
        kind=_kind(entry),
    )


def _kind(entry: Mapping[str, Any]) -> str:
    """Return what a file is, unless it is one; a canvas is a ``quip`` by its type, too."""
    mode = _string(entry.get("mode"))
    if entry.get("is_external") or mode == "external":
        return "external"
    if _string(entry.get("filetype")) in ("quip", "canvas"):
        return "quip"
    return "" if mode in ("hosted", "snippet", "file_access") else mode


def mentions(message: Mapping[str, Any], user: str) -> bool:
    """True when the message's own text mentions the user.

    What its attachments quote, and mentions of a group that the user is in, do not count.
    """
    if user in mentioned_users(_string(message.get("text"))):
        return True
    reader = Reader({})
    blocks_text(message.get("blocks"), reader)
    return user in reader.users


def unaddressed(text: str, bot: str) -> str:
    """Return an encoded text without the mention of the bot that it starts with."""
    address = rf"\s*(?:<@{re.escape(bot)}(?:\|[^<>]*)?>[\s\u200b\ufeff]*)+"
    found = re.match(address, text)
    return _ADDRESS_END.sub("", text[found.end() :]) if found else text


def is_stop(text: str, *, bot: str | None = None, bot_names: Collection[str] = ()) -> bool:
    """True when the whole message, an encoded text, asks to stop and says nothing else.

    Case, punctuation, emphasis, emoji, ``/`` or ``!`` in front, and a mention of the bot before or
    behind do not matter; a question mark does. ``bot_names`` are names by which the bot may be
    addressed without a real mention.
    """
    if bot:
        text = re.sub(rf"<@{re.escape(bot)}(?:\|[^<>]*)?>", " ", text)
    said = unicodedata.normalize("NFKC", decode(text)).casefold()
    if said.strip() in _STOP_SIGNS:
        return True
    words = _bare(_EMOJI.sub(" ", said))
    for name in bot_names:
        called = _bare(name.casefold())
        words = words.removeprefix(f"{called} ").removesuffix(f" {called}")
    return _STOP.fullmatch(words) is not None


def _bare(text: str) -> str:
    """Return the words without what stands around them, single spaces between."""
    seen = "".join(char for char in text if unicodedata.category(char) != "Cf")
    start, end = 0, len(seen)
    while start < end and not _says_something(seen[start]):
        start += 1
    while end > start and not _says_something(seen[end - 1]):
        end -= 1
    return " ".join(re.sub(r"(?<=\w)[,.!;]+(?=\s)", "", seen[start:end]).split())


def _says_something(char: str) -> bool:
    return char.isalnum() or char == "?"


def command(text: str, *, bot: str | None = None) -> Command | None:
    """Return the command in an encoded text such as ``!model fast``, or None.

    Slash commands do not reach an app from a thread; these do.
    """
    said = decode(unaddressed(text, bot) if bot else text).strip().lstrip("\u200b")
    found = _COMMAND.fullmatch(said)
    return Command(found.group(1).lower(), (found.group(2) or "").strip()) if found else None


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
