"""An agent that runs inside a command, on the project's own state root."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from threadline.agent.prints import show_prints
from threadline.channel.auth import Policy, bearer, local_dev_strict
from threadline.channel.context import Reply, RouteContext
from threadline.cli.client import Client
from threadline.cli.projects import load
from threadline.host.agent import AgentRuntime
from threadline.host.app import Host, Options
from threadline.host.logs import LogBook, configure
from threadline.host.routes import AgentRoutes
from threadline.host.tools import ToolCallBody, ToolRoutes
from threadline.principal import LOCAL
from threadline.store.embedded import EmbeddedStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from threadline.cli.place import Place
    from threadline.project import Project

__all__ = ["call_tool", "describe", "hosted", "opened", "settle_stop"]


@contextlib.asynccontextmanager
async def hosted(place: Place, *, announced: bool = False) -> AsyncIterator[Client]:
    """Run a host for one agent, and yield a client of it that acts as the local developer.

    ``announced`` gives it a free loopback port, and names that in the lock for other commands;
    without it the host listens on a Unix socket that only this user can open. Raises ProjectError
    and StateRootError.
    """
    show_prints()
    project = load(place.project)
    secret = secrets.token_urlsafe(24)
    book = LogBook()
    configure(book, level="error")
    options = Options(mode="single", port=0, state_root=place.state, docs=False)
    chain = [bearer(token=secret, principal=LOCAL), *(_own_chain(project) if announced else ())]
    host = Host([project], options, book=book, chain=chain)
    async with contextlib.AsyncExitStack() as stack:
        await host.start()
        stack.push_async_callback(host.close)
        runner = host.runner()
        await runner.setup()
        # While turns end, requests of other commands still get an answer; the stores close last.
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(host.drain)
        socket = None
        if announced:
            site: web.BaseSite = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host.announce(runner.addresses[0][1])
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="threadline-"))
            socket = Path(folder) / "socket"
            await web.UnixSite(runner, str(socket)).start()
        client = Client(host.local_url, bearer_token=secret, socket=socket)
        yield await stack.enter_async_context(client)


def _own_chain(project: Project) -> list[Policy]:
    """Return whom the project itself admits over HTTP."""
    channel = project.channels.get("http")
    auth = channel.auth if channel is not None else project.agent.auth
    return list(auth) if auth is not None else [local_dev_strict()]


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[EmbeddedStore]:
    """Open the store alone: nothing runs, and nothing that was unfinished is carried on.

    Raises StateRootError.
    """
    store = EmbeddedStore(place.state)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def call_tool(place: Place, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Run a tool as the route does; the answer says ``isError`` when it ended in an error."""
    show_prints()
    configure(LogBook(), level="warning")
    agent = AgentRuntime(load(place.project), place.state)
    await agent.store.open()
    try:
        called = ToolCallBody.model_validate(body)
        answer = await ToolRoutes(agent).call(_asked(agent, {"name": name}), called)
    finally:
        await agent.core.close()
    return dict(answer.body if isinstance(answer, Reply) else answer)


async def settle_stop(place: Place, session_id: str, *, clear_pending: bool) -> bool:
    """Stop a turn that a host left unfinished, so that the next one does not carry it on."""
    configure(LogBook(), level="warning")
    agent = AgentRuntime(load(place.project), place.state)
    await agent.store.open()
    try:
        at = agent.services.stamp()
        await agent.store.stop(session_id, at=at, clear_pending=clear_pending)
        return await agent.core.owner(session_id) is not None
    finally:
        await agent.core.close()


async def describe(project: Project, state: Path) -> dict[str, Any]:
    """Return what ``/v1/info`` says of a project, without opening anything."""
    agent = AgentRuntime(project, state)
    return dict(await AgentRoutes(agent, LogBook()).info(_asked(agent, {})))


def _asked(agent: AgentRuntime, params: dict[str, str]) -> RouteContext:
    """Return the context of a request that the local developer makes from here."""
    return RouteContext(
        agent.http,
        LOCAL,
        method="GET",
        path="/",
        params=params,
        query={},
        headers={},
        body=b"",
        request=None,
    )
