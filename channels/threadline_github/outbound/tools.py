"""Tools for an agent's ``agent/tools/``: a file there needs one line, an import from here.

They only say what is to be posted. The channel posts it where the conversation is, when the call is
recorded, so that it is there once whatever happens; that is why they count as reads, which agents
of strangers' pull requests have, too. In a session of another channel they have no effect.
"""

from __future__ import annotations

from typing import Literal

from threadline import tool
from threadline_github.outbound.results import (
    Annotation,
    Check,
    Conclusion,
    Finding,
    Labels,
    Review,
)

__all__ = ["report_check", "review_pull_request", "set_labels"]


@tool(effect="read")
async def review_pull_request(
    body: str = "",
    event: Literal["COMMENT", "APPROVE", "REQUEST_CHANGES"] = "COMMENT",
    comments: list[Finding] | None = None,
) -> Review:
    """Submit a review of the pull request of this conversation, with comments on its lines.

    Call it once, when all findings are known. What you say here need not be said again in the
    answer. An approval is a comment instead if there are new commits meanwhile, or the code is from
    a fork.

    Args:
        body: What the review says as a whole, in Markdown.
        event: COMMENT, unless the pull request is to be approved or its changes refused.
        comments: One for each finding, on a line that the diff shows.
    """
    return Review(body=body, event=event, comments=comments or [])


@tool(effect="read")
async def report_check(
    conclusion: Conclusion,
    title: str,
    summary: str,
    annotations: list[Annotation] | None = None,
) -> Check:
    """Report the outcome of a check on the commit that this conversation works on.

    Args:
        conclusion: success or failure; neutral when it neither passes nor fails.
        title: One line, for example "2 problems found".
        summary: What was looked at and found, in Markdown.
        annotations: One for each remark on lines of a file.
    """
    return Check(conclusion=conclusion, title=title, summary=summary, annotations=annotations or [])


@tool(effect="read")
async def set_labels(add: list[str] | None = None, remove: list[str] | None = None) -> Labels:
    """Put labels on the pull request or issue of this conversation, or take them off.

    Args:
        add: Names of labels to put on.
        remove: Names of labels to take off; one that is not on it is no error.
    """
    return Labels(add=add or [], remove=remove or [])
