"""Socket Mode: several connections that we open, and their renewal; acknowledged when durable.

Slack's own client keeps one connection, closes it before it opens the next, and acknowledges on
whichever is there by then. Here a connection that is to end goes on until the next one is up, and
each envelope is answered where it came from. aiohttp's heartbeat tells whether a peer is alive.
https://docs.slack.dev/apis/events-api/using-socket-mode
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import structlog

from threadline.clock import Clock, SystemClock
from threadline_slack.inbound.socket import Envelope, Lost, Socket, Take
from threadline_slack.outbound.thread import error_of

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Health", "Sockets", "backoff"]

_MOST = 10  # connections that Slack allows an app
_CONNECT_SECONDS = 10.0
_DRAIN_SECONDS = 5.0
_GOODBYE_SECONDS = 2.0
_SLOW_SECONDS = 60.0
_STEADY_SECONDS = 30.0
_LONGEST_BACKOFF = 30.0
_FRAME = 16 * 1024 * 1024
_TOKEN = "Set an app-level token (xapp-…) of this app, with the scope connections:write."
_LINK = "Switch Socket Mode on again in the app's settings, or use HTTP without an app token."
_REFUSALS = {
    "link_disabled": _LINK,
    **dict.fromkeys(
        (
            "access_denied",
            "account_inactive",
            "invalid_auth",
            "missing_scope",
            "no_permission",
            "not_allowed_token_type",
            "not_authed",
            "token_expired",
            "token_revoked",
        ),
        _TOKEN,
    ),
}


def backoff(failures: int, chance: float) -> float:
    """Return the seconds before the next attempt; ``chance``, 0 to 1, spreads many clients."""
    longest = min(_LONGEST_BACKOFF, 2.0 ** max(0, failures - 1))
    return longest * (0.5 + chance / 2)


@dataclass(frozen=True, slots=True)
class Health:
    """How the connections are: ``connected`` have said hello and are to stay; ``trouble`` or None.

    ``last_hello`` is when the newest of them was opened.
    """

    wanted: int
    connected: int
    last_hello: datetime | None
    trouble: str | None


class Sockets:
    """``count`` connections of an app, which give every payload to ``take``.

    ``take`` is begun in the order in which envelopes arrive, over all connections, and none waits
    for another. What it returns is acknowledged; what it raises leaves the envelope without an
    acknowledgement, so that Slack sends it again. With ten connections there is no room for the
    next one before an old one ends.
    """

    def __init__(
        self,
        app_token: str,
        api_url: str,
        take: Take,
        *,
        count: int = 2,
        clock: Clock | None = None,
        log: Any = None,
        heartbeat: float = 10.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if not 1 <= count <= _MOST:
            raise ValueError(f"sockets must be 1 to {_MOST}, not {count!r}.")
        self._app_token = app_token
        self._api_url = api_url
        self._take = take
        self._count = count
        self._clock = clock or SystemClock()
        self._log = log or structlog.get_logger("threadline.channel")
        self._heartbeat = heartbeat
        self._chance = chance
        self._http: aiohttp.ClientSession | None = None
        self._web: AsyncWebClient | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._sockets: dict[Socket, asyncio.Task[None]] = {}
        self._taking: set[asyncio.Task[None]] = set()
        self._known = asyncio.Event()
        self._not_before = 0.0
        self._last_hello: datetime | None = None
        self._trouble: str | None = None
        self._closing = False

    @property
    def health(self) -> Health:
        """How the connections are now."""
        return Health(self._count, len(self._staying), self._last_hello, self._trouble)

    async def start(self) -> None:
        """Connect; returns when one is up, has failed, or after ten seconds, and goes on."""
        import aiohttp
        from slack_sdk.web.async_client import AsyncWebClient

        self._http = aiohttp.ClientSession()
        self._web = AsyncWebClient(
            self._app_token, self._api_url, session=self._http, retry_handlers=[]
        )
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(self._count)]
        first = asyncio.create_task(self._known.wait())
        try:
            await asyncio.wait([first], timeout=_CONNECT_SECONDS)
        finally:
            first.cancel()

    async def close(self) -> None:
        """Take nothing more, acknowledge what was accepted, and disconnect."""
        self._closing = True
        await _ended(self._keepers)
        if self._taking:
            await asyncio.wait(self._taking, timeout=_DRAIN_SECONDS)
        await _ended(self._taking)
        await asyncio.gather(*(socket.close() for socket in self._sockets))
        await asyncio.gather(*self._sockets.values())
        if self._http is not None:
            await self._http.close()
        self._http = self._web = None

    # Connections

    async def _keep(self) -> None:
        """Keep one connection up; a connection that is to end lives on beside its successor."""
        failures = 0
        while True:
            try:
                socket = await self._connect()
            except Exception as error:
                failures += 1
                self._failed(error)
                await self._clock.sleep(backoff(failures, self._chance()))
                continue
            since = self._clock.monotonic()
            await socket.leaving.wait()
            self._left(socket)
            steady = self._clock.monotonic() - since >= _STEADY_SECONDS
            failures = 0 if steady else failures + 1
            if failures > 1:
                await self._clock.sleep(backoff(failures - 1, self._chance()))

    async def _connect(self) -> Socket:
        """Open a connection and wait for its greeting."""
        import aiohttp

        assert self._http is not None
        assert self._web is not None
        while (left := self._not_before - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
        async with asyncio.timeout(_CONNECT_SECONDS):
            answer = await self._web.apps_connections_open(app_token=self._app_token)
            ws = await self._http.ws_connect(
                str(answer["url"]),
                heartbeat=self._heartbeat,
                max_msg_size=_FRAME,
                timeout=aiohttp.ClientWSTimeout(ws_close=_GOODBYE_SECONDS),
                proxy=self._web.proxy,
                ssl=self._web.ssl if self._web.ssl is not None else True,
            )
            socket = Socket(ws, self._received, self._log)
            self._sockets[socket] = running = asyncio.create_task(socket.run())
            running.add_done_callback(lambda _: self._sockets.pop(socket))
            try:
                await socket.greeted()
            except BaseException:
                await socket.close()
                raise
        self._up()
        return socket

    def _up(self) -> None:
        self._trouble = None
        self._last_hello = self._clock.now()
        self._known.set()
        self._log.info("slack.socket_open", connected=len(self._staying), wanted=self._count)

    def _left(self, socket: Socket) -> None:
        if socket.reason == "link_disabled":
            self._refused(socket.reason)
            return
        told = self._log.info if socket.reason else self._log.warning
        told("slack.socket_ends", reason=socket.reason, error=socket.error)

    def _failed(self, error: Exception) -> None:
        """Say once what keeps us from connecting; what cannot pass soon is tried again slowly."""
        self._known.set()
        said = error.reason if isinstance(error, Lost) else error_of(error)
        if said in _REFUSALS:
            self._refused(said)
            return
        if (seconds := _retry_after(error)) is not None:
            self._hold(seconds)
        said = said or repr(error)
        told = self._log.debug if said == self._trouble else self._log.warning
        self._trouble = said
        hint = {"too_many_websockets": f"Slack allows an app {_MOST}, of all its hosts together."}
        told("slack.socket_failed", error=said, hint=hint.get(said, "It is tried again."))

    def _refused(self, said: str) -> None:
        if said != self._trouble:
            self._log.error("slack.socket_refused", error=said, hint=_REFUSALS[said])
        self._trouble = said
        self._hold(_SLOW_SECONDS)

    def _hold(self, seconds: float) -> None:
        """Let no connection be asked for so long: the limit and the token are the same for all."""
        self._not_before = max(self._not_before, self._clock.monotonic() + seconds)

    @property
    def _staying(self) -> list[Socket]:
        return [one for one in self._sockets if one.hello and not one.leaving.is_set()]

    # Envelopes

    def _received(self, socket: Socket, envelope: Envelope) -> None:
        """Begin to take an envelope; tasks run in the order in which they are made."""
        if self._closing:
            return
        task = asyncio.create_task(self._handle(socket, envelope))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _handle(self, socket: Socket, envelope: Envelope) -> None:
        answer: Any = None
        if envelope.payload is not None:
            try:
                answer = await self._take(envelope.payload)
            except Exception as error:
                self._log.warning("slack.not_acknowledged", type=envelope.type, error=repr(error))
                return
        wanted = envelope.wants_answer and isinstance(answer, Mapping)
        try:
            await socket.acknowledge(envelope.id, answer if wanted else None)
        except ConnectionError as error:
            # Slack sends it again, and it is known by then.
            self._log.info("slack.acknowledgement_lost", type=envelope.type, error=repr(error))


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    given = {str(name).lower(): value for name, value in headers.items()}.get("retry-after")
    try:
        return None if given is None else max(0.0, float(given))
    except ValueError:
        return None


async def _ended(tasks: list[asyncio.Task[None]] | set[asyncio.Task[None]]) -> None:
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
