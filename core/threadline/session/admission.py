"""What a delivery does to a session: one pure table.

===========  ==============================================  =====================================
session is   preempt                                         coalesce
===========  ==============================================  =====================================
absent       create, start a turn                            the same
idle         start a turn                                    the same
queued       joins that turn's prompt                        joins that turn's prompt
running      interrupt, then one turn with all pending       pending: steered, or the next turn
settling     pending, the deadline does not extend           pending
parked       the call is superseded, then as running         pending
held         pending until the direct tool call is done      pending
===========  ==============================================  =====================================

A task session takes no follow-up; the store refuses it before this table is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from threadline.store.base import Admission

__all__ = ["Admitted", "Decision", "Phase", "admit"]

Phase = Literal["absent", "idle", "queued", "running", "settling", "parked", "held"]
Admitted = Literal["started", "queued", "preempted", "duplicate"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the delivery, and the word its sender gets."""

    effect: Literal["start", "join", "pend", "interrupt", "supersede"]
    admitted: Admitted


_START = Decision("start", "started")
_JOIN = Decision("join", "queued")
_PEND = Decision("pend", "queued")
_TABLE: dict[tuple[Phase, Admission], Decision] = {
    ("absent", "preempt"): _START,
    ("absent", "coalesce"): _START,
    ("idle", "preempt"): _START,
    ("idle", "coalesce"): _START,
    ("queued", "preempt"): _JOIN,
    ("queued", "coalesce"): _JOIN,
    ("running", "preempt"): Decision("interrupt", "preempted"),
    ("running", "coalesce"): _PEND,
    ("settling", "preempt"): _PEND,
    ("settling", "coalesce"): _PEND,
    ("parked", "preempt"): Decision("supersede", "preempted"),
    ("parked", "coalesce"): _PEND,
    ("held", "preempt"): _PEND,
    ("held", "coalesce"): _PEND,
}


def admit(phase: Phase, admission: Admission) -> Decision:
    """Decide what a delivery with this admission does to a session in this phase."""
    return _TABLE[phase, admission]
