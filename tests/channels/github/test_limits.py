"""A refusal is a limit that passes, or a decision that stands."""

from __future__ import annotations

import pytest

from threadline_github.limits import wait_for

NOW = 1_760_000_000.0
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes."
DENIED = "Resource not accessible by integration"


@pytest.mark.parametrize("status", [403, 429])
def test_the_time_that_is_named_counts(status: int) -> None:
    assert wait_for(status, {"retry-after": "60"}, SECONDARY, now=NOW) == 60.0


def test_a_named_time_is_not_doubled() -> None:
    assert wait_for(403, {"retry-after": "7"}, SECONDARY, now=NOW, strikes=4) == 7.0


def test_a_date_counts_from_the_answers_own() -> None:
    headers = {
        "retry-after": "Thu, 09 Oct 2025 09:00:00 GMT",
        "date": "Thu, 09 Oct 2025 08:58:30 GMT",
    }
    assert wait_for(429, headers, SECONDARY, now=0.0) == 90.0
    del headers["date"]
    assert wait_for(429, headers, SECONDARY, now=NOW) == 400.0


def test_no_calls_left_until_the_reset() -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) + 1200)}
    assert wait_for(403, headers, "API rate limit exceeded", now=NOW) == 1200.0


def test_a_reset_that_is_over_is_waited_for_a_moment() -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOW) - 5)}
    assert wait_for(403, headers, "API rate limit exceeded", now=NOW) == 1.0


def test_without_a_time_it_is_a_minute_and_doubles() -> None:
    waits = [wait_for(403, {}, SECONDARY, now=NOW, strikes=strikes) for strikes in range(6)]
    assert waits == [60.0, 120.0, 240.0, 480.0, 900.0, 900.0]
    assert wait_for(403, {}, SECONDARY, now=NOW, strikes=5_000) == 900.0


@pytest.mark.parametrize(
    "message",
    [
        SECONDARY,
        "You have triggered an abuse detection mechanism.",
        "API rate limit exceeded for installation ID 4401.",
    ],
)
def test_words_tell_a_limit(message: str) -> None:
    left = {"x-ratelimit-remaining": "4999", "x-ratelimit-reset": str(int(NOW) + 1200)}
    assert wait_for(403, left, message, now=NOW) == 60.0


def test_429_is_always_a_limit() -> None:
    assert wait_for(429, {}, "Too many requests", now=NOW) == 60.0


@pytest.mark.parametrize("value", ["soon", "nan", "inf", ""])
def test_a_time_that_is_none_is_not_believed(value: str) -> None:
    assert wait_for(429, {"retry-after": value}, SECONDARY, now=NOW) == 60.0


def test_a_permission_is_no_limit() -> None:
    left = {"x-ratelimit-remaining": "4999", "x-ratelimit-reset": str(int(NOW) + 1200)}
    assert wait_for(403, left, DENIED, now=NOW) is None
    assert wait_for(403, {}, DENIED, now=NOW) is None


@pytest.mark.parametrize("status", [200, 401, 404, 422, 500, 503])
def test_other_answers_are_no_limits(status: int) -> None:
    assert wait_for(status, {"retry-after": "60"}, SECONDARY, now=NOW) is None
