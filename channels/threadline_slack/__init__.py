"""The Slack channel."""

from __future__ import annotations

from threadline_slack.channel import SlackChannel
from threadline_slack.inbound.downloads import Limits
from threadline_slack.inbound.watch import watch
from threadline_slack.interaction.acting import InteractionContext
from threadline_slack.interaction.forms import Interaction
from threadline_slack.message import SlackMessage

__all__ = ["Interaction", "InteractionContext", "Limits", "SlackChannel", "SlackMessage", "watch"]
