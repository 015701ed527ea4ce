"""One turn on Pydantic AI; imported when the first turn runs.

:class:`Run` walks the nodes of ``Agent.iter`` itself. A tool boundary is after a ``CallToolsNode``
and before the next ``ModelRequestNode``. There it enqueues the nudges. Pydantic AI moves them into
its history at the start of the next node; :class:`_Gate` runs after that and before the model is
asked, so that is where they are confirmed.

Records are the messages as Pydantic AI's own JSON, without the instructions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pydantic_ai
from pydantic import ValidationError
from pydantic_ai import Agent, CallToolsNode, ModelRequestNode
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelHTTPError,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_graph import End

from threadline.errors import HarnessFailed, ThreadlineError
from threadline.harness.base import ToolCall, ToolResult, TurnResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_ai import RunContext
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRun
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RunUsage, UsageBase, UsageLimits

    from threadline.harness.base import ActionBatch, Nudge, Turn

__all__ = ["Run", "build_agent"]

# A host's output is its own.
pydantic_ai.BANNER_ENABLED = False

# How often a model may call a tool that does not exist before its turn fails.
_UNKNOWN_TOOL_RETRIES = 10


class Run:
    """A turn while it runs; the agent's tools and gate reach it as their ``deps``."""

    def __init__(self, turn: Turn, agent: Agent[Run, str], limits: UsageLimits | None) -> None:
        self.turn = turn
        self.batch: ActionBatch | None = None
        self.tools = {tool.name: _definition(tool) for tool in turn.tools}
        self._gated = {tool.name for tool in turn.tools if tool.approval}
        self._acted = False
        self._agent = agent
        self._limits = limits
        self._streams = _can_stream(agent.model)
        self._run: AgentRun[Run, str] | None = None
        self._stored = 0
        self._unsent: ModelRequest | None = None
        self._offered: list[tuple[str | None, Nudge]] = []
        self._call_ids: set[str] = set()
        self._step = 0
        self._answer: str | None = None

    async def run(self) -> TurnResult:
        """Run the turn; whatever ends it early, the history so far is stored first."""
        history = _load(self.turn.history)
        prompt: str | None = self.turn.prompt.for_model()
        if self.turn.open_calls:
            return await self._stored_on_failure(None, history)
        if self.turn.resumes and self.turn.prompt_in_history:
            history = _without_cut_off_answer(history)
            answer = _final_text(history)
            if answer is not None:
                return self._repeat(answer)
            prompt = None if history else prompt
        if prompt is not None:
            self._unsent = ModelRequest(parts=[UserPromptPart(prompt)])
        return await self._stored_on_failure(prompt, repair_messages(history))

    async def _stored_on_failure(
        self, prompt: str | None, history: list[ModelMessage]
    ) -> TurnResult:
        try:
            return await self._drive(prompt, history)
        except BaseException as error:
            self.turn.checkpoint(self._take())
            if isinstance(error, AgentRunError | UserError):
                raise _failure(error) from error
            raise

    async def gate(self, model: str) -> None:
        """Confirm the nudges that the history now holds; the model is asked after this returns."""
        self._unsent = None
        if self._offered:
            assert self._run is not None
            waiting = {message.enqueue_id for message in self._run.pending_messages}
            held = [nudge for key, nudge in self._offered if key not in waiting]
            for key in waiting:
                self._run.dequeue(key)
            self._offered = []
            if held:
                await self.turn.confirm(held, self._take())
        self._step = self.turn.step_started(model)

    async def _drive(self, prompt: str | None, history: list[ModelMessage]) -> TurnResult:
        self._call_ids.update(part.tool_call_id for part in _tool_calls(history))
        async with self._agent.iter(
            prompt,
            message_history=history or None,
            deps=self,
            instructions=self.turn.instructions or None,
            conversation_id=self.turn.session_id,
            usage_limits=self._limits,
        ) as run:
            node = await self._begin(run)
            while not isinstance(node, End):
                if isinstance(node, ModelRequestNode):
                    node = await self._ask(run, node)
                elif isinstance(node, CallToolsNode):
                    node = await self._act(run, node)
                else:
                    node = await run.next(node)
        return self._end(node.data.output, run.usage)

    async def _begin(self, run: AgentRun[Run, str]) -> Any:
        """Run the node of the prompt and return the next one."""
        await anext(run)
        node = await anext(run)
        self._stored = len(run.all_messages())
        if isinstance(node, ModelRequestNode):
            if node.is_resuming_without_prompt:
                # Its request came with the history, and is put back when it is sent.
                self._stored += 1
            else:
                self._unsent = node.request
        self._run = run
        return node

    async def _ask(self, run: AgentRun[Run, str], node: ModelRequestNode[Run, str]) -> Any:
        """Run one model request and return the next node."""
        try:
            if self._streams:
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        self._relay(event)
            following = await run.next(node)
        except (ThreadlineError, AgentRunError, UserError):
            raise
        except Exception as error:
            raise _failure(error) from error
        if isinstance(following, CallToolsNode):
            self._close_step(following.model_response)
        return following

    async def _act(self, run: AgentRun[Run, str], node: CallToolsNode[Run, str]) -> Any:
        """Run the tool calls of a response, if it has any, and the boundary after them."""
        parts = node.model_response.tool_calls
        if not parts:
            return await run.next(node)
        if not self.turn.open_calls or self._acted:
            self._rename_known_ids(parts)
        self._acted = True
        calls = [ToolCall(part.tool_call_id, part.tool_name, _input(part)) for part in parts]
        if any(call.tool_name in self._gated for call in calls):
            # A call that waits for a person may outlive this process.
            self.turn.checkpoint(self._take())
        async with self.turn.actions(calls) as self.batch:
            for call in calls:
                if call.tool_name not in self.tools:
                    await self.batch.run(call.call_id)
            following = await run.next(node)
            if isinstance(following, ModelRequestNode):
                self._unsent = following.request
        if isinstance(following, ModelRequestNode):
            nudges = await self.turn.boundary(self._take())
            self._offered = [(run.enqueue(nudge.text), nudge) for nudge in nudges]
        return following

    def _take(self) -> list[Any]:
        """Return the records since the last checkpoint, and count them as stored."""
        if self._offered:
            # The nudges are the core's until they are confirmed, and all else is stored.
            return []
        messages = self._run.all_messages() if self._run is not None else []
        unsent = self._unsent
        if unsent is not None and not any(message is unsent for message in messages):
            messages = [*messages, unsent]
        fresh = messages[self._stored :]
        self._stored = len(messages)
        return _dump(fresh)

    def _rename_known_ids(self, parts: Sequence[ToolCallPart]) -> None:
        """Make call ids unique in the session; small and test models use the same ones again."""
        for part in parts:
            base, number = part.tool_call_id, 1
            while part.tool_call_id in self._call_ids:
                number += 1
                part.tool_call_id = f"{base}-{number}"
            self._call_ids.add(part.tool_call_id)

    @property
    def _message_id(self) -> str:
        return f"{self.turn.id}.m{self._step}"

    def _block_id(self, index: int) -> str:
        return f"{self.turn.id}.r{self._step}.{index}"

    def _relay(self, event: AgentStreamEvent) -> None:
        match event:
            case PartStartEvent(part=TextPart(content=text)) if text:
                self.turn.message_delta(self._message_id, text)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                self.turn.message_delta(self._message_id, text)
            case PartStartEvent(index=index, part=ThinkingPart(content=text)) if text:
                self.turn.reasoning_delta(self._block_id(index), text)
            case PartDeltaEvent(index=index, delta=ThinkingPartDelta(content_delta=text)) if text:
                self.turn.reasoning_delta(self._block_id(index), text)
            case PartEndEvent(index=index, part=ThinkingPart(content=text)) if text:
                self.turn.reasoning_completed(self._block_id(index), text)

    def _close_step(self, response: ModelResponse) -> None:
        if not self._streams:
            for index, part in enumerate(response.parts):
                if isinstance(part, ThinkingPart) and part.content:
                    self.turn.reasoning_completed(self._block_id(index), part.content)
        reason = "tool_calls" if response.tool_calls else "stop"
        text = _text(response)
        if text:
            self.turn.message_completed(self._message_id, text, reason)
            if reason == "stop":
                self._answer = text
        if reason == "stop" and response.finish_reason:
            reason = response.finish_reason
        self.turn.step_completed(_tokens(response.usage), reason, _cost(response))

    def _end(self, output: str, usage: RunUsage) -> TurnResult:
        if self._answer is None:
            self._answer = output
            self.turn.message_completed(self._message_id, output, "stop")
        return TurnResult(
            self._answer,
            usage={**_tokens(usage), "requests": usage.requests},
            cost_usd=None if usage.cost is None else float(usage.cost),
            messages=self._take(),
        )

    def _repeat(self, answer: str) -> TurnResult:
        """Give the answer that the history holds already: only the turn's end was lost."""
        self.turn.message_completed(self._message_id, answer, "stop")
        return TurnResult(answer)


