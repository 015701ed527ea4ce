"""The first thing that a review does: what patterns find in the added lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lib.scan import scan
from lib.workspace import DIFF, text_of

from threadline import ToolContext, tool


@tool(effect="read")
async def scan_diff(ctx: ToolContext) -> dict[str, Any]:
    """Return what patterns find in the lines that the pull request adds, with path and line.

    They look for secrets, bare excepts, prints and notes that something is missing. A finding has
    the id that it had in an earlier review when its line is still the same.
    """
    findings = scan(text_of(ctx.workspace, DIFF))
    return {"findings": [asdict(finding) for finding in findings]}
