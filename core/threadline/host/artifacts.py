"""The routes of artifacts: whose they are, and downloads that never run in this origin."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import quote

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from threadline.agent.shelf import extension_of
from threadline.channel.answers import ANYTHING, Media, Ok
from threadline.channel.auth import admit
from threadline.channel.channel import Route
from threadline.channel.context import RouteContext
from threadline.errors import Forbidden, NotFound, Unauthorized
from threadline.host.answers import ArtifactEntry, ArtifactList
from threadline.host.endpoint import asked_of
from threadline.session.access import Action, channel_principal
from threadline.store.base import Artifact, ArtifactRecord

if TYPE_CHECKING:
    from threadline.host.agent import AgentRuntime

__all__ = ["ArtifactRoutes"]

# What no browser runs, whatever is in it. All else is sent as bytes.
_INERT = frozenset(
    {
        "application/gzip",
        "application/json",
        "application/pdf",
        "application/x-ndjson",
        "application/zip",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "text/csv",
        "text/markdown",
        "text/plain",
        "text/tab-separated-values",
    }
)
_FILE = Annotated[Any, Media(ANYTHING)]
_OWNED = (Forbidden, NotFound)
_INERT_PREFIX = "application/vnd.openxmlformats-officedocument."
_SAFETY = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class ArtifactsQuery(BaseModel):
    """The query of ``GET /v1/artifacts``."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    kind: str | None = None
    session_id: str | None = None
    limit: int | None = Field(default=None, ge=1)


class ArtifactRoutes:
    """Handlers that see one agent's artifacts."""

    def __init__(self, agent: AgentRuntime) -> None:
        self.agent = agent

    def routes(self) -> list[Route]:
        """Return the routes, relative to the agent's root."""
        return [
            Route(
                "GET",
                "/v1/artifacts",
                self.list,
                "Artifacts, newest-updated first.",
                raises=_OWNED,
            ),
            Route("GET", "/v1/artifacts/{id}", self.one, "One artifact.", raises=_OWNED),
            Route(
                "DELETE", "/v1/artifacts/{id}", self.delete, "Remove an artifact.", raises=_OWNED
            ),
            Route(
                "GET",
                "/v1/artifacts/{id}/content",
                self.content,
                "What an artifact holds.",
                # As files are served: whole, a range of it, not changed, or no such range.
                responses={200: _FILE, 206: _FILE, 304: None, 412: None, 416: None},
                raises=_OWNED,
            ),
        ]

    async def list(self, ctx: RouteContext, query: ArtifactsQuery) -> ArtifactList:
        """Return the artifacts that the caller may read; of one session, if it is named."""
        records = self.agent.store.artifacts.list(kind=query.kind, session_id=query.session_id)
        if query.session_id is not None:
            await self._check_session(ctx, query.session_id)
        known: dict[tuple[str, str | None], bool] = {}
        found: list[ArtifactEntry] = []
        for record in records:
            if len(found) == query.limit:
                break
            same = record.owner.key, record.artifact.session_id
            if same not in known:
                known[same] = await self._may(ctx, record, "read")
            if known[same]:
                found.append(self._entry(record))
        return {"artifacts": found}

    async def _check_session(self, ctx: RouteContext, session_id: str) -> None:
        """Raise NotFound or Forbidden; what a deleted session left is there for its owner."""
        if self.agent.store.session(session_id) is not None:
            await ctx.reach(session_id)
            return
        left = self.agent.store.artifacts.list(session_id=session_id)
        if not left:
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        if not any([await self._may(ctx, record, "read") for record in left]):
            raise Forbidden("This session belonged to another principal.")

    async def one(self, ctx: RouteContext) -> ArtifactEntry:
        """Return one artifact."""
        return self._entry(await self._reach(ctx, "read"))

    def _entry(self, record: ArtifactRecord) -> ArtifactEntry:
        return cast("ArtifactEntry", self.agent.shelf.shown(record).to_wire())

    async def delete(self, ctx: RouteContext) -> Ok:
        """Remove an artifact with its content."""
        record = await self._reach(ctx, "delete")
        await self.agent.store.artifacts.delete(record.artifact.id)
        return {"ok": True}

    async def content(self, ctx: RouteContext) -> web.FileResponse:
        """Send the content from its file, whole or a range of it, as a download."""
        record = await self._reach(ctx, "read")
        path = self.agent.store.artifacts.path(record)
        if path is None:
            raise NotFound(f"Artifact {record.artifact.id} has no content.")
        return web.FileResponse(path, headers=_SAFETY | _headers(record.artifact))

    async def _reach(self, ctx: RouteContext, action: Action) -> ArtifactRecord:
        artifact_id = ctx.params["id"]
        record = self.agent.store.artifacts.get(artifact_id)
        if record is None:
            raise NotFound(f"There is no artifact {artifact_id[:80]!r}.")
        if not await self._may(ctx, record, action):
            raise Forbidden("This artifact belongs to another principal.")
        return record

    async def _may(self, ctx: RouteContext, record: ArtifactRecord, action: Action) -> bool:
        """Tell whether the caller owns an artifact, or may do this to its session or its channel.

        Access to a channel's own is as to the sessions that it owns: for whom it admits.
        """
        if record.owner.key == ctx.principal.key:
            return True
        if action == "read" and ctx.principal.operator:
            return True
        session_id = record.artifact.session_id
        if session_id is not None and self.agent.store.session(session_id) is not None:
            try:
                await ctx.reach(session_id, action=action)
            except (Forbidden, NotFound):
                return False
            return True
        return await self._owns(ctx, record)

    async def _owns(self, ctx: RouteContext, record: ArtifactRecord) -> bool:
        """Tell whether an artifact is a channel's that admits this very request."""
        runtime = self.agent.runtimes.get(record.owner.id)
        if runtime is None or record.owner != channel_principal(runtime.channel.id):
            return False
        if runtime is self.agent.http:
            return True
        try:
            await admit(runtime.channel.auth, asked_of(ctx.request, ctx.body))
        except Unauthorized:
            return False
        return True


def _headers(artifact: Artifact) -> dict[str, str]:
    return {
        "Content-Type": _served_type(artifact.content_type or ""),
        "Content-Disposition": _disposition(artifact),
    }


def _served_type(content_type: str) -> str:
    """Return the type that a download says: its own if that is harmless, else plain bytes."""
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    if kind not in _INERT and not kind.startswith(_INERT_PREFIX):
        return "application/octet-stream"
    if not kind.startswith("text/"):
        return kind
    charset = re.search(r"charset=([\w-]+)", parameters, re.A)
    return f"{kind}; charset={charset[1] if charset else 'utf-8'}"


def _disposition(artifact: Artifact) -> str:
    """Return a download's name as RFC 6266 has it, for old readers too."""
    name = artifact.filename or artifact.key + extension_of(artifact.content_type)
    name = "".join(
        "_" if c in "/\\" or unicodedata.category(c)[0] == "C" else c for c in name
    ).strip(". ")
    name = name or "artifact"
    plain = re.sub(r"[^A-Za-z0-9 ._()+-]", "_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
