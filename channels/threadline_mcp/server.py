"""The endpoint in the words of the ``mcp`` package, whose import takes more than a second.

Nothing outlives a request: each has a session manager of its own, which is cheap, and ends with it.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError

from threadline.channel.context import Context, RouteContext
from threadline.errors import ThreadlineError, Unavailable
from threadline.harness.base import Attachment
from threadline.ids import new_id
from threadline.version import VERSION
from threadline_mcp.exchange import Exchange
from threadline_mcp.hosts import allowed_hosts, allowed_origins
from threadline_mcp.surface import Offer, Outcome, Part, Surface, as_text

__all__ = ["Protocol"]

_EXCHANGE = "threadline.exchange"
_CODE = "threadline/error"

# It tells of the beginning and the end of each session, and here each request is one.
logging.getLogger("mcp").setLevel(logging.WARNING)

_Request = ServerRequestContext[Any, Any]


class Protocol:
    """Answers the requests of one endpoint of one agent."""

    def __init__(self, ctx: Context, surface: Surface) -> None:
        self._surface = surface
        self._server: Server[Any] = Server(
            ctx.agent,
            version=VERSION,
            description=ctx.description or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request."""
        ctx = exchange.ctx
        manager = StreamableHTTPSessionManager(
            self._server,
            json_response=True,
            stateless=True,
            security_settings=_security(ctx),
            max_request_body_size=max(len(ctx.body), 1),
        )
        async with manager.run():
            await manager.handle_request(_scope(exchange), exchange.receive, exchange.send)

    async def _list(
        self, request: _Request, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        offers = self._surface.offers(_exchange(request).ctx)
        return types.ListToolsResult(tools=[_tool(offer) for offer in offers])

    async def _call(
        self, request: _Request, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        exchange = _exchange(request)
        names = [offer.name for offer in self._surface.offers(exchange.ctx)]
        if params.name not in names:
            raise MCPError(types.INVALID_PARAMS, _unknown(params.name, names))
        try:
            outcome = await self._surface.call(exchange, params.name, params.arguments)
        except Unavailable as error:
            exchange.refused = error
            raise MCPError(types.INTERNAL_ERROR, error.message, {"error": error.code}) from error
        except ThreadlineError as error:
            outcome = Outcome(content=[error.message], code=error.code)
        except Exception as error:
            outcome = _unexpected(exchange, error)
        return _result(outcome)


def _unknown(name: str, names: Sequence[str]) -> str:
    return f"There is no tool {name[:80]!r}. Available: {', '.join(names) or 'none'}."


def _exchange(request: _Request) -> Exchange:
    assert request.request is not None
    exchange = request.request.scope[_EXCHANGE]
    assert isinstance(exchange, Exchange)
    return exchange


def _scope(exchange: Exchange) -> dict[str, Any]:
    request = exchange.ctx.request
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": exchange.ctx.method,
        "scheme": "http",
        "path": exchange.ctx.path,
        "raw_path": exchange.ctx.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": None,
        "server": None,
        _EXCHANGE: exchange,
    }


def _security(ctx: RouteContext) -> TransportSecuritySettings:
    url = ctx.url("/")
    called = ctx.request.get_extra_info("sockname")
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=allowed_hosts(url, called[0] if isinstance(called, tuple) else None),
        allowed_origins=allowed_origins(url),
    )


def _tool(offer: Offer) -> types.Tool:
    return types.Tool(
        name=offer.name,
        description=offer.description,
        input_schema=_in_dialect(offer.input_schema),
        output_schema=_in_dialect(offer.output_schema) if offer.output_schema else None,
        annotations=types.ToolAnnotations(
            read_only_hint=offer.reads,
            destructive_hint=offer.destroys,
            idempotent_hint=offer.repeatable,
            open_world_hint=offer.open_world,
        ),
    )


def _in_dialect(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that says which one it is, as pydantic writes them."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _result(outcome: Outcome) -> types.CallToolResult:
    if outcome.code is not None:
        # Without structured content: clients hold that against the schema of the result.
        return types.CallToolResult(
            content=[_block(part) for part in outcome.content],
            is_error=True,
            _meta={_CODE: outcome.code},
        )
    content = outcome.content or [as_text(outcome.value)]
    return types.CallToolResult(
        content=[_block(part) for part in content], structured_content=outcome.value
    )


def _block(part: Part) -> types.ContentBlock:
    match part:
        case str():
            return types.TextContent(text=part)
        case Attachment():
            return _attached(part)
        case _:
            return _referred(part)


def _referred(part: Mapping[str, Any]) -> types.ContentBlock:
    """Return a resource that is named, or quoted with its text."""
    uri, kind = str(part.get("uri") or "attachment:///text"), part.get("mediaType")
    if part["type"] == "resource_link":
        name = str(part.get("name") or uri)
        about = part.get("description")
        return types.ResourceLink(uri=uri, name=name, description=about, mime_type=kind)
    text = str(part.get("text") or "")
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type=kind, text=text)
    )


def _attached(attachment: Attachment) -> types.ContentBlock:
    data = b64encode(attachment.data).decode()
    kind = attachment.media_type.partition("/")[0]
    if kind == "image":
        return types.ImageContent(data=data, mime_type=attachment.media_type)
    if kind == "audio":
        return types.AudioContent(data=data, mime_type=attachment.media_type)
    name = quote(attachment.name or "attachment")
    return types.EmbeddedResource(
        resource=types.BlobResourceContents(
            uri=f"attachment:///{name}", mime_type=attachment.media_type, blob=data
        )
    )


def _unexpected(exchange: Exchange, error: Exception) -> Outcome:
    error_id = new_id("err")
    exchange.ctx.log.error("mcp.failed", error_id=error_id, error=repr(error), exc_info=error)
    said = f"Something went wrong here; the host's log has the details under {error_id}."
    return Outcome(content=[said], code="internal_error")
