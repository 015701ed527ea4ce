"""The agent's own routes, behind its HTTP chain: discovery, tools, deliveries, blobs, logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from threadline.channel.channel import Route
from threadline.channel.context import Reply, RouteContext, Session
from threadline.errors import NotFound, StaleToken, UnsupportedOption
from threadline.host.logs import LogBook
from threadline.ids import is_session_id
from threadline.session.access import Action
from threadline.store.base import DeliveryRecord
from threadline.version import VERSION

if TYPE_CHECKING:
    from threadline.host.agent import AgentRuntime

__all__ = ["AgentRoutes"]


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
            "diagnostics": [*project.warnings, *agent.store.damage],
        }

    async def tools(self, ctx: RouteContext, query: ToolsQuery) -> dict[str, Any]:
        """List the tools; a session that is named must be the caller's to read."""
        self._bound(ctx, query.session, query.continuation_token, "read")
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
        session = self._bound(ctx, body.session_id, body.continuation_token, "send")
        result = await self.agent.core.call_tool(
            tool.name, body.input, ctx.principal, session.id if session is not None else None
        )
        answer = {"callId": result.call_id, "toolName": tool.name}
        if not result.is_error:
            return {"ok": True, "isError": False, "result": result.output, **answer}
        wire = {"ok": False, "isError": True, "error": result.code, "message": result.output}
        return Reply(wire | answer, status=400 if result.code == "invalid_input" else 200)

    def _bound(
        self, ctx: RouteContext, session_id: str | None, token: str | None, action: Action
    ) -> Session | None:
        """Return the session that an id or a token names; both must agree."""
        store = self.agent.store
        if session_id is None and token is None:
            return None
        by_token = None
        if token is not None:
            channels = self.agent.runtimes
            found = [store.session_by_token(channel, token) for channel in channels]
            by_token = next((record for record in found if record is not None), None)
        if session_id is not None:
            session = ctx.session(session_id, action=action)
            if session is None:
                raise NotFound(f"There is no session {session_id[:80]!r}.")
            if token is not None and (by_token is None or by_token.id != session.id):
                raise StaleToken("The continuation token is not this session's current one.")
            return session
        if by_token is None:
            raise StaleToken("The continuation token is not current.")
        return ctx.session(by_token.id, action=action)

    async def logs(self, ctx: RouteContext, query: LogsQuery) -> dict[str, Any]:
        """Return log records, without those of sessions that the caller may not read."""
        seen: dict[str, bool] = {}

        def visible(record: dict[str, Any]) -> bool:
            session_id = record.get("session")
            if record.get("agent") not in (None, self.agent.project.slug):
                return False
            if not isinstance(session_id, str):
                return True
            if session_id not in seen:
                seen[session_id] = self._may_read(ctx, session_id)
            return seen[session_id]

        records, cursor = self.book.after(query.after, visible)
        return {"logs": records, "next": cursor}

    def _may_read(self, ctx: RouteContext, session_id: str) -> bool:
        record = self.agent.store.session(session_id)
        if record is None:
            return ctx.principal.operator
        return self.agent.http.channel.may(ctx.principal, record, "read")

    async def delivery(self, ctx: RouteContext) -> dict[str, Any]:
        """Return what became of a delivery that the caller may see; the newest of that id."""
        delivery_id = ctx.params["deliveryId"]
        for delivery in self.agent.store.delivery(delivery_id):
            if self._may_read(ctx, delivery.session_id):
                return _delivery_wire(delivery)
        raise NotFound(f"There is no delivery {delivery_id[:200]!r} in your sessions.")

    async def blob(self, ctx: RouteContext) -> Reply:
        """Return a tool output that was too large for its event, as it is."""
        session_id = ctx.params["sessionId"]
        if not is_session_id(session_id) or ctx.session(session_id) is None:
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        path = self.agent.store.blob(session_id, ctx.params["blobId"])
        if path is None:
            raise NotFound("There is no such blob in this session.")
        return Reply(path.read_bytes(), content_type="application/json")


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
        "outbound": [],
    }
    if delivery.event_index is not None:
        wire["eventIndex"] = delivery.event_index
    if delivery.turn_id is not None:
        wire["turnId"] = delivery.turn_id
    return wire
