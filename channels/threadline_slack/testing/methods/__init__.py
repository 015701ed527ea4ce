"""The Web API methods, a module for each family; importing them fills the table."""

from __future__ import annotations

from threadline_slack.testing.methods import (
    agents,
    apps,
    chat,
    conversations,
    files,
    people,
    reactions,
    streams,
    views,
)
from threadline_slack.testing.table import METHODS

__all__ = ["METHODS"]

_FAMILIES = (agents, apps, chat, conversations, files, people, reactions, streams, views)
