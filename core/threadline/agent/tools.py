"""How a tool is declared.

A tool is a function with the decorator :func:`tool`. Its signature is its schema, its docstring
its description, and a parameter annotated with :class:`ToolContext` gets the call's context.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import textwrap
import types
import typing
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, overload

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from threadline.errors import ToolFailed, UnsupportedOption
from threadline.harness.base import Effect, ToolInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from pydantic_core import core_schema

    from threadline.clock import Clock
    from threadline.principal import Principal

__all__ = [
    "KeyValues",
    "Log",
    "Tool",
    "ToolContext",
    "ToolLog",
    "ToolSession",
    "TransientToolError",
    "is_tool_name",
    "tool",
]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters):[ \t]*\n(?P<body>(?:(?:[ \t].*)?(?:\n|\Z))*)", re.M
)
_ARGUMENT = re.compile(r"^(\w+)[ \t]*(?:\([^)\n]*\))?:(.*(?:\n[ \t]+.*|\n(?=[ \t]*\n))*)", re.M)
_PARAM_FIELD = re.compile(r"^:param[ \t]+(?:[^\s:]+[ \t]+)?(\w+):(.*(?:\n[ \t]+.*)*)\n?", re.M)

_UNSUPPORTED = {
    "approval": "remove it, and let the tool check ctx.principal before it writes",
    "dry_run": "remove it; dry runs are refused, so no stub is needed",
    "dry_run_result": "remove it; dry runs are refused, so no stub is needed",
    "as_of": "remove it, and read the time from ctx.now()",
    "time_arguments": "remove it, and declare times as ordinary arguments",
}


class TransientToolError(ToolFailed):
    """The tool failed, and trying again may help; ``retry_after`` seconds, when it is known."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class KeyValues(Protocol):
    """JSON values that the store keeps for the agent."""

    async def get(self, key: str) -> Any:
        """Return a kept value, or None."""

    async def put(self, key: str, value: Any) -> None:
        """Keep a JSON value."""

    async def delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""


class Log(Protocol):
    """A logger that takes an event and its fields, as structlog's do."""

    def debug(self, event: str, **fields: Any) -> Any:
        """Log what only a developer wants to see."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log what happened."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Log what somebody should look at."""

    def error(self, event: str, **fields: Any) -> Any:
        """Log what went wrong; ``exc_info`` takes the exception."""


