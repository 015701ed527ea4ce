"""How much a turn and a session may take before the host ends it: pure counting.

A runaway ends in ``turn.failed`` with one of the codes ``calls_limit``, ``tool_limit``,
``loop_detected``, ``tokens_limit``, ``cost_limit`` and ``turns_limit``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from threadline.harness.base import ToolCall

__all__ = ["Exceeded", "Limits", "Meter", "Totals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a turn or a session may take at most; None is no limit.

    ``calls_per_turn``: tool calls. ``same_call``: how often a turn may make one call with the same
    arguments. ``tokens_…``: input and output tokens. ``cost_…``: estimated US dollars, as far as
    the model's price is known. ``turns_per_session``: turns that were started.

    Raises ValueError for a value that cannot be.
    """

    calls_per_turn: int | None = 200
    same_call: int | None = 20
    tokens_per_turn: int | None = None
    cost_per_turn: float | None = None
    turns_per_session: int | None = None
    tokens_per_session: int | None = None
    cost_per_session: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            whole = "cost" in name or isinstance(value, int)
            if not number or not whole or not math.isfinite(value) or value <= 0:
                raise ValueError(
                    f"Limits.{name} must be a {'' if 'cost' in name else 'whole '}number above 0, "
                    f"or None for no limit, not {value!r}."
                )


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that was met: the failure's code, and a sentence for people."""

    code: str
    message: str


@dataclass(slots=True)
class Totals:
    """What a session took so far; ``cost`` counts only what has a known price."""

    turns: int = 0
    tokens: int = 0
    cost: float = 0.0

    def to_wire(self) -> dict[str, float]:
        """Return what a watermark keeps."""
        return {"turns": self.turns, "tokens": self.tokens, "costUsd": self.cost}

    @classmethod
    def from_wire(cls, wire: dict[str, float]) -> Totals:
        """Read what :meth:`to_wire` wrote."""
        return cls(int(wire.get("turns", 0)), int(wire.get("tokens", 0)), wire.get("costUsd", 0.0))


@dataclass(slots=True)
class Meter:
    """Counts one turn against the limits; ``before`` is what its session took until then."""

    limits: Limits
    before: Totals = field(default_factory=Totals)
    tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    _tools: Counter[str] = field(default_factory=Counter)
    _same: Counter[str] = field(default_factory=Counter)

    def start(self) -> Exceeded | None:
        """Tell whether the session may have another turn."""
        most = self.limits.turns_per_session
        if most is not None and self.before.turns >= most:
            return Exceeded(
                "turns_limit", f"This session had its {most} turns. Start a new session."
            )
        return self._spent()

    def call(
        self, calls: Sequence[ToolCall], limit_of: Callable[[str], int | None]
    ) -> Exceeded | None:
        """Count the calls of a step, before they run."""
        self.calls += len(calls)
        most = self.limits.calls_per_turn
        if most is not None and self.calls > most:
            return Exceeded("calls_limit", f"The turn was ended: it made more than {most} calls.")
        for call in calls:
            self._tools[call.tool_name] += 1
            allowed = limit_of(call.tool_name)
            if allowed is not None and self._tools[call.tool_name] > allowed:
                return Exceeded(
                    "tool_limit",
                    f"The turn was ended: it called {call.tool_name} more than {allowed} times.",
                )
            key = json.dumps([call.tool_name, call.input], sort_keys=True, default=str)
            self._same[key] += 1
            repeated = self.limits.same_call
            if repeated is not None and self._same[key] > repeated:
                return Exceeded(
                    "loop_detected",
                    f"The turn was ended: it called {call.tool_name} more than {repeated} times "
                    "with the same arguments.",
                )
        return None

    def step(self, tokens: int, cost: float | None) -> Exceeded | None:
        """Count a model request, after its answer."""
        self.tokens += tokens
        self.cost += cost or 0.0
        return self._spent()

    def _spent(self) -> Exceeded | None:
        limits, before = self.limits, self.before
        tokens, cost = before.tokens + self.tokens, before.cost + self.cost
        for code, spent, most, text in (
            ("tokens_limit", self.tokens, limits.tokens_per_turn, "The turn took {} tokens"),
            ("cost_limit", self.cost, limits.cost_per_turn, "The turn cost ${:.2f}"),
            ("tokens_limit", tokens, limits.tokens_per_session, "The session took {} tokens"),
            ("cost_limit", cost, limits.cost_per_session, "The session cost ${:.2f}"),
        ):
            if most is not None and spent >= most:
                return Exceeded(code, f"{text.format(spent)}, and its limit is {most}.")
        return None
