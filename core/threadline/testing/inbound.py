"""Requests as an outside service makes them, signed as services sign them, and answers; pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = [
    "Answer",
    "Inbound",
    "Scheme",
    "github_signature",
    "signed_request",
    "slack_signature",
]

Scheme: TypeAlias = Literal["hmac-sha256", "slack", "github"]

_HEADERS = {
    "hmac-sha256": "x-signature",
    "slack": "x-slack-signature",
    "github": "x-hub-signature-256",
}


@dataclass(frozen=True, slots=True)
class Inbound:
    """One HTTP request to a channel; ``path`` begins below the channel's mount."""

    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, read whole; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the decoded body; raises ValueError when it is not JSON."""
        return json.loads(self.body)


def slack_signature(secret: str | bytes, body: str | bytes, timestamp: int | str) -> str:
    """Return ``v0=<hex>``: HMAC-SHA256 of ``v0:<timestamp>:<body>``.

    Slack sends it as ``X-Slack-Signature``, and the timestamp, in seconds of the epoch, as
    ``X-Slack-Request-Timestamp``.
    """
    return "v0=" + _hmac(secret, b"v0:%s:%s" % (str(timestamp).encode(), _bytes(body)))


def github_signature(secret: str | bytes, body: str | bytes) -> str:
    """Return ``sha256=<hex>``: HMAC-SHA256 of the body; the header ``X-Hub-Signature-256``."""
    return "sha256=" + _hmac(secret, _bytes(body))


def signed_request(
    secret: str | bytes,
    body: Any,
    *,
    scheme: Scheme = "hmac-sha256",
    header: str | None = None,
    timestamp: int | str | None = None,
    method: str = "POST",
    path: str = "/",
    headers: Mapping[str, str] | None = None,
) -> Inbound:
    """Return a request whose body is signed.

    ``body`` is bytes or text, sent as they are, or a value that is sent as JSON. ``scheme``:

    - ``"hmac-sha256"``: the hex digest of the body, or with ``timestamp`` of
      ``<timestamp>.<body>`` and the timestamp in ``x-timestamp``; header ``x-signature``.
    - ``"slack"``: see :func:`slack_signature`; needs ``timestamp``.
    - ``"github"``: see :func:`github_signature`; takes no ``timestamp``.

    ``header`` names another header for the signature; ``headers`` are sent too. Raises ValueError
    for a timestamp that is missing or not part of the scheme.
    """
    data = _bytes(body) if isinstance(body, str | bytes) else _json(body)
    signature, stamped = _sign(secret, data, scheme, timestamp)
    sent = {"content-type": "application/json", header or _HEADERS[scheme]: signature}
    return Inbound(method, path, {**sent, **stamped, **(headers or {})}, data)


def _sign(
    secret: str | bytes, body: bytes, scheme: Scheme, timestamp: int | str | None
) -> tuple[str, dict[str, str]]:
    """Return the signature, and the headers that belong to it."""
    if scheme == "slack":
        if timestamp is None:
            raise ValueError("The scheme 'slack' signs a timestamp: give timestamp=.")
        stamp = {"x-slack-request-timestamp": str(timestamp)}
        return slack_signature(secret, body, timestamp), stamp
    if scheme == "github":
        if timestamp is not None:
            raise ValueError("The scheme 'github' signs no timestamp: leave it out.")
        return github_signature(secret, body), {}
    if scheme != "hmac-sha256":
        raise ValueError(f"There is no scheme {scheme!r}; there are: {', '.join(_HEADERS)}.")
    if timestamp is None:
        return _hmac(secret, body), {}
    stamped = str(timestamp).encode() + b"." + body
    return _hmac(secret, stamped), {"x-timestamp": str(timestamp)}


def _hmac(secret: str | bytes, message: bytes) -> str:
    return hmac.new(_bytes(secret), message, hashlib.sha256).hexdigest()


def _bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
