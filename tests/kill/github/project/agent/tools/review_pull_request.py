"""What the agent may have posted beside its answers."""

from __future__ import annotations

from threadline_github import review_pull_request

__all__ = ["review_pull_request"]
