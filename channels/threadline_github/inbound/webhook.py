"""A webhook's body and signature; no I/O.

https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import parse_qs

import orjson

from threadline.errors import InvalidRequest

__all__ = ["is_signed", "parse"]


def is_signed(secret: str, body: bytes, header: str) -> bool:
    """Tell whether ``X-Hub-Signature-256`` is the secret's over these very bytes."""
    if not secret:
        return False
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(f"sha256={digest}".encode(), header.encode("utf-8", "replace"))


def parse(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the payload, sent as JSON or as a form; raises InvalidRequest."""
    media = content_type.partition(";")[0].strip().lower()
    text: bytes | str = body
    if media == "application/x-www-form-urlencoded":
        text = _payload(body)
    elif media not in ("", "application/json"):
        raise InvalidRequest("The content type is application/json or a form, as GitHub has it.")
    try:
        value = orjson.loads(text)
    except ValueError:
        raise InvalidRequest("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    return value


def _payload(body: bytes) -> str:
    try:
        form = parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise InvalidRequest("The body is not a form.") from None
    if "payload" not in form:
        raise InvalidRequest("The form has no field 'payload'.")
    return form["payload"][-1]
