"""The stream and the dump: replay, follow, resume, and readers that misbehave."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from tests.host.serving import Gate, Served, agent, serve, until

from threadline import Accepted, Channel
from threadline.channel.context import RouteContext
from threadline.harness.scripted import Scripted
from threadline.host import stream as streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from threadline.harness.base import Turn


@pytest.fixture
def gate() -> Gate:
    return Gate()


def tasks_channel() -> Channel:
    from tests.host.serving import by_header

    channel = Channel(auth=[by_header])

    @channel.post("/tasks")
    async def dispatch(ctx: RouteContext, body: str) -> Accepted:
        """Start a task."""
        return Accepted(await ctx.dispatch(body))

    return channel


@pytest.fixture
async def served(tmp_path: Path, gate: Gate) -> AsyncIterator[Served]:
    async with serve(tmp_path, agent(gate, channels={"tasks": tasks_channel()})) as running:
        yield running


class Reader:
    """A stream that is open; ``lines`` are those that hold an event."""

    def __init__(self, response: Any) -> None:
        self.response = response
        self.blank = 0
        self.events: list[dict[str, Any]] = []

    async def read(self, count: int) -> list[dict[str, Any]]:
        """Read on until so many events came in all."""
        while len(self.events) < count:
            line = await asyncio.wait_for(self.response.content.readline(), 10)
            assert line.endswith(b"\n"), "the stream ended"
            if line == b"\n":
                self.blank += 1
            else:
                self.events.append(json.loads(line))
        return self.events

    async def read_to(self, type_: str) -> list[dict[str, Any]]:
        """Read on until an event of a type."""
        while not self.events or self.events[-1]["type"] != type_:
            await self.read(len(self.events) + 1)
        return self.events

    async def end(self) -> None:
        """Read until the stream ends."""
        while line := await asyncio.wait_for(self.response.content.readline(), 10):
            if line != b"\n":
                self.events.append(json.loads(line))


class Opened:
    """Opens a stream and yields a reader of it."""

    def __init__(self, served: Served, session: str, query: str = "", **headers: str) -> None:
        path = f"{served.prefix}/v1/session/{session}/stream{query}"
        sent = {"x-user": "ann", **{k.replace("_", "-"): v for k, v in headers.items()}}
        self._request = served.client.get(served.host.local_url + path, headers=sent)

    async def __aenter__(self) -> Reader:
        return Reader(await self._request.__aenter__())

    async def __aexit__(self, *error: Any) -> None:
        await self._request.__aexit__(*error)


async def test_replay_then_follow(served: Served, gate: Gate) -> None:
    first = await served.start("one")
    stored = await served.rest(first["sessionId"])
    async with Opened(served, first["sessionId"]) as reader:
        assert await reader.read(len(stored)) == stored
        await served.follow_up(first, "work")
        await gate.held()
        await reader.read_to("actions.requested")
        gate.release()
        await reader.read(len(reader.events) + 1)
        await reader.read_to("session.waiting")
    assert reader.events == await served.events(first["sessionId"])
    assert [e["index"] for e in reader.events] == list(range(len(reader.events)))


async def test_headers_and_first_bytes(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    events = await served.events(first["sessionId"])
    query = f"?startIndex={len(events)}"
    async with Opened(served, first["sessionId"], query, accept_encoding="gzip") as reader:
        headers = reader.response.headers
        assert headers["content-type"] == "application/x-ndjson"
        assert "no-cache" in headers["cache-control"]
        assert headers["x-accel-buffering"] == "no"
        assert "content-length" not in headers
        assert "content-encoding" not in headers
        assert await asyncio.wait_for(reader.response.content.readline(), 5) == b"\n"
    gate.release()


async def test_heartbeats_are_sent_and_not_stored(
    served: Served, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.02)
    first = await served.start("work")
    await gate.held()
    async with Opened(served, first["sessionId"]) as reader:
        await reader.read_to("actions.requested")
        for _ in range(4):
            assert await reader.response.content.readline() == b"\n"
        gate.release()
        await reader.read_to("session.waiting")
    log = (served.state / "sessions" / first["sessionId"] / "events.ndjson").read_bytes()
    assert b"\n\n" not in log
    assert not log.startswith(b"\n")


async def test_a_bad_start_index(served: Served) -> None:
    first = await served.start()
    for start in ("-1", "x", "1.5", "1.0", "+1", "%201", "1e3", "", "٣", "0x1", "9" * 5000):
        for tail in ("stream?", "events?", "events?format=json&"):
            path = f"/v1/session/{first['sessionId']}/{tail}startIndex={start}"
            status, answer = await served.ask("GET", path)
            assert (status, answer["error"]) == (400, "invalid_request"), start


async def test_beyond_the_next_index(served: Served) -> None:
    first = await served.start()
    events = await served.rest(first["sessionId"])
    for tail in ("stream?", "events?", "events?format=json&"):
        path = f"/v1/session/{first['sessionId']}/{tail}startIndex="
        for beyond in (len(events) + 1, 10**12, 10**30):
            status, answer = await served.ask("GET", path + str(beyond))
            assert (status, answer["error"]) == (409, "index_out_of_range")
            assert answer["nextIndex"] == len(events)


async def test_the_next_index_itself_follows(served: Served) -> None:
    first = await served.start()
    events = await served.rest(first["sessionId"])
    async with Opened(served, first["sessionId"], f"?startIndex={len(events)}") as reader:
        await served.follow_up(first, "more")
        await reader.read_to("session.waiting")
    assert [e["index"] for e in reader.events] == list(
        range(len(events), len(events) + len(reader.events))
    )


async def test_a_tasks_stream_ends_with_it(served: Served, gate: Gate) -> None:
    status, answer = await served.ask("POST", "/v1/channels/tasks/tasks", "work")
    assert status == 202
    session = answer["sessionId"]
    async with Opened(served, session) as reader:
        await gate.held()
        gate.release()
        await reader.end()
    assert reader.events[-1]["type"] == "session.completed"
    count = len(reader.events)
    for start in (0, 3, count - 1, count):
        async with Opened(served, session, f"?startIndex={start}") as again:
            await again.end()
        assert again.events == reader.events[start:]
    status, refused = await served.follow_up(answer, "more")
    assert (status, refused["error"]) == (409, "task_session")


async def test_a_failed_tasks_stream_ends_too(served: Served) -> None:
    _, answer = await served.ask("POST", "/v1/channels/tasks/tasks", "fail")
    async with Opened(served, answer["sessionId"]) as reader:
        await reader.end()
    assert reader.events[-1]["type"] == "session.failed"
    assert "the model broke" in reader.events[-1]["data"]["error"]["message"]


async def test_resuming_has_no_gap_and_no_double(served: Served) -> None:
    first = await served.start("count 2000")
    session, chance = first["sessionId"], random.Random(7)
    got: list[dict[str, Any]] = []
    cuts = stuck = 0
    while not got or got[-1]["type"] != "session.waiting":
        # Deltas that wait are one event: how many there are depends on how fast they are read.
        size = chance.randrange(1, 1_000) << stuck
        more = await _cut_stream(served, session, len(got), size)
        stuck = 0 if more else stuck + 1
        got += more
        cuts += 1
    assert got == await served.events(session)
    assert [e["index"] for e in got] == list(range(len(got)))
    assert cuts > 5


async def test_a_cut_may_span_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path, agent()) as served:
        first = await served.start("count 100")
        await served.rest(first["sessionId"])
        got = await _cut_stream(served, first["sessionId"], 0, 900)
    async with serve(tmp_path, agent()) as served:
        assert (await served.follow_up(first, "more"))[0] == 200
        async with Opened(served, first["sessionId"], f"?startIndex={len(got)}") as reader:
            await reader.read_to("session.waiting")
            got += await reader.read_to("session.waiting")
        events = await served.rest(first["sessionId"], 2)
        assert [e["index"] for e in got] == list(range(len(got)))
        assert events[: len(got)] == got


async def _cut_stream(served: Served, session: str, start: int, size: int) -> list[dict[str, Any]]:
    """Read some bytes and hang up, in the middle of a line as a rule; return the whole events."""
    data = b""
    async with Opened(served, session, f"?startIndex={start}") as reader:
        async for chunk in reader.response.content.iter_any():
            data += chunk
            if len(data) >= size or (b'"session.waiting"' in data and data.endswith(b"\n")):
                break
        reader.response.close()
    lines = data[:size].split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line]


async def test_many_readers_at_different_places(served: Served) -> None:
    first = await served.start("count 3000")
    session = first["sessionId"]

    async def read(start: int) -> list[dict[str, Any]]:
        async with Opened(served, session, f"?startIndex={start}") as reader:
            return await reader.read_to("session.waiting")

    await until(lambda: (served.state / "sessions" / session / "events.ndjson").stat().st_size)
    starts = [0, 1, 2, 3] * 5
    found = await asyncio.gather(*(read(start) for start in starts))
    events = await served.events(session)
    for start, got in zip(starts, found, strict=True):
        assert got == events[start:]


async def test_server_sent_events(served: Served) -> None:
    first = await served.start("one")
    events = await served.rest(first["sessionId"])
    accept = "text/event-stream"
    async with Opened(served, first["sessionId"], accept=accept) as reader:
        assert reader.response.content_type == accept
        got = [await _sse(reader) for _ in events]
    assert got == [(e["index"], e) for e in events]
    resume = {"accept": accept, "last_event_id": "2"}
    async with Opened(served, first["sessionId"], "?startIndex=0", **resume) as reader:
        assert (await _sse(reader))[0] == 3
    path = f"/v1/session/{first['sessionId']}/stream"
    for last, expected in (("x", 400), ("²", 400), ("-1", 400), ("9" * 30, 400), ("9999", 409)):
        headers = {"accept": accept, "last-event-id": last}
        assert (await served.ask("GET", path, headers=headers))[0] == expected


async def _sse(reader: Reader) -> tuple[int, dict[str, Any]]:
    lines = [await reader.response.content.readline() for _ in range(3)]
    assert lines[2] == b"\n"
    return int(lines[0].removeprefix(b"id: ")), json.loads(lines[1].removeprefix(b"data: "))


async def test_the_dump(served: Served) -> None:
    first = await served.start("one")
    session = first["sessionId"]
    events = await served.rest(session)
    log = (served.state / "sessions" / session / "events.ndjson").read_text("utf-8")
    path = f"/v1/session/{session}/events"
    assert await served.ask("GET", path) == (200, log)
    lines = log.splitlines(keepends=True)
    assert await served.ask("GET", f"{path}?startIndex=2&limit=3") == (200, "".join(lines[2:5]))
    assert await served.ask("GET", f"{path}?startIndex={len(events)}") == (200, "")
    status, body = await served.ask("GET", f"{path}?format=json&startIndex=2&limit=3")
    assert status == 200
    assert body == {
        "sessionId": session,
        "events": events[2:5],
        "playgroundUrl": first["playgroundUrl"],
    }
    for wrong in ("limit=0", "limit=x", "limit=-3", "format=xml"):
        assert (await served.ask("GET", f"{path}?{wrong}"))[0] == 400


async def test_separators_round_trip_exactly(served: Served) -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\r\nh\ri\ufeff 🙂 \U0010ffff \x7f"
    first = await served.start(text)
    session = first["sessionId"]
    events = await served.rest(session)
    assert events[1]["data"]["text"] == text
    log = (served.state / "sessions" / session / "events.ndjson").read_bytes()
    assert [json.loads(line) for line in log.split(b"\n")[:-1]] == events
    async with Opened(served, session) as reader:
        assert await reader.read(len(events)) == events
    for separator in ("\u2028", "\u2029", "\u0085"):
        assert separator.encode() not in log


async def test_a_client_that_hangs_up_leaves_nothing_behind(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    readers = [Opened(served, first["sessionId"]) for _ in range(5)]
    opened = [await one.__aenter__() for one in readers]
    for reader in opened:
        await reader.read_to("actions.requested")
    head = served.runtime.store._heads[first["sessionId"]]
    await until(lambda: len(head.waiters) == 5)
    for reader in opened:
        reader.response.close()
    await until(lambda: not head.waiters)
    gate.release()
    await served.rest(first["sessionId"])


async def big(turn: Turn) -> str:
    """Write 16 MB of events."""
    for number in range(400):
        turn.message_delta(f"{turn.id}.{number}", "x" * 40_000)
        await asyncio.sleep(0)
    return "done"


async def test_a_stalled_reader_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.3)
    written: list[int] = []
    real = streams._Writer._send

    async def counted(self: Any, data: bytes) -> None:
        written.append(len(data))
        await real(self, data)

    monkeypatch.setattr(streams._Writer, "_send", counted)
    aborted: list[Any] = []
    abort = streams._abort
    monkeypatch.setattr(streams, "_abort", lambda request: aborted.append(abort(request)))
    async with serve(tmp_path, agent(harness=Scripted(big))) as served:
        first = await served.start()
        session = first["sessionId"]
        sockets = [_stalled(served, session) for _ in range(3)]
        async with Opened(served, session) as reader:
            await reader.read_to("session.waiting")
        await until(lambda: len(aborted) == 3)
        for stalled in sockets:
            await asyncio.to_thread(_drain, stalled)
        size = served.runtime.store.size(session)
        # The reader took it all; each stalled one what the sockets hold, and one chunk.
        assert size > 16_000_000
        assert sum(written) < size + 3 * 8_000_000
        got = await _cut_stream(served, session, 400, 1 << 30)
        assert got[-1]["type"] == "session.waiting"


def _stalled(served: Served, session: str) -> socket.socket:
    """Ask for a stream and never read it."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect(("127.0.0.1", served.host.port))
    path = f"{served.prefix}/v1/session/{session}/stream"
    plain.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nx-user: ann\r\n\r\n".encode())
    return plain


def _drain(stalled: socket.socket) -> None:
    """Read to the end, or to the reset that says the host has given up."""
    stalled.settimeout(10)
    try:
        while stalled.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    finally:
        stalled.close()


async def test_an_event_on_its_way_is_not_sent_twice(served: Served) -> None:
    lines = b"".join(
        orjson.dumps({"type": "step.started", "index": index}) + b"\n" for index in range(5)
    )
    assert streams._from_index(lines, 3).count(b"\n") == 2
    assert streams._from_index(lines, 9) == b""
    assert streams._from_index(b"\x00\x00\n" + lines, 0) == lines