class ToolLog:
    """A :class:`Log` on the standard library's logger ``threadline.tools``."""

    def __init__(self, **bound: Any) -> None:
        self._bound = bound
        self._logger = logging.getLogger("threadline.tools")

    def debug(self, event: str, **fields: Any) -> None:
        """Log what only a developer wants to see."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log what happened."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what somebody should look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log what went wrong; ``exc_info`` takes the exception."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        exc_info = fields.pop("exc_info", None)
        shown = [f"{key}={value!r}" for key, value in {**self._bound, **fields}.items()]
        self._logger.log(level, "%s", " ".join([event, *shown]), exc_info=exc_info)


@dataclass(frozen=True, slots=True)
class ToolSession:
    """What a tool sees of the session that its call belongs to."""

    id: str
    channel: str
    mode: Literal["chat", "task"] = "chat"
    purpose: str | None = None
    continuation_token: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class ToolContext:
    """What a tool knows of its call.

    ``session`` is None when the call is bound to none; ``direct`` says that a person or program,
    not the model, made it; ``workspace`` is the session's folder (the process runs elsewhere).
    """

    call_id: str
    tool_name: str
    principal: Principal
    clock: Clock = field(repr=False)
    kv: KeyValues = field(repr=False)
    session: ToolSession | None = None
    workspace: Path | None = None
    direct: bool = False
    log: Log = field(default_factory=ToolLog, repr=False)

    def now(self) -> datetime:
        """Return the time, timezone-aware, in UTC."""
        return self.clock.now()


@dataclass(frozen=True, eq=False)
class Tool:
    """A declared tool; calling it calls the function as it is, without validation.

    ``input_schema`` and ``output_schema`` are JSON Schema; ``timeout`` is in seconds and for each
    attempt; ``source`` is ``file:line``; ``named`` says that the name was given, not derived.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    effect: Effect
    timeout: float
    retries: int
    idempotent: bool
    source: str
    named: bool
    function: Callable[..., Any]
    input_model: type[BaseModel] = field(repr=False)
    fields: Mapping[str, str] = field(repr=False)
    context_parameter: str | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def arguments(self, value: Any, ctx: ToolContext) -> dict[str, Any]:
        """Validate a call's input and return the function's keyword arguments.

        None counts as an empty object. Raises :class:`pydantic.ValidationError`.
        """
        model = self.input_model.model_validate({} if value is None else value)
        arguments = {name: getattr(model, attribute) for name, attribute in self.fields.items()}
        if self.context_parameter is not None:
            arguments[self.context_parameter] = ctx
        return arguments

    def renamed(self, name: str, source: str | None = None) -> Tool:
        """Return the same tool under another name, and from another source if one is given."""
        return replaced(self, name=name, source=source or self.source)

    def info(self) -> ToolInfo:
        """Return the tool as the model sees it."""
        return ToolInfo(self.name, self.description, self.input_schema, self.effect)

    def to_wire(self, detail: bool = False) -> dict[str, Any]:
        """Return the tool as HTTP shows it: ``{name, source}``, or with ``detail`` everything."""
        if not detail:
            return {"name": self.name, "source": self.source}
        wire: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "effect": self.effect,
            "execution": "server",
            "timeoutSeconds": self.timeout,
            "retries": self.retries,
            "idempotent": self.idempotent,
            "source": self.source,
        }
        if self.output_schema is not None:
            wire["outputSchema"] = self.output_schema
        return wire


