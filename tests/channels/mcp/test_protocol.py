"""What comes over the wire: methods, hosts, bodies, streams, and what a broken store says."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.channels.mcp.talking import MODERN, VERSIONS, connected, cut, raw
from tests.channels.mcp.talking import request as message
from tests.host.serving import Gate, Served, agent, serve, until

import threadline_mcp.exchange
from threadline.auth import anonymous
from threadline.harness.scripted import Say, Scripted
from threadline.testing import TestHost

if TYPE_CHECKING:
    from pathlib import Path

PATHS = ("/v1/mcp", "/v1/mcp/tools")
ASK = {"name": "ask", "arguments": {"message": "hello"}}
WORK = {"name": "ask", "arguments": {"message": "work"}}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
async def test_only_post_is_taken(served: Served, path: str, method: str) -> None:
    url = served.host.local_url + served.prefix + path
    async with served.client.request(method, url, headers={"x-user": "ann"}) as answer:
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"


@pytest.mark.parametrize("path", PATHS)
async def test_who_is_not_admitted_learns_nothing_else(served: Served, path: str) -> None:
    away = {"x-forwarded-for": "203.0.113.9"}
    for body in (None, b"{", b"x" * 100):
        for more in ({}, {"host": "evil.example"}, {"accept": "text/html"}):
            answer = await raw(
                served, "ping", path=path, user=None, body=body, headers={**away, **more}
            )
            assert answer.status == 401
            assert answer.last["error"] == "unauthorized"


@pytest.mark.parametrize("path", PATHS)
async def test_other_names_for_the_host_are_refused(tmp_path: Path, path: str) -> None:
    """A website that points its own name at this machine reaches nothing."""
    public = "https://agents.example.com"
    async with serve(tmp_path, agent(), allow_anonymous=True, public_url=public) as served:
        port = served.host.port
        for host, origin, status in (
            (f"127.0.0.1:{port}", None, 200),
            (f"localhost:{port}", f"http://localhost:{port}", 200),
            (f"localhost:{port}", "http://localhost:6274", 200),
            ("agents.example.com", None, 200),
            ("agents.example.com:443", "https://agents.example.com", 200),
            ("evil.example", None, 421),
            (f"evil.example:{port}", f"http://evil.example:{port}", 421),
            ("agents.example.com.evil.example", None, 421),
            ("127.0.0.1.evil.example:80", None, 421),
            (f"127.0.0.1:{port}", "http://evil.example", 403),
            (f"127.0.0.1:{port}", "null", 403),
        ):
            headers = {"host": host} | ({"origin": origin} if origin else {})
            for version in VERSIONS:
                answer = await raw(
                    served, "tools/list", path=path, headers=headers, version=version
                )
                assert answer.status == status, (host, origin, version, answer.text)
                assert answer.last["jsonrpc"] == "2.0"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"1e999",
        b'{"a": "\xff\xfe"}',
        b"[" * 100_000,
        bytes(range(256)),
        b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
        b'{"jsonrpc": "2.0", "id": 1, "method": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", '
        b'"arguments": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}',
        b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "no/such"}',
    ],
)
async def test_a_bad_message_is_an_error_of_json_rpc(
    served: Served, version: str, body: bytes
) -> None:
    answer = await raw(served, "ping", body=body, version=version)
    assert answer.status < 500
    assert answer.kind == "application/json"
    assert answer.last["jsonrpc"] == "2.0"
    assert answer.last["error"]["message"]
    assert isinstance(answer.last["error"]["code"], int)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"accept": "text/html"}, 406),
        ({"content-type": "text/plain"}, 400),
        ({"mcp-protocol-version": "2099-01-01"}, 400),
        ({"mcp-protocol-version": "nonsense"}, 400),
        ({"accept": "application/json"}, 200),
        ({"accept": "*/*"}, 200),
    ],
)
async def test_headers_are_held_to_the_protocol(
    served: Served, headers: dict[str, str], status: int
) -> None:
    answer = await raw(served, "tools/list", headers=headers)
    assert answer.status == status
    assert ("error" in answer.last) == (status != 200)


async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(), max_body=5_000_000) as served:
        big = {"name": "ask", "arguments": {"message": "x" * 4_500_000, "waitSeconds": 0}}
        assert (await raw(served, "tools/call", big)).status == 200
        bigger = {"name": "ask", "arguments": {"message": "x" * 5_500_000}}
        answer = await raw(served, "tools/call", bigger)
        assert (answer.status, answer.last["error"]) == (413, "body_too_large")


# Progress


@pytest.mark.parametrize("version", VERSIONS)
async def test_progress_is_told_to_who_asks_for_it(
    served: Served, gate: Gate, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    progress = threadline_mcp.exchange.Exchange.progress

    async def watched(exchange: Any, sentence: str) -> None:
        await progress(exchange, sentence)
        sent.append(sentence)

    monkeypatch.setattr(threadline_mcp.exchange.Exchange, "progress", watched)
    params = {**WORK, "_meta": {"progressToken": "p-1"}}
    task = asyncio.create_task(raw(served, "tools/call", params, version=version))
    await until(lambda: "Calling work." in sent)
    await gate.held()
    gate.release()
    answer = await task
    assert (answer.status, answer.kind) == (200, "text/event-stream")
    *told, last = answer.messages
    assert [m["method"] for m in told] == ["notifications/progress"] * len(told)
    assert [m["params"]["progressToken"] for m in told] == ["p-1"] * len(told)
    assert [m["params"]["progress"] for m in told] == list(range(1, len(told) + 1))
    assert [m["params"]["message"] for m in told] == ["The agent has begun.", "Calling work."]
    assert last["id"] == 1
    assert last["result"]["structuredContent"]["reply"] == "work"


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_does_not_ask_gets_one_json_body(served: Served, version: str) -> None:
    answer = await raw(served, "tools/call", ASK, version=version)
    assert answer.kind == "application/json"
    params = {**ASK, "_meta": {"progressToken": 1}}
    only_json = {"accept": "application/json"}
    answer = await raw(served, "tools/call", params, version=version, headers=only_json)
    assert answer.kind == "application/json"


async def test_progress_is_of_this_message_alone(served: Served) -> None:
    first = (await raw(served, "tools/call", ASK)).last["result"]["structuredContent"]
    more = {"message": "again", "continuationToken": first["continuationToken"]}
    params = {"name": "ask", "arguments": more, "_meta": {"progressToken": 1}}
    answer = await raw(served, "tools/call", params)
    told = [m["params"]["message"] for m in answer.messages[:-1]]
    assert told in (["The agent has begun."], [])  # A quick turn may be over before it is told.


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_client_hears_of_progress(served: Served, gate: Gate, mode: str) -> None:
    heard: list[Any] = []

    async def hear(progress: float, total: float | None, said: str | None) -> None:
        heard.append((progress, said))

    async with connected(served, mode=mode) as client:
        asking = client.call_tool("ask", {"message": "work"}, progress_callback=hear)
        task = asyncio.create_task(asking)
        await until(lambda: (2.0, "Calling work.") in heard)
        await gate.held()
        gate.release()
        assert (await task).structured_content["reply"] == "work"
    assert heard[0] == (1.0, "The agent has begun.")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_silent_wait_keeps_the_connection_alive(
    served: Served, gate: Gate, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threadline_mcp.exchange, "PING_SECONDS", 0.01)
    body, headers = message("tools/call", WORK, version=version)
    url = served.host.local_url + served.prefix + "/v1/mcp"
    headers["x-user"] = "ann"
    async with served.client.post(url, json=body, headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        assert await answer.content.readline() == b": ping\n"
        await gate.held()
        gate.release()
        text = await answer.text()
    last = [line for line in text.splitlines() if line.startswith("data: ")][-1]
    assert json.loads(last[6:])["result"]["structuredContent"]["reply"] == "work"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_that_leaves_a_stream_leaves_nothing_behind(
    served: Served, gate: Gate, version: str
) -> None:
    params = {**WORK, "_meta": {"progressToken": 1}}
    async with aiohttp.ClientSession() as client:
        calling = raw(served, "tools/call", params, version=version, client=client)
        task = asyncio.create_task(calling)
        await gate.held()
        await cut(task)
    assert gate.waiting == 1
    gate.release()
    sessions = (await served.ask("GET", "/v1/sessions"))[1]["sessions"]
    await served.rest(sessions[0]["sessionId"])
    await until(lambda: not served.host.work.tasks)


# Faults


async def test_what_cannot_be_stored_is_refused_with_503(tmp_path: Path) -> None:
    one = agent(auth=[anonymous()], harness=Scripted([Say("hi")]))
    async with TestHost(one, root=tmp_path) as host:
        body, headers = message("tools/call", ASK)
        assert (await host.post("/v1/mcp", json=body, headers=headers)).status == 200
        host.disk.full = True
        answer = await host.post("/v1/mcp", json=body, headers=headers)
        host.disk.full = False
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        assert answer.json()["error"]["data"] == {"error": "store_unavailable"}
        assert answer.json()["id"] == 1


async def test_an_error_of_ours_shows_only_an_id(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret")

    monkeypatch.setattr(served.runtime.core, "call_tool", broken)
    params = {"name": "call_tool", "arguments": {"name": "double"}}
    answer = await raw(served, "tools/call", params)
    assert answer.last["result"]["isError"] is True
    assert "err_" in answer.text
    assert "secret" not in answer.text
    monkeypatch.setattr("threadline_mcp.server._security", lambda ctx: 1 / 0)
    answer = await raw(served, "tools/call", params)
    assert (answer.status, answer.last["error"]["code"]) == (500, -32603)
    assert "err_" in answer.text
    assert "zero" not in answer.text


async def test_many_at_once(served: Served) -> None:
    params = {"name": "double", "arguments": {"number": 3}}
    calls = (raw(served, "tools/call", params, path=PATHS[1], id=n) for n in range(100))
    answers = await asyncio.gather(*calls)
    assert [a.last["id"] for a in answers] == list(range(100))
    assert {json.dumps(a.last["result"]["structuredContent"]) for a in answers} == {
        '{"doubled": 6}'
    }


async def test_the_version_that_is_not_named_is_an_early_one(served: Served) -> None:
    body, headers = message("tools/list", version="2025-06-18")
    del headers["mcp-protocol-version"]
    url = served.host.local_url + served.prefix + "/v1/mcp"
    async with served.client.post(url, json=body, headers={**headers, "x-user": "ann"}) as answer:
        assert answer.status == 200
        assert len((await answer.json())["result"]["tools"]) == 3


async def test_the_newest_version_is_offered(served: Served) -> None:
    answer = await raw(served, "server/discover")
    assert answer.last["result"]["supportedVersions"] == [MODERN]
    assert "tools" in answer.last["result"]["capabilities"]
