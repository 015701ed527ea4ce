"""How often messages may be changed while they grow."""

from __future__ import annotations

from threadline_slack.outbound.pace import Pace


def test_the_more_grow_the_slower_each() -> None:
    pace = Pace()
    assert pace.gap("stream") == pace.gap("edits") == 1.0
    with pace.growing(), pace.growing(), pace.growing(), pace.growing():
        assert pace.gap("stream") == 3.0
        assert pace.gap("edits") == 5.2
    assert pace.gap("edits") == 1.0


def test_so_many_streams_start_in_a_minute() -> None:
    pace = Pace()
    assert [pace.may_start(0.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not pace.may_start(59.0)
    assert pace.may_start(60.0)


def test_a_start_that_was_not_made_does_not_count() -> None:
    pace = Pace()
    for _ in range(10):
        assert pace.may_start(0.0)
    pace.not_started()
    assert pace.may_start(0.0)
    assert not pace.may_start(0.0)
