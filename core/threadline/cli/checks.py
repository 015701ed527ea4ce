"""What a doctor found: whether all is well, what is not, and the fix of each problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from threadline.cli import exits, output

__all__ = ["Check", "clock_check", "report", "why"]

_STYLES = {"ok": "green", "problem": "bold red", "note": "yellow"}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``fix`` says what to do about a problem, or where to look for a note."""

    name: str
    state: Literal["ok", "problem", "note"]
    said: str
    fix: str = ""

    def to_wire(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return asdict(self)


def clock_check(date: str | None, now: datetime, *, whose: str, skew: int, fix: str) -> Check:
    """Compare the header ``Date`` of a server's answer with this machine's clock.

    ``skew`` is in seconds: how far they may be apart.
    """
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return Check("clock", "note", "The server does not say what time it is.")
    ahead = round((now - theirs).total_seconds())
    if abs(ahead) <= skew:
        return Check("clock", "ok", f"This machine's clock agrees with {whose}.")
    way = "ahead of" if ahead > 0 else "behind"
    said = f"This machine's clock is {abs(ahead)} seconds {way} {whose}."
    return Check("clock", "problem", said, fix)


def why(error: Exception) -> str:
    """Return why a connection failed; an error's own words may hold an address with a secret."""
    return str(getattr(error, "strerror", None) or type(error).__name__)


def report(checks: Sequence[Check], *, json: bool) -> int:
    """Write what was found; return the command's exit code, which is that of a problem if any."""
    good = all(check.state != "problem" for check in checks)
    if json:
        output.write_json({"ok": good, "checks": [check.to_wire() for check in checks]})
    else:
        output.write("\n".join(line for check in checks for line in _lines(check)))
    return exits.OK if good else exits.FAILED


def _lines(check: Check) -> list[str]:
    state = output.paint(check.state.ljust(8), _STYLES[check.state])
    fix = [f"{'':9}{check.fix}"] if check.fix else []
    return [f"{state} {check.name}: {check.said}", *fix]
