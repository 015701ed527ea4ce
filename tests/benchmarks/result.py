"""One measured figure, held against its target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

__all__ = ["Plan", "Result", "table"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure: rounds, and a factor on the work of each."""

    rounds: int
    scale: float

    def of(self, count: int, least: int = 1) -> int:
        """Return a count of work."""
        return max(least, int(count * self.scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A figure; ``better`` tells which way is good, None that it is only reported."""

    row: str
    what: str
    value: float
    unit: Literal["×", "%", "s", "MB", ""]
    better: Literal["low", "high"] | None = None
    target: float | None = None
    stretch: float | None = None
    ours: str = ""
    baseline: str = ""

    @property
    def verdict(self) -> str:
        """``stretch``, ``meets``, ``misses`` or nothing."""
        if self.better is None or self.target is None:
            return ""
        sign = 1 if self.better == "low" else -1
        if self.stretch is not None and sign * self.value <= sign * self.stretch:
            return "stretch"
        return "meets" if sign * self.value <= sign * self.target else "misses"

    def __str__(self) -> str:
        """Return the figure as a line."""
        return f"  {self.what}: {self.shown(self.value)} {self.verdict}"

    def to_wire(self) -> dict[str, Any]:
        """Return the figure as JSON has it."""
        return asdict(self) | {"verdict": self.verdict}

    def shown(self, number: float | None) -> str:
        """Return a number with the unit of this figure."""
        if number is None:
            return ""
        sign = {"low": "≤ ", "high": "≥ ", None: ""}[self.better] if number != self.value else ""
        digits = 0 if self.unit == "%" or number >= 100 else 2
        return f"{sign}{number:.{digits}f} {self.unit}".strip()


def ratio(ours: Sequence[float], baseline: Sequence[float]) -> float:
    """Return the median over interleaved rounds of ours to the baseline."""
    return median(a / b for a, b in zip(ours, baseline, strict=True))


def table(results: Iterable[Result]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| # | what | target | stretch | measured | ours | baseline | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        cells = (
            result.row,
            result.what,
            result.shown(result.target),
            result.shown(result.stretch),
            result.shown(result.value),
            result.ours,
            result.baseline,
            result.verdict,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
