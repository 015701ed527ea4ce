"""What a refusal of GitHub means: a limit that passes, or a decision that stands; no I/O.

https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

__all__ = ["wait_for"]

_LEAST = 60.0  # seconds, where GitHub names none
_MOST = 900.0
_WORDS = "secondary rate limit", "abuse detection", "rate limit exceeded"


def wait_for(
    status: int, headers: Mapping[str, str], message: str, *, now: float, strikes: int = 0
) -> float | None:
    """Return the seconds to wait before trying again; None when this is no limit.

    ``now`` is in seconds of the epoch. ``strikes`` is how often in a row it was limited before:
    where no time to wait is named, the wait doubles each time. Header names are lower case.
    """
    if status not in (403, 429):
        return None
    after = _after(headers, now)
    if after is not None:
        return max(after, 0.0)
    reset = _number(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        return max(reset - now, 1.0)
    if status == 429 or any(words in message.lower() for words in _WORDS):
        return min(_LEAST * 2.0 ** min(strikes, 10), _MOST)
    return None


def _after(headers: Mapping[str, str], now: float) -> float | None:
    """Read ``retry-after``: seconds, or a date by the clock of who sent it."""
    text = headers.get("retry-after")
    seconds = _number(text)
    if text is None or seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None
    try:
        return moment - parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (TypeError, ValueError):
        return moment - now


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) else None
