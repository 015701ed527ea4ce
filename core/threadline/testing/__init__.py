"""Test doubles and checks for agents and channels; nothing heavy is loaded before it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadline.harness.scripted import (
        Call,
        Calls,
        Fail,
        Reason,
        Say,
        Script,
        Scripted,
        Step,
        Wait,
        echo,
    )
    from threadline.testing.clock import ManualClock
    from threadline.testing.conformance import channel_checks, channel_conformance
    from threadline.testing.conformance.kit import ChannelKit, Posted
    from threadline.testing.conformance.report import Report, Result
    from threadline.testing.faults import Crashed, FaultyDisk, crash
    from threadline.testing.harness import Gate, Gated
    from threadline.testing.host import TestHost
    from threadline.testing.inbound import (
        Answer,
        Inbound,
        github_signature,
        signed_request,
        slack_signature,
    )
    from threadline.testing.laws import LawBroken, check_laws, violations
    from threadline.testing.session import HostSession
    from threadline.testing.watched import Witness

__all__ = [
    "Answer",
    "Call",
    "Calls",
    "ChannelKit",
    "Crashed",
    "Fail",
    "FaultyDisk",
    "Gate",
    "Gated",
    "HostSession",
    "Inbound",
    "LawBroken",
    "ManualClock",
    "Posted",
    "Reason",
    "Report",
    "Result",
    "Say",
    "Script",
    "Scripted",
    "Step",
    "TestHost",
    "Wait",
    "Witness",
    "channel_checks",
    "channel_conformance",
    "check_laws",
    "crash",
    "echo",
    "github_signature",
    "signed_request",
    "slack_signature",
    "violations",
]

_HOME = {
    "harness.scripted": (
        "Call",
        "Calls",
        "Fail",
        "Reason",
        "Say",
        "Script",
        "Scripted",
        "Step",
        "Wait",
        "echo",
    ),
    "testing.clock": ("ManualClock",),
    "testing.conformance": ("channel_checks", "channel_conformance"),
    "testing.faults": ("Crashed", "FaultyDisk", "crash"),
    "testing.harness": ("Gate", "Gated"),
    "testing.host": ("TestHost",),
    "testing.inbound": (
        "Answer",
        "Inbound",
        "github_signature",
        "signed_request",
        "slack_signature",
    ),
    "testing.conformance.kit": ("ChannelKit", "Posted"),
    "testing.laws": ("LawBroken", "check_laws", "violations"),
    "testing.conformance.report": ("Report", "Result"),
    "testing.session": ("HostSession",),
    "testing.watched": ("Witness",),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'threadline.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"threadline.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
