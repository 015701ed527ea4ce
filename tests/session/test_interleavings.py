"""Random interleavings of what people, disks and hosts do; the laws hold at each rest."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.session.host import ALICE, Host

from threadline.errors import Conflict, NotFound, Unavailable
from threadline.harness.base import Turn, TurnResult
from threadline.harness.scripted import Call, Say, Scripted
from threadline.session.slots import Slots
from threadline.testing.faults import Crashed, When

EXAMPLES = 2 * settings().max_examples
CONVERSATION = st.sampled_from("aab")
ACTION = st.one_of(
    st.tuples(st.just("send"), CONVERSATION, st.sampled_from(["coalesce", "preempt"])),
    st.tuples(st.just("send"), CONVERSATION, st.sampled_from(["coalesce", "preempt"])),
    st.tuples(st.just("follow_up"), CONVERSATION, st.sampled_from(["coalesce", "preempt"])),
    st.tuples(st.just("task")),
    st.tuples(st.just("repeat"), st.integers(0, 9)),
    st.tuples(st.just("stop"), CONVERSATION, st.booleans()),
    st.tuples(st.just("delete"), CONVERSATION),
    st.tuples(st.just("release")),
    st.tuples(st.just("release")),
    st.tuples(st.just("run"), st.integers(0, 40)),
    st.tuples(st.just("elapse"), st.sampled_from([0.1, 1.0, 11.0, 3700.0])),
    st.tuples(st.just("stubborn"), st.booleans()),
    st.tuples(st.just("direct"), CONVERSATION),
    st.tuples(st.just("tool_is"), st.sampled_from(["read", "write", "gated", "gated write"])),
    st.tuples(st.just("decide"), CONVERSATION, st.sampled_from(["approved", "denied"])),
    st.tuples(st.just("decide"), CONVERSATION, st.sampled_from(["approved", "denied"])),
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("failing_sync")),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(
        st.just("crash_at"),
        st.integers(1, 12),
        st.sampled_from(["before", "after", "torn"]),
        st.booleans(),
    ),
    st.tuples(st.just("restart")),
    st.tuples(st.just("quiesce")),
)


class Slow(Scripted):
    """Works twice, then answers; while ``stubborn`` it takes its time to be cancelled."""

    def __init__(self) -> None:
        super().__init__([Call("work"), Call("work"), Say("Done.")])
        self.stubborn = False
        self.go = asyncio.Event()

    def soften(self) -> None:
        """Let every cancelled turn end."""
        self.stubborn = False
        self.go.set()
        self.go = asyncio.Event()

    async def run(self, turn: Turn) -> TurnResult:
        try:
            return await super().run(turn)
        except asyncio.CancelledError:
            if self.stubborn:
                await self.go.wait()
            raise


class Driver:
    """Does one action after the other; each is a method of its name."""

    def __init__(self, root: Path) -> None:
        self.harness = Slow()
        self.host = Host(root, self.harness)
        self.host.tools.held = True
        self.doing: set[asyncio.Task[Any]] = set()
        self.sent: list[tuple[str, str, str]] = []
        self.tokens: dict[str, str] = {}
        self.power_fails = False
        self.doubtful = False
        self.uncertain = False

    async def begin(self) -> None:
        self.host._given["slots"] = Slots(2)
        while True:
            try:
                await self.host.start()
            except Crashed:
                await self.host.kill()
            else:
                return

    async def play(self, actions: list[tuple[Any, ...]]) -> None:
        await self.begin()
        for name, *arguments in actions:
            await getattr(self, name)(*arguments)
            if self.host.disk.dead:
                await self.crash(self.power_fails)
        await self.quiesce()
        await self.host.close()
        self.host.check_closed()
        logs = self.host.logs()
        await self.begin()
        await self.quiesce()
        assert self.host.logs() == logs
        await self.host.close()

    def do(self, work: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> None:
        """Let something run beside what follows."""
        self.doing.add(asyncio.ensure_future(self._try(work, *arguments, **named)))

    async def _try(
        self, work: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any
    ) -> None:
        with contextlib.suppress(Conflict, NotFound, Unavailable, Crashed):
            await work(*arguments, **named)

    # People

    async def send(self, conversation: str, admission: str) -> None:
        name = f"d{len(self.sent)}"
        self.sent.append((name, conversation, admission))
        self.do(self.host.send, name, conversation, admission=admission)

    async def repeat(self, number: int) -> None:
        if self.sent:
            name, conversation, admission = self.sent[number % len(self.sent)]
            self.do(self.host.send, name, conversation, admission=admission)

    async def follow_up(self, conversation: str, admission: str) -> None:
        name = f"h{len(self.sent)}"
        self.sent.append((name, conversation, "preempt"))
        self.do(self._follow_up, name, conversation, admission)

    async def _follow_up(self, name: str, conversation: str, admission: str) -> None:
        result, _ = await self.host.send(
            name,
            self.tokens.get(conversation, conversation),
            channel="http",
            rotating=True,
            session_id=self._session(conversation),
            admission=admission,
        )
        self.tokens[conversation] = result.token

    async def task(self) -> None:
        name = f"t{len(self.sent)}"
        self.sent.append((name, name, "preempt"))
        self.do(self.host.send, name, name, mode="task")

    async def stop(self, conversation: str, clear: bool) -> None:
        self.do(self._stop, conversation, clear)

    async def _stop(self, conversation: str, clear: bool) -> None:
        await self.host.core.stop(self._session(conversation), clear_pending=clear)

    def _session(self, conversation: str) -> str:
        record = self.host.core.store.session_by_token("chat", conversation)
        return record.id if record is not None else "ses_none"

    async def delete(self, conversation: str) -> None:
        self.do(self._delete, conversation)

    async def _delete(self, conversation: str) -> None:
        await self.host.core.delete(self._session(conversation))

    async def direct(self, conversation: str) -> None:
        self.do(self._direct, conversation)

    async def _direct(self, conversation: str) -> None:
        host = self.host
        record = host.core.store.session_by_token("chat", conversation)
        if record is not None:
            await host.core.call_tool("work", {}, record.owner, record.id)

    async def tool_is(self, kind: str) -> None:
        tools = self.host.tools
        tools.gated = {"work"} if "gated" in kind else set()
        tools.writes = {"work"} if "write" in kind else set()

    async def decide(self, conversation: str, decision: Any) -> None:
        self.do(self._decide, conversation, decision)

    async def _decide(self, conversation: str, decision: Any) -> None:
        host = self.host
        session = self._session(conversation)
        for parked in await host.core.approvals(session):
            await host.core.decide(
                session, parked.call.call_id, decision, ALICE, may=lambda _: True
            )

    async def _approve_all(self) -> None:
        for owner in list(self.host.core._owners.values()):
            for call_id in list(owner.parking.calls):
                with contextlib.suppress(Conflict, NotFound, Unavailable, Crashed):
                    await self.host.core.decide(
                        owner.record.id, call_id, "approved", ALICE, may=lambda _: True
                    )

    # Time and the disk

    async def release(self) -> None:
        self.host.tools.release()
        await self.run(5)

    async def run(self, ticks: int) -> None:
        for _ in range(ticks):
            await asyncio.sleep(0)

    async def elapse(self, seconds: float) -> None:
        await self.host.clock.elapse(seconds)

    async def stubborn(self, on: bool) -> None:
        if on:
            self.harness.stubborn = True
        else:
            self.harness.soften()

    async def full(self, on: bool) -> None:
        self.host.disk.full = on

    async def failing_sync(self) -> None:
        """What a crash right behind a failed sync leaves is nobody's promise in a power cut."""
        self.host.disk.failing_syncs = 1
        self.doubtful = True

    async def crash_at(self, operations: int, when: When, power_cut: bool) -> None:
        self.host.disk.revive(operations, when)
        self.power_fails = power_cut

    # Ends

    async def crash(self, power_cut: bool) -> None:
        self.harness.stubborn = False
        self.host.disk.die()
        await self._drop()
        self.host.disk.full = False
        self.uncertain = self.uncertain or self.doubtful
        await self.host.kill(power_cut=power_cut and not self.uncertain)
        self.harness.soften()
        await self.begin()

    async def _drop(self) -> None:
        for task in self.doing:
            task.cancel()
        if self.doing:
            await asyncio.wait(self.doing)
        self.doing.clear()

    async def restart(self) -> None:
        self.harness.soften()
        closing = asyncio.ensure_future(self._try(self.host.close))
        while not closing.done():
            await self.host.clock.elapse(1.0)
        await self._drop()
        if self.host.disk.dead:
            await self.host.kill()
        self.host.disk.full = False
        await self.begin()

    async def quiesce(self) -> None:
        """Let everything end, then check the laws."""
        host = self.host
        held, host.tools.held = host.tools.held, False
        gated, host.tools.gated = host.tools.gated, set()
        host.disk.full = False
        host.disk.failing_syncs = 0
        host.disk.crash_at = None
        self.harness.soften()
        async with asyncio.timeout(20):
            while self.doing or not host._rests():
                host.tools.release()
                await self._approve_all()
                await self.run(20)
                self.doing = {task for task in self.doing if not task.done()}
                if host.disk.dead:
                    await self.crash(self.power_fails)
                if self.doing or not host._rests():
                    await host.clock.elapse(0.5)
        host.check()
        twice = {call for call, runs in host.tools.written.items() if runs > 1}
        assert not twice, f"{twice} wrote twice"
        host.tools.held, host.tools.gated = held, gated
        self.doubtful = False


@settings(max_examples=EXAMPLES)
@given(st.lists(ACTION, max_size=30))
def test_whatever_happens_the_laws_hold(actions: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            await Driver(Path(folder) / "state").play(actions)

    asyncio.run(play())
