"""Webhooks on their way: signed, timed, never tried again by themselves, and all kept.

https://docs.github.com/en/webhooks/using-webhooks/handling-failed-webhook-deliveries
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

import aiohttp

from threadline.testing.inbound import github_signature
from threadline.testing.pulse import Pulse
from threadline.testing.sending import Sender
from threadline_github.testing.hookfaults import HookFaults
from threadline_github.testing.model import Hook, Json
from threadline_github.testing.state import State

__all__ = ["Delivery", "Webhooks"]

_DOWN = "failed to connect to host", 502
_LATE = "timed out", 504


@dataclass(slots=True, eq=False)
class Delivery:
    """One attempt to deliver an event to one hook.

    ``id`` is its own, ``guid`` that of the event and so of every redelivery. ``status`` is what the
    deliveries API says of it, ``OK`` when it was taken. ``answer`` is the body that came back.
    """

    id: int
    guid: str
    event: str
    hook: Hook
    payload: Json
    at: datetime
    redelivery: bool = False
    status: str = "pending"
    status_code: int = 0
    done: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    answer: str = ""
    answer_headers: dict[str, str] = field(default_factory=dict)

    @property
    def action(self) -> str | None:
        """What happened, of an event that has kinds."""
        return self.payload.get("action")

    @property
    def ok(self) -> bool:
        """Whether it was taken."""
        return self.status == "OK"


class Webhooks(HookFaults, Sender):
    """Sends, and remembers."""

    def __init__(self, state: State, pulse: Pulse) -> None:
        HookFaults.__init__(self, self._begin, self._missed, self._twice)
        Sender.__init__(self, "FakeGitHub", pulse)
        self.all: list[Delivery] = []
        self._state = state
        self._ids = itertools.count(12_345_678_901)

    # Deliveries

    def send(self, hook: Hook, event: str, payload: Json, guid: str | None = None) -> Delivery:
        """Deliver an event to a hook, past whatever a test has in store for it."""
        delivery = self._made(hook, event, payload, guid or str(uuid.uuid4()))
        self.take(delivery)
        return delivery

    def redeliver(self, delivery: Delivery) -> Delivery:
        """Deliver the same thing again, as somebody asked for it."""
        again = self._made(delivery.hook, delivery.event, delivery.payload, delivery.guid)
        again.redelivery = True
        self._begin(again, 0.0)
        return again

    def kept_of(self, hook: Hook) -> list[Delivery]:
        """Return what the deliveries API knows of a hook, the newest first."""
        oldest = self._state.now() - self._state.options.keep_deliveries
        return [
            one for one in reversed(self.all) if one.hook is hook and one.done and one.at >= oldest
        ]

    def _made(self, hook: Hook, event: str, payload: Json, guid: str) -> Delivery:
        return Delivery(next(self._ids), guid, event, hook, payload, self._state.now())

    def _begin(self, delivery: Delivery, delay: float) -> None:
        if delivery not in self.all:
            self.all.append(delivery)
        self.spawn(self._deliver(delivery, delay))

    def _missed(self, delivery: Delivery) -> None:
        self.all.append(delivery)
        _, delivery.headers = _written(delivery)
        self._end(delivery, *_DOWN)

    def _twice(self, delivery: Delivery) -> None:
        again = self._made(delivery.hook, delivery.event, delivery.payload, delivery.guid)
        self._begin(again, 0.0)

    async def _deliver(self, delivery: Delivery, delay: float) -> None:
        if delay:
            await self._state.clock.sleep(delay)
        delivery.at = self._state.now()
        raw, delivery.headers = _written(delivery)
        with self._pulse.busy(f"webhook {delivery.event} {delivery.action or ''}".rstrip()):
            request = self.spawn(self._request(delivery, raw))
            timer = self.spawn(self._state.clock.sleep(self._state.options.answer_within))
            await asyncio.wait({request, timer}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            if request.done():
                self._end(delivery, *request.result())
            else:
                request.cancel()
                self._end(delivery, *_LATE)

    def _end(self, delivery: Delivery, status: str, code: int) -> None:
        delivery.status, delivery.status_code, delivery.done = status, code, True
        self._pulse.beat()

    async def _request(self, delivery: Delivery, raw: bytes) -> tuple[str, int]:
        if self.http is None or delivery.hook.url is None:
            return _DOWN
        try:
            async with self.http.post(
                delivery.hook.url, data=raw, headers=delivery.headers, allow_redirects=False
            ) as response:
                delivery.answer = (await response.read()).decode("utf-8", "replace")
                delivery.answer_headers = dict(response.headers)
                if 200 <= response.status < 300:
                    return "OK", response.status
                return f"Invalid HTTP Response: {response.status}", response.status
        except (aiohttp.ClientError, ValueError, OSError):
            return _DOWN


def _written(delivery: Delivery) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a delivery."""
    hook = delivery.hook
    text = json.dumps(delivery.payload, ensure_ascii=False, separators=(",", ":"))
    raw, kind = text.encode(), "application/json"
    if hook.content_type == "form":
        raw, kind = urlencode({"payload": text}).encode(), "application/x-www-form-urlencoded"
    headers: Mapping[str, str] = {
        "Accept": "*/*",
        "Content-Type": kind,
        "User-Agent": "GitHub-Hookshot/0a1b2c3",
        "X-GitHub-Delivery": delivery.guid,
        "X-GitHub-Event": delivery.event,
        "X-GitHub-Hook-ID": str(hook.id),
        "X-GitHub-Hook-Installation-Target-ID": str(hook.target),
        "X-GitHub-Hook-Installation-Target-Type": hook.kind,
    }
    signature = {"X-Hub-Signature-256": github_signature(hook.secret, raw)} if hook.secret else {}
    return raw, {**headers, **signature}
