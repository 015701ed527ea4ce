"""The documented rate limits, kept by the clock. docs.slack.dev/apis/web-api/rate-limits."""

from __future__ import annotations

import math
from collections import deque

from threadline_slack.testing.model import Install
from threadline_slack.testing.state import State

__all__ = ["TIERS", "Rates"]

TIERS = {1: 1, 2: 20, 3: 50, 4: 100, 5: 600}
"""Calls a minute; 5 stands for the methods with rules of their own."""

_MINUTE = 60.0
_POSTS = 1.0  # seconds between two posts in one channel
_BURST = 3  # posts at once before that counts
_HISTORY = ("conversations.history", "conversations.replies")


class Rates:
    """Counts calls per app, team and method, and posts per channel."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._calls: dict[tuple[str, str, str], deque[float]] = {}

    def check(self, install: Install, method: str, tier: int, channel: str | None) -> int | None:
        """Count a call; returns the seconds to wait if it is one too many."""
        if not self._state.options.rate_limits:
            return None
        limit, window = TIERS[tier], _MINUTE
        if method in _HISTORY and self._state.options.history_limit is not None:
            limit = self._state.options.history_limit
        key = (install.app.id, install.team or "", method)
        if method == "chat.postMessage" and channel is not None:
            key = (install.app.id, channel, method)
            limit, window = _BURST, _BURST * _POSTS
        return self._count(key, limit, window)

    def _count(self, key: tuple[str, str, str], limit: int, window: float) -> int | None:
        now = self._state.clock.monotonic()
        calls = self._calls.setdefault(key, deque())
        while calls and now - calls[0] >= window:
            calls.popleft()
        if len(calls) >= limit:
            return max(1, math.ceil(window - (now - calls[0])))
        calls.append(now)
        return None
