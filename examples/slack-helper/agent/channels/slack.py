"""Slack: mentions, direct messages and threads. The tokens come from the environment."""

from threadline_slack import SlackChannel

channel = SlackChannel()
