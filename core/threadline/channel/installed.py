"""The channel types that installed packages offer, by entry points; loaded only when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GROUP", "ChannelType", "channel_types", "installed_channels"]

GROUP = "threadline.channels"
_OURS = "threadline"


@dataclass(frozen=True, slots=True)
class ChannelType:
    """One offer of a package; ``problem`` says why it cannot be used."""

    name: str
    value: str
    distribution: str | None = None
    version: str | None = None
    problem: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return ``{name, value, distribution, version, problem?}``."""
        wire: dict[str, Any] = {
            "name": self.name,
            "value": self.value,
            "distribution": self.distribution,
            "version": self.version,
        }
        return wire if self.problem is None else wire | {"problem": self.problem}


def channel_types() -> dict[str, EntryPoint]:
    """Return the channel types that installed packages offer, by name, not yet imported.

    Of two with one name threadline's own counts, else the first on ``sys.path``.
    """
    return _chosen(_offers())


def installed_channels() -> list[ChannelType]:
    """Return every offer, imported to see whether it works, sorted by name."""
    offers = _offers()
    chosen = _chosen(offers)
    found = []
    for entry in offers:
        first = chosen[entry.name]
        problem = _problem(entry) if entry is first else _taken(first)
        dist = entry.dist
        name, version = (dist.name, dist.version) if dist is not None else (None, None)
        found.append(ChannelType(entry.name, entry.value, name, version, problem))
    return sorted(found, key=lambda type_: (type_.name, type_.problem is not None))


def _offers() -> list[EntryPoint]:
    offers = entry_points(group=GROUP)
    return sorted(offers, key=lambda entry: entry.dist is None or entry.dist.name != _OURS)


def _chosen(offers: Iterable[EntryPoint]) -> dict[str, EntryPoint]:
    chosen: dict[str, EntryPoint] = {}
    for entry in offers:
        chosen.setdefault(entry.name, entry)
    return chosen


def _taken(first: EntryPoint) -> str:
    owner = first.dist.name if first.dist is not None else first.value
    return f"the name is taken by {owner}: give the entry point another name."


def _problem(entry: EntryPoint) -> str | None:
    """Return why an entry point cannot be used, in a sentence; None when it can."""
    from threadline.channel.channel import Channel

    if entry.pattern.match(entry.value) is None:
        return f"is written as {entry.value!r}: write it as package.module:ClassName."
    try:
        offered = entry.load()
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        return f"cannot be imported: {type(error).__name__}{': ' if text else ''}{text}"
    if isinstance(offered, type) and issubclass(offered, Channel):
        return None
    if callable(offered) and not isinstance(offered, type):
        return None
    what = f"the class {offered.__name__}" if isinstance(offered, type) else type(offered).__name__
    return f"names {what}: it must name a subclass of Channel, or a function that makes one."
