"""Who is asking, as an auth policy established it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LOCAL", "Principal"]


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller's identity.

    Two principals are the same when ``kind`` and ``id`` are. ``operator`` lets it read any session
    and delivery, never speak in them.
    """

    kind: str
    id: str
    name: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    operator: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """The identity as one string, for keys and comparisons."""
        return f"{self.kind}:{self.id}"

    def to_wire(self) -> dict[str, Any]:
        """Return ``{kind, id, name?, attributes?}`` as events record it."""
        wire: dict[str, Any] = {"kind": self.kind, "id": self.id}
        if self.name is not None:
            wire["name"] = self.name
        if self.attributes:
            wire["attributes"] = dict(self.attributes)
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Principal:
        """Read what :meth:`to_wire` wrote."""
        return cls(
            kind=str(wire.get("kind", "unknown")),
            id=str(wire.get("id", "unknown")),
            name=wire.get("name"),
            attributes=dict(wire.get("attributes") or {}),
        )


LOCAL = Principal(kind="local", id="local", name="local developer")
