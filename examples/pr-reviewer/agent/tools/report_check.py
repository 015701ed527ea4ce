"""The channel's own tool for the outcome of the check run."""

from threadline_github.outbound.tools import report_check

__all__ = ["report_check"]
