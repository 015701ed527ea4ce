"""An agent that answers every message, sometimes with a tool call first."""

from __future__ import annotations

from lib.answers import Answers

from threadline import Agent

agent = Agent(
    name="Answers",
    instructions="Answer.",
    harness=Answers(),
    max_running_turns=12,
    settle_seconds=2.0,
    drain_seconds=0.5,
)
