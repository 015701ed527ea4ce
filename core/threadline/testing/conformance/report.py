"""What came of the checks, as an author reads it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Report", "Result", "Verdict"]

Verdict = Literal["passed", "failed", "not applicable"]

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Result:
    """One check: what it proves, and ``detail``: why it failed, or what it would need."""

    id: str
    title: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """Every check of one channel; print it."""

    channel: str
    results: Sequence[Result]

    @property
    def passed(self) -> bool:
        """Whether no check failed; those that were not applicable prove nothing."""
        return not self.failed

    @property
    def failed(self) -> list[Result]:
        """The checks that failed."""
        return [result for result in self.results if result.verdict == "failed"]

    def result(self, check_id: str) -> Result:
        """Return one check's result; raises KeyError."""
        for result in self.results:
            if result.id == check_id:
                return result
        raise KeyError(check_id)

    def __str__(self) -> str:
        counts = Counter(result.verdict for result in self.results)
        said = ", ".join(f"{counts[v]} {v}" for v in ("passed", "failed", "not applicable"))
        seconds = sum(result.seconds for result in self.results)
        lines = [f"channel {self.channel}: {said} ({seconds:.1f} s)", ""]
        for result in self.results:
            lines += _lines(result)
        return "\n".join(lines)


def _lines(result: Result) -> list[str]:
    verdict = result.verdict.upper() if result.verdict == "failed" else result.verdict
    lines = [f"{verdict:<15} {result.id:<20} {result.title}"]
    for paragraph in result.detail.splitlines():
        lines += textwrap.wrap(
            paragraph,
            _WIDTH,
            initial_indent=" " * 16,
            subsequent_indent=" " * 16,
            break_on_hyphens=False,
        )
    return lines
