"""The code around a change, from the checkout of the pull request."""

from __future__ import annotations

from lib.workspace import text_of

from threadline import ToolContext, tool

_MOST = 400


@tool(effect="read")
async def read_file(path: str, ctx: ToolContext, first: int = 1, last: int = 200) -> str:
    """Return lines of a file of the pull request, with their numbers; at most 400 at once.

    Args:
        path: The file's path in the repository, such as "shop/checkout.py".
        first: The first line, from 1.
        last: The last line.
    """
    lines = text_of(ctx.workspace, path).splitlines()
    first = max(1, first)
    shown = lines[first - 1 : min(last, first + _MOST - 1)]
    numbered = [f"{number:5}  {line}" for number, line in enumerate(shown, first)]
    return "\n".join([*numbered, f"({path} has {len(lines)} lines.)"])
