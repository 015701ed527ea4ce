"""What the host's and the agent's own routes answer, as their handlers and the document have it."""

# ruff: noqa: N815 - keys are as the wire has them
from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from threadline.channel.answers import Ok
from threadline.store.base import Admission, DeliveryState

__all__ = [
    "AgentList",
    "ArtifactEntry",
    "ArtifactList",
    "DeliveryFate",
    "Info",
    "InputRefused",
    "LogPage",
    "ToolCalled",
    "ToolDetail",
    "ToolEntry",
    "ToolFailed",
    "ToolList",
]


class AgentEntry(TypedDict):
    """A mounted agent; its routes are below ``url``."""

    slug: str
    name: str
    description: str | None
    url: str


class AgentList(TypedDict):
    """The mounted agents."""

    agents: list[AgentEntry]


# Discovery


class ToolEntry(TypedDict):
    """A tool; ``source`` is ``file:line``."""

    name: str
    source: str
    title: NotRequired[str]


class ToolList(TypedDict):
    """The tools; ``connectionErrors`` names connections that could not list theirs."""

    tools: list[ToolEntry]
    connectionErrors: dict[str, str]


class ApprovalRule(TypedDict):
    """Who may decide a call, where that is a list, and for how long it waits."""

    approvers: NotRequired[list[str]]
    expiresSeconds: float


class ToolDetail(TypedDict):
    """A tool's schemas and rules."""

    name: str
    description: str
    inputSchema: dict[str, Any]
    outputSchema: NotRequired[dict[str, Any]]
    effect: Literal["read", "write"]
    execution: Literal["server", "agent"]
    approval: NotRequired[ApprovalRule]
    dryRun: Literal["runs", "stubbed"]
    timeArguments: list[str]
    maxCalls: NotRequired[int]
    timeoutSeconds: float
    retries: int
    idempotent: bool
    source: str
    title: NotRequired[str]


class RouteEntry(TypedDict):
    """A channel's route."""

    method: str
    path: str
    description: str


class ChannelEntry(TypedDict):
    """A channel; ``events`` are the types that it handles."""

    id: str
    admission: Admission
    owner: Literal["caller", "channel"]
    routes: list[RouteEntry]
    events: list[str]


class ChannelTypeEntry(TypedDict):
    """A channel that an installed package offers; ``problem`` says why it cannot be used."""

    name: str
    value: str
    distribution: str | None
    version: str | None
    problem: NotRequired[str]


class SkillEntry(TypedDict):
    """A procedure that the model loads on demand."""

    name: str
    description: str


class Info(TypedDict):
    """What discovery found."""

    name: str
    slug: str
    description: str | None
    version: str
    harness: str | None
    model: str | None
    onRestart: str
    maxRunningTurns: int | None
    tools: list[ToolEntry]
    skills: list[SkillEntry]
    channels: list[ChannelEntry]
    artifacts: dict[str, Any]
    channelTypes: list[ChannelTypeEntry]
    diagnostics: list[str]


class LogPage(TypedDict):
    """Log records that the caller may see; ``next`` is the cursor to poll with."""

    logs: list[dict[str, Any]]
    next: int


# Work


class AttachedPart(TypedDict):
    """An image or a file that the tool returned; ``data`` is base64."""

    type: Literal["image", "audio", "file"]
    mediaType: str
    size: int
    data: str
    name: NotRequired[str]


class InputProblem(TypedDict):
    """What is wrong with the input; ``path`` is such as ``items.0.count``."""

    path: str
    message: str


class ToolCalled(Ok):
    """What the tool returned; ``content`` has what is beside the result."""

    isError: Literal[False]
    result: Any
    callId: str
    toolName: str
    content: NotRequired[list[AttachedPart]]
    dryRun: NotRequired[bool]


class ToolFailed(TypedDict):
    """Why the tool returned nothing: a stable code and a sentence."""

    ok: Literal[False]
    isError: Literal[True]
    error: str
    message: str
    callId: str
    toolName: str
    content: NotRequired[list[AttachedPart]]
    dryRun: NotRequired[bool]


class InputRefused(ToolFailed):
    """Why the tool did not run."""

    problems: list[InputProblem]


class OutboundEntry(TypedDict):
    """A post of the channel: what it became, why not, or when it was meant."""

    channel: str
    ref: NotRequired[str]
    failure: NotRequired[str]
    at: NotRequired[str | None]
    intentAt: NotRequired[str]


class DeliveryFate(TypedDict):
    """What became of a delivery, and what the channel posted for it."""

    deliveryId: str
    sessionId: str
    channel: str
    state: DeliveryState
    admission: Admission
    at: str
    eventIndex: NotRequired[int]
    turnId: NotRequired[str]
    outbound: list[OutboundEntry]


class ArtifactEntry(TypedDict):
    """An artifact; one with content has its size, and where to read it."""

    id: str
    kind: str
    key: str
    title: NotRequired[str]
    data: NotRequired[Any]
    sessionId: NotRequired[str]
    createdAt: str
    updatedAt: str
    size: NotRequired[int]
    contentType: NotRequired[str]
    filename: NotRequired[str]
    contentUrl: NotRequired[str]
    dryRun: NotRequired[bool]


class ArtifactList(TypedDict):
    """The artifacts that the caller may read, the newest first."""

    artifacts: list[ArtifactEntry]
