"""A harness that picks the steps of a turn by its prompt: always the same for the same one."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from threadline.harness.base import Capabilities
from threadline.harness.scripted import Call, Fail, Reason, Say, Scripted, Step

if TYPE_CHECKING:
    from threadline.harness.base import Turn, TurnResult

_REPORT = {"kind": "report", "key": "latest", "title": "Latest", "content": "All is well."}
SCRIPTS: list[list[Step]] = [
    [Say("Nothing to do.")],
    [Reason("Let me see."), Call("lookup", {"item": "a", "count": 3}), Say("Found it.")],
    [Call("save", {"text": "a note"}), Say("Saved.")],
    [Call("restart", {"service": "checkout"}), Say("Restarted.")],
    [Call("lookup", {"item": "x" * 3_000, "count": 1}), Say("Much.")],
    [Call("tag_artifact", _REPORT), Say("Reported.")],
    [Say("Then "), Fail(ValueError("the model broke"))],
    [Call("broken"), Call("nothing"), Say("That did not work.")],
]


class Dice:
    """Plays each prompt's own script."""

    name = "dice"
    model = "dice-1"
    capabilities = Capabilities(workspace=True, parks=True)

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn."""
        steps = SCRIPTS[zlib.crc32(turn.prompt.text.encode()) % len(SCRIPTS)]
        return await Scripted(steps, model=self.model).run(turn)