class _Tools(AbstractToolset[Run]):
    """The turn's tools. The core validates and runs them, so any arguments pass here."""

    @property
    def id(self) -> str | None:
        return "threadline"

    async def get_tools(self, ctx: RunContext[Run]) -> dict[str, ToolsetTool[Run]]:
        return {
            name: ToolsetTool(
                toolset=self, tool_def=definition, max_retries=0, args_validator=_NO_VALIDATION
            )
            for name, definition in ctx.deps.tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Run], tool: ToolsetTool[Run]
    ) -> Any:
        assert ctx.deps.batch is not None
        assert ctx.tool_call_id is not None
        return _shown(await ctx.deps.batch.run(ctx.tool_call_id))


class _NoValidation:
    """Stands where Pydantic AI wants a validator: the batch holds the input of each call."""

    def validate_json(self, input: Any, **_: Any) -> Any:  # noqa: A002
        return {}

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002
        return {}


_NO_VALIDATION = _NoValidation()


class _Gate(AbstractCapability[Run]):
    """Stands between the history, once it is complete, and the model."""

    async def before_model_request(
        self, ctx: RunContext[Run], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        await ctx.deps.gate(request_context.model.model_name)
        return request_context


def build_agent(model: Model | str, settings: ModelSettings | None) -> Agent[Run, str]:
    """Return the agent that every turn of a harness shares.

    Raises :class:`HarnessFailed` with the failure code ``model_not_configured``.
    """
    try:
        resolved = infer_model(model)
    except (UserError, ValueError, ImportError) as error:
        raise HarnessFailed(
            f"The model {str(model)!r} cannot be used: {error}", code="model_not_configured"
        ) from error
    return Agent(
        resolved,
        deps_type=Run,
        name="threadline",
        model_settings=settings,
        toolsets=[_Tools()],
        capabilities=[_Gate()],
        retries={"tools": _UNKNOWN_TOOL_RETRIES},
    )


def _can_stream(model: Any) -> bool:
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


def _definition(tool: Any) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=dict(tool.input_schema),
    )


