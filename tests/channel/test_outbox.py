"""A post is visible once: across failures, limits, cancellations and a failing disk."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from tests.channel.outside import Fault, Full, MemoryStore, Room, Searchable

from threadline.channel.limiter import Limiter
from threadline.channel.outbox import Outbox, Post, TryAgain
from threadline.channel.target import understood
from threadline.errors import NotFound, StoreUnavailable
from threadline.testing.clock import ManualClock

if TYPE_CHECKING:
    from threadline.store.base import OutboundRecord

LOST = Fault(ConnectionResetError("no answer"), arrives=True)
REFUSED = Fault(TryAgain("busy", retry_after=7, sent=False))


@dataclass
class Box:
    """An outbox, its clock and its store."""

    clock: ManualClock = field(default_factory=ManualClock)
    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.limiter = Limiter(self.clock)
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not stored."""
        self.outbox = Outbox(
            self.store,  # type: ignore[arg-type]
            self.clock,
            self.limiter,
            channel="desk",
            stamp=lambda: self.clock.now().isoformat(),
            mask=lambda line: line.replace(b"hunter2", b"[masked]"),
        )

    def begin(
        self, target: Room, text: str = "hello", name: str = "p"
    ) -> asyncio.Task[OutboundRecord]:
        """Start to post."""
        post = Post(name, "s", "t", text)
        return asyncio.create_task(self.outbox.post(post, target))

    async def post(
        self, target: Room, text: str = "hello", name: str = "p", *, seconds: float = 2000
    ) -> OutboundRecord:
        """Post, for as long as it takes."""
        task = self.begin(target, text, name)
        await self.clock.elapse(0)
        if not task.done():
            await self.clock.elapse(seconds)
        assert task.done()
        return await task


@pytest.fixture
def box() -> Box:
    return Box()


async def test_an_intent_before_the_call_and_a_receipt_after(box: Box) -> None:
    target, seen = Full(), []

    def look(call: str) -> None:
        seen.append((call, box.store.records["p"].settled))

    target.on_call = look
    record = await box.post(target)
    assert seen == [("before send", False), ("after send", False)]
    assert (record.ref, record.failure, record.settled) == ("ref-1", None, True)
    assert box.store.records["p"] == record
    assert record.to_wire() == {"channel": "desk", "ref": "ref-1", "at": record.settled_at}


async def test_what_is_settled_is_not_posted_again(box: Box) -> None:
    target = Full()
    first = await box.post(target)
    box.restart()
    assert await box.post(target) == first
    assert target.calls == ["send"]


async def test_another_text_is_an_edit(box: Box) -> None:
    target = Full()
    await box.post(target)
    record = await box.post(target, "better")
    assert target.texts() == ["better"]
    assert target.calls == ["send", "edit"]
    assert record.ref == "ref-1"


async def test_a_target_that_cannot_edit_keeps_its_first_text(box: Box) -> None:
    target = Searchable()
    first = await box.post(target)
    with capture_logs() as logs:
        assert await box.post(target, "better") == first
    assert target.texts() == ["hello"]
    assert [entry["event"] for entry in logs] == ["outbound.not_edited"]


async def test_what_may_have_arrived_is_looked_up_and_left_alone(box: Box) -> None:
    target = Full()
    target.faults["send"] = [LOST]
    record = await box.post(target)
    assert target.calls == ["send", "find"]
    assert target.texts() == ["hello"]
    assert record.ref == "ref-1"


async def test_what_did_not_arrive_is_sent_again(box: Box) -> None:
    target = Full()
    target.faults["send"] = [Fault(TimeoutError()), LOST]
    target.faults["find"] = [None, Fault(ConnectionError())]
    await box.post(target)
    assert target.calls == ["send", "find", "send", "find", "find"]
    assert target.texts() == ["hello"]


async def test_what_surely_did_not_arrive_is_not_looked_up(box: Box) -> None:
    target = Full()
    target.faults["send"] = [REFUSED, Fault(ConnectionRefusedError())]
    await box.post(target)
    assert target.calls == ["send", "send", "send"]


async def test_a_target_that_cannot_be_searched_gets_it_again(box: Box) -> None:
    target = Room()
    target.faults["send"] = [LOST]
    record = await box.post(target)
    assert target.texts() == ["hello", "hello"]
    assert record.ref == "ref-2"


