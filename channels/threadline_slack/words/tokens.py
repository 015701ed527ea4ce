"""Slack's control sequences: ``<…>`` tokens, and the entities that keep text apart from them.

In a message's ``text`` and in every mrkdwn text, ``<``, ``>`` and ``&`` are markup; the same
characters as content are written ``&lt;``, ``&gt;`` and ``&amp;``, and nothing else is encoded.
https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = [
    "BROADCASTS",
    "ENTITY",
    "LIVE",
    "OPENING",
    "ZERO_WIDTH_SPACE",
    "broken_up",
    "clean",
    "decode",
    "decode_if_encoded",
    "escape",
    "inert_words",
    "mention_or_words",
]

ZERO_WIDTH_SPACE = "\u200b"
BROADCASTS = ("here", "channel", "everyone", "group")

ENTITY = re.compile(r"&(?:amp|lt|gt);")
_CHARACTERS = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
_NEITHER_ENTITY_NOR_TEXT = re.compile(r"[<>]|&(?!(?:amp|lt|gt);)")
_BROADCAST_WORD = re.compile(rf"@(?=(?:{'|'.join(BROADCASTS)})\b)", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202d\u202e]")
_LINE_BREAKS = re.compile(r"\r\n?|[\x85\u2028\u2029]")
_NONCHARACTERS = re.compile("[\ufdd0-\ufdef]")

LIVE = re.compile(
    r"<(?:(?P<user>@[UW][A-Z0-9]+)|(?P<channel>#[CDG][A-Z0-9]+)"
    r"|!subteam\^(?P<group>S[A-Z0-9]+)"
    rf"|!(?P<broadcast>(?i:{'|'.join(BROADCASTS)}))"
    r"|!date\^(?P<date>[^<>|\n]*))(?:\|(?P<label>[^<>\n]*))?>"
)
"""A token that Slack would act on: a mention, a channel link, a broadcast or a date."""

OPENING = re.compile(
    r"<(?=@[UW][A-Z0-9]|#[CDG][A-Z0-9]|!(?:subteam|date)\^"
    rf"|!(?i:{'|'.join(BROADCASTS)})(?![A-Za-z0-9]))"
)
"""Where such a token may start, whether or not it ends."""


def clean(text: str) -> str:
    r"""Return the text without what JSON, terminals and renderers stumble over.

    Halves of a surrogate pair are joined, lone ones and Unicode's noncharacters become U+FFFD;
    control characters and the two overrides of the text's direction are dropped; every kind of line
    break becomes ``\n``.
    """
    if _has_surrogates(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _LINE_BREAKS.sub("\n", _CONTROLS.sub("", text))
    return _NONCHARACTERS.sub("\ufffd", text)


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def decode(text: str) -> str:
    """Return the text with Slack's three entities decoded, once."""
    return ENTITY.sub(lambda found: _CHARACTERS[found.group()], text)


def decode_if_encoded(text: str) -> str:
    """Decode a text of which Slack does not say whether it is encoded.

    Rich text and plain text come either way, by who made them. A text that holds a bare ``<``,
    ``>`` or ``&`` cannot have been encoded and is returned as it is.
    """
    return text if _NEITHER_ENTITY_NOR_TEXT.search(text) else decode(text)


def escape(text: str) -> str:
    """Return the text with ``&``, ``<`` and ``>`` written as entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def inert_words(text: str) -> str:
    """Return the text with ``@here`` and its like broken up by a character that nobody sees.

    They are plain words unless the caller of the API asks for ``link_names`` or ``parse="full"``;
    broken up, they stay plain words even then.
    """
    return _BROADCAST_WORD.sub("@" + ZERO_WIDTH_SPACE, text)


def broken_up(code: str) -> str:
    """Return code with the live tokens in it broken up; nothing else of it is touched."""
    return OPENING.sub("<" + ZERO_WIDTH_SPACE, code)


def mention_or_words(
    found: re.Match[str], allowed: Collection[str], names: Mapping[str, str]
) -> tuple[str, bool]:
    """Return what a ``LIVE`` match becomes when we post it, and whether that is a live token.

    Only users, groups and channels whose ids are in ``allowed`` stay live, in the bare form; the
    rest are words that notify nobody. Broadcasts are never live.
    """
    parts = found.groupdict()
    identity = (parts["user"] or parts["channel"] or "")[1:] or parts["group"] or ""
    if identity and identity in allowed:
        sigil = "!subteam^" if parts["group"] else found.group()[1]
        return f"<{sigil}{identity}>", True
    label = inert_words((parts["label"] or "").strip())
    if parts["date"] is not None:
        return label or parts["date"].split("^")[0], False
    if parts["broadcast"]:
        return f"@{ZERO_WIDTH_SPACE}{parts['broadcast'].lower()}", False
    word = (names.get(identity) or label or identity).lstrip("@#")
    return f"{'#' if parts['channel'] else '@'}{ZERO_WIDTH_SPACE}{word}", False
