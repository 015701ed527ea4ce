"""An agent in Slack that answers every question with its number, sometimes after a tool call."""

from __future__ import annotations

from lib.answers import Answers

from threadline import Agent

agent = Agent(
    name="Answers",
    instructions="Answer.",
    harness=Answers(),
    max_running_turns=16,
    settle_seconds=2.0,
    drain_seconds=0.5,
)
