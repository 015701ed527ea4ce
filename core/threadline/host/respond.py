"""From what a handler returns, or raises, to an HTTP response."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import orjson
import structlog
from aiohttp import web
from multidict import CIMultiDict
from pydantic import BaseModel, TypeAdapter, ValidationError

from threadline.channel.context import Accepted, Delivery, EventStream, Reply
from threadline.errors import InvalidRequest, ThreadlineError
from threadline.host import stream
from threadline.ids import new_id

__all__ = ["HINTS", "error_response", "json_response", "parse_json", "to_response", "validate"]

log = structlog.get_logger("threadline.host")

HINTS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}


def json_response(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a JSON response; raises TypeError for what JSON cannot say."""
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=_json(body), status=status, headers=kind | dict(headers or {}))


def _json(body: Any) -> bytes:
    try:
        return orjson.dumps(body, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
        return json.dumps(body, default=_plain, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            return value.model_dump(mode="json", by_alias=True)
        case set() | frozenset() | tuple():
            return list(value)
        case Decimal() | PurePath():
            return str(value)
    raise TypeError(f"{type(value).__name__} cannot be said in JSON")


def error_response(error: BaseException) -> web.Response:
    """Return the documented body of an error; an unexpected one is logged and shows only an id."""
    if isinstance(error, ThreadlineError):
        return json_response(error.to_wire(), error.status, HINTS.get(error.status))
    if isinstance(error, web.HTTPException):
        return _from_aiohttp(error)
    error_id = new_id("err")
    log.error("request.failed", error_id=error_id, error=repr(error), exc_info=error)
    message = f"Something went wrong here; the host's log has the details under {error_id}."
    return json_response({"ok": False, "error": "internal_error", "message": message}, 500)


_AIOHTTP = {
    401: ("unauthorized", "This request was not admitted."),
    403: ("forbidden", "This is not for the caller."),
    404: ("not_found", "There is no such route."),
    405: ("method_not_allowed", "This route does not take that method; Allow names those it does."),
    409: ("conflict", "The resource's state rejects the request."),
    413: ("body_too_large", "The request body is over the host's limit."),
}
_DROPPED = frozenset({"content-length", "content-type"})


def _from_aiohttp(error: web.HTTPException) -> web.Response:
    headers = CIMultiDict((k, v) for k, v in error.headers.items() if k.lower() not in _DROPPED)
    if error.status < 400:
        return web.Response(status=error.status, headers=headers)
    fallback = "invalid_request" if error.status < 500 else "unavailable"
    code, message = _AIOHTTP.get(error.status, (fallback, f"{error.reason}."))
    for name, value in HINTS.get(error.status, {}).items():
        headers.setdefault(name, value)
    return json_response({"ok": False, "error": code, "message": message}, error.status, headers)


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
            return json_response(value)
        case dict() | list():
            return json_response(value)
        case _:
            raise TypeError(
                f"The handler returned {type(value).__name__}; it may return a dict, a list, a "
                "pydantic model, Accepted, Reply, EventStream or None."
            )


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: ?[^\x00-\x08\x0a-\x1f\x7f]*")


def _check_reply(reply: Reply) -> None:
    """Raise ValueError now for what would break the answer once it has begun."""
    if not isinstance(reply.status, int) or not 200 <= reply.status <= 599:
        raise ValueError(f"a reply's status is 200 to 599, not {reply.status!r}")
    for name, value in reply.headers.items():
        if _HEADER.fullmatch(f"{name}: {value}") is None:
            raise ValueError(f"the header {name!r} of a reply is not valid")


def _reply(reply: Reply) -> web.Response:
    _check_reply(reply)
    headers = CIMultiDict(reply.headers)
    if reply.body is None:
        return web.Response(status=reply.status, headers=headers)
    data, kind = _encoded(reply.body)
    if reply.content_type is not None:
        text = reply.content_type.startswith("text/") and "charset" not in reply.content_type
        kind = reply.content_type + ("; charset=utf-8" if text else "")
    headers.setdefault("Content-Type", kind)
    return web.Response(body=data, status=reply.status, headers=headers)


def _encoded(body: Any) -> tuple[bytes, str]:
    if isinstance(body, bytes):
        return body, "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return _json(body), "application/json; charset=utf-8"


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
