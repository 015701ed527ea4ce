"""What the model was told of a pull request or an issue, so that it is told only what is new.

What a prompt carries counts as told, unless the log says that the prompt never reached the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = ["SETTLING", "Ledger", "Telling", "Told"]

SETTLING = (
    "deliveries.cleared",
    "message.received",
    "nudge.delivered",
    "step.completed",
    "turn.completed",
    "turn.failed",
    "turn.started",
)
"""The types of the events that say what became of a telling."""

_TELLINGS, _ASKED = 8, 300


@dataclass(frozen=True, slots=True)
class Told:
    """``head`` is the commit whose diff was told, ``named`` the one that was named last.

    ``text`` stands for title and description, ``base`` is the branch. ``comment``,
    ``review_comment`` and ``review`` are the ids of the newest that were told, ``since`` when the
    newest comment was written.
    """

    head: str | None = None
    named: str | None = None
    base: str | None = None
    text: str = ""
    state: str = ""
    comment: int = 0
    review_comment: int = 0
    review: int = 0
    since: str = ""


@dataclass(frozen=True, slots=True)
class Telling:
    """What a delivery carries, and all that is told with it; ``index`` is where the log was then.

    ``turn`` is the turn whose prompt it is part of, once there is one. ``sure``: the model has it.
    """

    delivery: str
    index: int
    told: Told
    turn: str = ""
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Ledger:
    """What one session was told, as far as it is known to have got it.

    ``asked`` are the comments that came as messages of their own.
    """

    base: Told | None = None
    tellings: tuple[Telling, ...] = ()
    asked: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> Ledger:
        """Read what :meth:`to_json` made."""
        if kept is None:
            return cls()
        base = kept["base"]
        return cls(
            None if base is None else Told(**base),
            tuple(Telling(**{**one, "told": Told(**one["told"])}) for one in kept["tellings"]),
            tuple(kept["asked"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)

    @property
    def told(self) -> Told | None:
        """All that was told, with what waits to reach the model."""
        return self.tellings[-1].told if self.tellings else self.base

    @property
    def unsettled(self) -> int | None:
        """From which index on the log says what became of it; None when it is settled."""
        return min((one.index for one in self.tellings if not one.sure), default=None)

    def settled(self, events: Iterable[Mapping[str, Any]]) -> Ledger:
        """Drop what never reached the model, by the log's events from ``unsettled`` on.

        That is what was cleared, or was in the prompt of a turn that failed before its first step.
        """
        tellings = list(self.tellings)
        lost: set[str] = set()
        for event in events:
            data, turn = event.get("data") or {}, str(event.get("turnId") or "")
            for number, one in enumerate(tellings):
                if one.sure:
                    continue
                tellings[number] = now = _after(one, str(event["type"]), data, turn)
                if now.turn != one.turn:
                    lost.discard(now.delivery)
                if _is_lost(now, str(event["type"]), data, turn):
                    lost.add(now.delivery)
        found = replace(self, tellings=tuple(tellings))
        for one in tellings:
            if one.delivery in lost and not one.sure:
                return found.without(one.delivery)
        return found

    def without(self, delivery: str) -> Ledger:
        """Return what was told before a delivery's telling."""
        for number, one in enumerate(self.tellings):
            if one.delivery == delivery:
                return replace(self, tellings=self.tellings[:number])
        return self

    def telling(self, telling: Telling) -> Ledger:
        """Add what is being told."""
        base, tellings = self.base, (*self.tellings, telling)
        if len(tellings) > _TELLINGS:
            base, tellings = tellings[0].told, tellings[1:]
        return replace(self, base=base, tellings=tellings)

    def asks(self, names: Iterable[str]) -> Ledger:
        """Add comments that are messages themselves."""
        new = [name for name in dict.fromkeys(names) if name not in self.asked]
        return replace(self, asked=(*self.asked, *new)[-_ASKED:]) if new else self


def _after(one: Telling, type_: str, data: Mapping[str, Any], turn: str) -> Telling:
    """Return a telling as an event leaves it."""
    match type_:
        case "message.received" if one.delivery in (data.get("deliveryIds") or ()):
            return replace(one, turn=turn)
        case "nudge.delivered" if one.delivery == data.get("deliveryId"):
            return replace(one, turn=turn, sure=True)
        case "turn.started" if one.turn and one.turn == data.get("resumes"):
            return replace(one, turn=turn)
        case "step.completed" | "turn.completed" if one.turn and one.turn == turn:
            return replace(one, sure=True)
    return one


def _is_lost(one: Telling, type_: str, data: Mapping[str, Any], turn: str) -> bool:
    if type_ == "deliveries.cleared":
        return one.delivery in (data.get("deliveryIds") or ())
    return type_ == "turn.failed" and bool(one.turn) and one.turn == turn
