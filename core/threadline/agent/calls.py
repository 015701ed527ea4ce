"""How a tool call runs: validate, run within its time, retry what may be, and answer.

Whatever a tool does, its call ends in a :class:`~threadline.harness.base.ToolResult`. Only a
cancellation that the caller was asked for, and an error of ``on_retry``, come out as exceptions.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import functools
import inspect
import math
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from threadline.agent.tools import TransientToolError
from threadline.errors import NotFound
from threadline.harness.base import ToolResult

if TYPE_CHECKING:
    from threadline.agent.tools import Tool, ToolContext
    from threadline.clock import Clock
    from threadline.harness.base import ToolInfo

__all__ = ["Catalog", "Retry", "run_tool", "to_json", "unknown_tool"]

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_CANCEL_GRACE = 5.0
_LONGEST_MESSAGE = 4000
_MOST_PROBLEMS = 10
_SURROGATE = re.compile("[\ud800-\udfff]")

# The event loop holds only weak references; a call that was given up must not vanish half-way.
_abandoned: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class Retry:
    """A read is about to run again: ``attempt`` counts from 2, ``code`` is the failure's class."""

    attempt: int
    delay_ms: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class _Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _TimedOut:
    pass


@dataclass(frozen=True, slots=True)
class _Invalid:
    error: ValidationError


_Outcome = _Returned | _Raised | _TimedOut | _Invalid


