"""A host that serves an agent beside an outside service, with time in the test's hands."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from tests.cases.told import Answer as Reply
from tests.cases.told import Delta, Told
from tests.cases.world import NotCoveredError, quoted

from threadline.agent.config import Agent
from threadline.agent.tools import tool
from threadline.auth import bearer, local_dev_strict
from threadline.channel.channel import Channel
from threadline.principal import Principal
from threadline.testing import ManualClock, TestHost
from threadline.testing.faults import FaultyDisk
from threadline.testing.inbound import Answer
from threadline.testing.session import HostSession

__all__ = ["EPOCH", "FailingDisk", "ServedWorld", "encoded", "filled"]

EPOCH = 1_760_000_000
STEP, STRIDE, NEAR = 0.5, 5.0, 10.0


class FailingDisk(FaultyDisk):
    """Fails one operation, the ``fail_at``-th from when it was set, from 1: EIO unless said."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_at = 0
        self.code = errno.EIO
        self.only: str | None = None

    def _perform(self, name: str, *rest: Any, **more: Any) -> None:
        if self.fail_at > 0 and self.only in (None, name):
            self.fail_at -= 1
            if self.fail_at == 0:
                raise OSError(self.code, os.strerror(self.code))
        super()._perform(name, *rest, **more)


def filled(value: Any, variant: Any) -> Any:
    """Return a value with ``{variant}`` replaced in its strings."""
    if isinstance(value, str):
        return value.replace("{variant}", str(variant)) if variant is not None else value
    if isinstance(value, dict):
        return {key: filled(item, variant) for key, item in value.items()}
    return [filled(item, variant) for item in value] if isinstance(value, list) else value


