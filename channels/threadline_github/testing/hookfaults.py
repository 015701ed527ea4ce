"""What a test has in store for webhooks: held, lost, late, twice, out of order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from threadline_github.testing.webhooks import Delivery

__all__ = ["HookFaults"]


@dataclass(slots=True)
class _Rule:
    kind: Literal["lose", "delay", "duplicate", "reorder"]
    times: int
    when: Callable[[Delivery], bool]
    seconds: float = 0.0
    kept: list[Delivery] = field(default_factory=list)


class HookFaults:
    """Rules for the deliveries that are made from now on; ``when`` sees the delivery.

    Each rule counts down its ``times``; a delivery is met by the first rule that fits it.
    Redeliveries meet none.
    """

    def __init__(
        self,
        start: Callable[[Delivery, float], None],
        lost: Callable[[Delivery], None],
        again: Callable[[Delivery], None],
    ) -> None:
        self._start = start
        self._lost = lost
        self._again = again
        self._rules: list[_Rule] = []
        self._held: list[Delivery] | None = None

    def lose(self, times: int = 1, *, when: Callable[[Delivery], bool] | None = None) -> None:
        """Find nobody at home for the next deliveries; the deliveries API has them as failed."""
        self._rules.append(_Rule("lose", times, when or _any))

    def delay(
        self, seconds: float, times: int = 1, *, when: Callable[[Delivery], bool] | None = None
    ) -> None:
        """Send the next deliveries so many seconds of the clock later."""
        self._rules.append(_Rule("delay", times, when or _any, seconds))

    def duplicate(self, times: int = 1, *, when: Callable[[Delivery], bool] | None = None) -> None:
        """Send the next deliveries twice, under the same GUID."""
        self._rules.append(_Rule("duplicate", times, when or _any))

    def reorder(self, count: int = 2, *, when: Callable[[Delivery], bool] | None = None) -> None:
        """Keep the next deliveries until there are ``count``, then send them last first."""
        self._rules.append(_Rule("reorder", count, when or _any))

    def hold(self) -> None:
        """Send nothing until ``release``."""
        if self._held is None:
            self._held = []

    def release(
        self, order: Callable[[list[Delivery]], list[Delivery]] | None = None
    ) -> list[Delivery]:
        """Send what was held, in the order it happened or as ``order`` arranges it."""
        held, self._held = self._held or [], None
        held = held if order is None else order(held)
        for delivery in held:
            self._start(delivery, 0.0)
        return held

    @property
    def kept(self) -> int:
        """How many deliveries are held, or kept until they can be reordered."""
        return len(self._held or []) + sum(len(rule.kept) for rule in self._rules)

    def take(self, delivery: Delivery) -> None:
        """Let a delivery meet the rules."""
        if self._held is not None:
            self._held.append(delivery)
            return
        rule = next((one for one in self._rules if one.when(delivery)), None)
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
                self._lost(delivery)
            case "delay":
                self._start(delivery, rule.seconds)
            case "duplicate":
                self._start(delivery, 0.0)
                self._again(delivery)
            case "reorder":
                rule.kept.append(delivery)
                if rule.times <= 0:
                    for kept in reversed(rule.kept):
                        self._start(kept, 0.0)


def _any(delivery: Delivery) -> bool:
    del delivery
    return True
