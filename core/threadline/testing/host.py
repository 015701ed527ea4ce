"""A host inside a test: a real server on a loopback port, its restarts and its crashes.

::

    async with TestHost(channel, harness=Gated()) as host:
        answer = await host.post("/v1/channels/channel/say", json={"text": "hi"})
        session = host.session(answer.json()["sessionId"])
        await session.rest()
        await host.crash()
        assert session.outcomes(answer.json()["deliveryId"]) == ["prompted"]
        host.check_laws()
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json as json_
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import aiohttp
from aiohttp import web
from yarl import URL

from threadline.agent.config import Agent
from threadline.channel.channel import Channel
from threadline.harness.base import Harness
from threadline.harness.scripted import Scripted
from threadline.host.agent import AgentRuntime
from threadline.host.app import Host, Options
from threadline.project import Project
from threadline.testing.clock import ManualClock
from threadline.testing.faults import FaultyDisk
from threadline.testing.inbound import Answer
from threadline.testing.killing import bury, cancel
from threadline.testing.laws import check_laws
from threadline.testing.serving import end, listen
from threadline.testing.session import HostSession
from threadline.testing.watched import WatchedStore, Witness

__all__ = ["Subject", "TestHost"]

Subject: TypeAlias = Agent | Project | Channel

PATIENCE = 15.0
_TICK = 0.1
_MOMENT = 0.001


class TestHost:
    """Serves agents, projects or a channel on one state root, on a free loopback port.

    A channel is served by an agent made for it, under ``channel_id``, with ``harness``. A subject
    may also be a function that makes one; it is called at every start, as a new process would. One
    subject is mounted at ``/``, several each at ``/<slug>``, unless ``mode`` says otherwise. Other
    options are those of :class:`~threadline.host.app.Options`, such as ``bearer_token`` or ``dev``.

    ``root`` is the state root; without one a temporary folder is made, and removed by ``close``.
    With a ``clock`` nothing that waits for time goes on until the test says so. ``disk`` is healthy
    until the test breaks it. ``witness.accepted`` has what was accepted since the first start.
    ``patience`` is how many real seconds it waits for anything.
    """

    __test__ = False

    def __init__(
        self,
        *subjects: Subject | Callable[[], Subject],
        root: Path | None = None,
        clock: ManualClock | None = None,
        disk: FaultyDisk | None = None,
        harness: Harness | None = None,
        channel_id: str = "channel",
        mode: Literal["multi", "single"] | None = None,
        **options: Any,
    ) -> None:
        if not subjects:
            raise ValueError("TestHost() needs an Agent, a Project or a Channel to serve.")
        self.clock = clock
        self.disk = disk or FaultyDisk()
        self.witness = Witness()
        self.patience = PATIENCE
        self._subjects = subjects
        self._given_root = root
        self._root: Path | None = root
        self._harness = harness
        self._channel_id = channel_id
        self._mode: Literal["multi", "single"] = mode or (
            "single" if len(subjects) == 1 else "multi"
        )
        self._options = options
        self._boot = 0
        self._host: Host | None = None
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def running(self) -> bool:
        """Whether it serves now."""
        return self._host is not None

    async def start(self) -> None:
        """Start on the state root as it is."""
        if self._host is not None:
            raise RuntimeError("The host runs already; stop(), kill() or crash() it first.")
        host = self._make()
        self.witness.on_death = lambda: cancel(host)
        await host.start()
        self._host = host
        self._runner = web.AppRunner(
            host.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        self._listening = await listen(self._runner)
        host.announce(self._runner.addresses[0][1])
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))

    def _make(self) -> Host:
        """Return a host whose agents have the test's clock and disk."""
        projects = [self._project(subject, number) for number, subject in enumerate(self._subjects)]
        options = Options(mode=self._mode, port=0, state_root=self.root, **self._options)
        host = Host(projects, options)
        for project in projects:
            host.agents[project.slug] = AgentRuntime(
                project,
                self._state(project.slug),
                chain=host.chain,
                url=_addresses(host, project.slug),
                mask=host.book.mask,
                clock=self.clock,
                store=self._store(project),
                dev=options.dev,
            )
        return host

    def _project(self, subject: Subject | Callable[[], Subject], number: int) -> Project:
        made = subject if isinstance(subject, Agent | Project | Channel) else subject()
        if isinstance(made, Channel):
            made = Agent(
                name="Test agent",
                instructions="Answer.",
                harness=self._harness or Scripted(),
                channels={self._channel_id: made},
            )
        if isinstance(made, Agent):
            slug = f"agent-{number + 1}" if number else "agent"
            return Project.of(made, slug=slug, root=self.root)
        return made

    def _state(self, slug: str) -> Path:
        return self.root if self._mode == "single" else self.root / slug

    def _store(self, project: Project) -> WatchedStore:
        return WatchedStore(
            self._state(project.slug),
            disk=self.disk,
            witness=self.witness,
            clock=self.clock,
            boot=f"boot-{self._boot}",
            workspaces=project.seeds is None and not project.skills,
        )

    async def stop(self, drain_seconds: float = 0.0) -> None:
        """End it as SIGTERM does, or bury one that has died; a manual clock runs on meanwhile."""
        host, runner, http = self._host, self._runner, self._http
        if host is None or runner is None or http is None:
            return
        if self.disk.dead:
            await self.kill()
            return

        async def stopping() -> None:
            await host.drain(drain_seconds)
            await http.close()
            await end(runner, self._listening)
            await host.close()

        task = asyncio.ensure_future(stopping())
        while not task.done():
            await self._pass(_TICK)
        self._host = None
        await task

    async def kill(self, *, power_cut: bool = False) -> None:
        """End it as SIGKILL does: nothing more is written, no code of the agent has a say.

        With ``power_cut`` what was not synced is lost too. Channels' ``on_stop`` runs when all is
        dead, so that a test leaves no connection open.
        """
        host, runner, http = self._running_parts()
        self.disk.die()
        host.closing.set()
        cancel(host)
        await http.close()
        await host.work.close()
        await end(runner, self._listening)
        for agent in host.agents.values():
            await bury(agent)
        if power_cut:
            self.disk.lose_unsynced(self.root)
            self._boot += 1
        self.disk.revive()
        self._host = None

    async def restart(self) -> None:
        """Stop, and start on the same state root."""
        await self.stop()
        await self.start()

    async def crash(self, *, power_cut: bool = False) -> None:
        """Kill it, and start on the same state root."""
        if self._host is not None:
            await self.kill(power_cut=power_cut)
        await self.start()

    async def close(self) -> None:
        """Stop, and remove the state root if it was made here."""
        await self.stop()
        if self._given_root is None and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def _running_parts(self) -> tuple[Host, web.AppRunner, aiohttp.ClientSession]:
        if self._host is None or self._runner is None or self._http is None:
            raise RuntimeError("The host does not run; use 'async with', or await start().")
        return self._host, self._runner, self._http

    # Parts

    @property
    def root(self) -> Path:
        """The state root."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="threadline-test-"))
        return self._root

    @property
    def host(self) -> Host:
        """The running host."""
        return self._running_parts()[0]

    @property
    def client(self) -> aiohttp.ClientSession:
        """An HTTP client, for what :meth:`request` does not do, such as reading a stream."""
        return self._running_parts()[2]

    @property
    def url(self) -> str:
        """The address that paths are appended to; the port is another after each start."""
        return self.host.local_url

    def agent(self, slug: str | None = None) -> AgentRuntime:
        """Return an agent's runtime; without a slug the first one's."""
        agents = self.host.agents
        return agents[slug if slug is not None else next(iter(agents))]

    def channel(self, channel_id: str | None = None) -> Channel:
        """Return a mounted channel of the first agent; without an id the one that is served."""
        return self.agent().runtimes[channel_id or self._channel_id].channel

    # Requests

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request and read the answer whole; ``path`` is sent as it is.

        ``json`` is a value to encode, ``body`` bytes as they are.
        """
        sent = dict(headers or {})
        if body is None and json is not None:
            body = json_.dumps(json).encode()
            sent.setdefault("content-type", "application/json")
        data = io.BytesIO(body) if body is not None else None
        url = URL(self.url + path, encoded=True)
        async with self.client.request(
            method, url, data=data, headers=sent, allow_redirects=False
        ) as response:
            got = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, got, await response.read())

    async def get(self, path: str, **options: Any) -> Answer:
        """Send a GET; see :meth:`request`."""
        return await self.request("GET", path, **options)

    async def post(self, path: str, **options: Any) -> Answer:
        """Send a POST; see :meth:`request`."""
        return await self.request("POST", path, **options)

    async def delete(self, path: str, **options: Any) -> Answer:
        """Send a DELETE; see :meth:`request`."""
        return await self.request("DELETE", path, **options)

    # Sessions

    async def start_session(
        self,
        message: str,
        *,
        slug: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> HostSession:
        """Start a session over HTTP; ``fields`` are more of the body, as ``deliveryId``.

        Raises AssertionError when it is refused.
        """
        prefix = self.host.prefix(self.agent(slug).project.slug)
        body = {"message": message, **fields}
        answer = await self.post(f"{prefix}/v1/session", json=body, headers=headers)
        assert answer.ok, f"The session was refused with {answer.status}: {answer.text}"
        wire = answer.json()
        return HostSession(self, wire["sessionId"], slug, token=wire["continuationToken"], **wire)

    def session(self, session_id: str, *, slug: str | None = None) -> HostSession:
        """Return a session by its id, such as one that a channel's route has started."""
        return HostSession(self, session_id, slug)

    def sessions(self, *, slug: str | None = None) -> list[HostSession]:
        """Return every session, oldest first."""
        records = self.agent(slug).store.sessions()
        return [HostSession(self, record.id, slug) for record in reversed(records)]

    # Time

    async def until(
        self,
        check: Callable[[], Any],
        what: str = "what the test waits for",
        *,
        seconds: float | None = None,
    ) -> Any:
        """Wait until a condition, an ordinary or an async function, holds; return its value.

        A manual clock stands still meanwhile. Raises AssertionError after so many real seconds, by
        default ``patience``.
        """
        loop = asyncio.get_running_loop()
        seconds = self.patience if seconds is None else seconds
        deadline = loop.time() + seconds
        while True:
            found = check()
            value = await found if inspect.isawaitable(found) else found
            if value:
                return value
            if loop.time() >= deadline:
                raise AssertionError(f"{what} did not come within {seconds:g} s")
            await asyncio.sleep(_MOMENT)

    async def elapse(self, seconds: float, *, step: float = 1.0) -> None:
        """Move the manual clock on, in steps, with real moments for disk and network in between."""
        if self.clock is None:
            raise RuntimeError("The host runs on real time; give TestHost(clock=ManualClock()).")
        left = seconds
        while left > 0:
            await self._pass(min(step, left))
            left -= step

    async def _pass(self, seconds: float) -> None:
        if self.clock is not None:
            await self.clock.elapse(seconds)
        await asyncio.sleep(_MOMENT)

    async def rest(self) -> None:
        """Wait until every session rests and every handler has run."""
        for slug in self.host.agents:
            for session in self.sessions(slug=slug):
                await session.rest()

    def check_laws(self, *, at_rest: bool = True) -> None:
        """Check the log of every session, and that each accepted delivery has one outcome.

        Call it when all rests, or with ``at_rest=False``. Raises
        :class:`~threadline.testing.laws.LawBroken`.
        """
        for slug in self.host.agents:
            for session in self.sessions(slug=slug):
                check_laws(session.log(), session.accepted, at_rest=at_rest)


def _addresses(host: Host, slug: str) -> Callable[[str], str]:
    return lambda path: host.base_url + host.prefix(slug) + path
