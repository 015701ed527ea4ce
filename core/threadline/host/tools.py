"""The routes of tools: what there are, what one is, and calls without a model."""

from __future__ import annotations

import base64
import builtins
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from threadline.channel.channel import Route
from threadline.channel.context import Reply, RouteContext, Session
from threadline.clock import instant
from threadline.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    SessionBusy,
    StaleToken,
    WorkspaceUnavailable,
)
from threadline.host.answers import (
    InputRefused,
    ToolCalled,
    ToolDetail,
    ToolEntry,
    ToolFailed,
    ToolList,
)
from threadline.session.access import Action
from threadline.store.base import SessionRecord

if TYPE_CHECKING:
    from threadline.harness.base import Attachment, ToolResult
    from threadline.host.agent import AgentRuntime

__all__ = ["ToolCallBody", "ToolRoutes"]

_BINDING = (Forbidden, NotFound, StaleToken)
_CALLING = (*_BINDING, Conflict, SessionBusy, WorkspaceUnavailable)
_INPUT_CODES = ("invalid_input", "time_not_allowed")


class ToolCallBody(BaseModel):
    """The body of ``POST /v1/tools/{name}``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    input: Any = None
    session_id: StrictStr | None = None
    continuation_token: StrictStr | None = None
    dry_run: StrictBool | None = None
    as_of: StrictStr | None = None
    purpose: StrictStr | None = None


class ToolsQuery(BaseModel):
    """The query of ``GET /v1/tools``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    session: str | None = None
    continuation_token: str | None = None


class ToolRoutes:
    """Handlers that see one agent's tools."""

    def __init__(self, agent: AgentRuntime) -> None:
        self.agent = agent

    def routes(self) -> list[Route]:
        """Return the routes, relative to the agent's root."""
        return [
            Route("GET", "/v1/tools", self.list, "The agent's tools.", raises=_BINDING),
            Route(
                "GET",
                "/v1/tools/{name}",
                self.one,
                "One tool's schemas and rules.",
                raises=(NotFound,),
            ),
            Route(
                "POST",
                "/v1/tools/{name}",
                self.call,
                "Run a tool without a model turn.",
                responses={200: ToolCalled | ToolFailed, 400: InputRefused},
                raises=_CALLING,
            ),
        ]

    async def list(self, ctx: RouteContext, query: ToolsQuery) -> ToolList:
        """List the tools; a session that is named must be the caller's to read."""
        await self._bound(ctx, query.session, query.continuation_token, "read")
        tools = cast("builtins.list[ToolEntry]", self.agent.tools.catalog.to_wire())
        return {"tools": tools, "connectionErrors": {}}

    async def one(self, ctx: RouteContext) -> ToolDetail:
        """Return one tool; an unknown name is answered with the available ones."""
        tool = self.agent.tools.catalog.get(ctx.params["name"])
        return cast("ToolDetail", tool.to_wire(detail=True))

    async def call(self, ctx: RouteContext, body: ToolCallBody) -> Any:
        """Run a tool; bound to a session it takes the session's lock."""
        tool = self.agent.tools.catalog.get(ctx.params["name"])
        as_of = self._as_of(body.as_of)
        session = await self._bound(ctx, body.session_id, body.continuation_token, "send")
        result = await self.agent.core.call_tool(
            tool.name,
            body.input,
            ctx.principal,
            session.id if session is not None else None,
            dry_run=bool(body.dry_run),
            as_of=as_of,
            purpose=body.purpose or None,
        )
        dry = bool(body.dry_run) or (session is not None and session.record.dry_run)
        answer = _answer(result) | ({"dryRun": True} if dry or result.dry_run else {})
        if result.code not in _INPUT_CODES:
            return answer
        if as_of is None and session is not None:
            as_of = session.record.as_of
        problems = self.agent.tools.problems(tool.name, body.input, as_of)
        answer["problems"] = [problem.to_wire() for problem in problems]
        return Reply(answer, status=400)

    def _as_of(self, said: str | None) -> str | None:
        """Return an instant as the wire has it; raises InvalidRequest."""
        if said is None:
            return None
        try:
            as_of = instant(said)
        except ValueError:
            raise InvalidRequest(
                f"asOf must be an absolute instant such as 2025-01-31T12:00:00Z, not {said[:80]!r}."
            ) from None
        if datetime.fromisoformat(as_of) > self.agent.services.clock.now():
            raise InvalidRequest(f"asOf must not be in the future, as {as_of} is.")
        return as_of

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


def _answer(result: ToolResult) -> dict[str, Any]:
    answer: dict[str, Any] = {"callId": result.call_id, "toolName": result.tool_name}
    if result.attachments:
        answer["content"] = [_part(item) for item in result.attachments]
    if not result.is_error:
        return {"ok": True, "isError": False, "result": result.output, **answer}
    said = {"ok": False, "isError": True, "error": result.code, "message": result.output}
    return said | answer


def _part(item: Attachment) -> dict[str, Any]:
    kind = item.media_type.partition("/")[0]
    part = {
        "type": kind if kind in ("image", "audio") else "file",
        "mediaType": item.media_type,
        "size": len(item.data),
        "data": base64.b64encode(item.data).decode(),
    }
    return part | ({"name": item.name} if item.name else {})
