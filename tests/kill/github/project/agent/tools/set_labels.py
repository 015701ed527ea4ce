"""What the agent may have posted beside its answers."""

from __future__ import annotations

from threadline_github import set_labels

__all__ = ["set_labels"]
