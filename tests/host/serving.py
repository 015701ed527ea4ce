"""A real host on a loopback port, for tests: its agent, its callers, its restarts."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from threadline import Agent, Channel, Principal, ToolContext, tool
from threadline.auth import AuthRequest
from threadline.harness.base import ToolCall
from threadline.harness.scripted import Scripted
from threadline.host.app import Host, Options
from threadline.project import Project

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence
    from pathlib import Path

    from threadline.channel.auth import Policy
    from threadline.harness.base import Harness, Turn
    from threadline.host.logs import LogBook

__all__ = ["Gate", "Served", "agent", "by_header", "nothing_left", "serve", "until"]

SOON = 15.0


async def until(check: Any, seconds: float = SOON) -> Any:
    """Poll a condition, an ordinary or an async function, until it holds; return its value."""
    async with asyncio.timeout(seconds):
        while True:
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.005)


def by_header(request: AuthRequest) -> Principal | None:
    """Admit whoever says a name in ``x-user``; ``root`` is an operator."""
    name = request.headers.get("x-user")
    return Principal("user", name, operator=name == "root") if name else None


class Gate:
    """Holds the tool ``work`` until it is released, and says when it waits."""

    def __init__(self) -> None:
        self.waiting = 0
        self._open = asyncio.Event()

    async def hold(self) -> None:
        """Wait until the next release."""
        self.waiting += 1
        opened = self._open
        try:
            await opened.wait()
        finally:
            self.waiting -= 1

    def release(self) -> None:
        """Let everything that waits go on."""
        opened, self._open = self._open, asyncio.Event()
        opened.set()

    async def held(self, count: int = 1) -> None:
        """Return when so many calls wait."""
        await until(lambda: self.waiting >= count)


async def script(turn: Turn) -> str:
    """``work`` calls the held tool once a word; ``count N`` streams; ``fail`` fails; else echo."""
    words = turn.prompt.text.split()
    for number, _ in enumerate(word for word in words if word == "work"):
        turn.step_started("scripted")
        turn.step_completed({"inputTokens": 1, "outputTokens": 1}, "tool_calls")
        await turn.call_tools([ToolCall(f"{turn.id}.c{number}", "work", {})])
        nudges = await turn.boundary([{"role": "tool", "number": number}])
        if nudges:
            await turn.confirm(nudges, [{"role": "user", "content": n.text} for n in nudges])
    if words[0] == "count":
        for number in range(int(words[1])):
            turn.message_delta(f"{turn.id}.m0", f"{number} ")
            if number % 5 == 0:
                await asyncio.sleep(0)
    if words[0] == "fail":
        raise ValueError("the model broke")
    return turn.prompt.text


def agent(
    gate: Gate | None = None,
    *,
    auth: Sequence[Policy] | None = (by_header,),
    channels: Mapping[str, Channel] | None = None,
    harness: Harness | None = None,
    **options: Any,
) -> Agent:
    """Return an agent whose turns a test steers."""

    @tool(effect="read")
    async def work() -> str:
        """Wait for the test."""
        if gate is not None:
            await gate.hold()
        return "worked"

    @tool(effect="read")
    async def double(number: int) -> dict[str, int]:
        """Double a number."""
        return {"doubled": number * 2}

    @tool(effect="write")
    async def note(text: str, ctx: ToolContext) -> str:
        """Write into the workspace."""
        assert ctx.workspace is not None
        (ctx.workspace / "note.txt").write_text(text)
        return str(ctx.workspace)

    @tool(effect="read")
    async def broken() -> None:
        """Fail."""
        raise ValueError("no luck")

    return Agent(
        name="Tester",
        instructions="Be brief.",
        harness=harness or Scripted(script, model="scripted"),
        auth=None if auth is None else list(auth),
        tools=[work, double, note, broken],
        channels=dict(channels or {}),
        settle_seconds=2.0,
        drain_seconds=2.0,
        **options,
    )


class Served:
    """One running host and a client of it; ``prefix`` is where its first agent is mounted."""

    def __init__(self, host: Host, client: aiohttp.ClientSession) -> None:
        self.host = host
        self.client = client
        self.slug = next(iter(host.agents))
        self.prefix = host.prefix(self.slug)

    @property
    def runtime(self) -> Any:
        """The first agent's runtime."""
        return self.host.agents[self.slug]

    @property
    def state(self) -> Path:
        """The first agent's state root."""
        root: Path = self.runtime.store.root
        return root

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = "ann",
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send one request to the agent; return status and decoded body."""
        sent = {"content-type": "application/json", **(headers or {})}
        if user is not None:
            sent.setdefault("x-user", user)
        if raw is None and body is not None:
            raw = json.dumps(body).encode()
        data = io.BytesIO(raw) if raw is not None else None
        url = self.host.local_url + self.prefix + path
        async with self.client.request(method, url, data=data, headers=sent) as response:
            text = await response.text()
            kind = response.content_type
            return response.status, json.loads(text) if kind == "application/json" else text

    async def start(self, message: str = "hi", *, user: str = "ann", **body: Any) -> dict[str, Any]:
        """Start a session and return the answer."""
        status, answer = await self.ask(
            "POST", "/v1/session", {"message": message, **body}, user=user
        )
        assert status == 200, answer
        return dict(answer)

    async def follow_up(
        self, answer: Mapping[str, Any], message: str, *, user: str = "ann", **body: Any
    ) -> tuple[int, Any]:
        """Continue a session with the token of an earlier answer."""
        token = answer["continuationToken"]
        sent = {"message": message, "continuationToken": token, **body}
        return await self.ask("POST", f"/v1/session/{answer['sessionId']}", sent, user=user)

    async def events(self, session_id: str, *, user: str = "ann") -> list[dict[str, Any]]:
        """Return the recorded events."""
        status, body = await self.ask(
            "GET", f"/v1/session/{session_id}/events?format=json", user=user
        )
        assert status == 200, body
        return list(body["events"])

    async def rest(
        self, session_id: str, turns: int = 1, *, user: str = "ann"
    ) -> list[dict[str, Any]]:
        """Return the events when so many turns have ended and the session rests."""

        async def rested() -> list[dict[str, Any]] | None:
            events = await self.events(session_id, user=user)
            ended = sum(e["type"] in ("turn.completed", "turn.failed") for e in events)
            resting = ("session.waiting", "session.completed", "session.failed")
            return events if ended >= turns and events[-1]["type"] in resting else None

        found: list[dict[str, Any]] = await until(rested)
        return found


@asynccontextmanager
async def serve(
    state: Path,
    *agents: Agent | Project,
    mode: Any = "multi",
    book: LogBook | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """Run a host of the agents on a free port; leaving stops it, and no task of it is left."""
    before = asyncio.all_tasks()
    projects = [
        one if isinstance(one, Project) else Project.of(one, slug=f"bot{n}" if n else "bot")
        for n, one in enumerate(agents)
    ]
    options.setdefault("state_root", state)
    host = Host(projects, Options(mode=mode, port=0, **options), book=book)
    await host.start()
    runner = host.runner()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host.announce(runner.addresses[0][1])
    try:
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            yield Served(host, client)
    finally:
        await host.drain(0.0)
        await runner.cleanup()
        await host.close()
    await nothing_left(before)


async def nothing_left(before: Collection[asyncio.Task[Any]]) -> None:
    """Fail when tasks are left that were not there before."""

    # A fixture that yields is left in another task than it was entered in.
    known = {*before, asyncio.current_task()}

    def left() -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if task not in known and not task.done()]

    try:
        async with asyncio.timeout(5):
            for _ in iter(left, []):
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"tasks are left: {left()}") from None
