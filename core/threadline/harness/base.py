"""What runs a turn: the protocol between the core and a harness.

A harness gets a :class:`Turn` and returns a :class:`TurnResult`. Everything it says goes through
the turn, in this order within a step: ``step_started``, deltas, ``step_completed``, ``actions``
(the step's tool calls), ``boundary``. At the boundary, and nowhere else, it asks for nudges. It
puts them into its own history, and when that holds them calls ``confirm``; only then may the model
go on.

Cancellation is asyncio cancellation. A harness that catches it to clean up calls ``checkpoint``
with the messages it has and raises it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from threadline.principal import Principal

__all__ = [
    "ActionBatch",
    "Attachment",
    "Capabilities",
    "Harness",
    "Nudge",
    "Prompt",
    "PromptPart",
    "ToolCall",
    "ToolInfo",
    "ToolResult",
    "Turn",
    "TurnResult",
]

Effect = Literal["read", "write"]
Execution = Literal["server", "agent"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a harness can do; the core never claims more.

    ``steers``: takes nudges at tool boundaries. ``streams``: emits deltas. ``resumes``: can go on
    from a checkpoint of an interrupted turn. ``parks``: goes on with ``Turn.open_calls`` when the
    host stopped while calls waited for an approval. ``workspace``: reads its working folder, skills
    and ``AGENTS.md`` by itself, so the core offers neither tools nor notes for them.
    """

    steers: bool = True
    streams: bool = True
    resumes: bool = True
    parks: bool = False
    workspace: bool = False


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One delivery within a prompt."""

    delivery_id: str
    text: str
    sender: Mapping[str, Any] | None = None
    at: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the turn answers: the parts joined by a blank line, and context the model also sees."""

    text: str
    parts: Sequence[PromptPart] = ()
    context: Sequence[str] = ()
    attachments: Sequence[Mapping[str, Any]] = ()

    def for_model(self) -> str:
        """Return the text for the model: the context blocks, then the message."""
        return "\n\n".join([*self.context, self.text])


@dataclass(frozen=True, slots=True)
class Nudge:
    """A delivery offered to the running turn."""

    delivery_id: str
    text: str
    sender: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool as the model sees it; ``input_schema`` is JSON Schema of an object.

    ``approval``: a call may wait for a person, so the harness stores the step that made it with
    ``Turn.checkpoint`` before it runs the step's calls. The rest is for channels: ``output_schema``
    is JSON Schema of any value, ``idempotent`` says that a write may run again, ``source`` is
    ``file:line``, or ``threadline`` for a built-in tool.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    effect: Effect = "read"
    approval: bool = False
    output_schema: Mapping[str, Any] | None = None
    idempotent: bool = False
    source: str = ""
    execution: Execution = "server"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model made it; ``input`` is the decoded, not yet validated object."""

    call_id: str
    tool_name: str
    input: Any


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image or a file in a tool's result; ``media_type`` is such as ``"image/png"``."""

    data: bytes
    media_type: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call: ``output`` is JSON-serialisable; on error it is a sentence.

    ``attachments`` are what the model may look at beside it. ``dry_run``: nothing was written.
    """

    call_id: str
    tool_name: str
    output: Any
    is_error: bool = False
    code: str | None = None
    attachments: Sequence[Attachment] = ()
    dry_run: bool = False

    def for_model(self) -> Any:
        """Return what the model should read."""
        return f"Error: {self.output}" if self.is_error else self.output


class ActionBatch(Protocol):
    """The tool calls of one step, already recorded as requested."""

    async def run(self, call_id: str) -> ToolResult:
        """Run one of the calls once; a second time returns the first result."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended well.

    ``result`` is the final text, or any JSON value. ``usage`` has the keys of the ``usage`` field
    of ``turn.completed``; ``messages`` are the history records since the last checkpoint.
    """

    result: Any
    usage: Mapping[str, int] = field(default_factory=dict)
    cost_usd: float | None = None
    messages: Sequence[Any] = ()


class Turn(Protocol):
    """What the core offers to a harness for one turn.

    ``history`` holds every record that earlier checkpoints of the session stored, oldest first, as
    JSON values. When ``resumes`` names a turn, its prompt is already in the history, unless
    ``history`` never got a checkpoint of it: then ``prompt_in_history`` is False and the harness
    sends the prompt as usual.

    ``open_calls``, when there are any, are the calls of the history's last step: the host stopped
    while one of them waited for an approval. The harness first runs them, with ``actions`` or
    ``call_tools`` and the same ids; those that had a result give it again.
    """

    id: str
    session_id: str
    attempt: int
    resumes: str | None
    prompt: Prompt
    prompt_in_history: bool
    instructions: str
    history: Sequence[Any]
    open_calls: Sequence[ToolCall]
    workspace: Path
    tools: Sequence[ToolInfo]
    principal: Principal

    def step_started(self, model: str | None = None) -> int:
        """Record that a model request begins; return the step's number, from 1."""

    def step_completed(
        self,
        usage: Mapping[str, int] | None = None,
        finish_reason: str = "stop",
        cost_usd: float | None = None,
    ) -> None:
        """Record that the model request has its answer.

        ``finish_reason`` is ``"tool_calls"`` when its calls come next. A cost that is not given is
        looked up by the step's model and usage.
        """

    def reasoning_delta(self, block_id: str, delta: str) -> None:
        """Stream a piece of a reasoning block."""

    def reasoning_completed(self, block_id: str, text: str) -> None:
        """Record a whole reasoning block."""

    def message_delta(self, message_id: str, delta: str) -> None:
        """Stream a piece of an assistant message."""

    def message_completed(self, message_id: str, text: str, finish_reason: str = "stop") -> None:
        """Record a whole message: ``"stop"`` for the answer, ``"tool_calls"`` for narration."""

    def bound(self, harness: str, conversation_id: str, url: str | None = None) -> None:
        """Record the harness's own conversation."""

    def actions(self, calls: Sequence[ToolCall]) -> AbstractAsyncContextManager[ActionBatch]:
        """Record the step's calls as requested; inside, run them; leaving completes the batch."""

    async def call_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the step's calls side by side and return their results in order."""

    def checkpoint(self, messages: Sequence[Any]) -> None:
        """Store new history records (JSON values), those since the last checkpoint only."""

    async def boundary(self, messages: Sequence[Any]) -> list[Nudge]:
        """Store a checkpoint at a tool boundary and return what is pending, in arrival order."""

    async def confirm(self, nudges: Sequence[Nudge], messages: Sequence[Any]) -> None:
        """State that the history holds the nudges; ``messages`` are the records with them.

        Returns when they are recorded, so that the model may go on.
        """


class Harness(Protocol):
    """Runs turns. ``name`` appears in events; ``model`` in ``turn.started`` where it is known."""

    name: str
    capabilities: Capabilities

    @property
    def model(self) -> str | None:
        """The model's name, or None."""

    async def run(self, turn: Turn) -> TurnResult:
        """Run one turn to its end."""
