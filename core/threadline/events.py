"""Every event of the log, as readers see it.

Source: the wire contract, "Stream events". A line is ``{type, index, sessionId, turnId?, at,
data}``.
Readers ignore fields they do not know, so the models keep extra fields, and an event of an unknown
type is read with :class:`EventData`. Writers do not use these models; see :mod:`threadline.ndjson`.
"""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

__all__ = [
    "EVENT_TYPES",
    "AbAssigned",
    "ActionCall",
    "ActionResult",
    "ActionsCompleted",
    "ActionsRequested",
    "AgentBound",
    "ApprovalRequested",
    "ApprovalResolved",
    "ArtifactTagged",
    "DeliveriesCleared",
    "ErrorInfo",
    "Event",
    "EventData",
    "FeedbackGiven",
    "LogRecovered",
    "MessageAppended",
    "MessageCompleted",
    "MessagePart",
    "MessageReceived",
    "NudgeDelivered",
    "ReasoningAppended",
    "ReasoningCompleted",
    "SessionCompleted",
    "SessionFailed",
    "SessionStarted",
    "SessionWaiting",
    "StepCompleted",
    "StepStarted",
    "SubagentCalled",
    "SubagentCompleted",
    "ToolRetry",
    "TurnCompleted",
    "TurnFailed",
    "TurnQueued",
    "TurnStarted",
    "Usage",
    "parse_event",
]


class EventData(BaseModel):
    """What an event carries; fields that a reader does not know are kept."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True
    )


class Usage(EventData):
    """Token counts, and how many model requests they took."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    requests: int = 0


class ErrorInfo(EventData):
    """A stable code and a sentence."""

    code: str = "unknown"
    message: str = ""


class SessionStarted(EventData):
    """A session exists; always index 0."""

    agent: str = ""
    channel: str = ""
    mode: Literal["chat", "task"] = "chat"
    principal: dict[str, Any] = Field(default_factory=dict)
    title: str | None = None
    purpose: str | None = None
    dry_run: bool | None = None
    as_of: str | None = None
    parent: str | None = None


class SessionWaiting(EventData):
    """A chat session is ready for the next message."""


class SessionCompleted(EventData):
    """A task session ended well."""

    result: Any = None


class SessionFailed(EventData):
    """A task session ended badly."""

    error: ErrorInfo = ErrorInfo()


class AgentBound(EventData):
    """The harness named its own conversation."""

    harness: str = ""
    conversation_id: str = ""
    url: str | None = None


class AbAssigned(EventData):
    """The session joined an experiment."""

    experiment: str = ""
    variant: str = ""


class MessagePart(EventData):
    """One delivery within a prompt."""

    delivery_id: str
    text: str
    sender: dict[str, Any] | None = None
    at: str | None = None


class MessageReceived(EventData):
    """The prompt of a turn: its parts joined by a blank line, in arrival order."""

    text: str = ""
    delivery_ids: list[str] = Field(default_factory=list)
    parts: list[MessagePart] = Field(default_factory=list)
    context: list[str] | None = None
    attachments: list[dict[str, Any]] | None = None


class NudgeDelivered(EventData):
    """A delivery reached the running turn at a tool boundary."""

    text: str = ""
    delivery_id: str | None = None
    sender: dict[str, Any] | None = None
    after_call_ids: list[str] = Field(default_factory=list)


class DeliveriesCleared(EventData):
    """Pending deliveries were dropped on purpose."""

    delivery_ids: list[str] = Field(default_factory=list)
    reason: str = ""


class TurnQueued(EventData):
    """The turn waits for a free slot; position 1 is next."""

    position: int = 0


class TurnStarted(EventData):
    """The turn runs; ``resumes`` names the interrupted turn that it continues."""

    attempt: int = 1
    resumes: str | None = None
    model: str | None = None


class TurnCompleted(EventData):
    """The turn ended well."""

    result: Any = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    duration_ms: int = 0


class TurnFailed(EventData):
    """The turn ended early; ``asks`` when a write was open and a person must decide."""

    status: Literal["failed", "cancelled", "interrupted"] = "failed"
    code: str = "unknown"
    message: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None
    asks: bool | None = None


class StepStarted(EventData):
    """A model request begins."""

    step: int = 0
    model: str | None = None


class StepCompleted(EventData):
    """A model request has its answer."""

    step: int = 0
    duration_ms: int = 0
    usage: Usage | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None


class ReasoningAppended(EventData):
    """A piece of a reasoning block; handlers also get ``text``, everything so far."""

    block_id: str = ""
    delta: str = ""
    text: str | None = None


class ReasoningCompleted(EventData):
    """A whole reasoning block; authoritative over its pieces."""

    block_id: str = ""
    text: str = ""


class MessageAppended(EventData):
    """A piece of an assistant message; handlers also get ``text``, everything so far."""

    message_id: str = ""
    delta: str = ""
    text: str | None = None


class MessageCompleted(EventData):
    """A whole assistant message; ``finish_reason == "stop"`` marks the final answer."""

    message_id: str = ""
    text: str = ""
    finish_reason: str = "stop"
    parent_call_id: str | None = None


