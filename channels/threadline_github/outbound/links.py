"""Addresses of comments, as people open them; no I/O."""

from __future__ import annotations

from threadline_github.config import API_URL
from threadline_github.inbound.names import Thread

__all__ = ["link"]

_ENTERPRISE = "/api/v3"


def link(api_url: str, thread: Thread, ref: str) -> str:
    """Return the address of a comment by its reference, ``issues/comments/1`` for example."""
    site = "https://github.com" if api_url == API_URL else api_url.removesuffix(_ENTERPRISE)
    kind = "pull" if thread.is_pull else "issues"
    number = ref.rpartition("/")[2]
    anchor = f"discussion_r{number}" if ref.startswith("pulls/") else f"issuecomment-{number}"
    return f"{site}/{thread.repository.name}/{kind}/{thread.number}#{anchor}"