async def test_another_text_after_an_interruption_is_an_edit_if_the_first_is_there(
    box: Box,
) -> None:
    for arrives in (True, False):
        target = Full()
        target.faults["send"] = [Fault(arrives=arrives, hangs=True)]
        name = f"p{arrives}"
        task = box.begin(target, "first", name)
        await box.clock.elapse(1)
        task.cancel()
        await asyncio.wait([task])
        assert not box.store.records[name].settled
        box.restart()
        await box.post(target, "second", name)
        assert target.texts() == ["second"]
        assert target.calls[1:] == (["find", "edit"] if arrives else ["find", "send"])


async def test_a_call_that_hangs_is_cut_off_and_looked_up(box: Box) -> None:
    target = Full()
    target.faults["send"] = [Fault(arrives=True, hangs=True)]
    task = box.begin(target)
    await box.clock.elapse(59)
    assert target.calls == ["send"]
    await box.clock.elapse(3)
    assert target.calls == ["send", "find"]
    assert (await task).ref == "ref-1"


async def test_retry_after_is_obeyed_by_everybody_with_the_key(box: Box) -> None:
    target, same, other = Full(), Full(), Full("another token")
    target.faults["send"] = [REFUSED]
    tasks = [box.begin(target)]
    await box.clock.elapse(1)
    tasks += [box.begin(same, name="q"), box.begin(other, name="r")]
    await box.clock.elapse(5.9)
    assert (target.calls, same.calls, other.calls) == (["send"], [], ["send"])
    await box.clock.elapse(0.2)
    assert (target.calls, same.calls) == (["send", "send"], ["send"])
    await asyncio.gather(*tasks)


async def test_who_waits_does_not_hold_up_others_with_the_key(box: Box) -> None:
    failing = [Full() for _ in range(8)]
    for target in failing:
        target.always["send"] = Fault(ConnectionError("down"))
    tasks = [box.begin(target, name=str(n)) for n, target in enumerate(failing)]
    await box.clock.elapse(30)
    well = Full()
    await box.post(well, name="well", seconds=0)
    assert well.texts() == ["hello"]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_retry_after_of_nothing_still_backs_off(box: Box) -> None:
    target = Full()
    target.always["send"] = Fault(TryAgain("now", retry_after=0.0, sent=False))
    await box.post(target)
    assert 20 < len(target.calls) < 150


async def test_it_is_given_up_after_a_quarter_of_an_hour(box: Box) -> None:
    target = Full()
    target.always["send"] = Fault(ConnectionError("down: hunter2"))
    task = box.begin(target)
    with capture_logs() as logs:
        await box.clock.elapse(899)
        assert not task.done()
        assert not box.store.records["p"].settled
        await box.clock.elapse(1)
        record = await task
    assert record.failure == "ConnectionError: down: [masked]"
    assert box.store.records["p"] == record
    assert record.to_wire()["failure"] == record.failure
    (failed,) = [entry for entry in logs if entry["event"] == "outbound.failed"]
    assert (failed["session"], failed["channel"], failed["post"]) == ("s", "desk", "p")
    assert failed["error"] == record.failure
    again = [entry for entry in logs if entry["event"] == "outbound.again"]
    assert [entry["attempt"] for entry in again] == list(range(1, len(again) + 1))
    # The handler that runs again does not begin another quarter of an hour …
    calls = len(target.calls)
    assert await box.post(target) == record
    assert len(target.calls) == calls
    # … and another answer is another try, which looks first.
    target.always.clear()
    better = await box.post(target, "better")
    assert (better.ref, better.failure) == ("ref-1", None)
    assert target.calls[calls:] == ["find", "send"]


async def test_a_permanent_error_is_recorded_at_once(box: Box) -> None:
    target = Full()
    target.faults["send"] = [Fault(ValueError("not in channel"))]
    record = await box.post(target, seconds=0)
    assert record.failure == "ValueError: not in channel"
    assert target.calls == ["send"]


async def test_an_edit_that_fails_for_good_keeps_its_reference(box: Box) -> None:
    target = Full()
    await box.post(target)
    target.faults["edit"] = [Fault(TimeoutError()), Fault(ValueError("locked"))]
    record = await box.post(target, "better")
    assert (record.ref, record.failure) == ("ref-1", "ValueError: locked")
    record = await box.post(target, "best")
    assert (record.ref, record.failure) == ("ref-1", None)
    assert target.texts() == ["best"]


