"""How a tool call runs: check, run within its time, retry what may be, and answer.

Whatever a tool does, its call ends in a :class:`~threadline.harness.base.ToolResult`. Only a
cancellation that the caller was asked for, and an error of ``on_retry``, come out as exceptions.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from threadline.agent import watchdog
from threadline.agent.attempt import Raised, Returned, TimedOut, outcome_of, within
from threadline.agent.checks import Refused, check
from threadline.agent.content import Envelope, envelope
from threadline.agent.output import clean_text, conforming, to_json
from threadline.agent.started import Started
from threadline.agent.stub import current_call
from threadline.agent.transient import is_transient, retry_after
from threadline.errors import NotFound
from threadline.harness.base import ToolResult

if TYPE_CHECKING:
    from threadline.agent.context import ToolContext
    from threadline.agent.tools import Tool
    from threadline.clock import Clock
    from threadline.harness.base import ToolInfo

__all__ = ["Catalog", "Retry", "refusal", "run_tool", "unknown_tool"]

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_LONGEST_MESSAGE = 4000


@dataclass(frozen=True, slots=True)
class Retry:
    """A read is about to run again: ``attempt`` counts from 2, ``code`` is the failure's class."""

    attempt: int
    delay_ms: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class _Unfit:
    """It returned what cannot be its result; ``reason`` is what the caller may know of it."""

    reason: str
    error: Exception


@dataclass(frozen=True, slots=True)
class _Blocked:
    """It held up the event loop and was interrupted at ``place``."""

    place: str


_Outcome = Returned | Raised | TimedOut | Refused | _Blocked | _Unfit


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
    return f'There is no tool "{clean_text(name)}". Available: {names or "none"}.'


def refusal(tool: Tool, arguments: Any, ctx: ToolContext) -> ToolResult | None:
    """Return the error of a call that could not run, None for one that may."""
    checked = _checked(tool, arguments, ctx)
    return None if isinstance(checked, BaseModel) else _result(tool, ctx, checked)


async def run_tool(
    tool: Tool,
    arguments: Any,
    ctx: ToolContext,
    *,
    clock: Clock,
    on_retry: Callable[[Retry], None] | None = None,
) -> ToolResult:
    """Run one call of a tool to its result; in a dry run a write's stub is the result.

    ``arguments`` is the call's decoded, not yet validated input. The codes of an error are
    ``invalid_input``, ``time_not_allowed``, ``tool_timeout``, ``tool_blocked``, ``tool_failed``,
    ``tool_error`` (the tool says so itself) and ``invalid_output``. ``on_retry`` is called before
    the wait that precedes each retry. A cancellation of the caller is passed to the tool, which
    gets five seconds to clean up, and is raised.
    """
    retries = tool.retries if tool.effect == "read" else 0
    attempt = 1
    while True:
        outcome = await _attempt(tool, arguments, ctx, clock)
        delay = _delay(attempt, outcome, clock) if attempt <= retries else None
        if delay is None:
            return _result(tool, ctx, outcome)
        attempt += 1
        if on_retry is not None and isinstance(outcome, Raised):
            message = _message(outcome.error)
            on_retry(Retry(attempt, round(delay * 1000), "transient_failure", message))
        await clock.sleep(delay)


def _delay(attempt: int, outcome: _Outcome, clock: Clock) -> float | None:
    """Return the seconds until the next attempt, or None when there is no use in one."""
    if not isinstance(outcome, Raised) or not is_transient(outcome.error):
        return None
    wanted = retry_after(outcome.error, clock.now())
    if wanted is None:
        return min(_FIRST_DELAY * 2.0 ** (attempt - 1), _LONGEST_DELAY)
    return max(float(wanted), 0.0) if wanted <= _LONGEST_DELAY else None


def _checked(tool: Tool, arguments: Any, ctx: ToolContext) -> BaseModel | Refused | Raised:
    try:
        return check(tool, arguments, ctx.as_of)
    except Exception as error:
        return Raised(error)


async def _attempt(tool: Tool, arguments: Any, ctx: ToolContext, clock: Clock) -> _Outcome:
    # Checked anew for each attempt: the last one may have changed what it was given.
    checked = _checked(tool, arguments, ctx)
    if not isinstance(checked, BaseModel):
        return checked
    started = Started(ctx.call_id, log=ctx.log)
    work = _work(tool, checked, ctx)
    outcome = await within(work, started, tool.timeout, clock, name=tool.name)
    return _Blocked(started.blocked_at) if started.blocked_at is not None else outcome


def _is_stubbed(tool: Tool, ctx: ToolContext) -> bool:
    return ctx.dry_run and tool.effect == "write"


