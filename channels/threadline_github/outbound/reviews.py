"""Reviews of a pull request: of the commit that was read, with comments on lines of its diff.

https://docs.github.com/en/rest/pulls/reviews
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from threadline import Context, Post
from threadline_github.client import DIFF, GitHubRefused
from threadline_github.hub import Hub
from threadline_github.inbound.decide import is_fork
from threadline_github.inbound.names import Thread
from threadline_github.outbound.conversation import Conversation
from threadline_github.outbound.drafts import Draft, draft
from threadline_github.outbound.markers import marked
from threadline_github.outbound.place import UNPROCESSABLE, Place
from threadline_github.outbound.results import Review
from threadline_github.workspace.diff import FileDiff, parse

__all__ = ["Reviews"]


class Reviews(Place):
    """Where a review goes; a reference is its path, ``pulls/7/reviews/1``.

    ``commit`` is the SHA that was reviewed, None for the newest one. What GitHub takes in no form
    as a review is a comment instead. A review is there once, and is never changed into another.
    """

    def __init__(
        self,
        hub: Hub,
        ctx: Context,
        thread: Thread,
        since: datetime,
        review: Review,
        commit: str | None,
    ) -> None:
        super().__init__(hub, ctx, thread)
        self._comments = Conversation(hub, ctx, thread, since)
        self._review = review
        self._commit = commit

    async def send(self, post: Post) -> str:
        """Submit the review."""
        pull = await self._pull()
        commit = self._commit or _head(pull)
        files = await self._files(pull, commit) if self._review.comments else ()
        own = self.hub.me.wrote(pull.get("user") or {})
        fork = is_fork(pull)
        made: Draft | None = draft(self._review, commit, own=own, fork=fork, files=files)
        said = made
        while made is not None:
            try:
                return await self._submit(made, post)
            except GitHubRefused as refused:
                if refused.github_status != UNPROCESSABLE:
                    raise
                said = made
                made = made.lesser(str(refused))
        body = said.body if said is not None else ""
        about = f"_A review of {commit[:12]}:_\n\n{body}"
        return await self._comments.send(Post(post.id, post.session_id, post.turn_id, about))

    async def find(self, post: Post) -> str | None:
        """Look for the review among the bot's own, and for a comment in its stead."""
        items = await self.pages(f"/pulls/{self.number}/reviews?per_page=100")
        found = await self.own(items, post)
        if found is None:
            return await self._comments.find(post)
        return f"pulls/{self.number}/reviews/{found['id']}"

    async def _submit(self, made: Draft, post: Post) -> str:
        if made.event == "APPROVE":
            # A push may have come while it was written: what nobody has read is not approved.
            made = made.on(_head(await self._pull()))
        payload = made.payload(marked(made.body, post.id))
        review = await self.call("POST", f"/pulls/{self.number}/reviews", payload)
        return f"pulls/{self.number}/reviews/{review['id']}"

    async def _pull(self) -> Mapping[str, Any]:
        pull: Mapping[str, Any] = await self.call("GET", f"/pulls/{self.number}")
        return pull

    async def _files(self, pull: Mapping[str, Any], commit: str) -> Sequence[FileDiff] | None:
        """Return the diff of a commit; None when GitHub does not give it."""
        base = (pull.get("base") or {}).get("sha")
        path = f"/pulls/{self.number}" if commit == _head(pull) else f"/compare/{base}...{commit}"
        try:
            text = await self.call("GET", path, accept=DIFF)
            return await asyncio.to_thread(parse, str(text or ""))
        except (GitHubRefused, ValueError) as error:
            self.ctx.log.warning("github.no_diff", commit=commit, error=str(error))
            return None


def _head(pull: Mapping[str, Any]) -> str:
    return str(pull["head"]["sha"])
