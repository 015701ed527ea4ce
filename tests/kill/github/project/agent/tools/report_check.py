"""What the agent may have posted beside its answers."""

from __future__ import annotations

from threadline_github import report_check

__all__ = ["report_check"]
