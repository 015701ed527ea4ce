"""The agent of row 7: it says the question back."""

from __future__ import annotations

from threadline import Agent
from threadline.harness.scripted import Scripted

agent = Agent(name="Helper", instructions="Answer.", harness=Scripted(), max_running_turns=8)
