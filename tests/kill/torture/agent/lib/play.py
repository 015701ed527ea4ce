"""A harness that calls the tool that the prompt names: ``TOOL {"json": "input"}``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from threadline.harness.base import Capabilities
from threadline.harness.scripted import Call, Scripted

if TYPE_CHECKING:
    from threadline.harness.base import Turn, TurnResult


class Play:
    """Plays one tool call a turn, or none when the prompt names no tool."""

    name = "play"
    model = None
    capabilities = Capabilities(workspace=True)

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        name, _, text = turn.prompt.text.partition(" ")
        known = {tool.name for tool in turn.tools}
        script = [Call(name, json.loads(text or "{}"))] if name in known else []
        return await Scripted(script).run(turn)
