"""Identifiers: what they look like, and how new ones are made."""

from __future__ import annotations

import re
import secrets

__all__ = ["is_delivery_id", "is_session_id", "is_slug", "new_id"]

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SESSION_ID = re.compile(r"ses_[A-Za-z0-9_-]{1,64}")
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")

RESERVED_SLUGS = frozenset(
    {"assets", "channels", "docs", "healthz", "metrics", "playground", "readyz", "static", "v1"}
)


def new_id(prefix: str) -> str:
    """Return a fresh identifier such as ``ses_4fQ…``: the prefix and 131 random bits."""
    return prefix + "_" + "".join(_ALPHABET[byte % 62] for byte in secrets.token_bytes(22))


def is_session_id(text: str) -> bool:
    """Tell whether the text has the form of a session id; it may still name no session."""
    return _SESSION_ID.fullmatch(text) is not None


def is_delivery_id(text: str) -> bool:
    """Tell whether the text is 1 to 200 printable characters."""
    return 1 <= len(text) <= 200 and text.isprintable()


def is_slug(text: str) -> bool:
    """Tell whether the text can name an agent in a URL and a folder."""
    return _SLUG.fullmatch(text) is not None and text not in RESERVED_SLUGS
