"""The labels of a pull request or issue; setting them twice changes nothing.

https://docs.github.com/en/rest/issues/labels
"""

from __future__ import annotations

from urllib.parse import quote

from threadline import Context, Post
from threadline_github.client import GitHubRefused
from threadline_github.hub import Hub
from threadline_github.inbound.names import Thread
from threadline_github.outbound.place import GONE, Place
from threadline_github.outbound.results import Labels

__all__ = ["LabelSet"]


class LabelSet(Place):
    """Where labels go; a reference is the path of them all, ``issues/7/labels``."""

    def __init__(self, hub: Hub, ctx: Context, thread: Thread, labels: Labels) -> None:
        super().__init__(hub, ctx, thread)
        self._labels = labels

    async def send(self, post: Post) -> str:
        """Put labels on and take labels off; one that is not there is no error."""
        path = f"/issues/{self.number}/labels"
        if self._labels.add:
            await self.call("POST", path, {"labels": self._labels.add})
        for name in self._labels.remove:
            try:
                await self.call("DELETE", f"{path}/{quote(name, safe='')}")
            except GitHubRefused as refused:
                if refused.github_status not in GONE:
                    raise
        return path.removeprefix("/")
