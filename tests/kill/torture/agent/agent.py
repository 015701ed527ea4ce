"""An agent whose tools do everything that a tool must not do."""

from __future__ import annotations

import os

from lib.play import Play
from lib.torture import TOOLS

from threadline import Agent
from threadline.agent import watchdog

watchdog.BLOCK_SECONDS = float(os.environ.get("TORTURE_BLOCK", "5"))

agent = Agent(
    name="Torture",
    instructions="Call the tool that the message names.",
    harness=Play(),
    tools=TOOLS,
    settle_seconds=float(os.environ.get("TORTURE_SETTLE", "3")),
    drain_seconds=0.2,
)
