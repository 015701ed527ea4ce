"""The host's own routes: pages, the list of agents, health, metrics, its document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from aiohttp import web

from threadline.channel.answers import JSON, Media, Ok
from threadline.channel.auth import Policy, admit, local_dev_strict
from threadline.channel.channel import Route
from threadline.errors import Draining, NotFound, StoreUnavailable, ThreadlineError, Unauthorized
from threadline.host import metrics, pages
from threadline.host.answers import AgentList
from threadline.host.endpoint import asked_of
from threadline.host.openapi import Document
from threadline.host.respond import json_response

if TYPE_CHECKING:
    from threadline.host.app import Host

__all__ = ["HostRoutes"]

Html = Annotated[web.Response, Media("text/html")]
Json = Annotated[web.Response, Media(JSON)]


class HostRoutes:
    """Handlers that see the whole host; those of pages need no auth."""

    def __init__(self, host: Host, document: Document) -> None:
        self.host = host
        self.document = document
        self.docs = pages.Docs()

    @property
    def chain(self) -> Sequence[Policy]:
        """The command line's auth, by default callers on this machine."""
        return self.host.chain or [local_dev_strict()]

    def routes(self) -> Iterator[tuple[str | None, Route]]:
        """Yield the routes, each with the slug of the agent that it belongs to, or None."""
        options = self.host.options
        yield None, _get("/healthz", self.healthz, Ok)
        yield None, _get("/readyz", self.readyz, Ok, Draining, StoreUnavailable)
        yield None, _get("/metrics", self.metrics, None, Unauthorized)
        if options.mode == "multi":
            yield None, _get("/v1/agents", self.agents, AgentList)
            yield None, _get("/v1/openapi.json", self.openapi)
        if options.playground:
            yield None, _get("/", self.index)
            for slug in self.host.agents:
                playground = f"{self.host.prefix(slug)}/playground"
                yield slug, _get(playground, self.playground)
                yield slug, _get(f"{playground}/assets/{{file}}", self.asset, None, NotFound)
        if options.docs:
            yield None, _get("/docs", self.contents)
            yield None, _get("/docs/{page:.*}", self.page, None, NotFound)

    async def healthz(self, _: web.Request) -> Json:
        """Say that the process is alive."""
        return json_response({"ok": True})

    async def readyz(self, _: web.Request) -> Json:
        """Say whether the host takes work: its stores are reachable, and it does not end."""
        if not self.host.ready:
            raise Draining("The host is not ready.")
        for agent in self.host.agents.values():
            await agent.store.check()
        return json_response({"ok": True})

    async def metrics(self, request: web.Request) -> Annotated[web.Response, Media("text/plain")]:
        """Return Prometheus metrics, behind the command line's auth."""
        await admit(self.chain, asked_of(request))
        cores = {slug: agent.core for slug, agent in self.host.agents.items()}
        body, content_type = metrics.render(cores)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def agents(self, _: web.Request) -> Json:
        """List the mounted agents."""
        found: AgentList = {
            "agents": [
                {
                    "slug": slug,
                    "name": agent.project.name,
                    "description": agent.agent.description,
                    "url": agent.url(""),
                }
                for slug, agent in self.host.agents.items()
            ]
        }
        return json_response(found)

    async def openapi(self, _: web.Request) -> Json:
        """Return this document; each agent has its own."""
        return web.Response(body=await self.document.body(), content_type=JSON, charset="utf-8")

    async def index(self, _: web.Request) -> Html:
        """Show the mounted agents."""
        return pages.index(
            [
                (agent.project.name, self.host.prefix(slug), agent.agent.description or "")
                for slug, agent in self.host.agents.items()
            ],
            docs=self.host.options.docs,
        )

    async def playground(self, _: web.Request) -> Html:
        """Show the agent's playground."""
        return pages.playground()

    async def asset(self, request: web.Request) -> Annotated[web.Response, Media("*/*")]:
        """Return a file of the playground."""
        return pages.asset(request.match_info["file"])

    async def contents(self, _: web.Request) -> Html:
        """Show the documentation's first page."""
        return self.docs.page("")

    async def page(self, request: web.Request) -> Html:
        """Show a page of the documentation."""
        return self.docs.page(request.match_info["page"])


def _get(
    path: str,
    handler: Callable[[web.Request], Awaitable[web.Response]],
    answer: Any = None,
    *raises: type[ThreadlineError],
) -> Route:
    """Return a route whose handler makes the response itself; ``answer`` is its JSON."""
    responses = {} if answer is None else {200: answer}
    return Route("GET", path, handler, handler.__doc__ or "", responses, raises)
