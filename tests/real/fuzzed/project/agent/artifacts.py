"""What the turns tag."""

from __future__ import annotations

from threadline import Artifacts, Kind

artifacts = Artifacts(
    kinds={"report": Kind("What happened."), "note": Kind("A note.")}, agent_tool=True, max=200
)
