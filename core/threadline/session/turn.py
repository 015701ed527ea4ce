"""What a harness holds while it runs a turn; everything it says goes into the log here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from threadline import ndjson
from threadline.harness.base import Attachment, Nudge, Prompt, ToolCall, ToolInfo, ToolResult
from threadline.prices import price
from threadline.principal import Principal
from threadline.session.limits import Meter
from threadline.session.parking import ParkedCall
from threadline.session.workspace import notes
from threadline.store.base import Checkpoint, DeliveryRecord, SessionRecord
from threadline.telemetry import Span, span, start_span

if TYPE_CHECKING:
    from threadline.session.core import Services
    from threadline.session.owner import SessionOwner

__all__ = ["Batch", "CallContext", "Gate", "Reopened", "RunningTurn", "ToolBox", "reopened"]

_PREVIEW = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a tool may know of the call it serves.

    ``as_of`` is an ISO instant; ``on_retry`` hears of the attempt, the delay in seconds and the
    error before a read runs again; ``approved_by`` decided that the call may run.
    """

    session_id: str | None
    turn_id: str | None
    principal: Principal
    workspace: Path | None
    direct: bool
    on_retry: Callable[[int, float, str], None] | None = None
    dry_run: bool = False
    as_of: str | None = None
    purpose: str | None = None
    approved_by: Principal | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """What a call waits for: a decision before the time is over; ``approvers`` are for show."""

    expires: timedelta
    approvers: Sequence[str] | None = None


