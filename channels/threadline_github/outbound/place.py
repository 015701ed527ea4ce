"""What all places to post at GitHub have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from threadline import Context, Post
from threadline_github.client import JSON
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.markers import wears

__all__ = ["GONE", "UNPROCESSABLE", "Place"]

GONE = frozenset({404, 410})
UNPROCESSABLE = 422
_MOST = 1_000


class Place:
    """A pull request or issue, and who acts there.

    ``patience`` is in seconds: a limit of GitHub can last for an hour, an outage longer, so that a
    post waits for a day. ``method`` is the limit that all writes share, as GitHub counts them.
    """

    patience = 86_400.0
    method = "content"

    def __init__(self, hub: Hub, ctx: Context, thread: Thread) -> None:
        self.hub = hub
        self.ctx = ctx
        self.thread = thread

    @property
    def credential(self) -> str:
        """The installation, or the token."""
        return self.hub.credential(self.thread.repository)

    @property
    def number(self) -> int:
        """The number of the pull request or issue."""
        return self.thread.number

    async def call(self, method: str, path: str, data: Any = None, *, accept: str = JSON) -> Any:
        """Call ``/repos/<name><path>``; raises TryAgain or GitHubRefused."""
        return await self.hub.request(
            self.ctx, self.thread.repository, method, path, data, accept=accept
        )

    async def pages(self, path: str) -> list[Any]:
        """Return the items of a list, a thousand at most."""
        return await self.hub.pages(self.ctx, self.thread.repository, path, most=_MOST)

    async def own(self, items: Iterable[Any], post: Post) -> Any:
        """Return the first item that the bot itself wrote as the post, or None.

        Whoever quotes a marker is somebody else.
        """
        if self.hub.me.login is None:
            await self.hub.recognise(self.ctx)
        for item in items:
            app = item.get("performed_via_github_app")
            if wears(item.get("body"), post.id) and self.hub.me.wrote(item.get("user") or {}, app):
                return item
        return None
