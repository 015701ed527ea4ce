"""Where a line stands in a diff, which the server counts and GitHub does not; no I/O.

The line below a file's first ``@@`` is at position 1; later headers of hunks count too.
https://docs.github.com/en/rest/pulls/reviews
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

__all__ = ["Spot", "by_line", "by_position", "positions"]

Spot: TypeAlias = tuple[str, str, int]
"""A path, ``RIGHT`` or ``LEFT``, and a line."""


def positions(diff: str) -> dict[Spot, int]:
    """Return the position of each line that a comment can stand on."""
    from unidiff.patch import PatchSet

    found: dict[Spot, int] = {}
    for patch in PatchSet(diff, metadata_only=False):
        lines = [line for hunk in patch for line in hunk if line.diff_line_no is not None]
        first = min((line.diff_line_no or 0 for line in lines), default=0)
        for line in lines:
            position = (line.diff_line_no or 0) - first + 1
            for side, number in (("RIGHT", line.target_line_no), ("LEFT", line.source_line_no)):
                if number is not None:
                    found[patch.path, side, number] = position
    return found


def by_position(
    comments: Iterable[Mapping[str, Any]], known: Mapping[Spot, int]
) -> list[dict[str, Any]] | None:
    """Return the comments of a review with positions; None when one stands outside the diff."""
    found = []
    for comment in comments:
        spot = (comment.get("path"), comment.get("side", "RIGHT"), comment.get("line"))
        position = comment.get("position") or known.get(spot)  # type: ignore[arg-type]
        if position is None:
            return None
        found.append({"path": spot[0], "body": comment.get("body"), "position": position})
    return found


def by_line(comment: Mapping[str, Any], known: Mapping[Spot, int]) -> dict[str, Any]:
    """Return a comment with its line, where the server gives its position alone."""
    if comment.get("line") is not None:
        return dict(comment)
    for side in ("RIGHT", "LEFT"):
        for (path, of, line), position in known.items():
            if (path, of, position) == (comment.get("path"), side, comment.get("position")):
                return {**comment, "line": line, "original_line": line, "side": side}
    return dict(comment)
