"""The agent's own routes, behind its HTTP chain: discovery, tools, deliveries, blobs, logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from threadline.channel.channel import Route
from threadline.channel.context import Reply, RouteContext, Session
from threadline.channel.installed import ChannelType, installed_channels
from threadline.errors import Forbidden, NotFound, StaleToken, UnsupportedOption
from threadline.host.logs import LogBook
from threadline.session.access import Action
from threadline.store.base import DeliveryRecord, SessionRecord
from threadline.version import VERSION

if TYPE_CHECKING:
    from threadline.host.agent import AgentRuntime

__all__ = ["AgentRoutes"]

_SESSION_ID = re.compile(r"ses_[A-Za-z0-9_-]{1,64}")


class ToolCallBody(BaseModel):
    """The body of ``POST /v1/tools/{name}``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    input: Any = None
    session_id: StrictStr | None = None
    continuation_token: StrictStr | None = None
    dry_run: StrictBool | None = None
    as_of: StrictStr | None = None


class ToolsQuery(BaseModel):
    """The query of ``GET /v1/tools``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    session: str | None = None
    continuation_token: str | None = None


class LogsQuery(BaseModel):
    """The query of ``GET /v1/logs``."""

    after: int = Field(default=0, ge=0)


class AgentRoutes:
    """Handlers that see one agent."""

    def __init__(self, agent: AgentRuntime, book: LogBook) -> None:
        self.agent = agent
        self.book = book

    def routes(self) -> list[Route]:
        """Return the routes, relative to the agent's root."""
        return [
            Route("GET", "/v1/info", self.info, "Everything that discovery found."),
            Route("GET", "/v1/tools", self.tools, "The agent's tools."),
            Route("GET", "/v1/tools/{name}", self.tool, "One tool's schemas and rules."),
            Route("POST", "/v1/tools/{name}", self.call, "Run a tool without a model turn."),
            Route("GET", "/v1/logs", self.logs, "Recent log records of the host."),
            Route("GET", "/v1/deliveries/{deliveryId}", self.delivery, "What became of a message."),
            Route("GET", "/v1/session/{sessionId}/blobs/{blobId}", self.blob, "A large output."),
        ]

    async def info(self, ctx: RouteContext) -> dict[str, Any]:
        """Return everything discovery found."""
        agent, project = self.agent, self.agent.project
        harness = project.agent.harness
        return {
            "name": project.name,
            "slug": project.slug,
            "description": project.agent.description,
            "version": VERSION,
            "harness": harness.name if harness is not None else None,
            "model": harness.model if harness is not None else None,
            "onRestart": project.agent.on_restart,
            "maxRunningTurns": project.agent.max_running_turns,
            "tools": [tool.to_wire() for tool in agent.tools.catalog],
            "skills": [{"name": s.name, "description": s.description} for s in _skills(agent)],
            "channels": [
                {
                    "id": runtime.channel.id,
                    "admission": runtime.channel.admission,
                    "owner": runtime.channel.owner,
                    "routes": [
                        {
                            "method": route.method,
                            "path": runtime.channel.prefix + route.path,
                            "description": route.description,
                        }
                        for route in runtime.channel.routes
                    ],
                    "events": sorted(runtime.channel.events),
                }
                for runtime in agent.runtimes.values()
            ],
            "channelTypes": [type_.to_wire() for type_ in await _channel_types()],
            "diagnostics": [*project.warnings, *self._damage(ctx)],
        }

    def _damage(self, ctx: RouteContext) -> list[str]:
        return [
            sentence
            for sentence in self.agent.store.damage
            if all(self._may_read(ctx, found) for found in _SESSION_ID.findall(sentence))
        ]

    async def tools(self, ctx: RouteContext, query: ToolsQuery) -> dict[str, Any]:
        """List the tools; a session that is named must be the caller's to read."""
        await self._bound(ctx, query.session, query.continuation_token, "read")
        return {"tools": self.agent.tools.catalog.to_wire(), "connectionErrors": {}}

    async def tool(self, ctx: RouteContext) -> dict[str, Any]:
        """Return one tool; an unknown name is answered with the available ones."""
        return self.agent.tools.catalog.get(ctx.params["name"]).to_wire(detail=True)

    async def call(self, ctx: RouteContext, body: ToolCallBody) -> Any:
        """Run a tool; bound to a session it takes the session's lock."""
        tool = self.agent.tools.catalog.get(ctx.params["name"])
        if body.dry_run:
            raise UnsupportedOption("dryRun is not honoured by this version; nothing was run.")
        if body.as_of is not None:
            raise UnsupportedOption("asOf is not honoured by this version; nothing was run.")
        session = await self._bound(ctx, body.session_id, body.continuation_token, "send")
        result = await self.agent.core.call_tool(
            tool.name, body.input, ctx.principal, session.id if session is not None else None
        )
        answer = {"callId": result.call_id, "toolName": tool.name}
        if not result.is_error:
            return {"ok": True, "isError": False, "result": result.output, **answer}
        wire = {"ok": False, "isError": True, "error": result.code, "message": result.output}
        return Reply(wire | answer, status=400 if result.code == "invalid_input" else 200)

    async def _bound(
        self, ctx: RouteContext, session_id: str | None, token: str | None, action: Action
    ) -> Session | None:
        """Return the session that an id or a token names; both must agree."""
        if session_id is None and token is None:
            return None
        by_token = self._by_token(token) if token is not None else None
        if session_id is not None:
            session = await ctx.reach(session_id, action=action)
            if token is not None and (by_token is None or by_token.id != session.id):
                raise StaleToken("The continuation token is not this session's current one.")
            return session
        if by_token is None:
            raise StaleToken("The continuation token is not current.")
        return await ctx.reach(by_token.id, action=action)

    def _by_token(self, token: str) -> SessionRecord | None:
        found = (self.agent.store.session_by_token(name, token) for name in self.agent.runtimes)
        return next((record for record in found if record is not None), None)

    async def logs(self, ctx: RouteContext, query: LogsQuery) -> dict[str, Any]:
        """Return log records, without those of sessions and callers that are not this one's."""
        seen: dict[str, bool] = {}

        def readable(session_id: str) -> bool:
            if session_id not in seen:
                seen[session_id] = self._may_read(ctx, session_id)
            return seen[session_id]

        def visible(record: dict[str, Any]) -> bool:
            if record.get("agent") not in (None, self.agent.project.slug):
                return False
            caller = record.get("principal")
            if caller is not None and caller != ctx.principal.key and not ctx.principal.operator:
                return False
            # Wherever a record names a session: in a field, in a task's name, in a path.
            return all(map(readable, _SESSION_ID.findall(json.dumps(record))))

        records, cursor = self.book.after(query.after, visible)
        return {"logs": records, "next": cursor}

    def _may_read(self, ctx: RouteContext, session_id: str) -> bool:
        record = self.agent.store.session(session_id)
        if record is None:
            return ctx.principal.operator
        return self.agent.http.channel.may(ctx.principal, record, "read")

    async def delivery(self, ctx: RouteContext) -> dict[str, Any]:
        """Return what became of a delivery that the caller may see; the newest of that id."""
        delivery_id, store = ctx.params["deliveryId"], self.agent.store
        # The caller's own are shown also when their session was deleted meanwhile.
        for delivery in store.delivery(delivery_id, owner=ctx.principal.key):
            return _delivery_wire(delivery) | {"outbound": await self._outbound(delivery)}
        for delivery in store.delivery(delivery_id):
            with contextlib.suppress(NotFound, Forbidden):
                await ctx.reach(delivery.session_id)
                return _delivery_wire(delivery) | {"outbound": await self._outbound(delivery)}
        raise NotFound(f"There is no delivery {delivery_id[:200]!r} in your sessions.")

    async def _outbound(self, delivery: DeliveryRecord) -> list[dict[str, Any]]:
        """Return what the channel posted in the delivery's turn and in its resumptions."""
        posts = self.agent.store.outbound(delivery.session_id)
        if delivery.turn_id is None or not posts:
            return []
        origins = await self.agent.core.origins(delivery.session_id)
        origin = origins.get(delivery.turn_id, delivery.turn_id)
        return [
            post.to_wire()
            for post in posts
            if post.turn_id is not None and origins.get(post.turn_id, post.turn_id) == origin
        ]

    async def blob(self, ctx: RouteContext) -> Reply:
        """Return a tool output that was too large for its event, as it is."""
        session = await ctx.reach(ctx.params["sessionId"])
        path = self.agent.store.blob(session.id, ctx.params["blobId"])
        if path is None:
            raise NotFound("There is no such blob in this session.")
        data = await asyncio.to_thread(path.read_bytes)
        return Reply(data, content_type="application/json")


async def _channel_types() -> list[ChannelType]:
    # Importing a package may take seconds, the first time.
    return await asyncio.to_thread(installed_channels)


def _skills(agent: AgentRuntime) -> list[Any]:
    return list(agent.project.skills.values())


def _delivery_wire(delivery: DeliveryRecord) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "deliveryId": delivery.delivery_id,
        "sessionId": delivery.session_id,
        "channel": delivery.channel,
        "state": delivery.state,
        "admission": delivery.admission,
        "at": delivery.at,
    }
    if delivery.event_index is not None:
        wire["eventIndex"] = delivery.event_index
    if delivery.turn_id is not None:
        wire["turnId"] = delivery.turn_id
    return wire
