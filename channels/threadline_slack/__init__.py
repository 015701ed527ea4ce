"""The Slack channel."""

from __future__ import annotations

from threadline_slack.channel import SlackChannel

__all__ = ["SlackChannel"]
