"""How often messages may be changed while they grow; no I/O.

https://docs.slack.dev/apis/web-api/rate-limits
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping

from threadline_slack.outbound.live import Kind

__all__ = ["Pace"]

_MINUTE, _STARTS = 60.0, 10  # of 20 calls a minute, since each start needs as many ends
_GAPS: Mapping[Kind, float] = {"stream": 0.75, "edits": 1.3}  # of 100 and 50 calls a minute


class Pace:
    """What the growing messages of one bot share: whether Slack streams, and its limits."""

    def __init__(self) -> None:
        self.streams = True
        self._starts: deque[float] = deque()
        self._growing = 0

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """Count one that grows."""
        self._growing += 1
        try:
            yield
        finally:
            self._growing -= 1

    def gap(self, kind: Kind) -> float:
        """Return how many seconds to leave between two calls, the more the more grow."""
        return max(1.0, _GAPS[kind] * self._growing)

    def may_start(self, now: float) -> bool:
        """Count the start of a stream, if there may be one now."""
        while self._starts and now - self._starts[0] >= _MINUTE:
            self._starts.popleft()
        if len(self._starts) >= _STARTS:
            return False
        self._starts.append(now)
        return True

    def not_started(self) -> None:
        """Take a start back that was counted and not made."""
        if self._starts:
            self._starts.pop()
