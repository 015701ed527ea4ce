"""What goes out to apps over HTTP: signed, timed, and for events retried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from threadline.testing.pulse import Pulse
from threadline.testing.sending import Sender
from threadline_slack.testing.eventfaults import EventFaults
from threadline_slack.testing.model import App, Json
from threadline_slack.testing.signing import signed
from threadline_slack.testing.sockets import Sockets
from threadline_slack.testing.state import State

__all__ = ["Answer", "Attempt", "Delivery", "Outbound"]

_REDIRECTS = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """What an app answered; ``failure`` is Slack's word for why that does not count.

    Over a socket ``status`` is 200, and ``body`` the payload of the acknowledgement.
    """

    status: int | None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it came in time and was 2xx."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to deliver an event: number 0 is the first, ``reason`` why there was another."""

    number: int
    reason: str | None
    at: float
    answer: Answer


@dataclass(slots=True)
class Delivery:
    """An event on its way to one app; ``done`` when nothing more will be tried."""

    app: str
    body: Json
    attempts: list[Attempt] = field(default_factory=list)
    done: bool = False

    @property
    def event(self) -> Json:
        """The event without its envelope."""
        event: Json = self.body.get("event", self.body)
        return event

    @property
    def accepted(self) -> bool:
        """Whether the app acknowledged it."""
        return bool(self.attempts) and self.attempts[-1].answer.ok


class Outbound(Sender):
    """Sends to apps by whichever way each of them has chosen."""

    def __init__(self, state: State, pulse: Pulse, sockets: Sockets) -> None:
        super().__init__("FakeSlack", pulse)
        self.deliveries: list[Delivery] = []
        self.faults = EventFaults(self._start)
        self._state = state
        self._sockets = sockets

    # Events

    def event(self, app: App, body: Json) -> None:
        """Deliver an event, past whatever a test has in store for it."""
        if app.request_url is None and not app.socket_mode:
            return
        self.faults.take(Delivery(app.id, body))

    def _start(self, delivery: Delivery, delay: float = 0.0) -> None:
        self.deliveries.append(delivery)
        self.spawn(self._deliver(delivery, delay))

    async def _deliver(self, delivery: Delivery, delay: float) -> None:
        if delay:
            await self._state.clock.sleep(delay)
        waits = (None, *self._state.options.retries)
        reason: str | None = None
        for number, wait in enumerate(waits):
            if wait:
                await self._state.clock.sleep(wait)
            app = self._state.app(delivery.app)
            at = self._state.clock.monotonic()
            answer = await self._attempt(app, delivery.body, number, reason)
            delivery.attempts.append(Attempt(number, reason, at, answer))
            self._pulse.beat()
            refused = answer.headers.get("X-Slack-No-Retry") == "1"
            if answer.ok or (refused and answer.failure == "http_error"):
                break
            reason = answer.failure
        delivery.done = True
        self._pulse.beat()

    async def _attempt(self, app: App, body: Json, number: int, reason: str | None) -> Answer:
        if app.socket_mode:
            ack = await self._sockets.event(app, body, number)
            return Answer(None, failure="timeout") if ack is None else Answer(200, ack)
        extra = {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": reason or ""}
        raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return await self.post(
            app, app.request_url or "", raw, "application/json", extra if number else {}
        )

    # Anything, over HTTP

    async def post(
        self,
        app: App,
        url: str,
        raw: bytes,
        content_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one signed request, and wait for the answer as long as Slack does."""
        sent = {
            **signed(app.signing_secret, raw, self._state.now()),
            **(headers or {}),
            "Content-Type": content_type,
        }
        with self._pulse.busy(f"POST {url}"):
            request = self.spawn(self._request(url, raw, sent))
            timer = self.spawn(self._state.clock.sleep(self._state.options.ack_within))
            await asyncio.wait({request, timer}, return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            if request.done():
                answer: Answer = request.result()
                return answer
            request.cancel()
            return Answer(None, failure="http_timeout")

    async def _request(self, url: str, raw: bytes, headers: Mapping[str, str]) -> Answer:
        if self.http is None:
            return Answer(None, failure="connection_failed")
        try:
            async with self.http.post(
                url, data=raw, headers=headers, max_redirects=_REDIRECTS
            ) as response:
                content = await response.read()
                body: Any = content.decode("utf-8", "replace")
                if response.content_type == "application/json" and body:
                    body = json.loads(body)
                failure = None if 200 <= response.status < 300 else "http_error"
                return Answer(response.status, body, dict(response.headers), failure)
        except aiohttp.TooManyRedirects:
            return Answer(None, failure="too_many_redirects")
        except (aiohttp.ClientError, ValueError, OSError):
            return Answer(None, failure="connection_failed")
