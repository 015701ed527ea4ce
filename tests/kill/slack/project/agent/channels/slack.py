"""Slack, as the environment says."""

from __future__ import annotations

import os
from typing import Any

from threadline_slack import SlackChannel

REPLY: Any = os.environ.get("KILL_REPLY", "post")

channel = SlackChannel(reply=REPLY)
