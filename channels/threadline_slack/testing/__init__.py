"""Test doubles for Slack. ``FakeSlack`` speaks to real clients; only aiohttp is needed for it."""

from __future__ import annotations

from threadline.testing.gates import CallGate
from threadline_slack.testing.api import Call
from threadline_slack.testing.faults import Fault
from threadline_slack.testing.interactions import Interaction
from threadline_slack.testing.model import (
    ALL_SCOPES,
    AgentThread,
    App,
    Channel,
    Install,
    Message,
    StoredFile,
    Stream,
    Team,
    User,
    View,
)
from threadline_slack.testing.outbound import Answer, Attempt, Delivery
from threadline_slack.testing.people import Bot, Person
from threadline_slack.testing.seeding import DEFAULTS
from threadline_slack.testing.slack import FakeSlack
from threadline_slack.testing.sockets import Socket
from threadline_slack.testing.state import Options

__all__ = [
    "ALL_SCOPES",
    "DEFAULTS",
    "AgentThread",
    "Answer",
    "App",
    "Attempt",
    "Bot",
    "Call",
    "CallGate",
    "Channel",
    "Delivery",
    "FakeSlack",
    "Fault",
    "Install",
    "Interaction",
    "Message",
    "Options",
    "Person",
    "Socket",
    "StoredFile",
    "Stream",
    "Team",
    "User",
    "View",
]
