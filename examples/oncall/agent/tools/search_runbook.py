"""What to do, as the team wrote it down."""

from __future__ import annotations

from typing import Any

from lib.records import pause, runbooks

from threadline import tool


@tool(effect="read")
async def search_runbook(query: str) -> dict[str, Any]:
    """Return the runbooks that fit the words of a query, the best first.

    Args:
        query: A few words, such as "checkout latency" or "roll back".
    """
    await pause(0.4)
    words = {word.strip(".,?!\"'").lower() for word in query.split()}
    ranked = sorted(
        ((runbook.score(words), runbook) for runbook in runbooks()),
        key=lambda ranked: (-ranked[0], ranked[1].title),
    )
    return {
        "query": query,
        "matches": [
            {"title": runbook.title, "file": runbook.file, "steps": runbook.steps}
            for score, runbook in ranked[:2]
            if score
        ],
    }
