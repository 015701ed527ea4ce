"""An agent whose every turn asks for two approvals."""

from __future__ import annotations

from threadline import Agent
from threadline.harness.scripted import Call, Say, Scripted

agent = Agent(
    name="Careful",
    instructions="Restart, then stamp.",
    harness=Scripted([Call("restart"), Call("stamp"), Say("Done.")]),
    max_running_turns=2,
    drain_seconds=0.3,
)
