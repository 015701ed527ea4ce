"""The agent's own routes, behind its HTTP chain: discovery, tools, deliveries, blobs, logs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, Field

from threadline.channel.answers import ANYTHING, JSON, Media
from threadline.channel.channel import Route
from threadline.channel.context import Reply, RouteContext
from threadline.channel.installed import ChannelType, installed_channels
from threadline.errors import Forbidden, NotFound
from threadline.host.answers import (
    ChannelTypeEntry,
    DeliveryFate,
    Info,
    LogPage,
    ToolEntry,
)
from threadline.host.artifacts import ArtifactRoutes
from threadline.host.logs import LogBook
from threadline.host.openapi import Document
from threadline.host.tools import ToolRoutes
from threadline.store.base import DeliveryRecord
from threadline.version import VERSION

if TYPE_CHECKING:
    from threadline.host.agent import AgentRuntime

__all__ = ["AgentRoutes"]

_NAMED = (NotFound,)
_SESSION_ID = re.compile(r"ses_[A-Za-z0-9_-]{1,64}")


class LogsQuery(BaseModel):
    """The query of ``GET /v1/logs``."""

    after: int = Field(default=0, ge=0)


class AgentRoutes:
    """Handlers that see one agent."""

    def __init__(
        self, agent: AgentRuntime, book: LogBook, document: Document | None = None
    ) -> None:
        self.agent = agent
        self.book = book
        self.document = document

    def routes(self) -> list[Route]:
        """Return the routes, relative to the agent's root."""
        return [
            Route("GET", "/v1/info", self.info, "Everything that discovery found.", raises=()),
            *ToolRoutes(self.agent).routes(),
            Route("GET", "/v1/logs", self.logs, "Recent log records of the host.", raises=()),
            Route(
                "GET",
                "/v1/deliveries/{deliveryId}",
                self.delivery,
                "What became of a message.",
                raises=_NAMED,
            ),
            Route(
                "GET",
                "/v1/session/{sessionId}/blobs/{blobId}",
                self.blob,
                "A large output.",
                raises=(Forbidden, NotFound),
            ),
            *ArtifactRoutes(self.agent).routes(),
            Route("GET", "/v1/openapi.json", self.openapi, "This document.", raises=()),
        ]

    async def openapi(self, ctx: RouteContext) -> Annotated[Reply, Media(JSON)]:
        """Return the OpenAPI document of all of the agent's routes."""
        assert self.document is not None
        kind = f"{JSON}; charset=utf-8"
        return Reply(await self.document.body(), content_type=kind)

    async def info(self, ctx: RouteContext) -> Info:
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
            "tools": cast("list[ToolEntry]", agent.tools.catalog.to_wire()),
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
            "artifacts": project.artifacts.to_wire(),
            "channelTypes": [
                cast("ChannelTypeEntry", type_.to_wire()) for type_ in await _channel_types()
            ],
            "diagnostics": [*project.warnings, *self._damage(ctx)],
        }

    def _damage(self, ctx: RouteContext) -> list[str]:
        return [
            sentence
            for sentence in self.agent.store.damage
            if all(self._may_read(ctx, found) for found in _SESSION_ID.findall(sentence))
        ]

    async def logs(self, ctx: RouteContext, query: LogsQuery) -> LogPage:
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

    async def delivery(self, ctx: RouteContext) -> DeliveryFate:
        """Return what became of a delivery that the caller may see; the newest of that id."""
        delivery_id, store = ctx.params["deliveryId"], self.agent.store
        # The caller's own are shown also when their session was deleted meanwhile.
        for delivery in store.delivery(delivery_id, owner=ctx.principal.key):
            return await self._fate(delivery)
        for delivery in store.delivery(delivery_id):
            with contextlib.suppress(NotFound, Forbidden):
                await ctx.reach(delivery.session_id)
                return await self._fate(delivery)
        raise NotFound(f"There is no delivery {delivery_id[:200]!r} in your sessions.")

    async def _fate(self, delivery: DeliveryRecord) -> DeliveryFate:
        wire = _delivery_wire(delivery) | {"outbound": await self._outbound(delivery)}
        return cast("DeliveryFate", wire)

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

    async def blob(self, ctx: RouteContext) -> Annotated[Reply, Media(ANYTHING)]:
        """Return what a tool gave: an output too large for its event, or a file as a download."""
        session = await ctx.reach(ctx.params["sessionId"])
        path = self.agent.store.blob(session.id, ctx.params["blobId"])
        if path is None:
            raise NotFound("There is no such blob in this session.")
        data = await asyncio.to_thread(path.read_bytes)
        if path.name.startswith("blob_"):
            return Reply(data, content_type=JSON)
        # Its event says what it is; here it must not be anything that a browser would run.
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Reply(data, headers=headers, content_type="application/octet-stream")


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
