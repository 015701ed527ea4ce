"""What an endpoint offers and answers, in our own words; the library's are in ``server``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from threadline.errors import InvalidRequest
from threadline.harness.base import Attachment

if TYPE_CHECKING:
    from threadline.channel.context import Context
    from threadline_mcp.exchange import Exchange

__all__ = [
    "Arguments",
    "Offer",
    "Outcome",
    "Part",
    "Result",
    "Surface",
    "as_text",
    "parsed",
    "schema_of",
]

A = TypeVar("A", bound="Arguments")

# A text, an image or file, or a resource that is named or quoted.
Part: TypeAlias = str | Attachment | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Offer:
    """One MCP tool; the schemas are JSON Schema, that of the output of an object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    reads: bool = False
    destroys: bool = False
    repeatable: bool = False
    open_world: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: an object for programs, and what a reader sees of it.

    ``content`` is the object as JSON when it is empty. An error has a ``code``, and no object.
    """

    value: Mapping[str, Any] | None = None
    content: Sequence[Part] = ()
    code: str | None = None


class Surface(Protocol):
    """What one endpoint is for."""

    def offers(self, ctx: Context) -> list[Offer]:
        """Return the tools that there are."""

    async def call(self, exchange: Exchange, name: str, arguments: Any) -> Outcome:
        """Call one that is offered."""


class Arguments(BaseModel):
    """The arguments of one MCP tool: camelCase, and no others."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", allow_inf_nan=False)


class Result(BaseModel):
    """The object that an MCP tool gives; later versions may say more."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    def outcome(self) -> Outcome:
        """Return it as what came of the call."""
        return Outcome(self.model_dump(by_alias=True, exclude_none=True))


def as_text(output: Any) -> str:
    """Return a JSON value for a reader of text; a text is itself."""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def parsed(model: type[A], arguments: Any) -> A:
    """Validate arguments; raises InvalidRequest with a sentence that a model can act on."""
    try:
        return TypeAdapter(model).validate_python({} if arguments is None else arguments)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in p['loc']) or 'arguments'}: {p['msg']}"
            for p in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidRequest("The arguments are not valid. " + "; ".join(problems) + ".") from None


class _Plain(GenerateJsonSchema):
    """Without titles, and without the null that an argument may be left out with."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave titles out."""
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Leave null out."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave a default of null out."""
        inner = self.generate_inner(schema["schema"])
        default = schema.get("default")
        return inner if default is None else {**inner, "default": default}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of what is read as arguments, or written as a result."""
    mode: JsonSchemaMode = "serialization" if issubclass(model, Result) else "validation"
    schema = model.model_json_schema(schema_generator=_Plain, mode=mode)
    return {key: value for key, value in schema.items() if key not in ("title", "description")}
