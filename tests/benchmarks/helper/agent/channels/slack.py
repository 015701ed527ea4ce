"""Slack, as the environment says."""

from __future__ import annotations

from threadline_slack import SlackChannel

channel = SlackChannel()
