"""The aiohttp application of a host: every agent's routes, and the host's own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog
from aiohttp import web

from threadline.channel.auth import Policy, anonymous, bearer
from threadline.channel.channel import Route
from threadline.channel.limiter import Limiter
from threadline.channel.runtime import ChannelRuntime
from threadline.clock import SystemClock
from threadline.errors import ProjectError
from threadline.host.agent import AgentRuntime
from threadline.host.endpoint import Endpoint, Work, errors
from threadline.host.front import HostRoutes
from threadline.host.logs import LogBook
from threadline.host.mask import masker, secret_values
from threadline.host.openapi import Document, Mounted, Place
from threadline.host.routes import AgentRoutes
from threadline.project import Project

__all__ = ["Host", "Options"]

log = structlog.get_logger("threadline.host")

_HOST_DOCUMENT = (
    "The host's own routes. Each agent that `/v1/agents` lists has a document of its own, at "
    "`/v1/openapi.json` below its address."
)


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
    """Serves agents; ``start`` and ``stop`` frame its life, ``app`` is what a server runs.

    ``chain`` replaces the HTTP chains, as the options' bearer token and anonymous access do.
    """

    def __init__(
        self,
        projects: Sequence[Project],
        options: Options,
        *,
        book: LogBook | None = None,
        chain: Sequence[Policy] | None = None,
    ) -> None:
        if options.mode == "single" and len(projects) != 1:
            raise ProjectError(
                [f"--mode single serves one agent, and {len(projects)} were found; name one."]
            )
        self.options = options
        self.port = options.port
        self.book = book or LogBook()
        self.work = Work()
        self.closing = self.work.ending
        self.ready = False
        self.chain = list(chain) if chain is not None else self._cli_chain()
        more = [options.bearer_token] if options.bearer_token else []
        mask = self.book.mask = masker(secret_values(more=more))
        _check_slugs(projects)
        limiter = Limiter(SystemClock())
        self.agents = {
            project.slug: AgentRuntime(
                project,
                self._state(project),
                chain=self.chain,
                url=self._url_of(project.slug),
                mask=mask,
                dev=options.dev,
                limiter=limiter,
            )
            for project in projects
        }
        self._own = HostRoutes(self, self._document(None))
        self._documents = {slug: self._document(slug) for slug in self.agents}
        self._check_routes()

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
        return self.local_url

    @property
    def local_url(self) -> str:
        """The address on this machine, whatever the host is called from outside."""
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
                await agent.drain(0.0)
                await agent.close()
            raise
        self.ready = True

    def announce(self, port: int) -> None:
        """Make the bound address known to answers, and to commands that look for a host."""
        self.port = port
        for slug, agent in self.agents.items():
            agent.announce(self.local_url + self.prefix(slug))

    async def drain(self, drain_seconds: float | None = None) -> None:
        """End streams, take no new work, let turns end."""
        self.ready = False
        self.work.ending.set()
        await self._all(agent.drain(drain_seconds) for agent in self.agents.values())

    async def close(self) -> None:
        """End the handlers that still run, stop the channels, close the stores."""
        await self.work.close()
        await self._all(agent.close() for agent in self.agents.values())

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Drain, then close."""
        await self.drain(drain_seconds)
        await self.close()

    async def _all(self, steps: Iterable[Awaitable[None]]) -> None:
        """Take a step of every agent; one that fails does not keep the others from it."""
        for result in await asyncio.gather(*steps, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("host.stop_failed", error=repr(result), exc_info=result)

    # Routes

    def app(self) -> web.Application:
        """Return the application; serve it with :meth:`runner`."""
        app = web.Application(client_max_size=self.options.max_body, middlewares=[errors])
        for path, agent, runtime, route in self._channel_routes():
            endpoint = Endpoint(agent, runtime, route, self.work)
            app.router.add_route(route.method, path, endpoint.answer)
        for _, route in self._own.routes():
            app.router.add_get(route.path, route.handler)
        return app

    def runner(self) -> web.AppRunner:
        """Return what serves the application; the caller sets it up, gives it a site, cleans up."""
        return web.AppRunner(
            self.app(),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=1.0,
        )

    def _channel_routes(self) -> Iterator[tuple[str, AgentRuntime, ChannelRuntime, Route]]:
        for slug, agent in self.agents.items():
            prefix = self.prefix(slug)
            for runtime in agent.runtimes.values():
                mount = prefix + runtime.channel.prefix
                for route in runtime.channel.routes:
                    yield mount + route.path, agent, runtime, route
                    if route.path == "/" and mount:
                        yield mount, agent, runtime, route
            for route in AgentRoutes(agent, self.book, self._documents[slug]).routes():
                yield prefix + route.path, agent, agent.http, route

    def _check_routes(self) -> None:
        """Raise ProjectError for routes that cannot be served, or would hide one another."""
        problems: list[str] = []
        taken = {("GET", _shape(route.path)): "the host" for _, route in self._own.routes()}
        for path, agent, runtime, route in self._channel_routes():
            who = f"{agent.project.slug}: channel {runtime.channel.id}"
            try:
                route.check()
            except TypeError as error:
                problems.append(f"{who}: {error}")
            other = taken.setdefault((route.method, _shape(path)), who)
            if other != who:
                problems.append(f"{who}: {route.method} {path} is a route of {other} already.")
        if problems:
            raise ProjectError(problems)

    # Documents

    def _document(self, slug: str | None) -> Document:
        return Document(lambda: self._place(slug), lambda: self._mounted(slug))

    def _place(self, slug: str | None) -> Place:
        if slug is None:
            return Place("threadline", _HOST_DOCUMENT, self.base_url)
        agent = self.agents[slug]
        return Place(agent.project.name, agent.agent.description or "", agent.url(""))

    def _mounted(self, slug: str | None) -> Iterator[Mounted]:
        """Yield an agent's routes, or the host's, as a document shows them.

        The only agent's document has the host's too.
        """
        prefix = self.prefix(slug) if slug is not None else ""
        for path, agent, runtime, route in sorted(self._channel_routes(), key=_not_http):
            below = path.removeprefix(prefix)
            twin = route.path == "/" and below != "/" and below.endswith("/")
            if agent.project.slug == slug and not twin:
                own = route not in runtime.channel.routes
                tag = "agent" if own else runtime.channel.id
                yield Mounted(below, route, tag, runtime.channel.auth)
        for owner, route in self._own.routes():
            if owner == slug or self.options.mode == "single":
                chain = self._own.chain if route.path == "/metrics" else None
                yield Mounted(route.path.removeprefix(prefix), route, "host", chain)


def _not_http(mounted: tuple[str, AgentRuntime, ChannelRuntime, Route]) -> bool:
    return mounted[2] is not mounted[1].http


def _check_slugs(projects: Sequence[Project]) -> None:
    slugs = [project.slug for project in projects]
    if twice := {slug for slug in slugs if slugs.count(slug) > 1}:
        raise ProjectError([f"two agents have the slug {slug!r}; rename one" for slug in twice])


def _shape(path: str) -> str:
    """Return a path with its parameters' names left out."""
    return re.sub(r"{[^}]*}", "{}", path)
