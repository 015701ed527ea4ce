"""An agent's tools, as the session core uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from threadline.agent.calls import Catalog, Retry
from threadline.agent.tools import KeyValues, ToolContext, ToolLog, ToolSession
from threadline.clock import Clock
from threadline.errors import NotFound
from threadline.harness.base import ToolCall, ToolInfo, ToolResult
from threadline.principal import Principal
from threadline.session.turn import CallContext, Gate
from threadline.store.base import SessionRecord, Store

__all__ = ["AgentTools"]


class AgentTools:
    """Runs the calls of a catalog; a :class:`~threadline.session.turn.ToolBox`."""

    def __init__(self, catalog: Catalog, store: Store, clock: Clock) -> None:
        self.catalog = catalog
        self._store = store
        self._clock = clock
        self._infos = catalog.infos()
        self._kv = AgentKeyValues(store)

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
        return None

    def refusal(self, call: ToolCall, context: CallContext) -> ToolResult | None:
        """Return the error of a call that cannot run."""
        return None

    def gate(self, call: ToolCall) -> Gate | None:
        """Return what a model's call has to wait for."""
        return None

    async def may_decide(
        self, principal: Principal, call: ToolCall, session: SessionRecord
    ) -> bool | None:
        """Tell whether a principal is one of the tool's approvers."""
        return None

    def validated(self, call: ToolCall) -> Any:
        """Return the input with its defaults; one that is not valid stays as it came."""
        try:
            tool = self.catalog.get(call.tool_name)
            value = {} if call.input is None else call.input
            model = tool.input_model.model_validate(value)
            return model.model_dump(mode="json", by_alias=True)
        except (NotFound, ValidationError, ValueError):
            return call.input

    async def run(self, call: ToolCall, context: CallContext) -> ToolResult:
        """Run a call to its result."""

        def retried(retry: Retry) -> None:
            if context.on_retry is not None:
                context.on_retry(retry.attempt, retry.delay_ms / 1000, retry.message)

        ctx = ToolContext(
            call_id=call.call_id,
            tool_name=call.tool_name,
            principal=context.principal,
            clock=self._clock,
            kv=self._kv,
            session=self._session(context.session_id),
            workspace=context.workspace,
            direct=context.direct,
            log=ToolLog(tool=call.tool_name, session=context.session_id, turn=context.turn_id),
        )
        return await self.catalog.run(
            call.tool_name, call.input, ctx, clock=self._clock, on_retry=retried
        )

    def _session(self, session_id: str | None) -> ToolSession | None:
        record = self._store.session(session_id) if session_id is not None else None
        if record is None:
            return None
        token = self._store.token(record.id, record.channel)
        return ToolSession(record.id, record.channel, record.mode, record.purpose, token)


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
