"""The Slack channel."""

from __future__ import annotations

from threadline_slack.acting import InteractionContext
from threadline_slack.channel import SlackChannel
from threadline_slack.downloads import Limits
from threadline_slack.forms import Interaction
from threadline_slack.message import SlackMessage
from threadline_slack.watch import watch

__all__ = ["Interaction", "InteractionContext", "Limits", "SlackChannel", "SlackMessage", "watch"]
