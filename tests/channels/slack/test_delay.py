"""The note before a late answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from threadline_slack.outbound.delay import note

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_what_is_fresh_has_no_note() -> None:
    assert note("2026-01-31T12:00:00.000Z", NOON) is None
    assert note("2026-01-31T11:00:01.000Z", NOON) is None
    assert note("2026-01-31T12:00:09.000Z", NOON) is None


def test_what_is_late_says_since_when() -> None:
    said = note("2026-01-31T10:30:00.000Z", NOON)
    assert said is not None
    assert "<!date^1769855400^" in said
    assert "2026-01-31 10:30 UTC" in said
    assert note("2026-01-31T12:30:00+02:00", NOON + timedelta(minutes=1)) is not None