def is_tool_name(text: str) -> bool:
    """Tell whether every model provider takes the text as a tool's name."""
    return _NAME.fullmatch(text) is not None


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    effect: Effect = "read",
    retries: int = 0,
    timeout: float = 60.0,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    execution: Literal["server"] = "server",
    **unsupported: Any,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "read",
    retries: int = 0,
    timeout: float = 60.0,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    execution: str = "server",
    **unsupported: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function, async or not, as a tool: ``@tool`` or ``@tool(effect="write")``.

    ``retries`` repeats a read after a transient failure (:class:`TransientToolError`,
    ConnectionError, TimeoutError). ``timeout`` is in seconds and for each attempt. ``name``
    replaces the file's or function's name, ``description`` the docstring. ``idempotent`` says that
    a write may run again after a crash.

    Raises TypeError for a signature that cannot be called from JSON, ValueError for an option's
    value and :class:`~threadline.errors.UnsupportedOption` for what this version does not honour.
    """
    _refuse_unsupported(execution, unsupported)
    _check_options(effect, retries, timeout, name)

    def declare(function: Callable[..., Any]) -> Tool:
        return _declare(
            function,
            effect=effect,
            retries=retries,
            timeout=float(timeout),
            name=name,
            description=description,
            idempotent=idempotent,
        )

    return declare if function is None else declare(function)


def _refuse_unsupported(execution: str, options: Mapping[str, Any]) -> None:
    if execution == "agent":
        raise UnsupportedOption(
            'tool(execution="agent") is not honoured by this version: leave it out, so that the '
            "tool runs in the host."
        )
    if execution != "server":
        raise ValueError(f'tool(execution=…) must be "server", not {execution!r}.')
    for option, value in options.items():
        if option not in _UNSUPPORTED:
            raise TypeError(f"tool() has no option {option}.")
        if value is not None and value is not False:
            raise UnsupportedOption(
                f"tool({option}=…) is not honoured by this version: {_UNSUPPORTED[option]}."
            )


def _check_options(effect: Any, retries: Any, timeout: Any, name: Any) -> None:
    if effect not in ("read", "write"):
        raise ValueError(f'tool(effect=…) must be "read" or "write", not {effect!r}.')
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= 10:
        raise ValueError(f"tool(retries=…) must be a whole number from 0 to 10, not {retries!r}.")
    if retries and effect == "write":
        raise UnsupportedOption(
            'tool(effect="write", retries=…): a write runs once per call; leave retries out, and '
            "repeat inside the tool what is safe to repeat."
        )
    if not _is_seconds(timeout):
        raise ValueError(f"tool(timeout=…) must be a number of seconds above 0, not {timeout!r}.")
    if name is not None and not (isinstance(name, str) and is_tool_name(name)):
        raise ValueError(
            f"tool(name={name!r}): use 1 to 64 letters (a-z), digits, '_' and '-', as models do."
        )


def _is_seconds(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )


def _declare(
    function: Callable[..., Any],
    *,
    effect: Effect,
    retries: int,
    timeout: float,
    name: str | None,
    description: str | None,
    idempotent: bool,
) -> Tool:
    if not inspect.isfunction(function):
        raise TypeError("@tool takes a function that is written with def or async def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"Tool {function.__name__} yields: a tool returns its one result.")
    text, notes = _read_docstring(inspect.getdoc(function) or "")
    signature = _Signature.of(function, notes)
    return Tool(
        name=name or function.__name__,
        description=text if description is None else inspect.cleandoc(description),
        input_schema=signature.input_schema,
        output_schema=_output_schema(signature.returns),
        effect=effect,
        timeout=timeout,
        retries=retries,
        idempotent=idempotent,
        source=_source(function),
        named=name is not None,
        function=function,
        input_model=signature.model,
        fields=signature.fields,
        context_parameter=signature.context_parameter,
    )


def _source(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


# Docstrings


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into what describes the tool and a note for each argument it documents."""
    notes: dict[str, str] = {}
    for section in _ARGUMENT_SECTION.finditer(text):
        entries = _ARGUMENT.findall(textwrap.dedent(section["body"]))
        notes.update({name: " ".join(note.split()) for name, note in entries})
    text = _ARGUMENT_SECTION.sub("", text)
    notes.update({name: " ".join(note.split()) for name, note in _PARAM_FIELD.findall(text)})
    text = _PARAM_FIELD.sub("", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip(), notes


# Signatures


class _Schema(GenerateJsonSchema):
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


@dataclass(frozen=True, slots=True)
class _Signature:
    """A function's arguments as a model; ``fields`` maps each argument to the model's attribute."""

    model: type[BaseModel]
    fields: Mapping[str, str]
    input_schema: Mapping[str, Any]
    context_parameter: str | None
    returns: Any

    @classmethod
    def of(cls, function: types.FunctionType, notes: Mapping[str, str]) -> _Signature:
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
            if _is_context(hint):
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
            returns=_return_hint(function, signature),
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
        return _resolve(function, parameter.annotation)
    except Exception as error:
        raise _unresolved(where, f"the type of argument {parameter.name}", error) from error


def _unresolved(where: str, what: str, error: Exception) -> TypeError:
    return TypeError(
        f"Tool {where}: {what} cannot be resolved ({error}); define or import it above the tool, "
        f"outside of functions and of TYPE_CHECKING."
    )


def _resolve(function: Callable[..., Any], annotation: Any) -> Any:
    """Return an annotation as a type, also when it is a string or holds strings."""
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    # Linters move an import that only annotations use under TYPE_CHECKING.
    fallback = {} if "ToolContext" in scope else {"ToolContext": ToolContext}
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    return typing.get_type_hints(holder, scope, fallback, include_extras=True)["value"]


def _is_context(hint: Any) -> bool:
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
        return model.model_json_schema(schema_generator=_Schema)
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
        hint = _resolve(function, signature.return_annotation)
    except Exception:
        return None
    return None if hint in (Any, object, type(None)) else hint


def _output_schema(hint: Any) -> dict[str, Any] | None:
    if hint is None:
        return None
    try:
        return TypeAdapter(hint).json_schema(mode="serialization", schema_generator=_Schema)
    except (PydanticUserError, NameError, TypeError):
        return None
