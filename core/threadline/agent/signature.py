"""A tool's signature: its arguments as a model, its schemas, and what its docstring says."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from threadline.agent.context import ToolContext
from threadline.agent.schema import json_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["OutputType", "Signature", "is_context", "read_docstring", "resolve"]

_ARGUMENT_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters):[ \t]*\n(?P<body>(?:(?:[ \t].*)?(?:\n|\Z))*)", re.M
)
_ARGUMENT = re.compile(r"^(\w+)[ \t]*(?:\([^)\n]*\))?:(.*(?:\n[ \t]+.*|\n(?=[ \t]*\n))*)", re.M)
_PARAM_FIELD = re.compile(r"^:param[ \t]+(?:[^\s:]+[ \t]+)?(\w+):(.*(?:\n[ \t]+.*)*)\n?", re.M)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into what describes the tool and a note for each argument it documents."""
    notes: dict[str, str] = {}
    for section in _ARGUMENT_SECTION.finditer(text):
        entries = _ARGUMENT.findall(textwrap.dedent(section["body"]))
        notes.update({name: " ".join(note.split()) for name, note in entries})
    text = _ARGUMENT_SECTION.sub("", text)
    notes.update({name: " ".join(note.split()) for name, note in _PARAM_FIELD.findall(text)})
    text = _PARAM_FIELD.sub("", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip(), notes


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's arguments as a model; ``fields`` maps each argument to the model's attribute."""

    model: type[BaseModel]
    fields: Mapping[str, str]
    input_schema: Mapping[str, Any]
    context_parameter: str | None
    output: OutputType | None

    @classmethod
    def of(cls, function: types.FunctionType, notes: Mapping[str, str]) -> Signature:
        """Read a function's signature; raises TypeError when a tool cannot have it."""
        where = function.__name__
        try:
            signature = inspect.signature(function)
        except NameError as error:
            raise _unresolved(where, "its signature", error) from error
        contexts: list[str] = []
        arguments: dict[str, tuple[Any, Any]] = {}
        for parameter in signature.parameters.values():
            hint = _parameter_hint(function, parameter)
            if is_context(hint):
                contexts.append(parameter.name)
            else:
                arguments[parameter.name] = (hint, parameter.default)
        if len(contexts) > 1:
            raise TypeError(f"Tool {where} takes two contexts: {' and '.join(contexts)}.")
        model = _input_model(function, arguments, notes)
        return cls(
            model=model,
            fields={name: _attribute(name) for name in arguments},
            input_schema=_input_schema(where, model, arguments),
            context_parameter=contexts[0] if contexts else None,
            output=OutputType.of(_return_hint(function, signature)),
        )


def _parameter_hint(function: types.FunctionType, parameter: inspect.Parameter) -> Any:
    where = function.__name__
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(f"Tool {where}: name each argument instead of {parameter}.")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"Tool {where}: argument {parameter.name} must not be positional-only.")
    if parameter.annotation is parameter.empty:
        raise TypeError(
            f"Tool {where}: annotate argument {parameter.name} with its type (ToolContext for the "
            f"context)."
        )
    try:
        return resolve(function, parameter.annotation)
    except Exception as error:
        raise _unresolved(where, f"the type of argument {parameter.name}", error) from error


def _unresolved(where: str, what: str, error: Exception) -> TypeError:
    return TypeError(
        f"Tool {where}: {what} cannot be resolved ({error}); define or import it above the tool, "
        f"outside of functions and of TYPE_CHECKING."
    )


def resolve(function: Callable[..., Any], annotation: Any) -> Any:
    """Return an annotation as a type, also when it is a string or holds strings."""
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    # Linters move an import that only annotations use under TYPE_CHECKING.
    fallback = {} if "ToolContext" in scope else {"ToolContext": ToolContext}
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    return typing.get_type_hints(holder, scope, fallback, include_extras=True)["value"]


def is_context(hint: Any) -> bool:
    """Tell whether a parameter of this type gets the call's context."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType, Annotated):
        return ToolContext in typing.get_args(hint)
    return hint is ToolContext


def _attribute(argument: str) -> str:
    # A model cannot have attributes named schema, json, model_config or _x; an argument can.
    return f"argument_{argument}"


def _input_model(
    function: types.FunctionType,
    arguments: Mapping[str, tuple[Any, Any]],
    notes: Mapping[str, str],
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, (hint, default) in arguments.items():
        base, *extras = typing.get_args(hint) if _is_annotated(hint) else (hint,)
        # First, so that what the author says of the argument wins.
        extras.insert(0, Field(alias=name, description=notes.get(name)))
        annotated: Any = Annotated
        fields[_attribute(name)] = (
            annotated[(base, *extras)],
            ... if default is inspect.Parameter.empty else default,
        )
    try:
        return create_model(
            f"{function.__name__}_input",
            __config__=ConfigDict(extra="forbid"),
            __module__=function.__module__,
            **fields,
        )
    except (PydanticUserError, NameError, TypeError) as error:
        raise _unusable(function.__name__, arguments, error) from error


def _is_annotated(hint: Any) -> bool:
    return typing.get_origin(hint) is Annotated


def _input_schema(
    where: str, model: type[BaseModel], arguments: Mapping[str, tuple[Any, Any]]
) -> dict[str, Any]:
    try:
        return json_schema(TypeAdapter(model))
    except (PydanticUserError, NameError) as error:
        raise _unusable(where, arguments, error) from error


def _unusable(where: str, arguments: Mapping[str, tuple[Any, Any]], error: Exception) -> TypeError:
    """Say which argument it is that JSON cannot hold."""
    for name, (hint, _) in arguments.items():
        try:
            TypeAdapter(hint).json_schema()
        except (PydanticUserError, NameError, TypeError):
            shown = getattr(hint, "__name__", None) or str(hint)
            return TypeError(
                f"Tool {where}: argument {name} has the type {shown}, which no JSON value can be "
                f"read into; use a built-in type, a dataclass or a pydantic model."
            )
    return TypeError(f"Tool {where}: {str(error).splitlines()[0]}")


def _return_hint(function: Callable[..., Any], signature: inspect.Signature) -> Any:
    """Return the type of the result, or None where it says nothing."""
    if signature.return_annotation is signature.empty:
        return None
    try:
        hint = resolve(function, signature.return_annotation)
    except Exception:
        return None
    return None if hint in (Any, object, type(None)) else hint


@dataclass(frozen=True, slots=True)
class OutputType:
    """The type that a tool says it returns, and its JSON Schema."""

    adapter: TypeAdapter[Any]
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, hint: Any) -> OutputType | None:
        """Return the type of a result, or None where it has no schema."""
        if hint is None:
            return None
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hint)
            return cls(adapter, json_schema(adapter, mode="serialization"))
        except (PydanticUserError, NameError, TypeError):
            return None
