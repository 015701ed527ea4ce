"""How a tool is declared.

A tool is a function with the decorator :func:`tool`. Its signature is its schema, its docstring
its description, and a parameter annotated with :class:`ToolContext` gets the call's context.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from pydantic import BaseModel

from threadline.agent.approval import Approval
from threadline.agent.context import ToolContext
from threadline.agent.output import to_json
from threadline.agent.signature import OutputType, Signature, read_docstring
from threadline.agent.stub import Stub, dry_call, finished
from threadline.agent.times import timed
from threadline.harness.base import Effect, Execution, ToolInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Tool", "ToolContext", "is_tool_name", "tool"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, eq=False)
class Tool:
    """A declared tool; calling it calls the function as it is, without validation.

    Only a write that another tool calls during a dry run is not run: the call returns the write's
    stub, or an awaitable of it when the function is async. ``tool.function`` knows nothing of this,
    and neither does a thread that the other tool starts without its context variables, unless the
    call passes the :class:`ToolContext` on.

    ``input_schema`` is JSON Schema; ``timeout`` is in seconds and for each attempt; ``source`` is
    ``file:line``; ``named`` says that the name was given, not derived; ``max_calls`` is for a turn.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output: OutputType | None
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
    approval: Approval | None = None
    max_calls: int | None = None
    stub: Stub | None = None
    time_arguments: tuple[str, ...] = ()
    execution: Execution = "server"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ctx = dry_call([*args, *kwargs.values()]) if self.effect == "write" else None
        if ctx is None:
            return self.function(*args, **kwargs)
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        given = {name: bound.arguments[name] for name in self.fields}
        answer = self.dry_answer(given, ctx)
        if inspect.iscoroutinefunction(self.function):
            return _soon(answer)
        return finished(answer)

    @cached_property
    def times(self) -> list[str]:
        """The arguments that are or hold times, by their types or as declared."""
        return timed(self.input_model, self.time_arguments)

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of what it returns, where its annotation says that."""
        return self.output.schema if self.output is not None else None

    def validate(self, value: Any) -> BaseModel:
        """Return a call's input as the model of the arguments; None counts as an empty object.

        Raises :class:`pydantic.ValidationError`.
        """
        return self.input_model.model_validate({} if value is None else value)

    def by_name(self, model: BaseModel) -> dict[str, Any]:
        """Return validated arguments by name."""
        return {name: getattr(model, attribute) for name, attribute in self.fields.items()}

    def arguments(self, value: Any, ctx: ToolContext) -> dict[str, Any]:
        """Validate a call's input and return the function's keyword arguments.

        Raises :class:`pydantic.ValidationError`.
        """
        return self.keywords(self.validate(value), ctx)

    def keywords(self, model: BaseModel, ctx: ToolContext) -> dict[str, Any]:
        """Return what the function is called with."""
        context = {self.context_parameter: ctx} if self.context_parameter is not None else {}
        return self.by_name(model) | context

    def dry_answer(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Return what a dry run answers instead of running a write, or an awaitable of it."""
        if self.stub is not None:
            return self.stub.call(arguments, ctx)
        return {"dryRun": True, "toolName": self.name, "input": to_json(arguments)}

    def renamed(self, name: str, source: str | None = None) -> Tool:
        """Return the same tool under another name, and from another source if one is given."""
        return replaced(self, name=name, source=source or self.source)

    def in_host(self) -> Tool:
        """Return the tool as one that runs in this process."""
        return replaced(self, execution="server")

    def info(self) -> ToolInfo:
        """Return the tool as the model and channels see it."""
        return ToolInfo(
            self.name,
            self.description,
            self.input_schema,
            self.effect,
            approval=self.approval is not None,
            output_schema=self.output_schema,
            idempotent=self.idempotent,
            source=self.source,
            execution=self.execution,
        )

    def to_wire(self, detail: bool = False) -> dict[str, Any]:
        """Return the tool as HTTP shows it: ``{name, source}``, or with ``detail`` everything."""
        if not detail:
            return {"name": self.name, "source": self.source}
        wire: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "effect": self.effect,
            "execution": self.execution,
            "approval": self.approval.to_wire() if self.approval is not None else None,
            "dryRun": "stubbed" if self.effect == "write" else "runs",
            "timeArguments": self.times,
            "maxCalls": self.max_calls,
            "timeoutSeconds": self.timeout,
            "retries": self.retries,
            "idempotent": self.idempotent,
            "source": self.source,
        }
        return {key: value for key, value in wire.items() if value is not None}


