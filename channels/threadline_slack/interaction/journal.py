"""What people did and is not done yet: durable before Slack is answered, done again after a crash.

Slack sends an interaction once, so nobody else remembers it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from threadline_slack.interaction.forms import Interaction

if TYPE_CHECKING:
    from threadline.channel.context import KeyValues

__all__ = ["Journal"]

_KEY = "interactions"
_DONE = 500
_ATTEMPTS = 3


class Journal:
    """The open interactions, and the ids of those done last, under one key of the store."""

    def __init__(self) -> None:
        self._kv: KeyValues | None = None
        self._open: dict[str, dict[str, Any]] = {}
        self._done: OrderedDict[str, None] = OrderedDict()

    async def load(self, kv: KeyValues) -> tuple[list[Interaction], list[Interaction]]:
        """Begin; return what an earlier process left open, and what was tried often enough."""
        self._kv = kv
        kept = await kv.get(_KEY) or {}
        self._done = OrderedDict.fromkeys(kept.get("done", ()))
        self._open = {}
        found, tried = [], []
        for identity, entry in kept.get("open", {}).items():
            interaction = _read(entry)
            if interaction is not None and entry["attempts"] < _ATTEMPTS:
                self._open[identity] = entry | {"attempts": entry["attempts"] + 1}
                found.append(interaction)
            elif interaction is not None:
                tried.append(interaction)
        if kept.get("open"):
            await self._save()
        return found, tried

    async def begin(self, interaction: Interaction) -> bool:
        """Keep it durably; False when it is known, and then as durable as it was."""
        identity = interaction.id
        if identity in self._done:
            return False
        fresh = identity not in self._open
        if fresh:
            self._open[identity] = {"interaction": interaction.to_wire(), "attempts": 1}
        try:
            await self._save()
        except BaseException:
            if fresh:
                self._open.pop(identity, None)
            raise
        return fresh

    async def end(self, interaction: Interaction) -> None:
        """It is done: forget all of it but its id."""
        if self._open.pop(interaction.id, None) is None:
            return
        self._done[interaction.id] = None
        while len(self._done) > _DONE:
            self._done.popitem(last=False)
        await self._save()

    async def _save(self) -> None:
        if self._kv is None:
            raise RuntimeError("The channel has not been started.")
        await self._kv.put(_KEY, {"open": self._open, "done": list(self._done)})


def _read(entry: Mapping[str, Any]) -> Interaction | None:
    try:
        return Interaction.from_wire(entry["interaction"])
    except (KeyError, TypeError):
        return None
