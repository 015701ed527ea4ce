"""An answer with feedback buttons, which are ordinary ones where Slack does not know those."""

from __future__ import annotations

import dataclasses
from typing import Any

from threadline import Post
from threadline_slack.interaction import feedback
from threadline_slack.outbound.live import is_refused
from threadline_slack.outbound.thread import Thread

__all__ = ["Rated"]


class Rated:
    """A place to post, below whose messages two buttons stand."""

    def __init__(self, target: Thread, session_id: str, turn_id: str) -> None:
        self.credential, self.method = target.credential, target.method
        self._target = target
        self._buttons = [
            feedback.buttons(session_id, turn_id, plain=plain) for plain in (False, True)
        ]

    async def send(self, post: Post) -> str:
        """Post it; returns its ``ts``."""
        try:
            return await self._target.send(_with(post, self._buttons[0]))
        except Exception as error:
            if not is_refused(error).startswith("invalid_"):
                raise
            return await self._target.send(_with(post, self._buttons[1]))

    async def find(self, post: Post) -> str | None:
        """Look for it."""
        return await self._target.find(post)

    async def edit(self, ref: str, post: Post) -> None:
        """Change it."""
        try:
            await self._target.edit(ref, _with(post, self._buttons[0]))
        except Exception as error:
            if not is_refused(error).startswith("invalid_"):
                raise
            await self._target.edit(ref, _with(post, self._buttons[1]))


def _with(post: Post, block: dict[str, Any]) -> Post:
    blocks = [*(post.metadata.get("blocks") or []), block]
    return dataclasses.replace(post, metadata={**post.metadata, "blocks": blocks, "extra": [block]})