async def _soon(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


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
    approval: bool | Approval | None = None,
    max_calls: int | None = None,
    dry_run: Any = None,
    dry_run_result: Any = None,
    time_arguments: Iterable[str] = (),
    execution: Execution = "server",
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
    approval: bool | Approval | None = None,
    max_calls: int | None = None,
    dry_run: Any = None,
    dry_run_result: Any = None,
    time_arguments: Iterable[str] = (),
    execution: Execution = "server",
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Declare a function, async or not, as a tool: ``@tool`` or ``@tool(effect="write")``.

    ``retries`` repeats a read after a transient failure (:class:`TransientToolError`,
    ConnectionError, TimeoutError, and those of the HTTP clients). ``timeout`` is in seconds and for
    each attempt. ``name`` replaces the file's or function's name, ``description`` the docstring.
    ``idempotent`` says that a write may run again after a crash. ``approval``: a model's call waits
    for a person; True, or an :class:`Approval` that says for whom. ``max_calls``: how often a turn
    may call it. ``dry_run`` (``dry_run_result`` is the same) answers a write in a dry run: a JSON
    value, or a function, async or not, of those of the arguments that it names, and of a
    :class:`ToolContext` if it annotates one. ``time_arguments`` names arguments that are times
    though their types do not say so; under ``as_of`` all times must be given, absolute and past.
    ``execution="agent"`` makes it a script that runs in the session's workspace, as a process.

    Raises TypeError for a signature that cannot be called from JSON, ValueError for an option's
    value and :class:`~threadline.errors.UnsupportedOption` for what this version does not honour.
    """
    if dry_run is not None and dry_run_result is not None:
        raise ValueError("tool(dry_run=…, dry_run_result=…) are the same option: give one.")
    options = _Options(
        effect=effect,
        retries=retries,
        timeout=timeout,
        name=name,
        description=description,
        idempotent=idempotent,
        approval=Approval() if approval is True else approval or None,
        max_calls=max_calls,
        dry_run=dry_run_result if dry_run is None else dry_run,
        time_arguments=_names(time_arguments),
        execution=execution,
    )

    def declare(function: Callable[..., Any]) -> Tool:
        return _declare(function, options)

    return declare if function is None else declare(function)


def _names(given: Any) -> tuple[str, ...]:
    names = None if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f'tool(time_arguments=…) must be names of arguments, such as ["since"], not {given!r}.'
        )
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What the decorator was given; raises ValueError for what cannot be."""

    effect: Effect
    retries: int
    timeout: float
    name: str | None
    description: str | None
    idempotent: bool
    approval: Approval | None
    max_calls: int | None
    dry_run: Any
    time_arguments: tuple[str, ...]
    execution: Execution

    def __post_init__(self) -> None:
        if self.execution not in ("server", "agent"):
            raise ValueError(
                f'tool(execution=…) must be "server" or "agent", not {self.execution!r}.'
            )
        self._check_effect()
        self._check_numbers()
        if self.name is not None and not (isinstance(self.name, str) and is_tool_name(self.name)):
            raise ValueError(
                f"tool(name={self.name!r}): use 1 to 64 letters (a-z), digits, '_' and '-', as "
                "models do."
            )
        if self.approval is not None and not isinstance(self.approval, Approval):
            raise ValueError(
                f"tool(approval=…) must be True or an Approval(…), not {self.approval!r}."
            )

    def _check_effect(self) -> None:
        if self.effect not in ("read", "write"):
            raise ValueError(f'tool(effect=…) must be "read" or "write", not {self.effect!r}.')
        if self.retries and self.effect == "write":
            raise ValueError(
                'tool(effect="write", retries=…): a write runs once per call; leave retries out, '
                "and repeat inside the tool what is safe to repeat."
            )
        if self.dry_run is not None and self.effect == "read":
            raise ValueError(
                "tool(dry_run=…) is for writes, since a read runs in a dry run too: leave it out, "
                'or say effect="write".'
            )

    def _check_numbers(self) -> None:
        if not _is_whole(self.retries) or not 0 <= self.retries <= 10:
            raise ValueError(
                f"tool(retries=…) must be a whole number from 0 to 10, not {self.retries!r}."
            )
        if not _is_seconds(self.timeout):
            raise ValueError(
                f"tool(timeout=…) must be a number of seconds above 0, not {self.timeout!r}."
            )
        if self.max_calls is not None and not (_is_whole(self.max_calls) and self.max_calls > 0):
            raise ValueError(
                "tool(max_calls=…) must be a whole number from 1, or None for no limit, not "
                f"{self.max_calls!r}."
            )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_seconds(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )


def _declare(function: Callable[..., Any], options: _Options) -> Tool:
    if not inspect.isfunction(function):
        raise TypeError("@tool takes a function that is written with def or async def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"Tool {function.__name__} yields: a tool returns its one result.")
    text, notes = read_docstring(inspect.getdoc(function) or "")
    signature = Signature.of(function, notes)
    _check_names(options.time_arguments, signature.fields)
    description = options.description
    return Tool(
        name=options.name or function.__name__,
        description=text if description is None else inspect.cleandoc(description),
        input_schema=signature.input_schema,
        output=signature.output,
        effect=options.effect,
        timeout=float(options.timeout),
        retries=options.retries,
        idempotent=options.idempotent,
        source=_source(function),
        named=options.name is not None,
        function=function,
        input_model=signature.model,
        fields=signature.fields,
        context_parameter=signature.context_parameter,
        approval=options.approval,
        max_calls=options.max_calls,
        stub=Stub.of(options.dry_run, signature.fields),
        time_arguments=options.time_arguments,
        execution=options.execution,
    )


def _check_names(names: Iterable[str], arguments: Mapping[str, str]) -> None:
    for name in names:
        if name not in arguments:
            known = ", ".join(arguments) or "none"
            raise ValueError(
                f'tool(time_arguments=…): "{name}" is no argument of the tool (there are: {known}).'
            )


def _source(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
