"""A discussion of a line, that a review comment began, as a place to post replies.

https://docs.github.com/en/rest/pulls/comments#create-a-reply-for-a-review-comment
"""

from __future__ import annotations

from datetime import datetime

from threadline import Context, Post
from threadline_github.client import GitHubRefused
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.conversation import Conversation
from threadline_github.outbound.markers import marked
from threadline_github.outbound.place import GONE, UNPROCESSABLE

__all__ = ["Discussion"]


class Discussion(Conversation):
    """Where replies to a review comment go; what it does not take goes into the conversation."""

    def __init__(
        self, hub: Hub, ctx: Context, thread: Thread, since: datetime, comment: int
    ) -> None:
        super().__init__(hub, ctx, thread, since)
        self._comment = comment

    async def send(self, post: Post) -> str:
        """Reply, or comment on the pull request where the review comment takes no reply."""
        path = f"/pulls/{self.number}/comments/{self._comment}/replies"
        try:
            made = await self.call("POST", path, {"body": marked(post.text, post.id)})
        except GitHubRefused as refused:
            if refused.github_status not in GONE | {UNPROCESSABLE}:
                raise
            return await super().send(post)
        return f"pulls/comments/{made['id']}"

    async def find(self, post: Post) -> str | None:
        """Look for the reply, and for a comment in its stead."""
        return await self._found("pulls", post) or await super().find(post)