def _input(part: ToolCallPart) -> Any:
    """Return the arguments as decoded as they can be; the core says what is wrong with the rest."""
    if not isinstance(part.args, str):
        return part.args or {}
    try:
        return json.loads(part.args or "{}")
    except ValueError:
        return part.args


def _load(records: Sequence[Any]) -> list[ModelMessage]:
    try:
        return ModelMessagesTypeAdapter.validate_python(list(records))
    except ValidationError as error:
        raise HarnessFailed(
            "This session's history was written by another harness. Start a new session.",
            code="history_unreadable",
        ) from error


def _dump(messages: Sequence[ModelMessage]) -> list[Any]:
    kept = [kept for message in messages if (kept := _without_fragments(message)) is not None]
    records: list[Any] = ModelMessagesTypeAdapter.dump_python(kept, mode="json")
    for record in records:
        record.pop("instructions", None)
    return records


def _without_fragments(message: ModelMessage) -> ModelMessage | None:
    """Keep the text of a response that was cut off; half a call or thought helps no model."""
    if not isinstance(message, ModelResponse) or message.state != "interrupted":
        return message
    text = _text(message)
    if not text:
        return None
    return ModelResponse(
        parts=[TextPart(text)],
        usage=message.usage,
        model_name=message.model_name,
        timestamp=message.timestamp,
        run_id=message.run_id,
        conversation_id=message.conversation_id,
        state="interrupted",
    )


def _without_cut_off_answer(history: list[ModelMessage]) -> list[ModelMessage]:
    """Drop a last answer that was cut off: the resumed turn gives it whole."""
    kept = list(history)
    while kept and isinstance(kept[-1], ModelResponse) and kept[-1].state == "interrupted":
        kept.pop()
    return kept


def _final_text(history: Sequence[ModelMessage]) -> str | None:
    last = history[-1] if history else None
    if not isinstance(last, ModelResponse) or last.tool_calls:
        return None
    return _text(last) or None


def _text(response: ModelResponse) -> str:
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _tool_calls(history: Sequence[ModelMessage]) -> list[ToolCallPart]:
    return [
        part
        for message in history
        if isinstance(message, ModelResponse)
        for part in message.tool_calls
    ]


def _shown(result: ToolResult) -> Any:
    """Return a tool's result as the model gets it, with what it may look at."""
    if not result.attachments:
        return result.for_model()
    files = [BinaryContent(item.data, media_type=item.media_type) for item in result.attachments]
    return [result.for_model(), *files]


def _cost(response: ModelResponse) -> float | None:
    """Return the estimated price of a request, or None when the model's price is not known."""
    if response.usage.cost is not None:
        return float(response.usage.cost)
    try:
        return float(response.cost().total_price)
    except (AssertionError, LookupError, ValueError):
        return None


def _tokens(usage: UsageBase) -> dict[str, int]:
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadTokens": usage.cache_read_tokens,
        "cacheWriteTokens": usage.cache_write_tokens,
    }


def _failure(error: Exception) -> HarnessFailed:
    """Say what a person can do about it; the error itself stays the cause."""
    if isinstance(error, UsageLimitExceeded):
        return HarnessFailed(f"The turn was ended by its limit: {error}", code="usage_limit")
    if isinstance(error, ContentFilterError):
        return HarnessFailed("The model's provider filtered the answer.", code="content_filter")
    if isinstance(error, ModelHTTPError):
        code = {401: "model_auth", 403: "model_auth", 429: "model_rate_limited"}.get(
            error.status_code, "model_error"
        )
        return HarnessFailed(
            f"The API of {error.model_name} answered {error.status_code}: {_short(error.body)}",
            code=code,
        )
    return HarnessFailed(f"The model failed: {_short(_named(error))}", code="model_error")


def _named(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        # All models of a FallbackModel failed, and the group's own text names none of them.
        return "; ".join(_named(part) for part in error.exceptions)
    if isinstance(error, AgentRunError | UserError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 500 else text[:499] + "…"
