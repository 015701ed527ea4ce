"""What a test has in store for events: held, lost, late, twice, out of order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from threadline_slack.testing.model import Json

if TYPE_CHECKING:
    from threadline_slack.testing.outbound import Delivery

__all__ = ["EventFaults"]


@dataclass(slots=True)
class _Rule:
    kind: Literal["lose", "delay", "duplicate", "reorder"]
    times: int
    when: Callable[[Json], bool]
    seconds: float = 0.0
    new_id: bool = False
    kept: list[Delivery] = field(default_factory=list)


class EventFaults:
    """Rules for the events that happen from now on; ``when`` sees the event, not its envelope.

    Each rule counts down its ``times``; an event is met by the first rule that fits it.
    """

    def __init__(self, start: Callable[[Delivery, float], None]) -> None:
        self._start = start
        self._rules: list[_Rule] = []
        self._held: list[Delivery] | None = None

    def lose(self, times: int = 1, *, when: Callable[[Json], bool] | None = None) -> None:
        """Never send the next events."""
        self._rules.append(_Rule("lose", times, when or _any))

    def delay(
        self, seconds: float, times: int = 1, *, when: Callable[[Json], bool] | None = None
    ) -> None:
        """Send the next events so many seconds of the clock later."""
        self._rules.append(_Rule("delay", times, when or _any, seconds))

    def duplicate(
        self, times: int = 1, *, new_id: bool = False, when: Callable[[Json], bool] | None = None
    ) -> None:
        """Send the next events twice: as they are, or the second time under a new event id."""
        self._rules.append(_Rule("duplicate", times, when or _any, new_id=new_id))

    def reorder(self, count: int = 2, *, when: Callable[[Json], bool] | None = None) -> None:
        """Keep the next events until there are ``count``, then send them last first."""
        self._rules.append(_Rule("reorder", count, when or _any))

    def hold(self) -> None:
        """Send nothing until ``release``."""
        if self._held is None:
            self._held = []

    def release(self, order: Callable[[list[Json]], list[Json]] | None = None) -> None:
        """Send what was held, in the order it happened or as ``order`` arranges the events."""
        held, self._held = self._held or [], None
        if order is not None:
            arranged = [id(event) for event in order([delivery.event for delivery in held])]
            held = [d for d in held if id(d.event) in arranged]
            held.sort(key=lambda delivery: arranged.index(id(delivery.event)))
        for delivery in held:
            self._start(delivery, 0.0)

    @property
    def kept(self) -> int:
        """How many events are held, or kept until they can be reordered."""
        return len(self._held or []) + sum(len(rule.kept) for rule in self._rules)

    def take(self, delivery: Delivery) -> None:
        """Let an event meet the rules."""
        if self._held is not None:
            self._held.append(delivery)
            return
        rule = next((one for one in self._rules if one.when(delivery.event)), None)
        if rule is None:
            self._start(delivery, 0.0)
            return
        rule.times -= 1
        if rule.times <= 0:
            self._rules.remove(rule)
        self._apply(rule, delivery)

    def _apply(self, rule: _Rule, delivery: Delivery) -> None:
        match rule.kind:
            case "lose":
                return
            case "delay":
                self._start(delivery, rule.seconds)
            case "duplicate":
                again = copy.deepcopy(delivery)
                if rule.new_id:
                    again.body["event_id"] += "B"
                self._start(delivery, 0.0)
                self._start(again, 0.0)
            case "reorder":
                rule.kept.append(delivery)
                if rule.times <= 0:
                    for kept in reversed(rule.kept):
                        self._start(kept, 0.0)


def _any(event: Json) -> bool:
    del event
    return True
