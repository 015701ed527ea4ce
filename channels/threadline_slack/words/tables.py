"""A table as lines of text whose columns stand under each other in a fixed-width font.

Widths are those of the display: a CJK character takes two columns, a combining mark none.
"""

from __future__ import annotations

from collections.abc import Sequence

from wcwidth import width

__all__ = ["layout"]

_WIDEST = 60  # columns; a longer cell juts out rather than padding every other row to its width


def layout(rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> list[str]:
    """Return one line a row, and a rule under the first; ``aligns`` are left, center or right.

    Every row has as many cells as there are ``aligns``; a cell holds no line break.
    """
    if not rows:
        return []
    widths = [
        max(1, *(min(width(row[column]), _WIDEST) for row in rows)) for column in range(len(aligns))
    ]
    lines = [_line(row, widths, aligns) for row in rows]
    return [lines[0], "-+-".join("-" * size for size in widths), *lines[1:]]


def _line(row: Sequence[str], widths: Sequence[int], aligns: Sequence[str]) -> str:
    cells = (_padded(*cell) for cell in zip(row, widths, aligns, strict=True))
    return " | ".join(cells).rstrip()


def _padded(cell: str, size: int, align: str) -> str:
    missing = max(0, size - width(cell))
    left = {"right": missing, "center": missing // 2}.get(align, 0)
    return " " * left + cell + " " * (missing - left)
