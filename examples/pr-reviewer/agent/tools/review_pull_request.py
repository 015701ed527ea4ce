"""The channel's own tool for a review with comments on lines."""

from threadline_github.outbound.tools import review_pull_request

__all__ = ["review_pull_request"]
