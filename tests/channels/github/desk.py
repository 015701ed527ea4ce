"""What posts at GitHub without a host: the real client, a real outbox, a FakeGitHub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from tests.channel.outside import MemoryStore

from threadline.channel.limiter import Limiter
from threadline.channel.outbox import Outbox, Post, Target
from threadline.clock import Clock
from threadline.store.base import OutboundRecord
from threadline.testing import ManualClock
from threadline_github.config import Config
from threadline_github.hub import Hub
from threadline_github.inbound.names import Repository, Thread
from threadline_github.testing import DEFAULTS, FakeGitHub, Issue, Pull

__all__ = ["NAME", "SINCE", "Desk", "at_desk"]

T = TypeVar("T")
NAME = "s/github/answer/t"
SINCE = datetime(2025, 10, 9, tzinfo=UTC)


class _Values:
    """Kept values, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self.kept.get(key)

    async def put(self, key: str, value: Any) -> None:
        self.kept[key] = value

    async def delete(self, key: str) -> bool:
        return self.kept.pop(key, None) is not None


@dataclass
class _Context:
    """As much of a context as the places to post need."""

    clock: Clock
    kv: _Values = field(default_factory=_Values)
    log: Any = field(default_factory=structlog.get_logger)


class Desk:
    """Posts by hand, and dies when a test says so."""

    def __init__(self, github: FakeGitHub, clock: ManualClock, hub: Hub) -> None:
        self.github = github
        self.clock = clock
        self.hub = hub
        self.ctx: Any = _Context(clock)
        self.store = MemoryStore()
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not stored."""
        self.outbox = Outbox(
            self.store,  # type: ignore[arg-type]
            self.clock,
            Limiter(self.clock),
            channel="github",
            stamp=lambda: self.clock.now().isoformat(),
        )

    def thread(self, issue: Issue) -> Thread:
        """Return a pull request or issue as the channel knows it."""
        where = issue.repository
        known = Repository(
            where.id, where.full_name, where.full_name.lower(), int(DEFAULTS["installation"])
        )
        return Thread(known, "pr" if isinstance(issue, Pull) else "issue", issue.number)

    def named(self, name: str, text: str) -> Post:
        """Return a post."""
        return Post(name, "s", "t", text)

    async def post(self, target: Target, text: str, name: str = NAME) -> OutboundRecord:
        """Post, while time passes as it has to."""
        return await self.passing(self.outbox.post(self.named(name, text), target))

    async def passing(self, work: Coroutine[Any, Any, T], *, seconds: float = 1.0) -> T:
        """Let time pass until it is done: steps of the clock, and real moments for the network."""
        task = asyncio.ensure_future(work)
        async with asyncio.timeout(30):
            while not task.done():
                await asyncio.wait([task], timeout=0.01)
                if not task.done() and not self.github.pulse.under_way:
                    await self.clock.elapse(seconds)
        return await task

    async def beside(self, *works: Coroutine[Any, Any, Any]) -> None:
        """Do several things at once."""
        await asyncio.gather(*works)

    async def dies(self, target: Target, text: str, name: str = NAME) -> None:
        """Post, and die as soon as GitHub has it, before it can answer."""
        gate = self.github.hold("POST", "/repos/*", "after", times=1)
        task = asyncio.ensure_future(self.outbox.post(self.named(name, text), target))
        await self.github.until(lambda: gate.arrived)
        task.cancel()
        await asyncio.wait([task])
        gate.release()
        await self.github.settled()
        self.restart()


@asynccontextmanager
async def at_desk(*, personal: str | None = None, **options: Any) -> AsyncIterator[Desk]:
    """Sit down as the App, or with the token of a person."""
    clock = ManualClock(datetime(2025, 10, 9, 9, tzinfo=UTC))
    async with FakeGitHub(clock=clock, **options) as github:
        app, hub = github.app, Hub()
        token = github.personal_token(personal) if personal else None
        config = Config(
            "secret",
            token=token,
            app_id=None if personal else str(app.id),
            private_key=None if personal else app.private_key,
            api_url=github.api_url,
        )
        desk = Desk(github, clock, hub)
        await hub.open(desk.ctx, config)
        try:
            yield desk
        finally:
            await hub.close()