async def test_a_wait_that_is_too_long_is_not_begun(box: Box) -> None:
    target = Full()
    target.faults["send"] = [Fault(TryAgain("tomorrow", retry_after=86400, sent=False))]
    record = await box.post(target, seconds=0)
    assert record.failure == "TryAgain: tomorrow"
    second = await box.post(target, name="q", seconds=0)
    assert second.failure == ("TimeoutError: The target wants no call for another 86400 seconds.")
    assert target.calls == ["send"]


async def test_a_find_that_always_raises_sends_nothing_again(box: Box) -> None:
    target = Full()
    target.faults["send"] = [LOST]
    target.always["find"] = Fault(ConnectionError("search is down"))
    record = await box.post(target)
    assert record.failure == "ConnectionError: search is down"
    assert target.texts() == ["hello"]
    target.always["find"] = Fault(KeyError("messages"))
    target.faults["send"] = [LOST]
    record = await box.post(target, name="q")
    assert record.failure == "KeyError: 'messages'"
    assert target.texts("q") == ["hello"]


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), ExceptionGroup("", [TimeoutError(), ConnectionError()])]
)
async def test_what_a_library_raises_by_itself_is_tried_again(
    box: Box, error: BaseException
) -> None:
    target = Full()
    target.faults["send"] = [Fault(error, arrives=True)]
    assert (await box.post(target)).ref == "ref-1"
    assert target.texts() == ["hello"]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
async def test_a_target_cannot_end_the_host(box: Box, error: BaseException) -> None:
    target = Full()
    target.faults["send"] = [Fault(error)]
    assert (await box.post(target)).failure == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("lost", [False, True])
async def test_cancelled_anywhere_it_is_visible_once_later(box: Box, lost: bool) -> None:
    """Whatever the moment, there is an intent without a receipt, or the receipt is true."""
    steps, done = 0, False
    while not done:
        name, target = f"p{steps}", Full()
        target.faults["send"] = [LOST] if lost else []
        task = box.begin(target, name=name)
        for _ in range(steps):
            await asyncio.sleep(0)
            box.clock.advance(0.2)
        done = task.done()
        task.cancel()
        await asyncio.wait([task])
        record = box.store.records.get(name)
        if record is not None and record.settled:
            assert target.posts[str(record.ref)].id == name
        box.restart()
        assert (await box.post(target, name=name)).ref == "ref-1"
        assert target.texts() == ["hello"]
        steps += 1
    assert steps > 6
    assert box.limiter._gates["token", "post"].free == 4


async def test_a_deleted_session_posts_no_more(box: Box) -> None:
    target = Full()
    target.always["send"] = Fault(ConnectionError("down"))
    task = box.begin(target)
    await box.clock.elapse(10)
    box.store.sessions.clear()
    calls = len(target.calls)
    with capture_logs() as logs:
        await box.clock.elapse(100)
    with pytest.raises(NotFound):
        await task
    assert len(target.calls) == calls
    assert "outbound.failed" not in {entry["event"] for entry in logs}
    with pytest.raises(NotFound):
        await box.post(target, name="q")


async def test_a_disk_that_fails_for_a_while_delays_the_post(box: Box) -> None:
    target = Full()
    full = StoreUnavailable("the disk is full")
    box.store.failures = [full, full, full]
    await box.post(target)
    assert target.texts() == ["hello"]
    target.on_call = lambda call: box.store.failures.append(full) if call == "after send" else None
    record = await box.post(target, name="q")
    assert box.store.records["q"] == record
    assert target.texts("q") == ["hello"]
    box.store.failures = [full] * 1000
    with pytest.raises(StoreUnavailable):
        await box.post(target, name="r")
    assert target.texts("r") == []


async def test_two_at_once_with_one_name_are_one(box: Box) -> None:
    target = Full()
    records = [box.begin(target, text) for text in ("one", "two", "two")]
    done = await asyncio.gather(*records)
    assert target.texts() == ["two"]
    assert target.calls == ["send", "edit"]
    assert {record.ref for record in done} == {"ref-1"}
    assert len(box.outbox._posting) == 0


