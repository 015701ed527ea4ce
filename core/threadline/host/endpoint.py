"""One route of a channel over aiohttp: admit the caller, check what came, run it, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import TypeAdapter

from threadline.cancelled import is_cancelled
from threadline.channel.auth import AuthRequest, admit
from threadline.channel.channel import Route
from threadline.channel.context import RouteContext
from threadline.channel.runtime import ChannelRuntime
from threadline.errors import Draining, InvalidRequest, ThreadlineError, TooLarge
from threadline.host.respond import error_response, parse_json, to_response, validate
from threadline.principal import Principal
from threadline.session.access import Action
from threadline.store.base import SessionRecord
from threadline.telemetry import span

if TYPE_CHECKING:
    from threadline.host.agent import AgentRuntime

__all__ = ["BODY_METHODS", "Endpoint", "Work", "asked_of", "errors"]

LINGER_SECONDS = 30.0
BODY_SECONDS = 120.0
BODY_METHODS = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(slots=True)
class Work:
    """What the endpoints of a host share: whether it ends, and the handlers at work."""

    ending: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a handler to its end.

        A caller who hangs up does not cut it in half: what it was about to store is stored. One
        that still runs a while later is cancelled.
        """
        task = asyncio.get_running_loop().create_task(_guarded(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        # One that was cancelled before its first step has not touched it.
        task.add_done_callback(lambda _: work.close())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not is_cancelled():
                raise RuntimeError("the handler was cancelled from the inside") from None
            timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, task.cancel)
            task.add_done_callback(lambda _: timer.cancel())
            raise

    async def close(self) -> None:
        """Take no more requests, and end the handlers that still run."""
        self.ending.set()
        self.closed = True
        late = list(self.tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)


async def _guarded(work: Coroutine[Any, Any, Any]) -> Any:
    """A SystemExit that leaves a task ends the event loop, and so the host; an error does not."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error


class Endpoint:
    """One route; ``answer`` is its aiohttp handler."""

    def __init__(
        self, agent: AgentRuntime, runtime: ChannelRuntime, route: Route, work: Work
    ) -> None:
        route.check()
        self.agent = agent
        self.runtime = runtime
        self.route = route
        self.work = work
        self._query = TypeAdapter(route.query) if route.query is not None else None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if self.work.closed:
            raise Draining("The host is shutting down. Send this again in a moment.")
        body = await self._body(request) if self.route.method in BODY_METHODS else b""
        asked = asked_of(request, body)
        principal = await admit(self.runtime.channel.auth, asked)
        principal = self.agent.seen_as(principal, asked)
        context = {"agent": self.agent.project.slug, "principal": principal.key}
        with structlog.contextvars.bound_contextvars(**context):
            try:
                value = await self._value(request, asked, principal)
                return await to_response(request, value, self.work.ending)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                return error_response(error)

    async def _body(self, request: web.Request) -> bytes:
        most = max(self.route.max_body or 0, request.client_max_size)
        if request.content_length is not None and request.content_length > most:
            raise TooLarge(f"The body has more than {most:,} bytes.")
        if most > request.client_max_size:
            request = request.clone(client_max_size=most)
        return await _body(request)

    async def _value(self, request: web.Request, asked: AuthRequest, principal: Principal) -> Any:
        gone = asyncio.Event()
        ctx = RouteContext(
            self.runtime,
            principal,
            method=asked.method,
            path=asked.path,
            params=dict(request.match_info),
            query=asked.query,
            headers=asked.headers,
            body=asked.body,
            request=request,
            elsewhere=self._elsewhere(asked),
            gone=gone,
            ending=self.work.ending,
        )
        arguments = self._arguments(asked)
        with span("threadline.route", method=self.route.method, path=self.route.path):
            try:
                return await self.work.run(_as_coroutine(self.route.handler(ctx, **arguments)))
            except asyncio.CancelledError:
                gone.set()
                raise

    def _arguments(self, asked: AuthRequest) -> dict[str, Any]:
        route, arguments = self.route, {}
        if route.body is not None and not (route.body_optional and not asked.body.strip()):
            arguments["body"] = validate(route.body, parse_json(asked.body), "body")
        if self._query is not None:
            arguments["query"] = validate(self._query, asked.query, "query")
        return arguments

    def _elsewhere(self, asked: AuthRequest) -> Callable[[SessionRecord, Action], Awaitable[bool]]:
        """Return what tells whether a session's own channel lets this request do it."""

        async def allowed(record: SessionRecord, action: Action) -> bool:
            other = self.agent.runtimes.get(record.channel)
            if other is None or other is self.runtime:
                return False
            try:
                principal = await admit(other.channel.auth, asked)
            except ThreadlineError:
                return False
            return other.channel.may(principal, record, action)

        return allowed


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _body(request: web.Request) -> bytes:
    """Read the body whole; raises InvalidRequest when it cannot be read, or takes for ever."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise InvalidRequest(f"The body did not arrive within {BODY_SECONDS:g} seconds.") from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise InvalidRequest("The body is not encoded as its headers say.") from None


def asked_of(request: web.Request, body: bytes = b"") -> AuthRequest:
    """Return what policies may look at; headers that came twice are joined, as HTTP has it."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return AuthRequest(
        request.method,
        request.path,
        headers,
        dict(request.query),
        str(peer[0]) if isinstance(peer, tuple) else None,
        body,
    )


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure in the documented form; none shows a stack trace."""
    try:
        return await handler(request)
    except asyncio.CancelledError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, ConnectionError) and request.transport is None:
            return error_response(InvalidRequest("The client went away."))
        return error_response(error)
