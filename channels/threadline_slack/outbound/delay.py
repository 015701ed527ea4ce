"""The line before an answer that comes late, as after an outage; no I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["note"]

_LATE = timedelta(hours=1)


def note(at: str, now: datetime) -> str | None:
    """Return what to say of an answer that was ready at ``at``; None when that is not long ago.

    ``at`` is the event's time, ISO 8601 with a timezone.
    """
    ready = datetime.fromisoformat(at)
    if now - ready < _LATE:
        return None
    shown = f"{{date_short_pretty}} {{time}}|{ready.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    date = f"<!date^{int(ready.timestamp())}^{shown}>"
    return f"_Late: this was ready at {date}, and could not be posted until now._"
