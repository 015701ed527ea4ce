"""An agent in a Slack on this machine, for people without a workspace."""

from __future__ import annotations
