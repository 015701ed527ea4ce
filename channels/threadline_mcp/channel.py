"""``/v1/mcp`` and ``/v1/mcp/tools``, written against the public channel API.

Source: the wire contract, "MCP endpoint". Both are stateless streamable HTTP: they take POST, and
the host answers 405 to everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import TypedDict

from threadline.channel.auth import Policy
from threadline.channel.channel import Channel, SharedChain
from threadline.channel.context import Reply, RouteContext
from threadline_mcp.conversation import TOKENS, Conversation
from threadline_mcp.direct import Direct
from threadline_mcp.exchange import Exchange
from threadline_mcp.message import INTERNAL, Id, fault, read

if TYPE_CHECKING:
    from threadline_mcp.server import Protocol
    from threadline_mcp.surface import Surface

__all__ = ["McpChannel", "McpToolsChannel"]

_MISSING = (
    "This host cannot speak MCP: the package mcp cannot be imported. "
    "Install it with: pip install 'threadline[mcp]'."
)
_Caller: TypeAlias = tuple[str, str, Id]


class Fault(TypedDict):
    """A JSON-RPC error: ``error`` has its code and message."""

    jsonrpc: str
    id: Any
    error: dict[str, Any]


# What is wrong with the transport, beside the host's own 400: in JSON-RPC's words.
_RESPONSES = {400: Fault, 406: Fault, 413: Fault, 415: Fault, 421: Fault, 501: Fault, 503: Fault}


class McpChannel(Channel):
    """Conversations of other agents and of editors; preempts, as HTTP does."""

    def __init__(self, *, auth: Sequence[Policy] | SharedChain | None = "session") -> None:
        super().__init__(auth=auth, admission="preempt", tokens=TOKENS, mount="/v1")
        self.post("/mcp", description="MCP: ask, check, call_tool.", responses=_RESPONSES)(
            _Endpoint(Conversation()).answer
        )


class McpToolsChannel(Channel):
    """The agent's own tools for whoever may use the command line's chain."""

    def __init__(self, *, auth: Sequence[Policy] | SharedChain | None = "host") -> None:
        super().__init__(auth=auth, mount="/v1")
        self.post("/mcp/tools", description="MCP: the agent's own tools.", responses=_RESPONSES)(
            _Endpoint(Direct()).answer
        )


class _Endpoint:
    """Takes the requests of one route; the library is imported at the first of them."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._protocol: Protocol | None = None
        self._running: dict[_Caller, list[Exchange]] = {}

    async def answer(self, ctx: RouteContext) -> Any:
        """Answer one POST."""
        message = read(ctx.body)
        try:
            protocol = await self._loaded(ctx)
        except ImportError as error:
            ctx.log.error("mcp.missing", error=repr(error), exc_info=error)
            body = fault(message.id, INTERNAL, _MISSING)
            return Reply(body, 501, content_type="application/json")
        exchange = Exchange(ctx, message)
        with self._known(exchange):
            answer = await exchange.run(protocol.serve)
        if message.cancels is not None and answer.status == 202:
            self._cancel(ctx, message.cancels)
        return answer

    async def _loaded(self, ctx: RouteContext) -> Protocol:
        if self._protocol is None:
            # In a thread: it takes more than a second, and turns go on meanwhile.
            module = await asyncio.to_thread(importlib.import_module, "threadline_mcp.server")
            self._protocol = module.Protocol(ctx, self._surface)
        return self._protocol

    @contextlib.contextmanager
    def _known(self, exchange: Exchange) -> Iterator[None]:
        """Remember a request while it runs, so that a notification can cancel it."""
        if exchange.message.id is None or exchange.closing_cancels:
            yield
            return
        caller = _caller(exchange.ctx, exchange.message.id)
        running = self._running.setdefault(caller, [])
        running.append(exchange)
        try:
            yield
        finally:
            running.remove(exchange)
            if not running:
                self._running.pop(caller, None)

    def _cancel(self, ctx: RouteContext, request_id: Id) -> None:
        """Cancel a request of the caller; ids are small numbers, so of two with one id neither."""
        running = self._running.get(_caller(ctx, request_id), ())
        if len(running) == 1:
            running[0].cancel()


def _caller(ctx: RouteContext, request_id: Id) -> _Caller:
    return ctx.principal.key, ctx.headers.get("user-agent", ""), request_id
