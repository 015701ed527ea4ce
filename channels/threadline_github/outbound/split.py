"""A long Markdown text in several comments: nothing is lost, no block of code is torn; no I/O."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from threadline_github.outbound.fences import Fence, fences, normal
from threadline_github.outbound.markers import ROOM

__all__ = ["BODY", "split"]

BODY = 65_536
"""The characters that GitHub takes in the body of a comment or review."""
_LEAST = 200
_LONGEST_CHARACTER = 30
_JOINER = "\u200d"


_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line with its end, or a piece of one that is too long.

    ``torn`` is the fence that a cut behind it tears; ``ends_paragraph``: it is blank and outside of
    code, so that a cut behind it is welcome.
    """

    text: str
    torn: Fence | None = None
    ends_paragraph: bool = False


def split(markdown: str, limit: int = BODY - ROOM) -> list[str]:
    """Return the parts, each of at most so many characters; none for a blank text.

    A part ends between paragraphs where one does in its second half, else between lines, else
    within one. Code that goes on is closed and opened again, and code that nobody closed is closed.
    Raises ValueError for a limit under 200.
    """
    if limit < _LEAST:
        raise ValueError(f"A limit of {limit} has no room for a block of code.")
    lines = list(_lines(normal(markdown), limit // 2))
    parts = []
    start = 0
    while start < len(lines):
        end = _end(lines, start, limit)
        parts.append(_part(lines, start, end))
        start = end
    return [part for part in parts if part.strip()]


def _lines(text: str, longest: int) -> Iterator[_Line]:
    """Yield the lines, those that are too long in pieces."""
    lines: list[str] = _LINE.findall(text)
    torn: dict[int, Fence] = {}
    code: set[int] = set()
    for fence in fences(text):
        open_at_end = not fence.closed and fence.end >= len(lines)
        torn.update(dict.fromkeys(range(fence.start, fence.end - (not open_at_end)), fence))
        code.update(range(fence.start, fence.end))
    for number, line in enumerate(lines):
        *pieces, last = _pieces(line, longest)
        for piece in pieces:
            yield _Line(piece, torn.get(number - 1) if number in code else None)
        yield _Line(last, torn.get(number), not line.strip() and number not in code)


def _pieces(line: str, longest: int) -> Iterator[str]:
    """Yield a line, cut behind spaces where there are any in the second half of a piece."""
    while len(line) > longest:
        space = line.rfind(" ", longest // 2, longest)
        at = _whole(line, longest) if space < 0 else space + 1
        yield line[:at]
        line = line[at:]
    yield line


def _whole(line: str, at: int) -> int:
    """Return a place near this one where a character does not belong to the one before it."""
    for place in range(at, at - _LONGEST_CHARACTER, -1):
        joined = unicodedata.category(line[place]).startswith("M") or line[place] == _JOINER
        if not joined and line[place - 1] != _JOINER:
            return place
    return at


def _end(lines: list[_Line], start: int, limit: int) -> int:
    """Return where the part that begins here ends: the best place that fits."""
    opened = _opened(lines, start)
    size = len(opened.opening) if opened is not None else 0
    best = start + 1
    best_line = best_paragraph = 0
    for at in range(start, len(lines)):
        line = lines[at]
        size += len(line.text)
        if size + len(_closing(line, opened)) > limit:
            return best_paragraph or best_line or best
        best = at + 1
        if line.torn is None and size >= limit // 2:
            best_line = best
            best_paragraph = best if line.ends_paragraph else best_paragraph
    return len(lines)


def _part(lines: list[_Line], start: int, end: int) -> str:
    opened = _opened(lines, start)
    closing = _closing(lines[end - 1], opened)
    if opened is None:
        body = "".join(line.text for line in lines[start:end]).lstrip("\n")
        return body + closing if closing else body.rstrip()
    body, inside = opened.opening, True
    for line in lines[start:end]:
        body += opened.shifted(line.text) if inside else line.text
        inside = inside and line.torn is opened
    return body + closing if closing else body.rstrip()


def _opened(lines: list[_Line], start: int) -> Fence | None:
    """Return the code that goes on in the part that begins here."""
    return lines[start - 1].torn if start else None


def _closing(last: _Line, opened: Fence | None) -> str:
    """Return what closes the code that a cut behind a line tears."""
    if last.torn is None:
        return ""
    closing = last.torn.closing(anew=last.torn is opened)
    return closing if last.text.endswith("\n") else f"\n{closing}"
