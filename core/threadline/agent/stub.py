"""Dry runs: what a write is answered with instead of being run."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from threadline.agent.context import ToolContext
from threadline.agent.signature import is_context, resolve

__all__ = ["Stub", "current_call", "dry_call", "finished"]

current_call: contextvars.ContextVar[ToolContext | None] = contextvars.ContextVar(
    "threadline_tool_call", default=None
)


def dry_call(given: Iterable[Any] = ()) -> ToolContext | None:
    """Return the context of the dry run that a function is called in, or given; else None.

    It is known in the call's own tasks and threads, in those that take their context variables
    along, and wherever the function is given the :class:`ToolContext`.
    """
    contexts = [*(one for one in given if isinstance(one, ToolContext)), current_call.get()]
    return next((one for one in contexts if one is not None and one.dry_run), None)


@dataclass(frozen=True, slots=True)
class Stub:
    """What a write is answered with in a dry run.

    That is ``value``, or what ``function`` makes, async or not, of those of the call's arguments
    that it names; its ``context_parameter`` gets the call's context.
    """

    value: Any = None
    function: Callable[..., Any] | None = None
    parameters: frozenset[str] = frozenset()
    context_parameter: str | None = None

    @classmethod
    def of(cls, given: Any, arguments: Collection[str]) -> Stub | None:
        """Return what ``tool(dry_run=…)`` gives for a tool of these arguments; None for none.

        Raises ValueError.
        """
        if given is None:
            return None
        if not callable(given):
            return cls(value=_plain(given))
        parameters: set[str] = set()
        context: str | None = None
        for parameter in inspect.signature(given).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                parameters.update(arguments)
            elif _takes_context(given, parameter):
                context = parameter.name
            elif parameter.name in arguments and parameter.kind is not parameter.POSITIONAL_ONLY:
                parameters.add(parameter.name)
            elif parameter.default is parameter.empty:
                known = ", ".join(arguments) or "none"
                raise ValueError(
                    f"tool(dry_run=…): its {parameter} is no argument of the tool (there are: "
                    f"{known}); name the tool's arguments, or annotate a ToolContext."
                )
        return cls(function=given, parameters=frozenset(parameters), context_parameter=context)

    def call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Return the answer to a call, or an awaitable of it."""
        if self.function is None:
            return copy.deepcopy(self.value)
        return self.function(**self.keywords(arguments, ctx))

    def keywords(self, arguments: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """Return what the function is called with."""
        given = {name: value for name, value in arguments.items() if name in self.parameters}
        return given | ({self.context_parameter: ctx} if self.context_parameter else {})


def finished(value: Any) -> Any:
    """Return what an awaitable comes to, to a caller that cannot await it."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, wait()).result()


def _plain(value: Any) -> Any:
    try:
        return to_jsonable_python(value, by_alias=True)
    except (PydanticSerializationError, ValueError) as error:
        raise ValueError(
            f"tool(dry_run=…) must be a JSON value or a function, not {value!r} ({error})."
        ) from None


def _takes_context(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return False
    try:
        return is_context(resolve(function, parameter.annotation))
    except Exception:  # The annotation says nothing that can be read, so it is no context.
        return False
