"""What a channel fetches for a message: recorded, in order, never in the way, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from threadline.errors import Unavailable
from threadline.harness.base import Turn, TurnResult
from threadline.harness.scripted import Scripted
from threadline.principal import LOCAL
from threadline.session.core import Services, SessionCore
from threadline.session.prepare import PREPARE_SECONDS, Prepared
from threadline.store.base import AcceptRequest, AcceptResult, DeliveryRecord
from threadline.store.embedded import EmbeddedStore
from threadline.testing.clock import ManualClock


class Fetcher:
    """Fetches when it is told to."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Future[Prepared | None]] = {}
        self.asked: list[str] = []

    def __call__(self, delivery: DeliveryRecord) -> Awaitable[Prepared | None] | None:
        self.asked.append(delivery.text)
        return self.gates.get(delivery.text)

    def gate(self, text: str) -> asyncio.Future[Prepared | None]:
        """Hold a message's fetching until the future is set."""
        self.gates[text] = asyncio.get_running_loop().create_future()
        return self.gates[text]


class Bench:
    """A core with a manual clock, a fetcher, and a harness that keeps its prompts."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.fetcher = Fetcher()
        self.prompts: list[str] = []
        self.store = EmbeddedStore(root)
        services = Services(
            self.store, harness=Scripted(self.answer), clock=self.clock, preparer=self.fetcher
        )
        self.core = SessionCore(services)

    async def answer(self, turn: Turn) -> TurnResult:
        """Keep the prompt."""
        self.prompts.append(turn.prompt.for_model())
        return TurnResult("ok")

    async def send(self, text: str) -> AcceptResult:
        """Send into the one conversation."""
        return (await self.admitted(text))[0]

    async def admitted(self, text: str) -> tuple[AcceptResult, str]:
        """Send, and return also what the delivery did."""
        request = AcceptRequest(
            channel="test",
            principal=LOCAL,
            owner=LOCAL,
            may=lambda _: True,
            text=text,
            admission="coalesce",
            at=self.core.services.stamp(),
            token="one",
        )
        return await self.core.send(request)

    async def prompted(self, result: AcceptResult) -> str | None:
        """Wait for the end of the turn that carries a delivery."""
        async with asyncio.timeout(10):
            return (await self.core.fate(result.delivery, settled=True)).status


@pytest.fixture
async def bench(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A started bench."""
    bench = Bench(tmp_path)
    await bench.core.start()
    yield bench
    await bench.core.close()


async def test_what_was_fetched_is_in_the_prompt_and_in_the_log(bench: Bench) -> None:
    """The context stands before the message, and ``message.received`` has it."""
    gate = bench.fetcher.gate("hi")
    sent = await bench.send("hi")
    assert bench.prompts == []
    gate.set_result(Prepared(["Ada wrote this."], {"notes.md": b"n"}))
    assert await bench.prompted(sent) == "completed"
    assert bench.prompts == ["Ada wrote this.\n\nhi"]
    session_id = sent.session.id
    (event,) = [e async for e in _events(bench, session_id) if e["type"] == "message.received"]
    assert event["data"]["context"] == ["Ada wrote this."]
    assert (bench.store.workspace(session_id) / "notes.md").read_bytes() == b"n"


async def test_messages_keep_their_order_whatever_is_fetched_first(bench: Bench) -> None:
    """The second is ready before the first: both wait, and stand in arrival order."""
    first, second = bench.fetcher.gate("one"), bench.fetcher.gate("two")
    await bench.send("one")
    sent = await bench.send("two")
    second.set_result(Prepared(["for two"]))
    first.set_result(None)
    assert await bench.prompted(sent) == "completed"
    assert bench.prompts == ["for two\n\none\n\ntwo"]


async def test_of_parallel_first_messages_one_starts_the_turn(bench: Bench) -> None:
    """The others join its prompt, and their senders are told so."""
    gate = bench.fetcher.gate("0")
    sent = await asyncio.gather(*(bench.admitted(str(n)) for n in range(5)))
    assert sorted(admitted for _, admitted in sent) == ["queued"] * 4 + ["started"]
    gate.set_result(None)
    for result, _ in sent:
        assert await bench.prompted(result) == "completed"
    assert len(bench.prompts) == 1


async def test_what_takes_too_long_is_named_in_the_prompt(bench: Bench) -> None:
    """After the deadline the message goes without, and says so."""
    bench.fetcher.gate("slow")
    sent = await bench.send("slow")
    await bench.clock.sleeping()
    await bench.clock.elapse(PREPARE_SECONDS)
    assert await bench.prompted(sent) == "completed"
    assert "could not be fetched" in bench.prompts[0]


async def test_what_fails_is_named_in_the_prompt(bench: Bench) -> None:
    """A fetch that raises loses nothing but itself."""
    gate = bench.fetcher.gate("broken")
    sent = await bench.send("broken")
    gate.set_exception(RuntimeError("no network"))
    assert await bench.prompted(sent) == "completed"
    assert "could not be fetched (RuntimeError)" in bench.prompts[0]


async def test_only_the_words_of_our_own_errors_are_in_the_prompt(bench: Bench) -> None:
    """A server's words may be somebody's from outside."""
    gate = bench.fetcher.gate("broken")
    sent = await bench.send("broken")
    gate.set_exception(Unavailable("The wiki is away."))
    assert await bench.prompted(sent) == "completed"
    assert "(Unavailable: The wiki is away.)" in bench.prompts[0]


async def test_a_stop_does_not_wait_for_it(bench: Bench) -> None:
    """A stop while something is fetched ends the turn before it began."""
    bench.fetcher.gate("hi")
    sent = await bench.send("hi")
    assert await bench.core.stop(sent.session.id) is True
    assert await bench.prompted(sent) == "cancelled"
    assert bench.prompts == []


async def test_a_drain_does_not_wait_for_it_and_a_restart_fetches_again(tmp_path: Path) -> None:
    """The message is still pending after the restart, and is prompted then."""
    before = Bench(tmp_path)
    await before.core.start()
    before.fetcher.gate("hi")
    sent = await before.send("hi")
    await before.core.close()
    after = Bench(tmp_path)
    await after.core.start()
    assert await after.prompted(sent) == "completed"
    assert after.fetcher.asked == ["hi"]
    assert after.prompts == ["hi"]
    await after.core.close()


async def _events(bench: Bench, session_id: str):  # type: ignore[no-untyped-def]
    import json

    async for chunk in bench.store.read(session_id):
        for line in chunk.split(b"\n"):
            if line:
                yield json.loads(line)