class ToolBox(Protocol):
    """The agent's tools, as the session core uses them."""

    def infos(self) -> Sequence[ToolInfo]:
        """Return the tools that the model may call."""

    def effect(self, name: str) -> str:
        """Return ``"read"`` or ``"write"``; an unknown tool reads."""

    def idempotent(self) -> frozenset[str]:
        """Return the write tools that may run again after a crash."""

    def limit(self, name: str) -> int | None:
        """Return how often a turn may call a tool, or None."""

    def validated(self, call: ToolCall) -> Any:
        """Return the call's validated input with defaults, or as it came when it is not valid."""

    def refusal(self, call: ToolCall, context: CallContext) -> ToolResult | None:
        """Return the error of a call that cannot run, such as one whose input is not valid."""

    def gate(self, call: ToolCall) -> Gate | None:
        """Return what a model's call has to wait for, or None when it may run at once."""

    async def may_decide(
        self, principal: Principal, call: ToolCall, session: SessionRecord
    ) -> bool | None:
        """Tell whether a principal is one of the tool's approvers; None when it names none."""

    async def run(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run a call to its result; only a requested cancellation is raised.

        In a dry run a write is not run, and its stub is the result.
        """


@dataclass(frozen=True, slots=True)
class Reopened:
    """The open batch of a turn that goes on after a restart, and the results that the log has."""

    step: int
    calls: Sequence[ToolCall]
    results: Mapping[str, ToolResult] = field(default_factory=dict)

    @property
    def call_ids(self) -> list[str]:
        """The ids of the calls, in order."""
        return [call.call_id for call in self.calls]


def reopened(
    events: Iterable[Mapping[str, Any]], step: int, blob: Callable[[str], bytes]
) -> Reopened:
    """Return the last batch of a turn's events, with the results that it has."""
    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    for event in events:
        data = event.get("data") or {}
        if event["type"] == "actions.requested":
            calls = [ToolCall(c["callId"], c["toolName"], c.get("input")) for c in data["calls"]]
            results = {}
        elif event["type"] == "action.result":
            results[data["callId"]] = _recorded(data, blob)
    return Reopened(step, calls, results)


def _recorded(data: Mapping[str, Any], blob: Callable[[str], bytes]) -> ToolResult:
    """Return the result that an event tells of."""
    error = data.get("error") or {}
    output = error.get("message") if data.get("isError") else data.get("output")
    if data.get("truncated"):
        output = orjson.loads(blob(data["truncated"]["blobId"]))
    attachments = [
        Attachment(blob(item["blobId"]), item["mediaType"], item.get("name"))
        for item in data.get("attachments") or ()
    ]
    return ToolResult(
        data["callId"],
        data["toolName"],
        output,
        bool(data.get("isError")),
        error.get("code"),
        attachments,
        bool(data.get("dryRun")),
    )


class RunningTurn:
    """The core's :class:`~threadline.harness.base.Turn`.

    Once ``close`` was called nothing that the harness still says reaches the log: recording methods
    do nothing, and waiting ones raise CancelledError.
    """

    def __init__(
        self,
        owner: SessionOwner,
        *,
        turn_id: str,
        attempt: int,
        resumes: str | None,
        prompt: Prompt,
        chain: Sequence[str],
        workspace: Path,
        meter: Meter,
        reopened: Reopened | None = None,
    ) -> None:
        services = owner.services
        self.id = turn_id
        self.session_id = owner.record.id
        self.attempt = attempt
        self.resumes = resumes
        self.prompt = prompt
        self.instructions = _with_notes(services, workspace)
        self.workspace = workspace
        self.tools: Sequence[ToolInfo] = services.tools.infos()
        self.principal = owner.record.owner
        checkpoints = services.store.checkpoints(self.session_id) if owner.has_history else []
        self.history: Sequence[Any] = [m for c in checkpoints for m in c.messages]
        self.prompt_in_history = any(c.turn_id in chain for c in checkpoints)
        self._owner = owner
        self.open_calls: Sequence[ToolCall] = reopened.calls if reopened else ()
        self._reopened = reopened
        self._meter = meter
        self._closed = False
        self._step = reopened.step if reopened else 0
        self._step_began: float | None = None
        self._step_span = Span()
        self._model: str | None = None
        self._batch: Batch | None = None
        self._last_calls: list[str] = []

    # Steps and what the model says

    def step_started(self, model: str | None = None) -> int:
        """Record that a model request begins."""
        if not self._closed:
            self._step += 1
            self._step_began = self._owner.services.clock.monotonic()
            self._step_span = start_span("threadline.step", step=self._step, model=model)
            self._model = model
            self._emit("step.started", {"step": self._step} | ({"model": model} if model else {}))
        return self._step

    def step_completed(
        self,
        usage: Mapping[str, int] | None = None,
        finish_reason: str = "stop",
        cost_usd: float | None = None,
    ) -> None:
        """Record that the model request has its answer; the turn ends if it was one too many."""
        if self._closed or self._step_began is None:
            return
        elapsed = self._owner.services.clock.monotonic() - self._step_began
        data: dict[str, Any] = {"step": self._step, "durationMs": round(elapsed * 1000)}
        cost = cost_usd
        if usage is not None:
            data["usage"] = dict(usage)
            cost = price(self._model, usage) if cost is None else cost
        if cost is not None:
            data["costUsd"] = cost
        self._step_began = None
        self._step_span.end()
        self._emit("step.completed", data | {"finishReason": finish_reason})
        tokens = sum((usage or {}).get(key, 0) for key in ("inputTokens", "outputTokens"))
        exceeded = self._meter.step(tokens, cost)
        if exceeded is not None and finish_reason == "tool_calls":
            self._owner.exceed(exceeded)

    def reasoning_delta(self, block_id: str, delta: str) -> None:
        """Stream a piece of a reasoning block."""
        if not self._closed and delta:
            self._owner.log.emit_delta("reasoning.appended", "blockId", block_id, delta, self.id)

    def reasoning_completed(self, block_id: str, text: str) -> None:
        """Record a whole reasoning block."""
        self._emit("reasoning.completed", {"blockId": block_id, "text": text})

    def message_delta(self, message_id: str, delta: str) -> None:
        """Stream a piece of an assistant message."""
        if not self._closed and delta:
            self._owner.log.emit_delta("message.appended", "messageId", message_id, delta, self.id)

    def message_completed(self, message_id: str, text: str, finish_reason: str = "stop") -> None:
        """Record a whole message."""
        data = {"messageId": message_id, "text": text, "finishReason": finish_reason}
        self._emit("message.completed", data)

    def bound(self, harness: str, conversation_id: str, url: str | None = None) -> None:
        """Record the harness's own conversation."""
        data = {"harness": harness, "conversationId": conversation_id}
        self._emit("agent.bound", data | ({"url": url} if url else {}))

    def _emit(self, type_: str, data: dict[str, Any]) -> None:
        if not self._closed:
            self._owner.emit(type_, data, self.id)

    # Tools

    @asynccontextmanager
    async def actions(self, calls: Sequence[ToolCall]) -> AsyncIterator[Batch]:
        """Record the step's calls as requested; leaving records the batch as completed."""
        self._check()
        tools = self._owner.services.tools
        reopened, self._reopened = self._reopened, None
        if reopened is not None and [c.call_id for c in calls] == reopened.call_ids:
            batch = Batch(self, reopened.calls, reopened.results)
        else:
            calls = [ToolCall(c.call_id, c.tool_name, tools.validated(c)) for c in calls]
            if exceeded := self._meter.call(calls, tools.limit):
                self._owner.exceed(exceeded)
                raise asyncio.CancelledError
            self._request(calls)
            batch = Batch(self, calls)
        self._batch = batch
        try:
            yield batch
        finally:
            if not self._closed:
                try:
                    await batch.settle()
                finally:
                    self._close_batch()

    def _request(self, calls: Sequence[ToolCall]) -> None:
        tools = self._owner.services.tools
        requested = [
            {
                "callId": call.call_id,
                "toolName": call.tool_name,
                "input": call.input,
                "effect": tools.effect(call.tool_name),
            }
            for call in calls
        ]
        self._emit("actions.requested", {"step": self._step, "calls": requested})

    async def call_tools(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the step's calls side by side and return their results in order."""
        async with self.actions(calls) as batch:
            return list(await asyncio.gather(*(batch.run(call.call_id) for call in calls)))

    def _close_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        batch.close()
        self._owner.parking.supersede("turn_ended")
        for call in batch.unfinished():
            data = {
                "callId": call.call_id,
                "toolName": call.tool_name,
                "isError": True,
                "error": {"code": "interrupted", "message": "The turn ended before the result."},
                "durationMs": 0,
            }
            self._emit("action.result", data)
        self._last_calls = list(batch.calls)
        data = {"step": self._step, "callIds": self._last_calls}
        self._emit("actions.completed", data)

    # History and nudges

    def checkpoint(self, messages: Sequence[Any]) -> None:
        """Store new history records."""
        if not self._closed and messages:
            self._owner.log.save_checkpoint(Checkpoint(self.id, list(messages)))

    @property
    def waiting(self) -> Collection[str]:
        """The calls that wait for a decision."""
        return self._owner.parking.calls

    async def boundary(self, messages: Sequence[Any]) -> list[Nudge]:
        """Store a checkpoint at a tool boundary and return what is pending, in arrival order."""
        self._check()
        try:
            await self._owner.prompt_synced()
        finally:
            self.checkpoint(messages)
        await self._owner.log.flush()
        self._check()
        return [
            _nudge(delivery, self._owner.place_files(delivery, self.workspace))
            for delivery in self._owner.steerable()
        ]

    async def confirm(self, nudges: Sequence[Nudge], messages: Sequence[Any]) -> None:
        """Record that the history holds the nudges; return when the log says so."""
        self._check()
        # The history must not outlive, in a power cut, the boundary at which it took them.
        await self._owner.log.synced()
        self._check()
        held = [
            {"deliveryId": nudge.delivery_id, "afterCallIds": self._last_calls} for nudge in nudges
        ]
        if not self._owner.log.save_checkpoint(Checkpoint(self.id, list(messages), held)):
            raise asyncio.CancelledError
        for nudge in nudges:
            self._owner.nudged(nudge.delivery_id, self._last_calls, self.id)
        await self._owner.log.flush()
        self._check()

    # The end

    def close(self, finish_reason: str | None = None) -> None:
        """Pair what is open, then take nothing more."""
        self._close_batch()
        if finish_reason is not None:
            self.step_completed(finish_reason=finish_reason)
        self._closed = True

    def abandon(self) -> None:
        """Take nothing more and leave all as it is: the next process goes on from here."""
        self._closed = True
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.close()

    def _check(self) -> None:
        if self._closed:
            raise asyncio.CancelledError

    async def run_call(self, call: ToolCall, batch: Batch) -> ToolResult:
        """Run one call and record its result, unless its batch was closed meanwhile."""
        await self._owner.unparked()
        batch.check()
        services = self._owner.services
        session = self._owner.record
        context = CallContext(
            session_id=self.session_id,
            turn_id=self.id,
            principal=self.principal,
            workspace=self.workspace,
            direct=False,
            on_retry=lambda attempt, delay, error: self._retried(call, attempt, delay, error),
            dry_run=session.dry_run,
            as_of=session.as_of,
            purpose=session.purpose,
        )
        writes = services.tools.effect(call.tool_name) == "write"
        began = services.clock.monotonic()
        if refused := await self._refused(call, batch):
            return refused
        if parked := self._parked(call, context, stubbed=writes and context.dry_run):
            resolution = await self._owner.decided(parked, batch)
            batch.check()
            if resolution.decision != "approved":
                return resolution.result(call)
            # It may have waited for days, and others may have joined meanwhile.
            if refused := await self._refused(call, batch):
                return refused
            began = services.clock.monotonic()
        if decided := self._owner.decisions.get(call.call_id):
            context = replace(context, approved_by=Principal.from_wire(decided.get("by") or {}))
        if writes and not context.dry_run:
            await self._owner.log.synced()
            batch.check()
        with span("threadline.tool", tool=call.tool_name, call=call.call_id) as running:
            result = await services.tools.run(call, context)
            running.set("error", result.code)
        elapsed = round((services.clock.monotonic() - began) * 1000)
        batch.check()
        data = await self._result_data(result, elapsed)
        batch.check()
        self._emit("action.result", data)
        return result

    async def _refused(self, call: ToolCall, batch: Batch) -> ToolResult | None:
        """Record that the session's channel refuses a call, if it does."""
        guard = self._owner.services.guard
        why = await guard(self._owner.record, call) if guard is not None else None
        batch.check()
        if why is None:
            return None
        refused = ToolResult(call.call_id, call.tool_name, why, True, "tool_not_allowed")
        self._emit("action.result", await self._result_data(refused, 0))
        return refused

    def _parked(self, call: ToolCall, context: CallContext, *, stubbed: bool) -> ParkedCall | None:
        """Return what the call has to wait for; it waits already when it did before a restart."""
        parking, tools = self._owner.parking, self._owner.services.tools
        waiting = parking.calls.get(call.call_id)
        if waiting is not None or stubbed or tools.refusal(call, context) is not None:
            return waiting
        gate = None if call.call_id in self._owner.decisions else tools.gate(call)
        return parking.park(call, self.id, gate) if gate is not None else None

    def ran(self, batch: Batch) -> None:
        """A call has ended: the turn may now be waiting for people only."""
        if not self._closed:
            self._owner.park_if_waiting(batch)

    def _retried(self, call: ToolCall, attempt: int, delay: float, error: str) -> None:
        data = {
            "callId": call.call_id,
            "toolName": call.tool_name,
            "attempt": attempt,
            "delayMs": round(delay * 1000),
            "error": {"code": "transient", "message": error},
        }
        self._emit("action.tool_retry", data)

    async def _result_data(self, result: ToolResult, elapsed: int) -> dict[str, Any]:
        data: dict[str, Any] = {
            "callId": result.call_id,
            "toolName": result.tool_name,
            "isError": result.is_error,
            "durationMs": elapsed,
        }
        if result.dry_run:
            data["dryRun"] = True
        if result.attachments:
            data["attachments"] = [await self._kept(item) for item in result.attachments]
        if result.is_error:
            code = result.code or "tool_failed"
            return data | {"error": {"code": code, "message": str(result.output)}}
        threshold = self._owner.services.blob_threshold
        encoded = ndjson.encode({"output": result.output})
        if len(encoded) <= threshold:
            return data | {"output": result.output}
        whole = encoded[len(b'{"output":') : -len(b"}\n")]
        blob_id = await self._owner.log.put_blob(whole)
        preview = whole[:_PREVIEW].decode("utf-8", "ignore")
        truncated = {"size": len(whole), "blobId": blob_id}
        return data | {"output": preview, "truncated": truncated}

    async def _kept(self, item: Attachment) -> dict[str, Any]:
        """Keep an attachment beside the log; return what the event says of it."""
        blob_id = await self._owner.log.put_blob(item.data, "file")
        kept = {"blobId": blob_id, "mediaType": item.media_type, "size": len(item.data)}
        return kept | ({"name": item.name} if item.name else {})


class Batch:
    """The calls of one step; each runs once, in its own task."""

    def __init__(
        self,
        turn: RunningTurn,
        calls: Sequence[ToolCall],
        results: Mapping[str, ToolResult] | None = None,
    ) -> None:
        self.calls = {call.call_id: call for call in calls}
        self.results = dict(results or {})
        self._turn = turn
        self._tasks: dict[str, asyncio.Task[ToolResult]] = {}
        self._closed = False

    async def run(self, call_id: str) -> ToolResult:
        """Run one of the calls once; a second time returns the first result."""
        if call_id in self.results:
            return self.results[call_id]
        task = self._tasks.get(call_id)
        if task is None:
            call = self.calls[call_id]
            task = asyncio.get_running_loop().create_task(self._turn.run_call(call, self))
            task.add_done_callback(lambda _: self._turn.ran(self))
            self._tasks[call_id] = task
        return await asyncio.shield(task)

    def unfinished(self) -> list[ToolCall]:
        """Return the calls that have no result."""
        return [
            call
            for call_id, call in self.calls.items()
            if call_id not in self.results and not _succeeded(self._tasks.get(call_id))
        ]

    @property
    def active(self) -> bool:
        """True while a call runs, so that the turn does more than wait for people."""
        waiting = self._turn.waiting
        return any(not t.done() and i not in waiting for i, t in self._tasks.items())

    def check(self) -> None:
        """Raise when the batch takes no more results."""
        if self._closed:
            raise asyncio.CancelledError

    def close(self) -> None:
        """Cancel the calls that still run and take no more results."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()

    async def settle(self) -> None:
        """Cancel what still runs, and wait until it has cleaned up."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _succeeded(task: asyncio.Task[ToolResult] | None) -> bool:
    if task is None or not task.done() or task.cancelled():
        return False
    return task.exception() is None


def _with_notes(services: Services, folder: Path) -> str:
    """Return the instructions, with the workspace's notes unless the harness reads them itself."""
    harness = services.harness
    if harness is None or harness.capabilities.workspace:
        return services.instructions
    found = notes(folder)
    return f"{services.instructions}\n\n{found}" if found else services.instructions


def _nudge(delivery: DeliveryRecord, problems: Sequence[str]) -> Nudge:
    text = "\n\n".join([*delivery.context, delivery.text, *problems])
    return Nudge(delivery.delivery_id, text, delivery.sender)
