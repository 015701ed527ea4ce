"""The hidden line by which a post is found again after a crash; no I/O."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

__all__ = ["disarm", "marked", "marker", "wears"]

ROOM = 512
"""The most characters that a marker takes, with the blank line above it."""
_LONGEST = 400
_FORGED = re.compile(r"<!--(?=\s*threadline:)", re.IGNORECASE)


def marker(post_id: str) -> str:
    """Return the comment in HTML that stands for a post, ``<!-- threadline:<post id> -->``."""
    name = quote(post_id, safe="/:.~")
    if len(name) > _LONGEST:
        name = hashlib.sha256(post_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"<!-- threadline:{name} -->"


def marked(text: str, post_id: str) -> str:
    """Return a text with the post's marker as its last line."""
    return f"{text}\n\n{marker(post_id)}" if text else marker(post_id)


def wears(body: object, post_id: str) -> bool:
    """Tell whether a body is that of a post: its last line is the marker, and not a quote of it."""
    if not isinstance(body, str):
        return False
    return body.replace("\r\n", "\n").rstrip().rpartition("\n")[2] == marker(post_id)


def disarm(text: str) -> str:
    """Return a text in which nothing is taken for a marker."""
    return _FORGED.sub("<!\u200b--", text)