class Odd(Full):
    """It says strange things."""

    def __init__(self, sent: Any = "ref-1", found: Any = None) -> None:
        super().__init__()
        self.sent = sent
        self.found = found

    async def send(self, post: Post) -> str:
        await super().send(post)
        return self.sent  # type: ignore[no-any-return]

    async def find(self, post: Post) -> str | None:
        return self.found  # type: ignore[no-any-return]


@pytest.mark.parametrize("sent", [None, "", True, b"x", {"id": 5}])
async def test_a_post_without_a_reference_is_there_nevertheless(box: Box, sent: Any) -> None:
    with capture_logs() as logs:
        record = await box.post(Odd(sent))
    assert (record.ref, record.failure) == ("p", None)
    assert [entry["event"] for entry in logs] == ["outbound.no_reference"]


async def test_numbers_are_references_too(box: Box) -> None:
    assert (await box.post(Odd(5))).ref == "5"
    target = Odd(found=7)
    target.faults["send"] = [LOST]
    assert (await box.post(target, name="q")).ref == "7"


async def test_a_find_that_returns_nonsense_is_an_error(box: Box) -> None:
    target = Odd(found=True)
    target.faults["send"] = [LOST]
    record = await box.post(target)
    assert record.failure == ("TypeError: find() returned bool; it returns a reference or None.")


async def test_any_text_can_be_posted(box: Box) -> None:
    target = Full()
    target.faults["send"] = [Fault(ValueError("\ud800 \x00"))]
    assert (await box.post(target, "\ud800")).failure == "ValueError: ? \x00"


# Progress


async def test_progress_is_left_out_when_it_would_wait(box: Box) -> None:
    target, shown = Full(), []

    async def call() -> None:
        shown.append(len(shown))

    assert await box.outbox.progress(target, call)
    box.limiter.pause("token", "post", 5)
    assert not await box.outbox.progress(target, call)
    assert shown == [0]


async def test_progress_that_fails_is_only_noted(box: Box) -> None:
    target = Full()
    errors: list[BaseException] = [
        ValueError("no"),
        SystemExit(1),
        asyncio.CancelledError(),
        TryAgain("busy", retry_after=9),
    ]
    for error in errors:

        async def call(error: BaseException = error) -> None:
            raise error

        with capture_logs() as logs:
            assert not await box.outbox.progress(target, call)
        assert [entry["event"] for entry in logs] == ["progress.left_out"]
    assert box.limiter.busy("token", "post")
    await box.clock.elapse(9)
    assert not box.limiter.busy("token", "post")


async def test_progress_that_hangs_is_cut_off_and_holds_up_no_final_post(box: Box) -> None:
    target = Full()
    hanging = [
        asyncio.create_task(box.outbox.progress(target, asyncio.Event().wait)) for _ in range(5)
    ]
    await box.post(target, seconds=0)
    assert target.texts() == ["hello"]
    await box.clock.elapse(10)
    assert [await task for task in hanging] == [False] * 5


async def test_progress_can_be_cancelled(box: Box) -> None:
    task = asyncio.create_task(box.outbox.progress(Full(), asyncio.Event().wait))
    await box.clock.elapse(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# What errors mean


def answered(status: int, **headers: str) -> aiohttp.ClientResponseError:
    return aiohttp.ClientResponseError(None, (), status=status, headers=headers)  # type: ignore[arg-type]


class WithResponse(Exception):
    """As httpx, requests and the Slack SDK have it."""

    def __init__(self, status: Any, headers: Any) -> None:
        super().__init__("answered")
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


@pytest.mark.parametrize(
    ("error", "retry_after", "sent"),
    [
        (TimeoutError(), None, None),
        (ConnectionResetError(), None, None),
        (ConnectionRefusedError(), None, False),
        (socket.gaierror(), None, False),
        (OSError("no buffer space"), None, None),
        (aiohttp.ServerDisconnectedError(), None, None),
        (aiohttp.ClientPayloadError(), None, None),
        # Its text cannot be had: it lacks what it is about.
        (aiohttp.ClientConnectorError(None, OSError(1, "x")), None, False),  # type: ignore[arg-type]
        (answered(503), None, None),
        (answered(429, **{"Retry-After": "2.5"}), 2.5, False),
        (WithResponse(502, {"retry-after": "4"}), 4.0, None),
        (WithResponse(500, None), None, None),
        (asyncio.CancelledError(), None, None),
        (ExceptionGroup("", [TimeoutError(), answered(429, **{"Retry-After": "3"})]), 3.0, None),
    ],
)
def test_what_may_pass(error: BaseException, retry_after: float | None, sent: bool | None) -> None:
    told = understood(error)
    assert isinstance(told, TryAgain)
    assert (told.retry_after, told.sent) == (retry_after, sent)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        PermissionError(),
        FileNotFoundError(),
        answered(403),
        WithResponse(404, {}),
        WithResponse("503", {}),
        SystemExit(),
        ExceptionGroup("", [TimeoutError(), ValueError()]),
    ],
)
def test_what_will_not_pass(error: BaseException) -> None:
    assert not isinstance(understood(error), TryAgain)


