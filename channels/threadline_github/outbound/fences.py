"""Where code stands in a Markdown text, line by line; no I/O.

https://github.github.com/gfm/#fenced-code-blocks
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt

__all__ = ["Fence", "code_lines", "fences", "normal"]

_LONGEST_INFO = 40
_QUOTE = re.compile(r"(?:[ \t]*>[ \t]?)*")


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block: its lines are from ``start``, which opens it, up to ``end``, exclusive.

    ``quote`` stands before each of its lines, then ``indent`` spaces.
    """

    start: int
    end: int
    marks: str
    info: str
    quote: str = ""
    indent: int = 0
    closed: bool = True

    @property
    def opening(self) -> str:
        """The line that opens it anew."""
        return f"{self.quote}{self.marks}{self.info[:_LONGEST_INFO]}\n"

    def closing(self, *, anew: bool = False) -> str:
        """Return the line that closes it, where it began or where it was opened anew."""
        return f"{self.quote}{'' if anew else ' ' * self.indent}{self.marks}"

    def shifted(self, line: str) -> str:
        """Return a line of it without the indentation that belongs to what is around it."""
        if self.quote or not self.indent:
            return line
        spaces = len(line) - len(line.lstrip(" "))
        return line[min(spaces, self.indent) :]


@functools.cache
def _parser() -> MarkdownIt:
    """Return a parser of blocks; what stands within a line does not matter here."""
    parser = MarkdownIt("commonmark", {"html": True})
    parser.core.ruler.disable("inline")
    return parser


def normal(text: str) -> str:
    """Return a text as GitHub takes it: its lines end in one character, and all can be encoded."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode()


def fences(text: str) -> list[Fence]:
    """Return the fenced blocks of a normal text, in order."""
    lines = text.split("\n")
    return [
        _fence(lines, token.map[0], token.map[1], token.markup, token.info)
        for token in _parser().parse(text)
        if token.type == "fence" and token.map is not None
    ]


def code_lines(text: str) -> frozenset[int]:
    """Return the lines of a normal text that are part of a block of code."""
    return frozenset(
        number
        for token in _parser().parse(text)
        if token.type in ("fence", "code_block") and token.map is not None
        for number in range(*token.map)
    )


def _fence(lines: Sequence[str], start: int, end: int, marks: str, info: str) -> Fence:
    first, last = lines[start], lines[min(end, len(lines)) - 1]
    before = first[: max(first.find(marks), 0)]
    quote = _QUOTE.match(before)[0]  # type: ignore[index]  # it matches the empty text
    ends = last.strip(" \t>")
    closed = end - 1 > start and len(ends) >= len(marks) and set(ends) == {marks[0]}
    return Fence(start, end, marks, info.strip(), quote, len(before) - len(quote), closed)
