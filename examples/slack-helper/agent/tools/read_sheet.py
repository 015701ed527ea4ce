"""A table that somebody posted: Slack's files are in the workspace before the turn begins."""

from __future__ import annotations

import csv
import io
from typing import Any

from threadline import ToolContext, tool

_BYTES = 1_000_000


@tool(effect="read")
async def read_sheet(path: str, ctx: ToolContext) -> dict[str, Any]:
    """Return the columns of a CSV file, its number of rows, and the sum of each column of numbers.

    Args:
        path: The file's place in the workspace, such as "slack/F123-costs.csv".
    """
    if ctx.workspace is None:
        raise ValueError("There is no workspace, so there is no file.")
    root = ctx.workspace.resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        raise ValueError(f"There is no file {path} in the workspace.")
    if file.stat().st_size > _BYTES:
        raise ValueError(f"{path} is larger than a megabyte.")
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8", "replace"))))
    columns = [name for name in (rows[0] if rows else {}) if name]
    sums = {name: _sum([row[name] for row in rows]) for name in columns}
    return {
        "path": path,
        "rows": len(rows),
        "columns": columns,
        "sums": {name: total for name, total in sums.items() if total is not None},
    }


def _sum(cells: list[str | None]) -> float | None:
    """Return the sum of a column; None when a cell is no number."""
    try:
        return round(sum(float(cell or "") for cell in cells), 2)
    except ValueError:
        return None
