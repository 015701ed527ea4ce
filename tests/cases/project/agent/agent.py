"""The cases' agent, for a host in a process of its own."""

from tests.cases.harness import CaseHarness

from threadline import Agent
from threadline.clock import SystemClock

agent = Agent(
    name="case", instructions="Count.", harness=CaseHarness(SystemClock()), drain_seconds=1.0
)
