"""The host of a case: in this process, on loopback, with time in the test's hands."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from tests.cases.harness import CaseHarness
from yarl import URL

from threadline.agent.config import Agent
from threadline.agent.context import ToolContext
from threadline.agent.tools import tool
from threadline.auth import bearer, local_dev_strict
from threadline.channel.channel import Channel
from threadline.channel.context import Accepted, RouteContext
from threadline.host.agent import AgentRuntime
from threadline.host.app import Host, Options
from threadline.principal import Principal
from threadline.project import Project
from threadline.session.core import SessionCore
from threadline.store.embedded import EmbeddedStore
from threadline.testing.clock import ManualClock
from threadline.testing.faults import FaultyDisk
from threadline.testing.laws import check_laws

__all__ = ["Answer", "NotCoveredError", "World"]

TICK = 0.1
PATIENCE = 20.0


class NotCoveredError(Exception):
    """The runner does not know a verb, a route or what to expect; says which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)


@tool
def tick(number: int) -> int:
    """Return the number."""
    return number


@tool
def echo(text: str = "") -> str:
    """Return the text."""
    return text


@tool(effect="write")
async def keep(path: str, ctx: ToolContext) -> str:
    """Make an artifact of a workspace file; return its id."""
    return (await ctx.artifacts.tag(key=path, content=Path(path))).id


def _custom() -> Channel:
    """The channel through which cases send; its tokens are what the case says."""
    channel = Channel(owner="caller", admission="coalesce")

    @channel.post("/send")
    async def send(ctx: RouteContext, body: dict[str, Any]) -> Accepted:
        files = body.get("workspaceFiles")
        delivery = await ctx.send(
            body["message"],
            continuation_token=body["continuationToken"],
            admission=body.get("admission"),
            delivery_id=body.get("deliveryId"),
            workspace_files=files,
        )
        return Accepted(delivery)

    return channel


