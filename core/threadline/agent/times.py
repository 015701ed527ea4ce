"""``as_of``: whether the times among a call's arguments are given, absolute and not later.

A time is a :class:`~datetime.datetime` or :class:`~datetime.date` wherever one occurs among the
validated arguments, and each argument, or field of one, that is declared as a time: by its type, by
``format: date-time`` or ``date`` in its schema, or in ``tool(time_arguments=…)``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from threadline.agent.schema import Node, Problem, json_schema

__all__ = ["time_problems", "timed"]

_ABSOLUTE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2}))?"
)
_NO_ZONE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+")
_INSTANT = TypeAdapter(datetime)
# Above this pydantic reads milliseconds, where a tool that reads seconds sees a far future.
_MOST_SECONDS = 2e10

_MISSING = "must be given"
_RELATIVE = "must be an absolute time such as 2025-01-31T12:00:00Z"
_NAIVE = "must name its timezone, as 2025-01-31T12:00:00Z does"
_LATER = "must not be later"
_UNFINISHED = "must not be later, and that day is not over"
_NUMBER = "must be in seconds since 1970 where it is a number"


def time_problems(
    arguments: BaseModel, value: Any, as_of: datetime, declared: Collection[str] = ()
) -> list[Problem]:
    """Return what keeps a call from running as of a time.

    ``arguments`` are the validated ones, which know what was given; ``value`` is the input as it
    came, for types that do not know; ``declared`` are the names in ``time_arguments``. What is
    declared must be given and hold at least one time. An instant must name its timezone, a date's
    whole day in UTC must be over. A text must be an ISO 8601 instant with a timezone, or a date; a
    number is read as seconds since 1970.
    """
    check = _Check(as_of.astimezone(UTC))
    return list(check.fields(arguments, _Place("", value), frozenset(declared)))


def timed(model: type[BaseModel], declared: Collection[str] = ()) -> list[str]:
    """Return the arguments that are or hold times, by their types or as declared."""
    slots = _slots(model).values()
    return [slot.names[0] for slot in slots if slot.timed or slot.names[0] in declared]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: what the input had there, and whether a time belongs there.

    ``forced``: everything in it is a time, whatever its type.
    """

    path: str
    raw: Any = None
    node: Node = dataclasses.field(default_factory=Node)
    timed: bool = False
    forced: bool = False

    def at(self, name: object) -> str:
        return f"{self.path}.{name}" if self.path else str(name)

    def inner(self, name: object, raw: Any, node: Node | None) -> _Place:
        """Return a place inside; what the schema says nothing of is as the whole is."""
        is_timed = self.timed if node is None else self.forced or node.holds_time
        return replace(self, path=self.at(name), raw=raw, node=node or Node(), timed=is_timed)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A field of a class: its names in the input, the one to show first, and what belongs there."""

    names: tuple[str, ...]
    timed: bool
    node: Node


class _Check:
    """Walks values, inputs and schemas side by side; ``as_of`` is in UTC."""

    def __init__(self, as_of: datetime) -> None:
        self.as_of = as_of

    def fields(
        self, value: Any, place: _Place, declared: Collection[str] = ()
    ) -> Iterator[Problem]:
        """Check the fields of a model or a dataclass."""
        raw = place.raw if isinstance(place.raw, Mapping) else {}
        kind: Any = type(value)
        for attribute, slot in _slots(kind).items():
            shown = slot.names[0]
            name = next((name for name in slot.names if name in raw), None)
            known = getattr(value, "model_fields_set", None)
            given = name is not None if known is None else attribute in known
            forced = place.forced or shown in declared
            is_timed = slot.timed or forced
            if is_timed and not given:
                yield Problem(place.at(shown), _MISSING)
                continue
            inner = _Place(place.at(shown), raw.get(name), slot.node, is_timed, forced)
            yield from self.value(getattr(value, attribute, None), inner)
        for name, item in (getattr(value, "model_extra", None) or {}).items():
            inner = _Place(place.at(name), raw.get(name), Node(), place.forced, place.forced)
            yield from self.value(item, inner)

    def value(self, value: Any, place: _Place) -> Iterator[Problem]:
        """Check one value and what it holds."""
        match value:
            case None if place.timed:
                yield Problem(place.path, _MISSING)
            case date():
                yield from self._moment(value, place)
            case Enum():
                yield from self.value(value.value, place)
            case RootModel():
                yield from self.value(value.root, place)
            case BaseModel():
                yield from self.fields(value, place)
            case _ if dataclasses.is_dataclass(value):
                yield from self.fields(value, place)
            case Mapping():
                yield from self._mapping(value, place)
            case Collection() if not isinstance(value, (str, bytes, bytearray)):
                yield from self._items(value, place)
            case _ if place.timed:
                yield from self._stand_in(value, place)

    def _mapping(self, value: Mapping[Any, Any], place: _Place) -> Iterator[Problem]:
        if place.timed and not value:
            yield Problem(place.path, _MISSING)
            return
        raw = place.raw if isinstance(place.raw, Mapping) else {}
        for name in sorted(place.node.properties):
            inner = place.inner(name, None, place.node.property(name))
            if inner.timed and name not in value:
                yield Problem(inner.path, _MISSING)
        for key, item in value.items():
            yield from self.value(key, _Place(place.at(key)))
            yield from self.value(item, place.inner(key, raw.get(key), place.node.property(key)))

    def _items(self, value: Collection[Any], place: _Place) -> Iterator[Problem]:
        if place.timed and not value:
            yield Problem(place.path, _MISSING)
        names = getattr(value, "_fields", ())
        for number, item in enumerate(value):
            given, raw = _in_list(place.raw, number)
            if number < len(names) and isinstance(place.raw, Mapping):
                given, raw = names[number] in place.raw, place.raw.get(names[number])
            inner = place.inner(number, raw, place.node.item(number))
            if names and inner.timed and not given:
                yield Problem(inner.path, _MISSING)
            else:
                yield from self.value(item, inner)

    def _stand_in(self, value: Any, place: _Place) -> Iterator[Problem]:
        """Check what stands where a time belongs, and is none."""
        moment: date | None = None
        why = _RELATIVE
        match value:
            case str() if _ABSOLUTE.fullmatch(value):
                moment = _read(value)
            case str() if _NO_ZONE.fullmatch(value):
                why = _NAIVE
            case int() | float() | Decimal() if not isinstance(value, bool):
                moment, why = _since_1970(value), _NUMBER
        if moment is None:
            yield Problem(place.path, why)
        else:
            yield from self._moment(moment, place)

    def _moment(self, value: date, place: _Place) -> Iterator[Problem]:
        if not isinstance(value, datetime):
            if value >= self.as_of.date():
                yield Problem(place.path, _UNFINISHED)
        elif value.utcoffset() is None:
            yield Problem(place.path, _NAIVE)
        elif value > self.as_of:
            yield Problem(place.path, _LATER)


def _in_list(raw: Any, number: int) -> tuple[bool, Any]:
    given = isinstance(raw, list) and number < len(raw)
    return given, raw[number] if given else None


def _read(text: str) -> date | None:
    try:
        return datetime.fromisoformat(text) if len(text) > 10 else date.fromisoformat(text)
    except ValueError:
        return None


def _since_1970(number: float | Decimal) -> datetime | None:
    try:
        return _INSTANT.validate_python(number) if number <= _MOST_SECONDS else None
    except (ValidationError, ArithmeticError):
        return None


# Classes


@functools.lru_cache(maxsize=512)
def _slots(cls: Any) -> Mapping[str, _Slot]:
    """Return the fields of a model or a dataclass, by attribute."""
    node = Node.of(json_schema(TypeAdapter(cls), by_alias=False))
    slots: dict[str, _Slot] = {}
    for attribute, (names, hint) in _fields(cls).items():
        inner = node.property(attribute) or Node()
        is_timed = hint is not None and (inner.holds_time or _is_time(hint))
        slots[attribute] = _Slot(names, is_timed, inner)
    return slots


def _fields(cls: type[Any]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Return each field's names in the input, and its type unless no input can set it."""
    described = getattr(cls, "__pydantic_fields__", None)
    if described is not None:
        return {
            name: (
                _names(name, info.validation_alias, info.alias),
                info.annotation if info.init is not False else None,
            )
            for name, info in described.items()
        }
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError:  # Named only where annotations are checked; pydantic knew it all the same.
        hints = {}
    return {
        found.name: ((found.name,), hints.get(found.name, Any) if found.init else None)
        for found in dataclasses.fields(cls)
    }


def _names(name: str, *aliases: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(alias for alias in aliases if isinstance(alias, str)), name]))


def _is_time(hint: Any) -> bool:
    """Tell whether a type names a time; its schema may hide that."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return issubclass(hint, date)
    return any(map(_is_time, typing.get_args(hint)))
