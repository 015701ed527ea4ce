"""An agent whose turns differ by their prompt, and always in the same way for the same prompt."""

from __future__ import annotations

from lib.busy import Busy

from threadline import Agent

agent = Agent(
    name="Busy",
    instructions="Do what the message's hash says.",
    harness=Busy(),
    max_running_turns=12,
    settle_seconds=2.0,
    drain_seconds=0.3,
)
