"""Storms: so many posts in a watched channel that they become one digest. Pure; times are Slack's.

A storm is an interval of Slack's time in one channel. A post within it belongs to it whenever it
arrives, and so does what is said later of that post, unless it has a session of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Storm", "Storms"]

_MINUTE = 60.0
_COUNTED = 1_000  # posts a channel
_KEPT = 10  # storms a channel, for edits and replies that come after them
_STALE = 20.0  # seconds by which what is stored may be behind


@dataclass(slots=True)
class Storm:
    """``root`` is the first post that was too many; its thread takes the digest.

    ``since`` and ``until`` are in seconds of the epoch; ``until`` moves on as posts come.
    """

    root: str
    since: float
    until: float


class Storms:
    """Counts, by channel, the posts that would each start a session."""

    def __init__(self) -> None:
        self._recent: dict[str, dict[str, float]] = {}
        self._storms: dict[str, list[Storm]] = {}
        self._stored: dict[str, float] = {}

    def count(self, channel: str, root: str, at: float) -> int:
        """Count a thread, once; return how many threads there were within a minute of it."""
        recent = self._recent.setdefault(channel, {})
        recent.setdefault(root, at)
        newest = max(recent.values())
        for old in [one for one, when in recent.items() if when <= newest - 2 * _MINUTE]:
            del recent[old]
        while len(recent) > _COUNTED:
            del recent[min(recent, key=recent.__getitem__)]
        return sum(abs(when - at) < _MINUTE for when in recent.values())

    def take(self, channel: str, root: str, at: float, most: int) -> str | None:
        """Return the root of the thread that takes a post into a digest; None when there is none.

        ``root`` is that of the post's own thread, ``at`` when it was posted or changed, ``most``
        how many threads a minute may have sessions of their own.
        """
        found = self.count(channel, root, at)
        storm = self._covering(channel, root, at)
        if storm is None and found > most:
            storm = self._begun(channel, root, at)
        if storm is None:
            return None
        if found > most // 2 and at <= storm.until:
            storm.until = max(storm.until, at + _MINUTE)
        return storm.root

    def _covering(self, channel: str, root: str, at: float) -> Storm | None:
        storms = self._storms.get(channel, [])
        return next((storm for storm in reversed(storms) if _covers(storm, root, at)), None)

    def _begun(self, channel: str, root: str, at: float) -> Storm:
        """Return a new storm, or the one that began just after this late post."""
        storms = self._storms.setdefault(channel, [])
        if storms and abs(storms[-1].since - at) < _MINUTE:
            storms[-1].since = min(storms[-1].since, at)
            return storms[-1]
        storms.append(Storm(root, at, at + _MINUTE))
        del storms[:-_KEPT]
        return storms[-1]

    # What outlives the process

    @property
    def stale(self) -> bool:
        """True when what was stored last is too far behind."""
        return any(
            storm.until - self._stored.get(f"{channel}:{storm.root}", 0.0) >= _STALE
            for channel, storms in self._storms.items()
            for storm in storms
        )

    def dump(self) -> dict[str, list[list[Any]]]:
        """Return the storms as JSON has them, and take them for stored."""
        self._stored = {
            f"{channel}:{storm.root}": storm.until
            for channel, storms in self._storms.items()
            for storm in storms
        }
        return {
            channel: [[storm.root, storm.since, storm.until] for storm in storms]
            for channel, storms in self._storms.items()
            if storms
        }

    def load(self, stored: Mapping[str, Sequence[Sequence[Any]]] | None) -> None:
        """Go on from what ``dump`` returned."""
        for channel, storms in (stored or {}).items():
            self._storms[channel] = [Storm(root, since, until) for root, since, until in storms]
        self.dump()


def _covers(storm: Storm, root: str, at: float) -> bool:
    return storm.since <= float(root) <= storm.until or storm.since <= at <= storm.until
