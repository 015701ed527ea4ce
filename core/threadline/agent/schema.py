"""JSON Schemas: how they are made of types, and where in one a time belongs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import core_schema

__all__ = ["Node", "Problem", "json_schema"]

_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_TIMES = ("date-time", "date")


class _Plain(GenerateJsonSchema):
    """JSON Schema without the titles that only repeat each field's name."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Leave what the schema cannot say, such as a default that is no JSON, unsaid."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave a field's title out unless its author set one."""
        return False

    def generate(self, schema: core_schema.CoreSchema, mode: Any = "validation") -> JsonSchemaValue:
        """Return the schema without the title of its root."""
        generated = super().generate(schema, mode)
        generated.pop("title", None)
        return generated


def json_schema(
    adapter: TypeAdapter[Any],
    *,
    mode: Literal["validation", "serialization"] = "validation",
    by_alias: bool = True,
) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    return adapter.json_schema(by_alias=by_alias, mode=mode, schema_generator=_Plain)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a value; ``path`` is such as ``items.0.count``, empty for all of it."""

    path: str
    message: str

    def to_wire(self) -> dict[str, str]:
        """Return ``{path, message}``."""
        return {"path": self.path, "message": self.message}


@dataclass(frozen=True)
class Node:
    """What a schema says of one value: ``parts`` are its alternatives, references resolved."""

    parts: tuple[Mapping[str, Any], ...] = ()
    definitions: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Node:
        """Return the root of a schema as pydantic generates it."""
        definitions = schema.get("$defs", {})
        return cls(tuple(_flat(schema, definitions, frozenset())), definitions)

    @cached_property
    def holds_time(self) -> bool:
        """True when the value is a time, or may hold one however deep."""
        return any(_holds_time(part, self.definitions, set()) for part in self.parts)

    @cached_property
    def properties(self) -> frozenset[str]:
        """The names that an object has of its own."""
        return frozenset(name for part in self.parts for name in part.get("properties", ()))

    def property(self, name: Any) -> Node | None:
        """Return what is said of one value of an object; None when nothing is."""
        return self._inner(
            part.get("properties", {}).get(name, part.get("additionalProperties"))
            for part in self.parts
        )

    def item(self, number: int) -> Node | None:
        """Return what is said of one item of an array; None when nothing is."""
        return self._inner(
            first[number]
            if number < len(first := part.get("prefixItems", ()))
            else part.get("items")
            for part in self.parts
        )

    def _inner(self, schemas: Iterator[Any]) -> Node | None:
        found = [schema for schema in schemas if isinstance(schema, Mapping)]
        flat = [part for schema in found for part in _flat(schema, self.definitions, frozenset())]
        return Node(tuple(flat), self.definitions) if found else None


def _flat(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], seen: frozenset[str]
) -> Iterator[Mapping[str, Any]]:
    yield schema
    name = _reference(schema)
    if name is not None and name not in seen:
        yield from _flat(definitions.get(name, {}), definitions, seen | {name})
    inner = [one for key in _ALTERNATIVES for one in schema.get(key, ())]
    for one in [*inner, schema.get("contentSchema")]:
        if isinstance(one, Mapping):
            yield from _flat(one, definitions, seen)


def _reference(schema: Mapping[str, Any]) -> str | None:
    reference = schema.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def _holds_time(schema: Any, definitions: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(schema, list):
        return any(_holds_time(one, definitions, seen) for one in schema)
    if not isinstance(schema, Mapping):
        return False
    if schema.get("format") in _TIMES:
        return True
    name = _reference(schema)
    if name is not None and name not in seen:
        seen.add(name)
        if _holds_time(definitions.get(name), definitions, seen):
            return True
    return any(_holds_time(one, definitions, seen) for one in schema.values())