class ActionCall(EventData):
    """One tool call that the model asked for, with validated arguments."""

    call_id: str
    tool_name: str
    input: Any = None
    effect: Literal["read", "write"] = "read"


class ActionsRequested(EventData):
    """The tool calls of one model step."""

    step: int = 0
    calls: list[ActionCall] = Field(default_factory=list)


class ActionsCompleted(EventData):
    """All tool calls of one model step have their results."""

    step: int = 0
    call_ids: list[str] = Field(default_factory=list)


class ActionResult(EventData):
    """One tool call's output or error; in a dry run a write's output is its stub.

    ``attachments`` are images and files, ``{blobId, mediaType, size, name?}`` each.
    """

    call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    output: Any = None
    error: ErrorInfo | None = None
    duration_ms: int = 0
    truncated: dict[str, Any] | None = None
    attachments: list[dict[str, Any]] | None = None
    dry_run: bool | None = None


class ToolRetry(EventData):
    """A read runs again after a transient failure."""

    call_id: str = ""
    tool_name: str = ""
    attempt: int = 0
    delay_ms: int = 0
    error: ErrorInfo = ErrorInfo()


class ApprovalRequested(EventData):
    """A tool call is parked until an entitled person decides."""

    call_id: str = ""
    tool_name: str = ""
    input: Any = None
    approvers: list[Any] | None = None
    expires_at: str | None = None


class ApprovalResolved(EventData):
    """A parked tool call was decided."""

    call_id: str = ""
    decision: Literal["approved", "denied", "expired", "superseded"] = "denied"
    by: dict[str, Any] | None = None
    reason: str | None = None


class SubagentCalled(EventData):
    """Work was delegated."""

    call_id: str = ""
    agent: str = ""
    prompt: str = ""


class SubagentCompleted(EventData):
    """Delegated work came back."""

    call_id: str = ""
    agent: str = ""
    is_error: bool = False
    result: Any = None
    usage: Usage | None = None


class ArtifactTagged(EventData):
    """A durable artifact belongs to this session."""

    artifact_id: str = ""
    kind: str = ""
    key: str = ""
    title: str | None = None


class FeedbackGiven(EventData):
    """What somebody thinks of a turn's answer; of each person the last one about it counts.

    ``message_ref`` is the channel's own name of the message that they saw.
    """

    rating: Literal["positive", "negative"] = "positive"
    by: dict[str, Any] | None = None
    turn_id: str | None = None
    message_ref: str | None = None
    comment: str | None = None


class LogRecovered(EventData):
    """Indices ``from`` to ``to`` may have been seen before a power cut and are never used again."""

    from_: int = Field(default=0, alias="from")
    to: int = 0


EVENT_TYPES: dict[str, type[EventData]] = {
    "ab.assigned": AbAssigned,
    "action.approval_requested": ApprovalRequested,
    "action.approval_resolved": ApprovalResolved,
    "action.result": ActionResult,
    "action.tool_retry": ToolRetry,
    "actions.completed": ActionsCompleted,
    "actions.requested": ActionsRequested,
    "agent.bound": AgentBound,
    "artifact.tagged": ArtifactTagged,
    "deliveries.cleared": DeliveriesCleared,
    "feedback.given": FeedbackGiven,
    "log.recovered": LogRecovered,
    "message.appended": MessageAppended,
    "message.completed": MessageCompleted,
    "message.received": MessageReceived,
    "nudge.delivered": NudgeDelivered,
    "reasoning.appended": ReasoningAppended,
    "reasoning.completed": ReasoningCompleted,
    "session.completed": SessionCompleted,
    "session.failed": SessionFailed,
    "session.started": SessionStarted,
    "session.waiting": SessionWaiting,
    "step.completed": StepCompleted,
    "step.started": StepStarted,
    "subagent.called": SubagentCalled,
    "subagent.completed": SubagentCompleted,
    "turn.completed": TurnCompleted,
    "turn.failed": TurnFailed,
    "turn.queued": TurnQueued,
    "turn.started": TurnStarted,
}

D = TypeVar("D", bound=EventData)


class Event(BaseModel, Generic[D]):
    """One line of a session's log."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="allow", frozen=True
    )

    type: str
    index: int
    session_id: str
    turn_id: str | None = None
    at: datetime
    data: D


def parse_event(line: bytes | str | dict[str, Any]) -> Event[Any]:
    """Read one stored line, or the object it holds.

    Raises :class:`pydantic.ValidationError` when the line is not an event.
    """
    if isinstance(line, dict):
        raw: dict[str, Any] = line
    else:
        import orjson

        raw = orjson.loads(line)
    model = EVENT_TYPES.get(str(raw.get("type")), EventData)
    return _typed(model).model_validate(raw)


@functools.cache
def _typed(model: type[EventData]) -> type[Event[Any]]:
    """Return the class of such events; pydantic itself forgets it when nobody holds it."""
    return Event[model]  # type: ignore[valid-type]
