"""From what a handler returns, or raises, to an HTTP response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from threadline.channel.context import Accepted, Delivery, EventStream, Reply
from threadline.errors import InvalidRequest, ThreadlineError
from threadline.host import stream
from threadline.ids import new_id

__all__ = ["error_response", "json_response", "parse_json", "to_response", "validate"]

log = structlog.get_logger("threadline.host")


def json_response(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a JSON response."""
    data = orjson.dumps(body, default=str, option=orjson.OPT_NON_STR_KEYS)
    return web.Response(
        body=data, status=status, headers=headers, content_type="application/json", charset="utf-8"
    )


def error_response(error: BaseException) -> web.Response:
    """Return the documented body of an error; an unexpected one is logged and shows only an id."""
    if isinstance(error, ThreadlineError):
        return json_response(error.to_wire(), error.status)
    if isinstance(error, web.HTTPException):
        return _from_aiohttp(error)
    error_id = new_id("err")
    log.error("request.failed", error_id=error_id, error=repr(error), exc_info=error)
    message = f"Something went wrong here; the host's log has the details under {error_id}."
    return json_response({"ok": False, "error": "internal_error", "message": message}, 500)


_AIOHTTP = {
    404: ("not_found", "There is no such route."),
    405: ("method_not_allowed", "This route does not take that method."),
    413: ("body_too_large", "The request body is over the host's limit."),
}


def _from_aiohttp(error: web.HTTPException) -> web.Response:
    code, message = _AIOHTTP.get(error.status, ("invalid_request", error.reason))
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    body = {"ok": False, "error": code, "message": message}
    if error.status < 400:
        return web.Response(status=error.status, headers=error.headers)
    return json_response(body, error.status, headers)


async def to_response(
    request: web.Request, value: Any, closing: asyncio.Event
) -> web.StreamResponse:
    """Return what a handler's value says: see :class:`~threadline.channel.context.Reply`."""
    match value:
        case web.StreamResponse():
            return value
        case EventStream():
            return await stream.respond(request, value, closing)
        case Accepted():
            return json_response(value.to_wire(), 202)
        case Delivery():
            return json_response({"ok": True, **value.to_wire()})
        case Reply():
            return _reply(value)
        case None:
            return json_response({"ok": True})
        case BaseModel():
            return json_response(value.model_dump(mode="json", by_alias=True))
        case dict() | list():
            return json_response(value)
        case _:
            raise TypeError(
                f"The handler returned {type(value).__name__}; it may return a dict, a list, a "
                "pydantic model, Accepted, Reply, EventStream or None."
            )


def _reply(reply: Reply) -> web.Response:
    body = reply.body
    if isinstance(body, bytes):
        content_type = reply.content_type or "application/octet-stream"
        return web.Response(
            body=body, status=reply.status, headers=reply.headers, content_type=content_type
        )
    if isinstance(body, str):
        return web.Response(
            text=body,
            status=reply.status,
            headers=reply.headers,
            content_type=reply.content_type or "text/plain",
        )
    if isinstance(body, BaseModel):
        body = body.model_dump(mode="json", by_alias=True)
    if body is None:
        return web.Response(status=reply.status, headers=reply.headers)
    return json_response(body, reply.status, reply.headers)


def parse_json(body: bytes) -> Any:
    """Decode a request body; raises InvalidRequest."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None


def validate(adapter: TypeAdapter[Any], value: Any, where: str) -> Any:
    """Validate a decoded value; raises InvalidRequest with a sentence for each problem."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in p['loc']) or where}: {p['msg']}"
            for p in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise InvalidRequest(f"The {where} is not valid. " + "; ".join(problems) + ".") from None