class Catalog:
    """An agent's tools by name, in the order of their names."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in sorted(tools, key=lambda tool: tool.name):
            if tool.name in self._tools:
                raise ValueError(f'Two tools are named "{tool.name}": rename one.')
            self._tools[tool.name] = tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> list[str]:
        """The names, sorted."""
        return list(self._tools)

    def get(self, name: str) -> Tool:
        """Return a tool; :class:`~threadline.errors.NotFound` lists the names that there are."""
        if name not in self._tools:
            raise NotFound(_no_such_tool(name, self.names), available=self.names)
        return self._tools[name]

    def infos(self) -> list[ToolInfo]:
        """Return the tools as the model sees them."""
        return [tool.info() for tool in self]

    def to_wire(self) -> list[dict[str, Any]]:
        """Return the tools as ``GET /v1/tools`` lists them."""
        return [tool.to_wire() for tool in self]

    async def run(
        self,
        name: str,
        arguments: Any,
        ctx: ToolContext,
        *,
        clock: Clock,
        on_retry: Callable[[Retry], None] | None = None,
    ) -> ToolResult:
        """Run a tool by name as :func:`run_tool` does; a name of none is an ``unknown_tool``."""
        if name not in self._tools:
            return unknown_tool(ctx.call_id, name, self.names)
        return await run_tool(self._tools[name], arguments, ctx, clock=clock, on_retry=on_retry)


def unknown_tool(call_id: str, name: str, available: Iterable[str]) -> ToolResult:
    """Return the result of a call to a tool that is not there."""
    return ToolResult(call_id, name, _no_such_tool(name, available), True, "unknown_tool")


def _no_such_tool(name: str, available: Iterable[str]) -> str:
    names = ", ".join(sorted(available))
    return f'There is no tool "{_clean_text(name)}". Available: {names or "none"}.'


async def run_tool(
    tool: Tool,
    arguments: Any,
    ctx: ToolContext,
    *,
    clock: Clock,
    on_retry: Callable[[Retry], None] | None = None,
) -> ToolResult:
    """Run one call of a tool to its result.

    ``arguments`` is the call's decoded, not yet validated input. The codes of an error are
    ``invalid_input``, ``tool_timeout`` and ``tool_failed``. ``on_retry`` is called before the wait
    that precedes each retry. A cancellation of the caller is passed to the tool, which gets five
    seconds to clean up, and is raised.
    """
    attempt = 1
    while True:
        outcome = await _attempt(tool, arguments, ctx, clock)
        delay = _delay(attempt, outcome) if attempt <= tool.retries else None
        if delay is None:
            return _result(tool, ctx, outcome)
        attempt += 1
        if on_retry is not None and isinstance(outcome, _Raised):
            message = _message(outcome.error)
            on_retry(Retry(attempt, round(delay * 1000), "transient_failure", message))
        await clock.sleep(delay)


def _delay(attempt: int, outcome: _Outcome) -> float | None:
    """Return the seconds until the next attempt, or None when there is no use in one."""
    if not isinstance(outcome, _Raised) or not _is_transient(outcome.error):
        return None
    wanted = getattr(outcome.error, "retry_after", None)
    if wanted is None:
        return min(_FIRST_DELAY * 2.0 ** (attempt - 1), _LONGEST_DELAY)
    return max(float(wanted), 0.0) if wanted <= _LONGEST_DELAY else None


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_transient(part) for part in error.exceptions)
    return isinstance(error, (TransientToolError, ConnectionError, TimeoutError))


async def _attempt(tool: Tool, arguments: Any, ctx: ToolContext, clock: Clock) -> _Outcome:
    try:
        # Anew for each attempt: the last one may have changed what it was given.
        validated = tool.arguments(arguments, ctx)
    except ValidationError as error:
        return _Invalid(error)
    except Exception as error:
        return _Raised(error)
    return await _within(_call(tool, validated), tool, ctx, clock)


async def _within(
    work: Coroutine[Any, Any, _Outcome], tool: Tool, ctx: ToolContext, clock: Clock
) -> _Outcome:
    """Run the work in a task of its own, so that it can be given up."""
    task = asyncio.create_task(work, name=f"tool-{tool.name}")
    try:
        finished = await _finished(task, tool.timeout, clock)
    except asyncio.CancelledError:
        await _give_up(task, ctx, clock)
        raise
    if not finished:
        await _give_up(task, ctx, clock)
        return _TimedOut()
    return _Raised(asyncio.CancelledError()) if task.cancelled() else task.result()


async def _finished(task: asyncio.Task[Any], seconds: float, clock: Clock) -> bool:
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return task.done()


async def _give_up(task: asyncio.Task[Any], ctx: ToolContext, clock: Clock) -> None:
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)
    task.cancel()
    if not await _finished(task, _CANCEL_GRACE, clock):
        ctx.log.warning("tool_ignores_cancellation", tool=ctx.tool_name, call_id=ctx.call_id)


async def _call(tool: Tool, arguments: Mapping[str, Any]) -> _Outcome:
    """Call the function; whatever it raises is an outcome, so that nothing ends the event loop.

    That holds for a CancelledError too: when it was asked for, nobody looks at the outcome.
    """
    try:
        if inspect.iscoroutinefunction(tool.function):
            value = await tool.function(**arguments)
        else:
            outcome = await _in_thread(functools.partial(tool.function, **arguments), tool.name)
            if isinstance(outcome, _Raised):
                return outcome
            value = outcome.value
        if inspect.isawaitable(value):
            value = await value
        return _Returned(to_json(value))
    except BaseException as error:
        return _Raised(error)


async def _in_thread(function: Callable[[], Any], name: str) -> _Returned | _Raised:
    """Run a function in a daemon thread of its own.

    Not in a pool: one that hangs would hold a worker for ever, and the process at its exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Returned | _Raised] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        outcome: _Returned | _Raised
        try:
            outcome = _Returned(context.run(function))
        except BaseException as error:
            outcome = _Raised(error)
        with suppress(RuntimeError):  # The loop is closed, nobody waits any more.
            loop.call_soon_threadsafe(_settle, future, outcome)

    threading.Thread(target=work, name=f"tool-{name}", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], outcome: _Returned | _Raised) -> None:
    if not future.done():
        future.set_result(outcome)


# Results


