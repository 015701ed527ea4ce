"""threadline: durable agents that live where a team already talks.

Names are imported from here; nothing heavy is loaded before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadline.agent.approval import Approval, ApprovalRequest
    from threadline.agent.artifacts import Artifacts, Kind
    from threadline.agent.config import Agent, Local
    from threadline.agent.content import Content, File, Image
    from threadline.agent.context import ToolContext, ToolSession
    from threadline.agent.tools import Tool, tool
    from threadline.agent.transient import TransientToolError
    from threadline.channel.channel import Channel, ChannelEventHandlers, Route
    from threadline.channel.context import (
        Accepted,
        Context,
        Delivery,
        EventContext,
        EventStream,
        Reply,
        RouteContext,
        Session,
    )
    from threadline.channel.outbox import CanEdit, CanFind, Post, Target, TryAgain
    from threadline.errors import ThreadlineError
    from threadline.events import (
        AbAssigned,
        ActionResult,
        ActionsCompleted,
        ActionsRequested,
        AgentBound,
        ApprovalRequested,
        ApprovalResolved,
        ArtifactTagged,
        DeliveriesCleared,
        Event,
        FeedbackGiven,
        LogRecovered,
        MessageAppended,
        MessageCompleted,
        MessageReceived,
        NudgeDelivered,
        ReasoningAppended,
        ReasoningCompleted,
        SessionCompleted,
        SessionFailed,
        SessionStarted,
        SessionWaiting,
        StepCompleted,
        StepStarted,
        SubagentCalled,
        SubagentCompleted,
        ToolRetry,
        TurnCompleted,
        TurnFailed,
        TurnQueued,
        TurnStarted,
        Usage,
        parse_event,
    )
    from threadline.principal import Principal
    from threadline.session.limits import Limits
    from threadline.session.prepare import Prepared
    from threadline.store.base import Artifact

__all__ = [
    "AbAssigned",
    "Accepted",
    "ActionResult",
    "ActionsCompleted",
    "ActionsRequested",
    "Agent",
    "AgentBound",
    "Approval",
    "ApprovalRequest",
    "ApprovalRequested",
    "ApprovalResolved",
    "Artifact",
    "ArtifactTagged",
    "Artifacts",
    "CanEdit",
    "CanFind",
    "CanRemove",
    "Channel",
    "ChannelEventHandlers",
    "Content",
    "Context",
    "DeliveriesCleared",
    "Delivery",
    "Event",
    "EventContext",
    "EventStream",
    "FeedbackGiven",
    "File",
    "Image",
    "Kind",
    "Limits",
    "Local",
    "LogRecovered",
    "MessageAppended",
    "MessageCompleted",
    "MessageReceived",
    "NudgeDelivered",
    "Post",
    "Prepared",
    "Principal",
    "ReasoningAppended",
    "ReasoningCompleted",
    "Reply",
    "Route",
    "RouteContext",
    "Session",
    "SessionCompleted",
    "SessionFailed",
    "SessionStarted",
    "SessionWaiting",
    "StepCompleted",
    "StepStarted",
    "SubagentCalled",
    "SubagentCompleted",
    "Target",
    "ThreadlineError",
    "Tool",
    "ToolContext",
    "ToolRetry",
    "ToolSession",
    "TransientToolError",
    "TryAgain",
    "TurnCompleted",
    "TurnFailed",
    "TurnQueued",
    "TurnStarted",
    "Usage",
    "parse_event",
    "tool",
]

_HOME = {
    "agent.artifacts": ("Artifacts", "Kind"),
    "agent.approval": ("Approval", "ApprovalRequest"),
    "agent.config": ("Agent", "Local"),
    "agent.content": ("Content", "File", "Image"),
    "agent.context": ("ToolContext", "ToolSession"),
    "agent.tools": ("Tool", "tool"),
    "agent.transient": ("TransientToolError",),
    "channel.channel": ("Channel", "ChannelEventHandlers", "Route"),
    "channel.context": (
        "Accepted",
        "Context",
        "Delivery",
        "EventContext",
        "EventStream",
        "Reply",
        "RouteContext",
        "Session",
    ),
    "channel.outbox": ("CanEdit", "CanFind", "CanRemove", "Post", "Target", "TryAgain"),
    "errors": ("ThreadlineError",),
    "principal": ("Principal",),
    "session.limits": ("Limits",),
    "session.prepare": ("Prepared",),
    "store.base": ("Artifact",),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'threadline' has no attribute {name!r}")
    module = importlib.import_module(f"threadline.{_MODULES.get(name, 'events')}")
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
