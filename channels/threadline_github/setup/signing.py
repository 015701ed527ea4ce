"""A webhook's headers, as GitHub sends them; no I/O.

https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers
"""

from __future__ import annotations

import hashlib
import hmac

__all__ = ["signed"]


def signed(secret: str, body: bytes, event: str, guid: str) -> dict[str, str]:
    """Return the headers of a delivery of JSON, signed over these very bytes."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/threadline",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": guid,
        "X-Hub-Signature-256": f"sha256={digest}",
    }
