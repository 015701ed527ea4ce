"""Which artifacts an agent makes: their kinds, and what each kind's data must be."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError

from threadline.agent.output import to_json
from threadline.errors import InvalidRequest

__all__ = ["Artifacts", "Kind", "is_line"]

MAX_NAME = 100
MAX_DATA = 256 * 1024
MEGABYTE = 1_000_000
_MOST_PROBLEMS = 10
_UNFIT = ("Cc", "Cs", "Zl", "Zp")


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of artifact.

    ``description`` tells people, and the model, what it is. ``schema`` is a pydantic model, a
    dataclass, a TypedDict or another type that ``data`` must fit; its parsed value is stored, with
    defaults and coercions.

    Raises ValueError.
    """

    description: str
    schema: Any = None

    def __post_init__(self) -> None:
        if not (isinstance(self.description, str) and self.description.strip()):
            raise ValueError("Kind(description=…) must be a text that is not empty.")
        try:
            _ = self.json_schema
        except (PydanticUserError, NameError, TypeError) as error:
            name = getattr(self.schema, "__name__", None) or repr(self.schema)
            raise ValueError(
                f"Kind(schema={name}): no JSON value can be read into this type: "
                f"{str(error).splitlines()[0]}"
            ) from error

    @cached_property
    def adapter(self) -> TypeAdapter[Any] | None:
        """What validates ``data``."""
        return None if self.schema is None else TypeAdapter(self.schema)

    @cached_property
    def json_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of ``data``."""
        return None if self.adapter is None else self.adapter.json_schema()

    def parse(self, data: Any) -> Any:
        """Return the JSON value that is stored of a tag's ``data``; None counts as an empty object.

        Raises ValueError with a sentence for each problem.
        """
        if self.adapter is None:
            return to_json(data)
        try:
            value = self.adapter.validate_python({} if data is None else data)
            return to_json(self.adapter.dump_python(value, mode="json", by_alias=True))
        except ValidationError as error:
            raise ValueError(_explained(error)) from None
        except PydanticSerializationError as error:
            raise ValueError(str(error)) from None


def _explained(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        f"{'.'.join(str(part) for part in p['loc'])}: {p['msg']}" if p["loc"] else p["msg"]
        for p in problems[:_MOST_PROBLEMS]
    ]
    return "; ".join(shown)


@dataclass(frozen=True, eq=False, kw_only=True)
class Artifacts:
    """What artifacts an agent has; ``agent/artifacts.py`` declares one as ``artifacts``.

    ``kinds`` by name: with some declared, others are refused; with none, any name is fine.
    ``agent_tool`` gives the model the tool ``tag_artifact``; it needs a kind. ``max`` is how many
    artifacts the agent keeps: then the oldest-updated goes. ``max_bytes`` limits one content.

    Raises ValueError.
    """

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    agent_tool: bool = False
    max: int = 1000
    max_bytes: int = 100 * MEGABYTE

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, Mapping):
            raise ValueError("Artifacts(kinds=…) must map a kind's name to a Kind.")
        for name, kind in self.kinds.items():
            if not is_line(name, MAX_NAME):
                raise ValueError(
                    f"Artifacts(kinds=…): {name!r} cannot name a kind; use 1 to {MAX_NAME} "
                    "characters in one line."
                )
            if not isinstance(kind, Kind):
                raise ValueError(f'Artifacts(kinds=…): "{name}" must be a Kind("…description…").')
        if not isinstance(self.agent_tool, bool):
            raise ValueError("Artifacts(agent_tool=…) must be True or False.")
        if self.agent_tool and not self.kinds:
            raise ValueError("Artifacts(agent_tool=True) needs at least one kind: declare kinds=….")
        for option in ("max", "max_bytes"):
            count = getattr(self, option)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(
                    f"Artifacts({option}=…) must be a whole number from 1, not {count!r}."
                )

    def parse(self, kind: Any, data: Any) -> Any:
        """Return the JSON value that is stored of a tag's ``data``; raises InvalidRequest."""
        if not is_line(kind, MAX_NAME):
            raise InvalidRequest(
                f"An artifact's kind is 1 to {MAX_NAME} characters in one line, not {kind!r:.100}."
            )
        if self.kinds and kind not in self.kinds:
            raise InvalidRequest(
                f'There is no kind of artifact "{kind}". There are: {", ".join(self.kinds)}.'
            )
        try:
            parsed = self.kinds[kind].parse(data) if self.kinds else to_json(data)
        except ValueError as error:
            raise InvalidRequest(f'The data of "{kind}" is not valid. {error}.') from None
        try:
            size = len(orjson.dumps(parsed))
        except TypeError as error:
            raise InvalidRequest(f'The data of "{kind}" cannot be stored: {error}.') from None
        if size > MAX_DATA:
            raise InvalidRequest(
                f"An artifact's data has at most {MAX_DATA:,} bytes as JSON, not {size:,}. Store "
                "what is larger as its content."
            )
        return parsed

    def to_wire(self) -> dict[str, Any]:
        """Return what discovery says of it."""
        kinds = [
            {"name": name, "description": kind.description}
            | ({} if kind.json_schema is None else {"schema": kind.json_schema})
            for name, kind in self.kinds.items()
        ]
        return {"kinds": kinds, "agentTool": self.agent_tool, "max": self.max}


def is_line(text: Any, most: int) -> bool:
    """Tell whether a value is a line of text of at most so many characters, and not blank."""
    if not isinstance(text, str) or len(text) > most or not text.strip():
        return False
    return all(unicodedata.category(character) not in _UNFIT for character in text)
