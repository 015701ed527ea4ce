"""Webhooks of a demo: sent on to the agent, and kept in a list for whoever missed them.

https://docs.github.com/en/rest/apps/webhooks
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from threadline.clock import Clock, SystemClock

if TYPE_CHECKING:
    from aiohttp import ClientSession

__all__ = ["Delivery", "Hooks"]

_MOST = 100


@dataclass(frozen=True, slots=True)
class Delivery:
    """One webhook as it was sent; ``status`` is the answer's, 0 for none."""

    id: int
    guid: str
    event: str
    payload: dict[str, Any]
    at: datetime
    status: int

    def listed(self) -> dict[str, Any]:
        """Return it as the list has it."""
        good = HTTPStatus.OK <= self.status < HTTPStatus.BAD_REQUEST
        return {
            "id": self.id,
            "guid": self.guid,
            "delivered_at": self.at.isoformat(),
            "redelivery": False,
            "duration": 0.1,
            "status": "OK" if good else "failed to connect to host",
            "status_code": self.status,
            "event": self.event,
            "action": self.payload.get("action"),
            "installation_id": (self.payload.get("installation") or {}).get("id"),
            "repository_id": (self.payload.get("repository") or {}).get("id"),
        }

    def whole(self) -> dict[str, Any]:
        """Return it with what was sent."""
        headers = {"X-GitHub-Event": self.event, "X-GitHub-Delivery": self.guid}
        return {**self.listed(), "request": {"headers": headers, "payload": self.payload}}


class Hooks:
    """Sends webhooks to ``target``, signed with ``secret`` unless a signature is given."""

    def __init__(self, secret: str, clock: Clock | None = None) -> None:
        self.target: str | None = None
        self._secret = secret
        self._clock = clock or SystemClock()
        self._kept: list[Delivery] = []

    async def send(
        self, http: ClientSession, event: str, guid: str, body: bytes, signature: str = ""
    ) -> int:
        """Send a webhook, and keep it; returns the answer's status, 0 for none."""
        import aiohttp

        digest = hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid,
            "X-Hub-Signature-256": signature or f"sha256={digest}",
        }
        at, status = self._clock.now(), 0
        if self.target is not None:
            try:
                async with http.post(self.target, data=body, headers=headers) as answer:
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError):
                status = 0
        number = self._kept[-1].id + 1 if self._kept else 1
        self._kept.append(Delivery(number, guid, event, json.loads(body), at, status))
        return status

    def newest(self) -> list[Delivery]:
        """Return the newest deliveries, newest first, as many as a page has."""
        return self._kept[: -_MOST - 1 : -1]

    def knows(self, guid: str) -> bool:
        """Tell whether there was a delivery with this id."""
        return any(one.guid == guid for one in self._kept)

    def delivery(self, number: int) -> Delivery | None:
        """Return a delivery by its id."""
        return next((one for one in self._kept if one.id == number), None)
