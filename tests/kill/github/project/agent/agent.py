"""An agent at GitHub that answers every question by its name, and reviews now and then."""

from __future__ import annotations

from lib.answers import Answers

from threadline import Agent

agent = Agent(
    name="Answers",
    instructions="Answer.",
    harness=Answers(),
    max_running_turns=32,
    settle_seconds=2.0,
    drain_seconds=0.5,
)
