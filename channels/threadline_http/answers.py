"""What the routes answer, as their handlers and the OpenAPI document have it."""

# ruff: noqa: N815 - keys are as the wire has them
from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from threadline.channel.answers import DeliveryAnswer, LoggedEvent, Ok

__all__ = [
    "ApprovalDecided",
    "Approvals",
    "Cost",
    "EventDump",
    "ParkedCall",
    "SessionAnswer",
    "SessionDeleted",
    "SessionEntry",
    "Sessions",
    "TurnStopped",
]


class SessionAnswer(DeliveryAnswer):
    """The message is durable, and its turn starts; ``continuationToken`` is for the next one."""

    playgroundUrl: str
    traceUrl: str


class EventDump(TypedDict):
    """The recorded events, from an index on."""

    sessionId: str
    events: list[LoggedEvent]
    playgroundUrl: str


class TurnStopped(Ok):
    """Whether there was anything to stop."""

    sessionId: str
    stopped: bool


class TurnCost(TypedDict):
    """What one turn took; ``usage`` counts tokens by kind."""

    turnId: str
    usage: dict[str, int]
    costUsd: float | None
    model: NotRequired[str]


class TotalCost(TypedDict):
    """What all turns took; the cost is null when that of any turn is not known."""

    usage: dict[str, int]
    costUsd: float | None


class Cost(TypedDict):
    """What a session's turns took."""

    sessionId: str
    turns: list[TurnCost]
    total: TotalCost
    unknownModels: list[str]


class ParkedCall(TypedDict):
    """A tool call that waits for a person."""

    callId: str
    toolName: str
    input: Any
    turnId: str
    requestedAt: str
    expiresAt: str
    approvers: NotRequired[list[Any]]


class Approvals(TypedDict):
    """The tool calls of a session that wait for a person, oldest first."""

    sessionId: str
    approvals: list[ParkedCall]


class ApprovalDecided(Ok):
    """The decision that counts."""

    sessionId: str
    callId: str
    decision: Literal["approved", "denied"]
    by: dict[str, Any]


class SessionDeleted(Ok):
    """The session is gone, with everything of it."""

    sessionId: str
    deleted: Literal[True]


class SessionEntry(TypedDict):
    """A stored conversation."""

    sessionId: str
    channel: str
    mode: Literal["chat", "task"]
    status: str
    createdAt: str
    principal: dict[str, Any]
    title: NotRequired[str]
    purpose: NotRequired[str]
    dryRun: NotRequired[bool]
    asOf: NotRequired[str]


class Sessions(TypedDict):
    """The sessions that the caller may list, newest first."""

    sessions: list[SessionEntry]
