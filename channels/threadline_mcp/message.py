"""What must be known of a POST before the protocol's library reads it; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

__all__ = ["CANCELLED", "INTERNAL", "INVALID", "Id", "Message", "accepts_events", "fault", "read"]

Id: TypeAlias = str | int

# Codes of JSON-RPC 2.0, and the one with which clients until 2025-11-25 expect an end.
INVALID = -32600
INTERNAL = -32603
CANCELLED = -32800


@dataclass(frozen=True, slots=True)
class Message:
    """A JSON-RPC message, as far as it matters here.

    ``id``: of a request. ``progress_token``: under which the caller wants to hear of progress.
    ``cancels``: the request that the notification cancels.
    """

    id: Id | None = None
    progress_token: Id | None = None
    cancels: Id | None = None


def read(body: bytes) -> Message:
    """Read a body; what is no such message says nothing here, and the library refuses it."""
    try:
        wire = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Message()
    wire = _object(wire)
    params = _object(wire.get("params"))
    if wire.get("method") == "notifications/cancelled" and "id" not in wire:
        return Message(cancels=_id(params.get("requestId")))
    token = _object(params.get("_meta")).get("progressToken")
    return Message(_id(wire.get("id")), _id(token))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _id(value: Any) -> Id | None:
    return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None


def accepts_events(accept: str) -> bool:
    """Tell whether an ``Accept`` header takes ``text/event-stream``."""
    kinds = {part.split(";")[0].strip().lower() for part in accept.split(",")}
    return bool(kinds & {"*/*", "text/*", "text/event-stream"})


def fault(request_id: Id | None, code: int, message: str) -> bytes:
    """Return a JSON-RPC error."""
    error = {"code": code, "message": message}
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
