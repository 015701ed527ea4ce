"""The conversation of a pull request or issue as a place to post comments.

https://docs.github.com/en/rest/issues/comments
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from threadline import Context, Post
from threadline_github.client import GitHubRefused
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.markers import marked
from threadline_github.outbound.place import GONE, Place

__all__ = ["Conversation"]

_MARGIN = timedelta(hours=1)


class Conversation(Place):
    """Where comments go; a reference is the comment's path, ``issues/comments/1``.

    ``since`` is when the first of them can have been made: they are looked for from there on.
    """

    def __init__(self, hub: Hub, ctx: Context, thread: Thread, since: datetime) -> None:
        super().__init__(hub, ctx, thread)
        self._since = since

    async def send(self, post: Post) -> str:
        """Make a comment."""
        body = marked(post.text, post.id)
        made = await self.call("POST", f"/issues/{self.number}/comments", {"body": body})
        return f"issues/comments/{made['id']}"

    async def find(self, post: Post) -> str | None:
        """Look for the comment among the bot's own."""
        return await self._found("issues", post)

    async def edit(self, ref: str, post: Post) -> str:
        """Change the comment; one that somebody deleted meanwhile is made anew."""
        try:
            await self.rewrite(ref, post)
        except GitHubRefused as refused:
            if refused.github_status not in GONE:
                raise
            there = await self.find(post)
            if there is None:
                return await self.send(post)
            await self.rewrite(there, post)
            return there
        return ref

    async def rewrite(self, ref: str, post: Post) -> None:
        """Change the comment; raises GitHubRefused with 404 when it is gone."""
        await self.call("PATCH", f"/{ref}", {"body": marked(post.text, post.id)})

    async def remove(self, ref: str) -> None:
        """Delete the comment; one that is gone already is no error."""
        try:
            await self.call("DELETE", f"/{ref}")
        except GitHubRefused as refused:
            if refused.github_status not in GONE:
                raise

    async def _found(self, kind: str, post: Post) -> str | None:
        """Return the post among the comments of ``issues`` or of ``pulls``."""
        since = (self._since - _MARGIN).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        query = urlencode({"since": since, "per_page": 100})
        items = await self.pages(f"/{kind}/{self.number}/comments?{query}")
        found = await self.own(items, post)
        return f"{kind}/comments/{found['id']}" if found is not None else None
