"""The aiohttp application of a host: every agent's routes, and the host's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog
from aiohttp import web
from pydantic import TypeAdapter

from threadline.channel.auth import AuthRequest, Policy, admit, anonymous, bearer, local_dev_strict
from threadline.channel.channel import Route
from threadline.channel.context import RouteContext
from threadline.channel.runtime import ChannelRuntime
from threadline.errors import ProjectError, ThreadlineError
from threadline.host import metrics, pages
from threadline.host.agent import AgentRuntime
from threadline.host.logs import LogBook
from threadline.host.mask import masker, secret_values
from threadline.host.respond import error_response, json_response, parse_json, to_response, validate
from threadline.host.routes import AgentRoutes
from threadline.project import Project
from threadline.telemetry import span

__all__ = ["Host", "Options"]

log = structlog.get_logger("threadline.host")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_BODY_METHODS = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a host serves.

    ``mode``: ``multi`` mounts each agent at ``/<slug>``, ``single`` one agent at ``/``.
    ``state_root``: where state is kept, in a folder per slug in multi mode; None keeps each agent's
    in its project's ``.threadline``. ``max_body`` is in bytes.
    """

    mode: Literal["multi", "single"] = "multi"
    host: str = "127.0.0.1"
    port: int = 3000
    state_root: Path | None = None
    dev: bool = False
    bearer_token: str | None = None
    allow_anonymous: bool = False
    playground: bool = True
    docs: bool = True
    public_url: str | None = None
    max_body: int = 10_000_000


