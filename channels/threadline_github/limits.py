"""What a refusal of GitHub means: a limit that passes, or a decision that stands; no I/O.

https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["wait_for"]

_LEAST = 60.0  # seconds, where GitHub names none
_MOST = 900.0
_WORDS = "secondary rate limit", "abuse detection", "rate limit exceeded"


def wait_for(
    status: int, headers: Mapping[str, str], message: str, *, now: float, strikes: int = 0
) -> float | None:
    """Return the seconds to wait before trying again; None when this is no limit.

    ``now`` is in seconds of the epoch. ``strikes`` is how often in a row it was refused before
    without a time to wait: the wait doubles each time. Header names are lower case.
    """
    if status not in (403, 429):
        return None
    after = _number(headers.get("retry-after"))
    if after is not None:
        return max(after, 0.0)
    reset = _number(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        return max(reset - now, 1.0)
    if status == 429 or any(words in message.lower() for words in _WORDS):
        return min(_LEAST * 2.0**strikes, _MOST)
    return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
