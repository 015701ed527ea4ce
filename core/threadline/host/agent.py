"""One agent at work: its store, its session core, its channels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from threadline.agent.builtin import with_builtins
from threadline.agent.calls import Catalog
from threadline.agent.config import Agent
from threadline.agent.scripts import Scripts
from threadline.agent.shelf import Shelf
from threadline.agent.started import end_all
from threadline.channel.auth import AuthRequest, Policy, local_dev_strict
from threadline.channel.channel import Channel, Prepare
from threadline.channel.context import Context, Session
from threadline.channel.limiter import Limiter
from threadline.channel.outbound import Dispatcher
from threadline.channel.runtime import ChannelRuntime
from threadline.channel.turnstile import Turnstile
from threadline.clock import Clock, SystemClock
from threadline.errors import ProjectError
from threadline.harness.base import ToolCall
from threadline.host.toolbox import AgentTools
from threadline.principal import Principal
from threadline.project import Project, channel_types
from threadline.session.core import Furnish, Services, SessionCore
from threadline.session.prepare import PREPARE_SECONDS, Prepared
from threadline.session.slots import Slots
from threadline.session.workspace import Seeds
from threadline.store.base import DeliveryRecord, SessionRecord, Store
from threadline.store.embedded import EmbeddedStore

__all__ = ["AgentRuntime", "Chain"]

log = structlog.get_logger("threadline.host")

Chain = Sequence[Policy]

# Beside HTTP, where their package is installed.
_ALWAYS = ("mcp", "mcp-tools")
_IS_LOCAL = local_dev_strict()
_LAST_WORDS_SECONDS = 1.0
_STOP_SECONDS = 5.0
_PREPARING = 8  # messages


class AgentRuntime:
    """Runs one project.

    ``chain`` replaces the HTTP channel's auth chain when it is given; agents of one host share a
    ``limiter``, since they may share a credential.
    """

    def __init__(
        self,
        project: Project,
        state: Path,
        *,
        chain: Chain | None = None,
        url: Callable[[str], str] = lambda path: path,
        mask: Callable[[bytes], bytes] = lambda line: line,
        clock: Clock | None = None,
        limiter: Limiter | None = None,
        store: Store | None = None,
        dev: bool = False,
    ) -> None:
        self.project = project
        self.agent: Agent = project.agent
        empty = project.seeds is None and not project.skills
        self.store: Store = store or EmbeddedStore(state, workspaces=empty)
        clock = clock or SystemClock()
        self.tools = AgentTools(_catalog(project), self.store, clock)
        agent = self.agent
        self.services = Services(
            self.store,
            agent=project.name,
            harness=agent.harness,
            tools=self.tools,
            instructions=project.instructions,
            clock=clock,
            slots=Slots(agent.max_running_turns),
            seeds=Seeds(project.seeds, {n: s.path for n, s in project.skills.items()}),
            local_cwd=Path(agent.local.cwd) if agent.local and agent.local.cwd else None,
            on_restart=agent.on_restart,
            settle_seconds=agent.settle_seconds,
            blob_threshold=agent.blob_threshold,
            retention=agent.retention,
            limits=agent.limits,
            furnish=_furnish(project),
            mask=mask,
        )
        self.core = SessionCore(self.services)
        self.shelf = self.tools.shelf = Shelf(self.core, project.artifacts, url=url)
        self.dispatcher = Dispatcher(self.core)
        self.url = url
        self.dev = dev
        limiter = limiter or Limiter(clock)
        self.runtimes = {
            channel.id: ChannelRuntime(
                channel,
                self.core,
                agent=project.name,
                slug=project.slug,
                description=agent.description or "",
                limiter=limiter,
                url=url,
                shelf=self.shelf,
            )
            for channel in self._channels(chain)
        }
        for runtime in self.runtimes.values():
            self.dispatcher.add(runtime)
        self.services.preparer = self._prepare
        self.services.prepare_seconds = self._prepare_seconds
        self.services.normal_token = self._normal_token
        if any(one.channel.refuse_tool is not None for one in self.runtimes.values()):
            self.services.guard = self._refuse_tool
        self._started: list[ChannelRuntime] = []
        self._all_started = asyncio.Event()
        self._preparing = Turnstile(_PREPARING)

    def _channels(self, chain: Chain | None) -> list[Channel]:
        channels = dict(self.project.channels)
        if "http" not in channels:
            channels["http"] = _http_channel(self.agent.auth)
        if chain is not None:
            channels["http"].auth = list(chain)
        offered = channel_types()
        for channel_id in _ALWAYS:
            if channel_id in offered and channel_id not in channels:
                channels[channel_id] = offered[channel_id].load()()
        shared = {"session": channels["http"].auth, "host": chain or [local_dev_strict()]}
        for channel_id, channel in channels.items():
            channel.id = channel_id
            if channel.shares is not None:
                channel.auth = list(shared[channel.shares])
        return list(channels.values())

    def _prepare(self, delivery: DeliveryRecord) -> Awaitable[Prepared | None] | None:
        """Let the channel that took a delivery fetch what belongs to it.

        What waits since before a restart is prepared when the channels have started.
        """
        runtime = self.runtimes.get(delivery.channel)
        if runtime is None or runtime.channel.prepare is None:
            return None
        return self._prepared(runtime, runtime.channel.prepare, delivery)

    async def _prepared(
        self, runtime: ChannelRuntime, prepare: Prepare, delivery: DeliveryRecord
    ) -> Prepared | None:
        await self._all_started.wait()
        async with self._preparing.place():
            return await prepare(Context(runtime), delivery)

    def _prepare_seconds(self, delivery: DeliveryRecord) -> float:
        runtime = self.runtimes.get(delivery.channel)
        return PREPARE_SECONDS if runtime is None else runtime.channel.prepare_seconds

    def _normal_token(self, session: SessionRecord, token: str) -> str:
        """Return a token of a session as its channel spells it."""
        runtime = self.runtimes.get(session.channel)
        return token if runtime is None else runtime.channel.tokens.normal(token)

    async def _refuse_tool(self, session: SessionRecord, call: ToolCall) -> str | None:
        """Ask a session's channel whether its model may make a call."""
        runtime = self.runtimes.get(session.channel)
        if runtime is None or runtime.channel.refuse_tool is None:
            return None
        tool = next((one for one in self.tools.infos() if one.name == call.tool_name), None)
        if tool is None:
            return None
        try:
            return await runtime.channel.refuse_tool(
                Context(runtime), Session(session, runtime), tool
            )
        except Exception as error:
            log.error("tool.refused", tool=call.tool_name, error=repr(error), exc_info=error)
            return "Whether this tool may be used here could not be found out."

    @property
    def http(self) -> ChannelRuntime:
        """The HTTP channel, whose chain also guards the agent's own routes."""
        return self.runtimes["http"]

    def seen_as(self, principal: Principal, asked: AuthRequest) -> Principal:
        """Under ``--dev`` whoever asks directly on this machine may read every session."""
        if self.dev and not principal.operator and _IS_LOCAL(asked) is not None:
            return replace(principal, operator=True)
        return principal

    def announce(self, url: str) -> None:
        """Let commands on this machine find the agent's address."""
        if isinstance(self.store, EmbeddedStore):
            self.store.announce(url)

    async def start(self) -> None:
        """Open the store, carry on with what is unfinished, start the channels."""
        await self.core.start()
        try:
            await self.shelf.start()
            await self._start_channels()
            self._all_started.set()
            self.dispatcher.start()
        except BaseException:
            await self.drain(0.0)
            await self.close()
            raise

    async def _start_channels(self) -> None:
        """Start every channel; raises ProjectError with the problems of all of them."""
        problems: list[str] = []
        for runtime in self.runtimes.values():
            self._started.append(runtime)
            try:
                await runtime.channel.on_start(Context(runtime))
            except ProjectError as error:
                problems.extend(error.problems)
        if problems:
            raise ProjectError(problems)

    async def drain(self, drain_seconds: float | None = None) -> None:
        """Take nothing new; let turns, their handlers and deferred work end, within the time."""
        seconds = self.agent.drain_seconds if drain_seconds is None else drain_seconds
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        await self.core.drain(seconds)
        left = max(_LAST_WORDS_SECONDS, deadline - loop.time())
        waits = [runtime.finish(left) for runtime in self.runtimes.values()]
        await asyncio.gather(self.dispatcher.settle(left), *waits)

    async def close(self) -> None:
        """Stop the channels, close the store."""
        started, self._started = self._started, []
        for runtime in started:
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await runtime.channel.on_stop(Context(runtime))
            except Exception as error:
                log.error("channel.stop_failed", channel=runtime.channel.id, exc_info=error)
        await self.core.close()
        if await end_all():
            log.warning("tool_processes_left", agent=self.project.slug)


def _furnish(project: Project) -> Furnish | None:
    """Return what places the project's script tools, if there are any."""
    tools = [tool for tool in project.tools if tool.execution == "agent"]
    return Scripts(tools, project.root / "agent").place if tools else None


def _catalog(project: Project) -> Catalog:
    """Return the project's tools, with those for the workspace where the harness needs them."""
    harness, tools = project.agent.harness, project.tools
    if project.artifacts.agent_tool and "tag_artifact" not in tools:
        from threadline.agent.tagging import tag_artifact

        tools = Catalog([*tools, tag_artifact(project.artifacts)])
    if harness is None or harness.capabilities.workspace:
        return tools
    return with_builtins(tools, project.skills)


def _http_channel(auth: Chain | None) -> Channel:
    """Make the channel that every agent has, from its installed package."""
    entry = channel_types().get("http")
    if entry is None:
        raise ProjectError(
            ["The HTTP channel is not installed: install threadline itself with pip, not by path."]
        )
    channel = entry.load()(auth=auth)
    assert isinstance(channel, Channel)
    return channel
