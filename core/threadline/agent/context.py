"""What a tool is given: its call, its session, a log and kept values."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from threadline.agent.process import Completed
    from threadline.agent.shelf import ContextArtifacts
    from threadline.clock import Clock
    from threadline.principal import Principal

__all__ = ["KeyValues", "Log", "ToolContext", "ToolLog", "ToolSession"]


class KeyValues(Protocol):
    """JSON values that the store keeps for the agent."""

    async def get(self, key: str) -> Any:
        """Return a kept value, or None."""

    async def put(self, key: str, value: Any) -> None:
        """Keep a JSON value."""

    async def delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""


class Log(Protocol):
    """A logger that takes an event and its fields, as structlog's do."""

    def debug(self, event: str, **fields: Any) -> Any:
        """Log what only a developer wants to see."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log what happened."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Log what somebody should look at."""

    def error(self, event: str, **fields: Any) -> Any:
        """Log what went wrong; ``exc_info`` takes the exception."""


class ToolLog:
    """A :class:`Log` on the standard library's logger ``threadline.tools``."""

    def __init__(self, **bound: Any) -> None:
        self._bound = bound
        self._logger = logging.getLogger("threadline.tools")

    def debug(self, event: str, **fields: Any) -> None:
        """Log what only a developer wants to see."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Log what happened."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Log what somebody should look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Log what went wrong; ``exc_info`` takes the exception."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        exc_info = fields.pop("exc_info", None)
        shown = [f"{key}={value!r}" for key, value in {**self._bound, **fields}.items()]
        self._logger.log(level, "%s", " ".join([event, *shown]), exc_info=exc_info)


@dataclass(frozen=True, slots=True)
class ToolSession:
    """What a tool sees of the session that its call belongs to.

    ``dry_run``: writes are stubbed; ``as_of``: the time that it runs as of, None for now.
    """

    id: str
    channel: str
    mode: Literal["chat", "task"] = "chat"
    purpose: str | None = None
    continuation_token: str | None = None
    dry_run: bool = False
    as_of: datetime | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class ToolContext:
    """What a tool knows of its call.

    ``session`` is None when the call is bound to none; ``direct`` says that a person or program,
    not the model, made it; ``workspace`` is the session's folder (the process runs elsewhere).
    ``purpose`` is the call's or its session's, such as ``"eval"``. In a ``dry_run`` writes are not
    run; ``as_of`` is the time that the call runs as of, None for now. ``approved_by`` decided that
    a call which had to wait may run.
    """

    call_id: str
    tool_name: str
    principal: Principal
    clock: Clock = field(repr=False)
    kv: KeyValues = field(repr=False)
    session: ToolSession | None = None
    workspace: Path | None = None
    direct: bool = False
    purpose: str | None = None
    dry_run: bool = False
    as_of: datetime | None = None
    approved_by: Principal | None = None
    log: Log = field(default_factory=ToolLog, repr=False)
    shelf: ContextArtifacts | None = field(default=None, repr=False)

    @property
    def artifacts(self) -> ContextArtifacts:
        """The artifacts of the session's owner, or of the caller where there is no session."""
        if self.shelf is None:
            raise RuntimeError("This call was made without a host, so it has no artifacts.")
        return self.shelf

    async def run(
        self,
        *command: str,
        stdin: bytes | str | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        limit: int = 1024 * 1024,
    ) -> Completed:
        """Run a command in the workspace to its end; everything that it starts ends with it.

        It sees little of the host's environment, and none of its secrets; ``env`` adds to that.
        ``timeout`` is in seconds, ``limit`` in bytes of each output that are kept. A command that
        fails has a ``returncode`` that is not 0. Raises TimeoutError, and OSError when it cannot be
        started.
        """
        from threadline.agent.process import run
        from threadline.agent.started import Started, current

        started = current() or Started(self.call_id, log=self.log)
        return await run(
            command,
            started=started,
            cwd=self.workspace,
            stdin=stdin,
            timeout=timeout,
            env=env,
            limit=limit,
        )

    def now(self) -> datetime:
        """Return the time that the call runs as of, else the time; timezone-aware, in UTC."""
        return self.clock.now() if self.as_of is None else self.as_of