async def _work(tool: Tool, arguments: BaseModel, ctx: ToolContext) -> Returned | Raised | _Unfit:
    current_call.set(ctx)
    try:
        function = _function(tool, arguments, ctx)
    except Exception as error:
        return Raised(error)
    outcome = await outcome_of(function, tool.name)
    if isinstance(outcome, Raised):
        return outcome
    try:
        return Returned(_converted(tool, outcome.value, ctx))
    except ValidationError as error:
        return _Unfit("it is not of the type that the tool declares", error)
    except Exception as error:
        return _Unfit(_message(error), error)


def _function(tool: Tool, arguments: BaseModel, ctx: ToolContext) -> Callable[[], Any]:
    """Return what to call: the stub, the script, or the tool's own function."""
    if _is_stubbed(tool, ctx):
        return functools.partial(tool.dry_answer, tool.by_name(arguments), ctx)
    if tool.execution == "agent":
        from threadline.agent.scripts import run_script

        given = arguments.model_dump(mode="json", by_alias=True)
        return functools.partial(run_script, tool, given, ctx)
    return functools.partial(tool.function, **tool.keywords(arguments, ctx))


def _converted(tool: Tool, value: Any, ctx: ToolContext) -> Any:
    """Return a value as JSON, or as an envelope whose structured part is JSON."""
    found = envelope(value)
    output = None if tool.output is None or _is_stubbed(tool, ctx) else tool.output.adapter
    if found is None:
        return to_json(value) if output is None else conforming(output, value)
    if found.is_error or output is None:
        return replace(found, structured=to_json(found.structured))
    if found.structured is not None:
        return replace(found, structured=conforming(output, found.structured))
    conforming(output, value)
    return found


# Results


def _result(tool: Tool, ctx: ToolContext, outcome: _Outcome) -> ToolResult:
    result = _of(tool, ctx, outcome)
    return replace(result, dry_run=True) if _is_stubbed(tool, ctx) else result


def _of(tool: Tool, ctx: ToolContext, outcome: _Outcome) -> ToolResult:
    match outcome:
        case Returned(Envelope() as found):
            return _enclosed(tool, ctx, found)
        case Returned(value):
            return ToolResult(ctx.call_id, tool.name, value)
        case Refused(code, sentence):
            return ToolResult(ctx.call_id, tool.name, sentence, True, code)
        case TimedOut():
            return _timed_out(tool, ctx)
        case _Blocked(place):
            return _blocked(tool, ctx, place)
        case _Unfit(reason, error):
            return _unfit(tool, ctx, reason, error)
        case Raised(error):
            return _failed(tool, ctx, error)


def _enclosed(tool: Tool, ctx: ToolContext, found: Envelope) -> ToolResult:
    if not found.is_error:
        return ToolResult(
            ctx.call_id, tool.name, to_json(found.output()), attachments=found.attachments
        )
    sentence = _cut(clean_text(found.sentence)) or f'Tool "{tool.name}" says that it failed.'
    return ToolResult(ctx.call_id, tool.name, sentence, True, "tool_error", found.attachments)


def _unfit(tool: Tool, ctx: ToolContext, reason: str, error: Exception) -> ToolResult:
    detail = _detail(error) if isinstance(error, ValidationError) else str(error)
    advice = "return what the annotation says, or correct the annotation"
    ctx.log.error(
        "tool_output_invalid",
        tool=tool.name,
        call_id=ctx.call_id,
        detail=clean_text(detail),
        advice=advice,
    )
    sentence = f'Tool "{tool.name}" ran, but its result cannot be used: {reason}.'
    return ToolResult(ctx.call_id, tool.name, sentence, True, "invalid_output")


def _detail(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'value'}: {one['msg']}" for one in found)


def _timed_out(tool: Tool, ctx: ToolContext) -> ToolResult:
    sentence = f'Tool "{tool.name}" did not answer within {tool.timeout:g} seconds.'
    if tool.effect == "write" and not ctx.dry_run:
        sentence += " It may still have taken effect."
    if not inspect.iscoroutinefunction(tool.function):
        ctx.log.warning("tool_thread_left_running", tool=tool.name, call_id=ctx.call_id)
    return ToolResult(ctx.call_id, tool.name, sentence, True, "tool_timeout")


def _blocked(tool: Tool, ctx: ToolContext, place: str) -> ToolResult:
    sentence = (
        f'Tool "{tool.name}" blocked the event loop for {watchdog.BLOCK_SECONDS:g} seconds and was '
        f"interrupted, at {place}. Write it as a plain def, so that it runs in a thread, or await "
        "what it waits for."
    )
    if tool.effect == "write" and not ctx.dry_run:
        sentence += " It may have taken effect."
    return ToolResult(ctx.call_id, tool.name, sentence, True, "tool_blocked")


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
        text = clean_text(str(error)).strip()
    except Exception:
        text = ""
    text = _cut(text)
    if isinstance(error, (LookupError, SystemExit, KeyboardInterrupt, GeneratorExit)):
        return f"{kind}: {text}" if text else kind
    return text or kind


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"
