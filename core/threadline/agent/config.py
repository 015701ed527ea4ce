"""How an agent is configured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from threadline.agent.artifacts import Artifacts
from threadline.agent.tools import Tool
from threadline.errors import UnsupportedOption
from threadline.session.limits import Limits

if TYPE_CHECKING:
    from threadline.harness.base import Harness

__all__ = ["Agent", "Local", "is_channel_id"]

_CHANNEL_ID = re.compile(r"[a-z0-9][a-z0-9_-]*")


def is_channel_id(text: str) -> bool:
    """Tell whether the text can name a channel in a URL and a file."""
    return _CHANNEL_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """Where the turns of an agent run.

    ``cwd``: a folder to run in instead of the session's own workspace, so that settings and
    ``AGENTS.md`` files around the workspace do not leak in; a relative one starts at the project.
    """

    cwd: Path | str | None = None

    def __post_init__(self) -> None:
        if self.cwd is not None and not isinstance(self.cwd, (str, Path)):
            raise ValueError(f"Local.cwd must be a path, not {_shown(self.cwd)}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Agent:
    """What configures an agent; every field is optional.

    ``harness``: what runs the turns; without one they fail with ``model_not_configured``.
    ``instructions``: the prompt inline, instead of a file. ``auth``: the HTTP chain, a list of
    policies; None admits the local developer, ``[]`` nobody. ``max_running_turns``: None is no cap.
    ``on_restart``: whether an interrupted turn goes on. ``retention``: how long a session is kept
    after its last event; None keeps it. ``settle_seconds``: the grace of an interrupted turn.
    ``limits``: what ends a turn or a session that runs away.
    ``drain_seconds``: the grace of running turns at shutdown. ``blob_threshold``: bytes of a tool
    output above which the log holds a preview. ``tools`` and ``channels`` (by id) add to what the
    project's folders declare; ``artifacts`` stands for ``artifacts.py``.

    Raises ValueError for a value that cannot be, and
    :class:`~threadline.errors.UnsupportedOption` for an option that this version does not honour.
    """

    name: str | None = None
    description: str | None = None
    harness: Harness | None = None
    instructions: str | None = None
    auth: Sequence[Callable[..., Any]] | None = None
    local: Local | None = None
    max_running_turns: int | None = None
    on_restart: Literal["resume", "fail"] = "resume"
    retention: timedelta | None = None
    limits: Limits = field(default_factory=Limits)
    settle_seconds: float = 10.0
    drain_seconds: float = 10.0
    blob_threshold: int = 256 * 1024
    tools: Sequence[Tool] = ()
    channels: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Artifacts | None = None
    experiments: InitVar[Any] = None

    def __post_init__(self, experiments: Any) -> None:
        if experiments:
            raise UnsupportedOption(
                "Agent(experiments=…) is not honoured by this version: remove it, and configure "
                "the one variant that you want."
            )
        self._check_texts()
        self._check_limits()
        self._check_parts()
        _check_tools(self.tools)
        _check_channels(self.channels)

    def _check_texts(self) -> None:
        for option in ("name", "description", "instructions"):
            text = getattr(self, option)
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise ValueError(f"Agent.{option} must be a text that is not empty, or None.")

    def _check_limits(self) -> None:
        cap = self.max_running_turns
        if cap is not None and not _is_count(cap):
            raise ValueError(
                f"Agent.max_running_turns must be a whole number from 1, or None for no cap, "
                f"not {cap!r}."
            )
        if not _is_count(self.blob_threshold):
            raise ValueError(
                f"Agent.blob_threshold must be a number of bytes from 1, "
                f"not {self.blob_threshold!r}."
            )
        for option in ("settle_seconds", "drain_seconds"):
            if not _is_duration(getattr(self, option)):
                raise ValueError(
                    f"Agent.{option} must be a number of seconds from 0, "
                    f"not {getattr(self, option)!r}."
                )

    def _check_parts(self) -> None:
        if self.harness is not None and not _is_harness(self.harness):
            raise ValueError(
                f"Agent.harness must be a harness such as PydanticAI('<model>'), "
                f"not {_shown(self.harness)}."
            )
        if self.auth is not None and not _is_chain(self.auth):
            raise ValueError("Agent.auth must be a list of policies, such as [local_dev_strict()].")
        if self.artifacts is not None and not isinstance(self.artifacts, Artifacts):
            raise ValueError(f"Agent.artifacts must be Artifacts(…), not {_shown(self.artifacts)}.")
        if self.local is not None and not isinstance(self.local, Local):
            raise ValueError(f"Agent.local must be Local(cwd=…), not {_shown(self.local)}.")
        if not isinstance(self.limits, Limits):
            raise ValueError(f"Agent.limits must be Limits(…), not {_shown(self.limits)}.")
        if self.on_restart not in ("resume", "fail"):
            raise ValueError(
                f"Agent.on_restart must be 'resume' or 'fail', not {self.on_restart!r}."
            )
        if self.retention is not None and not (
            isinstance(self.retention, timedelta) and self.retention > timedelta(0)
        ):
            raise ValueError(
                "Agent.retention must be a timedelta above zero, or None to keep everything."
            )


def _check_tools(tools: Sequence[Tool]) -> None:
    if isinstance(tools, (str, Tool)) or not isinstance(tools, Sequence):
        raise ValueError("Agent.tools must be a list of tools.")
    names: set[str] = set()
    for tool in tools:
        if not isinstance(tool, Tool):
            raise ValueError(
                f"Agent.tools holds {_shown(tool)}: put the decorator @tool on the function."
            )
        if tool.name in names:
            raise ValueError(f'Agent.tools has two tools named "{tool.name}": rename one.')
        names.add(tool.name)


def _check_channels(channels: Mapping[str, Any]) -> None:
    if not isinstance(channels, Mapping):
        raise ValueError("Agent.channels must map a channel's id to the channel.")
    for channel_id, channel in channels.items():
        if not (isinstance(channel_id, str) and is_channel_id(channel_id)):
            raise ValueError(
                f"Agent.channels: {channel_id!r} cannot name a channel; use lower-case letters, "
                f"digits, '-' and '_'."
            )
        if not hasattr(channel, "routes"):
            raise ValueError(
                f"Agent.channels[{channel_id!r}] must be a Channel, not {_shown(channel)}."
            )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_duration(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def _is_harness(value: Any) -> bool:
    # A class has all these attributes too, but nothing has configured it yet.
    return not isinstance(value, type) and all(
        hasattr(value, attribute) for attribute in ("name", "capabilities", "run")
    )


def _is_chain(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(callable(policy) for policy in value)
    )


def _shown(value: Any) -> str:
    kind = value.__name__ if isinstance(value, type) else type(value).__name__
    return f"the class {kind}" if isinstance(value, type) else f"a {kind}"