class Host:
    """Serves agents; ``start`` and ``stop`` frame its life, ``app`` is what a server runs."""

    def __init__(
        self, projects: Sequence[Project], options: Options, *, book: LogBook | None = None
    ) -> None:
        if options.mode == "single" and len(projects) != 1:
            raise ProjectError(
                [f"--mode single serves one agent, and {len(projects)} were found; name one."]
            )
        self.options = options
        self.port = options.port
        self.book = book or LogBook()
        self.closing = asyncio.Event()
        self.ready = False
        self.chain = self._cli_chain()
        more = [options.bearer_token] if options.bearer_token else []
        mask = masker(secret_values(more=more))
        self.agents = {
            project.slug: AgentRuntime(
                project,
                self._state(project),
                chain=self.chain,
                url=self._url_of(project.slug),
                mask=mask,
                dev=options.dev,
            )
            for project in projects
        }
        self.docs = pages.Docs()

    def _cli_chain(self) -> list[Policy] | None:
        if self.options.bearer_token is not None:
            return [bearer(token=self.options.bearer_token)]
        return [anonymous()] if self.options.allow_anonymous else None

    def _state(self, project: Project) -> Path:
        root = self.options.state_root
        if root is None:
            return project.root / ".threadline"
        return root if self.options.mode == "single" else root / project.slug

    def prefix(self, slug: str) -> str:
        """Return the path below which an agent is mounted."""
        return "" if self.options.mode == "single" else f"/{slug}"

    @property
    def base_url(self) -> str:
        """The address that answers name; never taken from a request."""
        if self.options.public_url is not None:
            return self.options.public_url.rstrip("/")
        name = self.options.host
        if name in ("0.0.0.0", "::", ""):
            name = "127.0.0.1"
        return f"http://[{name}]:{self.port}" if ":" in name else f"http://{name}:{self.port}"

    def _url_of(self, slug: str) -> Callable[[str], str]:
        return lambda path: self.base_url + self.prefix(slug) + path

    # Life

    async def start(self) -> None:
        """Start every agent; those that started are stopped again when one cannot."""
        started: list[AgentRuntime] = []
        try:
            for agent in self.agents.values():
                await agent.start()
                started.append(agent)
        except BaseException:
            for agent in started:
                await agent.stop(0.0)
            raise
        self.ready = True

    def announce(self, port: int) -> None:
        """Make the bound address known to answers, and to commands that look for a host."""
        self.port = port
        for slug, agent in self.agents.items():
            agent.announce(self.base_url + self.prefix(slug))

    async def stop(self, drain_seconds: float | None = None) -> None:
        """End streams, take no new work, let turns end, close the stores."""
        self.ready = False
        self.closing.set()
        await asyncio.gather(*(agent.stop(drain_seconds) for agent in self.agents.values()))

    # Routes

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(
            client_max_size=self.options.max_body, middlewares=[_errors]
        )
        for slug, agent in self.agents.items():
            self._mount(app, self.prefix(slug), agent)
        add = app.router.add_get
        add("/healthz", self._healthz, allow_head=False)
        add("/readyz", self._readyz, allow_head=False)
        add("/metrics", self._metrics, allow_head=False)
        if self.options.mode == "multi":
            add("/v1/agents", self._agents, allow_head=False)
        if self.options.playground:
            add("/", self._index, allow_head=False)
        if self.options.docs:
            add("/docs", self._docs, allow_head=False)
            add("/docs/{page:.*}", self._docs, allow_head=False)
        return app

    def _mount(self, app: web.Application, prefix: str, agent: AgentRuntime) -> None:
        for runtime in agent.runtimes.values():
            for route in runtime.channel.routes:
                self._add(app, prefix + runtime.channel.prefix, agent, runtime, route)
        for route in AgentRoutes(agent, self.book).routes():
            self._add(app, prefix, agent, agent.http, route)
        if self.options.playground:
            app.router.add_get(f"{prefix}/playground", _playground, allow_head=False)
            app.router.add_get(f"{prefix}/playground/assets/{{file}}", _asset, allow_head=False)

    def _add(
        self,
        app: web.Application,
        mount: str,
        agent: AgentRuntime,
        runtime: ChannelRuntime,
        route: Route,
    ) -> None:
        handler = self._endpoint(agent, runtime, route)
        paths = [mount + route.path]
        if route.path == "/" and mount:
            paths.append(mount)
        for path in paths:
            app.router.add_route(route.method, path, handler)

    def _endpoint(self, agent: AgentRuntime, runtime: ChannelRuntime, route: Route) -> _Handler:
        route.check()
        channel = runtime.channel
        query_adapter = TypeAdapter(route.query) if route.query is not None else None
        reads_body = route.method in _BODY_METHODS

        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read() if reads_body else b""
            headers = {name.lower(): value for name, value in request.headers.items()}
            query = dict(request.query)
            asked = AuthRequest(
                request.method, request.path, headers, query, _peer(request), body
            )
            principal = agent.seen_as(await admit(channel.auth, asked))
            ctx = RouteContext(
                runtime,
                principal,
                method=request.method,
                path=request.path,
                params=dict(request.match_info),
                query=query,
                headers=headers,
                body=body,
                request=request,
            )
            arguments = {}
            if route.body is not None and not (route.body_optional and not body.strip()):
                arguments["body"] = validate(route.body, parse_json(body), "body")
            if query_adapter is not None:
                arguments["query"] = validate(query_adapter, query, "query")
            with span("threadline.route", method=route.method, path=route.path):
                value = await route.handler(ctx, **arguments)
            return await to_response(request, value, self.closing)

        return handle

    async def _index(self, _: web.Request) -> web.Response:
        return pages.index(
            [
                (a.project.name, self.prefix(slug), a.agent.description or "")
                for slug, a in self.agents.items()
            ],
            docs=self.options.docs,
        )

    async def _agents(self, _: web.Request) -> web.Response:
        agents = [
            {
                "slug": slug,
                "name": agent.project.name,
                "description": agent.agent.description,
                "url": self._url_of(slug)(""),
            }
            for slug, agent in self.agents.items()
        ]
        return json_response({"agents": agents})

    async def _docs(self, request: web.Request) -> web.Response:
        return self.docs.page(request.match_info.get("page", ""))

    async def _healthz(self, _: web.Request) -> web.Response:
        return json_response({"ok": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        if not self.ready:
            body = {"ok": False, "error": "draining", "message": "The host is not ready."}
            return json_response(body, 503)
        for agent in self.agents.values():
            await agent.store.check()
        return json_response({"ok": True})

    async def _metrics(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = AuthRequest(request.method, request.path, headers, {}, _peer(request))
        await admit(self.chain or [local_dev_strict()], asked)
        body, content_type = metrics.render({s: a.core for s, a in self.agents.items()})
        return web.Response(body=body, headers={"Content-Type": content_type})


async def _playground(_: web.Request) -> web.Response:
    return pages.playground()


async def _asset(request: web.Request) -> web.Response:
    return pages.asset(request.match_info["file"])


def _peer(request: web.Request) -> str | None:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return str(peer[0]) if isinstance(peer, tuple) else None


@web.middleware
async def _errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure in the documented form; none shows a stack trace."""
    try:
        return await handler(request)
    except (ThreadlineError, web.HTTPException) as error:
        return error_response(error)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return error_response(error)
