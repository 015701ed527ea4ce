"""Each row of the admission table."""

from __future__ import annotations

from typing import get_args

import pytest

from threadline.session.admission import Phase, admit

TABLE = [
    ("absent", ("start", "started"), ("start", "started")),
    ("idle", ("start", "started"), ("start", "started")),
    ("queued", ("join", "queued"), ("join", "queued")),
    ("running", ("interrupt", "preempted"), ("pend", "queued")),
    ("settling", ("pend", "queued"), ("pend", "queued")),
    ("parked", ("supersede", "preempted"), ("pend", "queued")),
    ("held", ("pend", "queued"), ("pend", "queued")),
]


@pytest.mark.parametrize(("phase", "preempt", "coalesce"), TABLE)
def test_row(phase: Phase, preempt: tuple[str, str], coalesce: tuple[str, str]) -> None:
    for admission, expected in (("preempt", preempt), ("coalesce", coalesce)):
        decision = admit(phase, admission)  # type: ignore[arg-type]
        assert (decision.effect, decision.admitted) == expected


def test_the_table_is_whole() -> None:
    assert {row[0] for row in TABLE} == set(get_args(Phase))