@dataclass(eq=False)
class World:
    """One host and its clients."""

    root: Path
    grace: float = 10.0
    clock: ManualClock = field(default_factory=ManualClock)
    disk: FaultyDisk = field(default_factory=FaultyDisk)
    saved: dict[str, str] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    not_covered: list[str] = field(default_factory=list)
    boot: str = "boot-1"
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.harness = CaseHarness(self.clock)
        self.host: Host | None = None
        self.http: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    # Life

    async def start(self) -> None:
        """Start the host on the state root as it is."""
        auth = [
            bearer(token="a-token", principal=Principal("person", "a")),
            bearer(token="b-token", principal=Principal("person", "b")),
            local_dev_strict(),
        ]
        agent = Agent(
            name="case",
            instructions="Count.",
            harness=self.harness,
            auth=auth,
            tools=[tick, echo, keep],
            channels={"custom": _custom()},
            settle_seconds=self.grace,
        )
        self.host = Host([Project.of(agent, slug="case")], Options(mode="single"))
        store = EmbeddedStore(self.root, disk=self.disk, boot=self.boot)
        self.host.agents["case"] = AgentRuntime(
            Project.of(agent, slug="case"), self.root, clock=self.clock, store=store
        )
        await self.host.start()
        self._runner = web.AppRunner(self.host.app(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.host.announce(port)
        self.base = f"http://127.0.0.1:{port}"
        self.http = aiohttp.ClientSession()

    async def stop(self) -> None:
        """End it gracefully, without waiting for turns."""
        if self.host is None or self._runner is None or self.http is None:
            return
        stopping = asyncio.ensure_future(self.host.stop(0.0))
        while not stopping.done():
            await self._pass(TICK)
        await stopping
        await self.http.close()
        await self._runner.cleanup()
        self.host = None

    async def kill(self) -> None:
        """End it as SIGKILL does: nothing more is written."""
        assert self.host is not None
        assert self._runner is not None
        assert self.http is not None
        self.disk.die()
        self.host.closing.set()
        for task in list(self.core.services.tasks):
            task.cancel()
        await self.http.close()
        await self._runner.cleanup()
        await self.core.store.close()
        self.disk.revive()
        self.host = None

    async def restart(self) -> None:
        """Stop and start on the same state root."""
        if self.host is not None:
            await self.stop()
        await self.start()

    @property
    def core(self) -> SessionCore:
        """The agent's session core."""
        assert self.host is not None
        return self.host.agents["case"].core

    # Time

    async def at(self, second: float) -> None:
        """Let the case's time reach a second."""
        await self._pass(max(0.0, second - self.now_s))
        self.now_s = max(self.now_s, second)

    async def _pass(self, seconds: float) -> None:
        """Move the time on in small steps; disk and sockets get real moments in between."""
        left = seconds
        while True:
            await asyncio.sleep(0.001)
            if left <= 0:
                return
            await self.clock.elapse(min(TICK, left))
            left -= TICK

    async def until(self, done: Callable[[], Any], what: str) -> Any:
        """Wait, with time passing, until a condition holds; return what it gave."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while not (found := done()):
            assert loop.time() < deadline, f"{what} never came"
            await self._pass(TICK)
        return found

    async def rest(self) -> None:
        """Let every turn end and everything be written."""
        self.harness.hurry.set()
        core = self.core

        def resting() -> bool:
            owners = core._owners.values()
            return all(owner.at_rest for owner in owners) and not core._loading

        await self.until(resting, "rest")

    # Requests

    def fill(self, value: Any) -> Any:
        """Replace ``{sid}`` and its kin by what was saved."""
        if isinstance(value, str):
            for name, known in self.saved.items():
                value = value.replace("{" + name + "}", known)
            return value
        if isinstance(value, dict):
            return {self.fill(key): self.fill(item) for key, item in value.items()}
        return [self.fill(item) for item in value] if isinstance(value, list) else value

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        raw: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request and read its answer whole; a stream is read until it is quiet."""
        assert self.http is not None
        data = None
        if raw is not None:
            data = raw.encode("utf-8", "surrogatepass")
        elif body is not None:
            text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
            data = text.encode("utf-8", "surrogatepass")
        url = URL(self.base + path, encoded=True)
        file = io.BytesIO(data) if data is not None else None
        async with self.http.request(method, url, data=file, headers=headers) as response:
            content = await self._content(response, stream=path.endswith("/stream"))
            answer = Answer(response.status, dict(response.headers), content)
        self.answers.append(answer)
        if method == "POST" and answer.status in (200, 202) and b'"deliveryId"' in answer.body:
            wire = answer.json()
            self.accepted[wire["deliveryId"]] = wire["sessionId"]
        return answer

    async def _content(self, response: aiohttp.ClientResponse, *, stream: bool) -> bytes:
        if not stream or response.status != 200:
            return await response.read()
        read = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                async for chunk in response.content.iter_any():
                    read += chunk
        return read

    async def send(self, **body: Any) -> Answer:
        """Send as a channel does: into the session that the case started, else by its own token.

        A repeated delivery id is sent with the token that it was first sent with.
        """
        body = {"message": "x", **body}
        session_id = self.saved.get("sid")
        if session_id is None:
            body = {"continuationToken": "custom:1", **body}
            return await self.request("POST", "/v1/channels/custom/send", body=body)
        token = self.saved["tok"]
        if "deliveryId" in body:
            token = self.tokens.setdefault(body["deliveryId"], token)
        body = {"continuationToken": token, **body}
        answer = await self.request("POST", f"/v1/session/{session_id}", body=body)
        if answer.status == 200:
            self.saved["tok"] = answer.json()["continuationToken"]
        return answer

    async def play(self, step: Mapping[str, Any]) -> Answer | None:
        """Do one step whose verb needs nothing but the step itself."""
        await self.at(float(step.get("at_s", self.now_s)))
        match step["do"]:
            case "http":
                return await self._http(step)
            case "send":
                named = ("message", "admission", "deliveryId", "workspaceFiles")
                return await self.send(**{k: step[k] for k in named if k in step})
            case "start":
                await self.start()
            case "restart":
                await self.restart()
            case verb:
                raise NotCoveredError(f"the verb {verb!r}")
        return None

    async def _http(self, step: Mapping[str, Any]) -> Answer:
        answer = await self.request(
            step["method"],
            quoted(self.fill(step["path"])),
            body=self.fill(step["body"]) if "body" in step else None,
            raw=step.get("raw_body"),
            headers=step.get("headers"),
        )
        if answer.status in (200, 202):
            for name, key in step.get("save", {}).items():
                self.saved[name] = answer.json()[key]
        return answer

    # What was recorded

    def log(self, session_id: str) -> bytes:
        """Return a session's stored bytes."""
        return (self.root / "sessions" / session_id / "events.ndjson").read_bytes()

    def events(self, session_id: str) -> list[dict[str, Any]]:
        """Return a session's events."""
        return [json.loads(line) for line in self.log(session_id).split(b"\n") if line]

    def of(self, session_id: str, type_: str) -> list[dict[str, Any]]:
        """Return the events of one type."""
        return [event for event in self.events(session_id) if event["type"] == type_]

    def outcomes(self, session_id: str, delivery_id: str) -> list[str]:
        """Return every outcome that the log names for a delivery."""
        found = []
        for event in self.events(session_id):
            data = event["data"]
            if event["type"] == "nudge.delivered" and data.get("deliveryId") == delivery_id:
                found.append("steered")
            if event["type"] == "message.received":
                found += ["prompted"] * data.get("deliveryIds", []).count(delivery_id)
            if event["type"] == "deliveries.cleared":
                found += ["cleared"] * data["deliveryIds"].count(delivery_id)
        return found

    def check(self, *, damaged: tuple[str, ...] = ()) -> None:
        """Check what is true in every case."""
        folder = self.root / "sessions"
        for session in folder.iterdir():
            if session.name.startswith(".") or session.name in damaged:
                continue
            mine = [d for d, s in self.accepted.items() if s == session.name]
            check_laws((session / "events.ndjson").read_bytes(), mine)

    async def follow(self, session_id: str, start: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yield events from a live stream."""
        assert self.http is not None
        url = f"{self.base}/v1/session/{session_id}/stream?startIndex={start}"
        async with self.http.get(url) as response:
            async for line in response.content:
                if line.strip() and line.endswith(b"\n"):
                    yield json.loads(line)


def quoted(text: str) -> str:
    """Return a path component as it is sent; one that is quoted already stays so."""
    return urllib.parse.quote(text, safe="%/?=&:")