def encoded(body: Any) -> bytes:
    """Return a JSON body as the signatures of the cases are computed over it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class ServedWorld(ABC):
    """One host; ``options`` are those of the channel, ``agent`` of the agent, ``serving`` its own.

    The clock begins at the time of the cases' signatures. ``kind`` is the channel's id and the kind
    of the people who speak there.
    """

    kind: ClassVar[str]

    def __init__(self, root: Path, *, begins: int = EPOCH) -> None:
        self.root = root
        self.clock = ManualClock(datetime.fromtimestamp(begins, UTC))
        self.harness = Told()
        self.disk = FailingDisk()
        self.options: dict[str, Any] = {}
        self.agent: dict[str, Any] = {}
        self.serving: dict[str, Any] = {}
        self.env: dict[str, str] = {}
        self.saved: dict[str, str] = {}
        self.not_covered: list[str] = []
        self._given: TestHost | None = None
        self._patch = pytest.MonkeyPatch()
        self._worlds = 0
        self._listens = False
        self._unhandled: list[Mapping[str, Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # What a world is made of

    @property
    @abstractmethod
    def outside(self) -> Any:
        """The service beside the host: ``start()``, ``close()``, ``settled()``."""

    @abstractmethod
    def _channel(self) -> Channel:
        """Return the channel with the world's options."""

    @abstractmethod
    def _configure(self) -> None:
        """Complete the environment that the host starts in."""

    @abstractmethod
    async def _opened(self) -> None:
        """Go on when the service listens, before the host starts for the first time."""

    @abstractmethod
    async def _served(self) -> None:
        """Go on whenever the host has started."""

    @abstractmethod
    def _person(self) -> Principal:
        """Return who calls the host's own API with the token ``local``."""

    # Life

    async def start(self, **options: Any) -> None:
        """Start the host on the state root as it is, and the service with it the first time."""
        self.options |= options
        if not self._listens:
            self._tasks = asyncio.all_tasks()
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: self._unhandled.append(context))
            await self.outside.start()
            self._listens = True
            await self._opened()
        if self._given is None:
            self._given = TestHost(
                self._agent,
                root=self.root,
                clock=self.clock,
                disk=self.disk,
                channel_id=self.kind,
                **self.serving,
            )
        self._configure()
        prefix = f"{self.kind.upper()}_"
        with pytest.MonkeyPatch.context() as patch:
            for known in [key for key in os.environ if key.startswith(prefix)]:
                patch.delenv(known)
            for key, item in self.env.items():
                patch.setenv(key, item)
            await self.host.start()
        await self._served()

    def _agent(self) -> Agent:
        return Agent(
            **{
                "name": "case",
                "instructions": "Answer.",
                "harness": self.harness,
                "auth": [
                    bearer(token="owner", principal=Principal("channel", self.kind)),
                    bearer(token="local", principal=self._person()),
                    local_dev_strict(),
                ],
                "tools": [self._idle()],
                "channels": {self.kind: self._channel()},
                **self.agent,
            }
        )

    def _idle(self) -> Any:
        @tool
        async def idle(seconds: float) -> str:
            """Do nothing for so many seconds."""
            await self.clock.sleep(seconds)
            return "done"

        return idle

    @property
    def host(self) -> TestHost:
        """The host, whether it runs or not."""
        if self._given is None:
            raise RuntimeError("The world has not been started.")
        return self._given

    async def restart(self) -> None:
        """Stop and start on the same state root."""
        await self.host.stop()
        await self.start()

    async def crash(self, *, power_cut: bool = False) -> None:
        """Kill the host, or let the power fail, and start on what is left."""
        await self.host.kill(power_cut=power_cut)
        await self.start()

    async def stop(self) -> None:
        """End all."""
        if self._given is not None:
            self.harness.free()
            await self._given.stop()
        if self._listens:
            await self._close()
            self._patch.undo()
            self._listens = False

    async def _close(self) -> None:
        await self.outside.close()

    @asynccontextmanager
    async def fresh(self, **more: Any) -> AsyncIterator[Self]:
        """Give another world, not started; what is true in every case is checked behind it."""
        self._worlds += 1
        root = self.root / f"world-{self._worlds}"
        root.mkdir()
        world = type(self)(root, **more)
        try:
            yield world
            await world.finish()
        finally:
            await world.stop()

    async def finish(self) -> None:
        """Let all come to rest, and check what is true in every case."""
        if self._given is None:
            return
        if self.host.running:
            self.harness.free()
            await self.rest()
            self.host.check_laws()
        await self.stop()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - self._tasks
        assert not left, f"tasks left: {left}"
        assert not self._unhandled, f"unhandled: {self._unhandled}"

    # Time

    @property
    def now_s(self) -> float:
        """The seconds since the start of the case."""
        return self.clock.monotonic()

    async def at(self, second: float, *, stride: float = STRIDE) -> None:
        """Let the case's time reach a second; ``stride`` are the steps on the way there."""
        while (left := second - self.now_s) > 1e-6:
            await self._step(min(left, STEP if left <= NEAR else stride))

    async def pass_(self, seconds: float, *, stride: float = STRIDE) -> None:
        """Let so many seconds pass."""
        await self.at(self.now_s + seconds, stride=stride)

    async def _step(self, seconds: float) -> None:
        """Move the time on, then let disk and sockets do what they have to."""
        await self.clock.elapse(seconds)
        if self._given is None or not self._given.running:
            return
        for _ in range(8 if seconds <= STEP else 4):
            await asyncio.sleep(0.001)
        if self._listens:
            await self.outside.settled()

    async def until(self, check: Callable[[], Any], what: str) -> Any:
        """Wait for a condition while the time stands still; return what it gave."""
        return await self.host.until(check, what)

    async def within(
        self, seconds: float, check: Callable[[], Any], what: str, *, step: float = STEP
    ) -> Any:
        """Wait for a condition, so many seconds of the case's time at most."""
        end = self.now_s + seconds
        while not (found := check()):
            assert self.now_s < end - 1e-6, f"{what} did not come within {seconds:g} s"
            await self._step(min(step, end - self.now_s))
        return found

    async def throughout(
        self, second: float, check: Callable[[], Any], what: str, *, step: float = STEP
    ) -> None:
        """Let the time reach a second, and see to it that a condition holds all the while."""
        while True:
            assert check(), f"{what}, but not at {self.now_s:g} s"
            if (left := second - self.now_s) <= 1e-6:
                return
            await self._step(min(left, step))

    async def rest(self) -> None:
        """Let everything end, with time passing."""

        async def settled() -> None:
            await self.host.rest()
            await self.outside.settled()

        began = self.now_s
        resting = asyncio.ensure_future(settled())
        while not resting.done():
            await self._step(STEP if self.now_s - began < NEAR else STRIDE)
        await resting

    # In

    async def play(self, step: Mapping[str, Any], variant: Any = None) -> Answer | None:
        """Do one step when its time has come."""
        await self.at(float(step.get("at_s", self.now_s)))
        return await self._do(step, variant)

    async def _do(self, step: Mapping[str, Any], variant: Any) -> Answer | None:
        """Do what every world can; raises NotCoveredError for another verb."""
        del variant
        match step["do"]:
            case "http":
                return await self.http(step)
            case "agent_reply":
                self.harness.tell(Reply(step["text"]))
            case "agent_delta_burst":
                self.harness.tell(*(Delta(f"d{number} ") for number in range(step["count"])))
            case "start":
                await self.start()
            case "restart":
                self.env |= step.get("env", {})
                await self.restart()
            case verb:
                raise NotCoveredError(f"the verb {verb!r}")
        return None

    async def http(self, step: Mapping[str, Any]) -> Answer:
        """Send a request to the host's own API, in the name of who owns the channel's sessions."""
        path = step["path"]
        for name, value in self.saved.items():
            path = path.replace("{" + name + "}", value)
        headers = {"Authorization": "Bearer owner", **step.get("headers", {})}
        return await self.host.request(
            step["method"], quoted(path), json=step.get("body"), headers=headers
        )

    # What came of it

    @property
    def accepted(self) -> list[str]:
        """The ids of what was accepted, each once."""
        return [one.delivery.delivery_id for one in self.host.witness.fresh]

    def named(self, token: str) -> HostSession | None:
        """Return the session of a conversation, by its token."""
        found = self.host.agent().store.session_by_token(self.kind, token)
        return None if found is None else self.host.session(found.id)

    def sessions(self) -> list[HostSession]:
        """Return every session."""
        return self.host.sessions()

    def events(self, type_: str) -> list[dict[str, Any]]:
        """Return the events of one type, of all sessions."""
        return [event for session in self.sessions() for event in session.events(type_)]
