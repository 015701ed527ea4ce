"""What a pattern can find in the lines that a diff adds; no I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["RULES", "Finding", "Rule", "scan"]

Level = Literal["failure", "warning", "notice"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for; ``python`` says that it is looked for in Python alone."""

    name: str
    level: Level
    pattern: re.Pattern[str]
    message: str
    python: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the new file that a rule holds of.

    ``id`` is the same as long as the line's text is, wherever the line stands.
    """

    id: str
    rule: str
    level: Level
    path: str
    line: int
    message: str


_NAMES = r"(?:(?:api|access|auth|private|secret)_?key|token|secret|password|passwd)"
_SECRET = re.compile(
    rf"""(?i:\b[\w.]*{_NAMES}\b["']?\s*[:=]\s*(["'])(?!\1)[^"'\s]{{6,}}\1)"""
    r"|\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|xox[abp]-[\w-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)

RULES = (
    Rule(
        "secret",
        "failure",
        _SECRET,
        "This looks like a secret in the code: whoever can read the repository has it now. Read it "
        "from the environment, and replace the one that was committed.",
    ),
    Rule(
        "bare-except",
        "warning",
        re.compile(r"^\s*except\s*:"),
        "A bare `except:` also catches `KeyboardInterrupt` and `SystemExit`, and hides mistakes. "
        "Name the exceptions that are expected here.",
        python=True,
    ),
    Rule(
        "print",
        "notice",
        re.compile(r"^\s*print\("),
        "`print` is left over from trying things out, or should be a log line.",
        python=True,
    ),
    Rule(
        "todo",
        "notice",
        re.compile(r"\b(?:TODO|FIXME|XXX)\b"),
        "This says that something is missing. Do it now, or make it an issue and name that here.",
    ),
)


def scan(diff: str) -> list[Finding]:
    """Return what the rules find in the added lines of a unified diff, in its order.

    Raises ValueError when it is no diff.
    """
    return [
        Finding(_id(rule, path, text), rule.name, rule.level, path, line, rule.message)
        for path, line, text in added(diff)
        for rule in RULES
        if rule.pattern.search(text) and (path.endswith(".py") or not rule.python)
    ]


def _id(rule: Rule, path: str, text: str) -> str:
    return hashlib.sha256(f"{rule.name} {path} {text.strip()}".encode()).hexdigest()[:10]


def added(diff: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of each line that a diff adds."""
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    try:
        files = PatchSet(diff)
    except UnidiffParseError as error:
        raise ValueError(f"This is no diff: {error}") from None
    for file in files:
        for hunk in file:
            for line in hunk:
                if line.is_added and line.target_line_no is not None:
                    yield file.path, line.target_line_no, line.value.rstrip("\n")
