"""The GitHub channel: pull requests and issues as conversations."""

from __future__ import annotations

from threadline_github.channel import GitHubChannel
from threadline_github.outbound.results import Annotation, Check, Finding, Labels, Review
from threadline_github.outbound.tools import report_check, review_pull_request, set_labels

__all__ = [
    "Annotation",
    "Check",
    "Finding",
    "GitHubChannel",
    "Labels",
    "Review",
    "report_check",
    "review_pull_request",
    "set_labels",
]
