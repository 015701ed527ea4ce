"""An agent whose turns do something of everything, chosen by the prompt."""

from __future__ import annotations

from lib.dice import Dice

from threadline import Agent

agent = Agent(
    name="Fuzzed",
    description="Does something of everything.",
    instructions="Do what the dice say.",
    harness=Dice(),
    max_running_turns=16,
    settle_seconds=1.0,
    drain_seconds=0.5,
    blob_threshold=2_000,
)