def test_the_errors_of_httpx() -> None:
    httpx = pytest.importorskip("httpx")
    request = httpx.Request("POST", "https://example.com")
    assert isinstance(understood(httpx.ReadTimeout("")), TryAgain)
    assert isinstance(understood(httpx.RemoteProtocolError("")), TryAgain)
    refused = understood(httpx.ConnectError(""))
    assert isinstance(refused, TryAgain)
    assert refused.sent is False
    assert not isinstance(understood(httpx.UnsupportedProtocol("")), TryAgain)
    response = httpx.Response(429, headers={"Retry-After": "8"}, request=request)
    with pytest.raises(httpx.HTTPStatusError) as raised:
        response.raise_for_status()
    told = understood(raised.value)
    assert isinstance(told, TryAgain)
    assert told.retry_after == 8


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "0"}, 0.0),
        ({"RETRY-AFTER": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "\u00b2"}, None),
        ({}, None),
        (
            {
                "Retry-After": "Wed, 01 Jan 2025 10:00:30 GMT",
                "Date": "Wed, 01 Jan 2025 10:00:00 GMT",
            },
            30.0,
        ),
        ({"Retry-After": "Wed, 01 Jan 2025 10:00:30 GMT"}, 0.0),
        ({"Retry-After": "Wed, 01 Jan 2025 10:00:30 GMT", "Date": "yesterday"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    with pytest.raises(TryAgain) as raised:
        TryAgain.when(503, headers)
    assert raised.value.retry_after == seconds


def test_only_some_answers_are_tried_again() -> None:
    for status in (200, 201, 304, 400, 401, 403, 404, 409, 410, 422, 501):
        TryAgain.when(status, {})
    for status in (408, 425, 429, 500, 502, 503, 504):
        with pytest.raises(TryAgain):
            TryAgain.when(status, {})


class Patient(Full):
    """Keeps its posts waiting for a day."""

    patience = 86_400.0


async def test_a_patient_target_waits_for_a_limit_of_an_hour(box: Box) -> None:
    target = Patient()
    limit = TryAgain("the limit is used up", retry_after=3_600, sent=False)
    target.faults["send"] = [Fault(limit), Fault(ConnectionError("down"))]
    task = box.begin(target)
    await box.clock.elapse(3_599)
    assert target.calls == ["send"]
    await box.clock.elapse(60)
    assert (await task).ref == "ref-1"
    assert target.texts() == ["hello"]


async def test_a_patient_target_is_given_up_as_well(box: Box) -> None:
    target = Patient()
    target.always["send"] = Fault(TryAgain("not now", retry_after=7_200, sent=False))
    record = await box.post(target, seconds=86_400)
    assert record.failure == "TryAgain: not now"
    assert len(target.calls) == 13


class Moving(Full):
    """A post that is changed is another one afterwards."""

    async def edit(self, ref: str, post: Post) -> str:
        await super().edit(ref, post)
        self.posts[f"{ref}+"] = self.posts.pop(ref)
        return f"{ref}+"


async def test_an_edit_may_give_another_reference(box: Box) -> None:
    target = Moving()
    await box.post(target)
    assert (await box.post(target, "better")).ref == "ref-1+"
    box.restart()
    assert (await box.post(target, "best")).ref == "ref-1++"
    assert target.texts() == ["best"]
    assert box.store.records["p"].ref == "ref-1++"