def _result(tool: Tool, ctx: ToolContext, outcome: _Outcome) -> ToolResult:
    match outcome:
        case _Returned(value):
            return ToolResult(ctx.call_id, tool.name, value)
        case _TimedOut():
            return _timed_out(tool, ctx)
        case _Invalid(error):
            return ToolResult(ctx.call_id, tool.name, _explain(tool, error), True, "invalid_input")
        case _Raised(error):
            return _failed(tool, ctx, error)


def _timed_out(tool: Tool, ctx: ToolContext) -> ToolResult:
    sentence = f'Tool "{tool.name}" did not answer within {tool.timeout:g} seconds.'
    if tool.effect == "write":
        sentence += " It may still have taken effect."
    if not inspect.iscoroutinefunction(tool.function):
        ctx.log.warning("tool_thread_left_running", tool=tool.name, call_id=ctx.call_id)
    return ToolResult(ctx.call_id, tool.name, sentence, True, "tool_timeout")


def _failed(tool: Tool, ctx: ToolContext, error: BaseException) -> ToolResult:
    ctx.log.error("tool_failed", tool=tool.name, call_id=ctx.call_id, exc_info=error)
    sentence = f'Tool "{tool.name}" failed: {_message(error)}'
    return ToolResult(ctx.call_id, tool.name, sentence, True, "tool_failed")


def _message(error: BaseException) -> str:
    """Return what an error says; one that says nothing by itself is named."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_message(part) for part in error.exceptions)
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled from the inside"
    kind = type(error).__name__
    try:
        text = _clean_text(str(error)).strip()
    except Exception:
        text = ""
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + "…"
    if isinstance(error, (LookupError, SystemExit, KeyboardInterrupt, GeneratorExit)):
        return f"{kind}: {text}" if text else kind
    return text or kind


def _explain(tool: Tool, error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [_problem(tool, dict(problem)) for problem in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        shown.append(f"and {len(problems) - _MOST_PROBLEMS} more")
    return f'The input of tool "{tool.name}" is not valid: {"; ".join(shown)}.'


def _problem(tool: Tool, problem: Mapping[str, Any]) -> str:
    place = _clean_text(".".join(str(part) for part in problem["loc"]))
    match problem["type"]:
        case "missing":
            return f"{place}: is required"
        case "extra_forbidden" if len(problem["loc"]) == 1:
            known = ", ".join(tool.fields) or "none"
            return f"{place}: is not an argument (there are: {known})"
        case "model_type":
            return f"{place or 'input'}: should be an object"
        case _:
            return f"{place}: {_clean_text(problem['msg'])}" if place else problem["msg"]


# Output


def to_json(value: Any) -> Any:
    """Return a value as JSON can hold it.

    Models are dumped by alias; bytes are text where they are UTF-8, else base64; NaN and
    infinities are null; lone surrogates U+FFFD; objects that JSON does not know their ``str``.
    Raises ValueError for a value that holds itself or is nested too deeply.
    """
    try:
        plain = _to_jsonable(value, "utf8")
    except UnicodeError:
        plain = _to_jsonable(_readable(value), "base64")
    return _clean(plain)


def _to_jsonable(value: Any, bytes_mode: Any) -> Any:
    return to_jsonable_python(value, by_alias=True, bytes_mode=bytes_mode, fallback=str)


def _readable(value: Any) -> Any:
    """Replace bytes and keys that are not text, as deep as containers and models go."""
    match value:
        case str():
            return _clean_text(value)
        case bytes() | bytearray():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case BaseModel():  # Its own configuration would try to read its bytes as text again.
            return _readable(value.model_dump(by_alias=True))
        case Mapping():
            return {_readable(key): _readable(item) for key, item in value.items()}
        case list() | tuple() | AbstractSet():
            return [_readable(item) for item in value]
        case _:
            return value


def _clean(value: Any) -> Any:
    # Not left to pydantic, which keeps NaN and surrogates in the fields of models.
    match value:
        case str():
            return _clean_text(value)
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {_clean_text(key): _clean(item) for key, item in value.items()}
        case list():
            return [_clean(item) for item in value]
        case _:
            return value


def _clean_text(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)
