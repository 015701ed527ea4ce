"""The order of posts by Slack's time beside that of their arrival here; in memory, and bounded.

A stop that comes late must spare what was asked behind it. Slack says the order by ``ts``, the core
by the moment of acceptance; this knows both for what came since the process began.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime

__all__ = ["Order"]

_CONVERSATIONS, _POSTS, _SEEN = 5_000, 50, 10_000
_SKEW = 2.0  # seconds that the host's clock may be ahead of Slack's


class Order:
    """When the newest posts of each conversation arrived, and which stops were seen.

    ``since`` is when the process began, in seconds of the epoch.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._arrivals: OrderedDict[str, dict[str, datetime]] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()

    def note(self, token: str, ts: str, at: datetime) -> None:
        """Keep that a post is about to be accepted; the first time counts."""
        posts = self._arrivals.setdefault(token, {})
        self._arrivals.move_to_end(token)
        posts.setdefault(ts, at)
        while len(posts) > _POSTS:
            del posts[next(iter(posts))]
        while len(self._arrivals) > _CONVERSATIONS:
            self._arrivals.popitem(last=False)

    def before(self, token: str, ts: str) -> datetime | None:
        """Return from when on what was accepted is spared by a stop at ``ts``; None for nothing.

        That is when the first newer post arrived. Of what came to an earlier process nothing is
        known: a stop from then goes by its own time.
        """
        posts = self._arrivals.get(token, {})
        newer = [at for post, at in posts.items() if float(post) > float(ts)]
        if newer:
            return min(newer)
        return None if float(ts) >= self._since - _SKEW else datetime.fromtimestamp(float(ts), UTC)

    def first(self, name: str) -> bool:
        """Tell whether this was not seen before, and remember it."""
        if name in self._seen:
            return False
        self._seen[name] = None
        while len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return True

    def forget(self, name: str) -> None:
        """Take back that it was seen."""
        self._seen.pop(name, None)
