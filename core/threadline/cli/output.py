"""What commands write: results to stdout, everything else to stderr; colour only on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "complain",
    "has_colour",
    "kept_clean",
    "note",
    "paint",
    "silence_stdout",
    "table",
    "write",
    "write_json",
]


def write(text: str) -> None:
    """Write a result and a newline to stdout, whole, before going on."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_json(value: Any, *, one_line: bool = False) -> None:
    """Write a JSON result; ``one_line`` for what a program reads line by line."""
    write(json.dumps(value, ensure_ascii=False, indent=None if one_line else 2, default=str))


def note(text: str) -> None:
    """Write progress to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def complain(text: str) -> None:
    """Write an error to stderr, each line on its own, in red on a terminal."""
    first, *rest = text.splitlines() or ["it failed."]
    note(f"{paint('threadline:', 'bold red', sys.stderr)} {first}")
    for line in rest:
        note(f"  {line}")


def has_colour(stream: TextIO) -> bool:
    """Tell whether a stream shows colour: a terminal that did not say otherwise."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text in a style of rich's, if the stream (stdout) shows colour."""
    if not text or not style or not has_colour(stream or sys.stdout):
        return text
    return styled(text, style)


def styled(text: str, style: str) -> str:
    """Return the text with the escape codes of a style; as it is without rich."""
    try:
        from rich.color import ColorSystem
        from rich.style import Style
    except ImportError:
        return text
    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows in aligned columns, nothing cut off."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()

    return "\n".join([paint(line(head), "bold"), *map(line, rows)])


@contextlib.contextmanager
def kept_clean() -> Iterator[None]:
    """Send what a project's code prints to stderr, so that stdout holds the result alone."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def silence_stdout() -> None:
    """After a reader went away: let the interpreter's last flush go nowhere, without a message."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
