"""An agent's tools, as the session core uses them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from threadline.agent.approval import Approval, ApprovalRequest, named
from threadline.agent.attempt import Raised, Returned, outcome_of, within
from threadline.agent.calls import Catalog, Retry, refusal, unknown_tool
from threadline.agent.checks import check
from threadline.agent.context import KeyValues, ToolContext, ToolLog, ToolSession
from threadline.agent.schema import Problem
from threadline.agent.shelf import ContextArtifacts, Place, Shelf
from threadline.agent.started import Started
from threadline.agent.tools import Tool
from threadline.clock import Clock
from threadline.errors import Forbidden
from threadline.harness.base import ToolCall, ToolInfo, ToolResult
from threadline.principal import Principal
from threadline.session.access import Action
from threadline.session.turn import CallContext, Gate
from threadline.store.base import SessionRecord, Store

__all__ = ["AgentTools"]

_APPROVERS_SECONDS = 30.0


class AgentTools:
    """Runs the calls of a catalog; a :class:`~threadline.session.turn.ToolBox`."""

    def __init__(self, catalog: Catalog, store: Store, clock: Clock) -> None:
        self.catalog = catalog
        self._store = store
        self._clock = clock
        self._infos = catalog.infos()
        self._kv = AgentKeyValues(store)
        self.shelf: Shelf | None = None

    def infos(self) -> Sequence[ToolInfo]:
        """Return the tools that the model may call."""
        return self._infos

    def effect(self, name: str) -> str:
        """Return a tool's effect; a call of an unknown one does nothing, so it reads."""
        return self.catalog.get(name).effect if name in self.catalog else "read"

    def idempotent(self) -> frozenset[str]:
        """Return the write tools that may run again after a crash."""
        return frozenset(tool.name for tool in self.catalog if tool.idempotent)

    def limit(self, name: str) -> int | None:
        """Return how often a turn may call a tool."""
        tool = self._found(name)
        return tool.max_calls if tool is not None else None

    def problems(self, name: str, value: Any, as_of: str | None = None) -> list[Problem]:
        """Return what is wrong with an input, and where."""
        checked = check(self.catalog.get(name), value, _moment(as_of))
        return [] if isinstance(checked, BaseModel) else list(checked.problems)

    def refusal(self, call: ToolCall, context: CallContext) -> ToolResult | None:
        """Return the error of a call that cannot run: unknown, not valid, or out of its time."""
        tool = self._found(call.tool_name)
        if tool is None:
            return unknown_tool(call.call_id, call.tool_name, self.catalog.names)
        return refusal(tool, call.input, self._context(call, context))

    def gate(self, call: ToolCall) -> Gate | None:
        """Return what a model's call has to wait for."""
        tool = self._found(call.tool_name)
        if tool is None or tool.approval is None or not _applies(tool, tool.approval, call):
            return None
        return Gate(tool.approval.expires, tool.approval.shown)

    async def may_decide(
        self, principal: Principal, call: ToolCall, session: SessionRecord
    ) -> bool | None:
        """Tell whether a principal is one of the tool's approvers; None when it names none."""
        tool = self._found(call.tool_name)
        approval = tool.approval if tool is not None else None
        if approval is None or approval.approvers is None:
            return None
        if not callable(approval.approvers):
            return named(principal, approval.shown or ())
        request = ApprovalRequest(
            call.call_id, call.tool_name, call.input, session.id, session.owner
        )
        asked = functools.partial(approval.approvers, principal, request)
        return await self._said(asked, call)

    async def _said(self, asked: Callable[[], Any], call: ToolCall) -> bool:
        """Ask a function who may decide; all but a plain yes is a no."""
        logged = ToolLog(tool=call.tool_name, call_id=call.call_id)
        work = outcome_of(asked, f"{call.tool_name}-approvers")
        started = Started(call.call_id, log=logged)
        outcome = await within(work, started, _APPROVERS_SECONDS, self._clock, name=call.tool_name)
        match outcome:
            case Returned(bool() as answer):
                return answer
            case Returned(answer):
                logged.error("approvers_said_neither_true_nor_false", answer=type(answer).__name__)
            case Raised(error):
                logged.error("approvers_failed", exc_info=error)
            case _:
                logged.error("approvers_timed_out", seconds=_APPROVERS_SECONDS)
        return False

    def validated(self, call: ToolCall) -> Any:
        """Return the input with its defaults; one that is not valid stays as it came.

        So does one that would not be read back as the same, and what it has for times: whether
        those were given must still be seen when the call runs as of a time.
        """
        try:
            tool = self.catalog.get(call.tool_name)
            model = tool.validate(call.input)
            shown: dict[str, Any] = model.model_dump(mode="json", by_alias=True)
            if tool.times:
                given = {} if call.input is None else dict(call.input)
                shown = {k: v for k, v in shown.items() if k not in tool.times} | given
            return shown if tool.validate(shown) == model else call.input
        except Exception:
            return call.input

    async def run(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run a call to its result; a model's call that waits for approval needs one."""

        def retried(retry: Retry) -> None:
            if context.on_retry is not None:
                context.on_retry(retry.attempt, retry.delay_ms / 1000, retry.message)

        if self._unapproved(call, context):
            return self.refusal(call, context) or _not_approved(call)
        ctx = self._context(call, context)
        return await self.catalog.run(
            call.tool_name, call.input, ctx, clock=self._clock, on_retry=retried
        )

    def _unapproved(self, call: ToolCall, context: CallContext) -> bool:
        """Tell whether a call that should have waited has not; it did when it was approved."""
        if context.direct or context.approved_by is not None:
            return False
        stubbed = context.dry_run and self.effect(call.tool_name) == "write"
        return not stubbed and self.gate(call) is not None

    def _found(self, name: str) -> Tool | None:
        return self.catalog.get(name) if name in self.catalog else None

    def _context(self, call: ToolCall, context: CallContext) -> ToolContext:
        session = self._session(context.session_id)
        purpose = session.purpose if session is not None else None
        return ToolContext(
            call_id=call.call_id,
            tool_name=call.tool_name,
            principal=context.principal,
            clock=self._clock,
            kv=self._kv,
            session=session,
            workspace=context.workspace,
            direct=context.direct,
            purpose=context.purpose or purpose,
            dry_run=context.dry_run,
            as_of=_moment(context.as_of),
            approved_by=context.approved_by,
            log=ToolLog(tool=call.tool_name, session=context.session_id, turn=context.turn_id),
            shelf=self._artifacts(context),
        )

    def _artifacts(self, context: CallContext) -> ContextArtifacts | None:
        """Return the artifacts of the session's owner, or of who calls without a session."""
        shelf, record = self.shelf, None
        if shelf is None:
            return None
        if context.session_id is not None:
            record = self._store.session(context.session_id)
        place = Place(
            record.owner if record is not None else context.principal,
            context.session_id,
            context.turn_id,
            context.workspace,
            context.dry_run,
        )

        def reach(session_id: str, _: Action) -> Place:
            found = shelf.in_session(session_id)
            if found.owner.key != place.owner.key:
                raise Forbidden("This session belongs to another principal.")
            return found

        return shelf.at(place, reach)

    def _session(self, session_id: str | None) -> ToolSession | None:
        record = self._store.session(session_id) if session_id is not None else None
        if record is None:
            return None
        token = self._store.token(record.id, record.channel)
        return ToolSession(
            record.id,
            record.channel,
            record.mode,
            record.purpose,
            token,
            record.dry_run,
            _moment(record.as_of),
        )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _applies(tool: Tool, approval: Approval, call: ToolCall) -> bool:
    """Tell whether a call needs an approval; all but a plain no is a yes."""
    if approval.when is None:
        return True
    logged = ToolLog(tool=call.tool_name, call_id=call.call_id)
    try:
        answer: Any = approval.when(tool.by_name(tool.validate(call.input)))
    except BaseException as error:  # The author's function must not end the host.
        logged.error("approval_when_failed", exc_info=error)
        return True
    if isinstance(answer, bool):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    logged.error("approval_when_said_neither_true_nor_false", answer=type(answer).__name__)
    return True


def _not_approved(call: ToolCall) -> ToolResult:
    sentence = f'Tool "{call.tool_name}" did not run: nobody approved this call.'
    return ToolResult(call.call_id, call.tool_name, sentence, True, "approval_required")


class AgentKeyValues(KeyValues):
    """JSON values that the store keeps for an agent's tools."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, key: str) -> Any:
        """Return a kept value, or None."""
        return await self._store.kv_get("tools/" + key)

    async def put(self, key: str, value: Any) -> None:
        """Keep a JSON value durably."""
        await self._store.kv_put("tools/" + key, value)

    async def delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""
        return await self._store.kv_delete("tools/" + key)
