"""The agent's own routes and the host's: tools, deliveries, blobs, logs, pages, health."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from tests.host.serving import Gate, Served, agent, serve, until

from threadline import tool
from threadline.host.logs import LogBook, configure
from threadline.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture(params=["multi", "single"])
async def served(
    request: pytest.FixtureRequest, tmp_path: Path, gate: Gate
) -> AsyncIterator[Served]:
    async with serve(tmp_path, agent(gate), mode=request.param) as running:
        yield running


# Tools


async def test_tools_are_listed(served: Served) -> None:
    status, answer = await served.ask("GET", "/v1/tools")
    assert status == 200
    assert answer["connectionErrors"] == {}
    names = [tool["name"] for tool in answer["tools"]]
    assert {"broken", "double", "note", "work"} <= set(names)
    first = await served.start()
    by_session = f"/v1/tools?session={first['sessionId']}"
    assert (await served.ask("GET", by_session))[1] == answer
    by_token = f"/v1/tools?continuationToken={first['continuationToken']}"
    assert (await served.ask("GET", by_token))[1] == answer


async def test_one_tool_is_described(served: Served) -> None:
    status, answer = await served.ask("GET", "/v1/tools/double")
    assert status == 200
    assert answer["name"] == "double"
    assert answer["effect"] == "read"
    assert "number" in json.dumps(answer)
    for method, body in (("GET", None), ("POST", {"input": {}})):
        status, answer = await served.ask(method, "/v1/tools/dubble", body)
        assert (status, answer["error"]) == (404, "not_found")
        assert {"broken", "double", "note", "work"} <= set(answer["available"])


async def test_a_direct_call(served: Served) -> None:
    status, answer = await served.ask("POST", "/v1/tools/double", {"input": {"number": 4}})
    assert status == 200
    assert answer == {
        "ok": True,
        "isError": False,
        "result": {"doubled": 8},
        "callId": answer["callId"],
        "toolName": "double",
    }


@pytest.mark.parametrize("value", [{}, {"number": "x"}, {"number": 1, "more": 2}, [], "x", None])
async def test_a_direct_calls_input_is_checked(served: Served, value: Any) -> None:
    status, answer = await served.ask("POST", "/v1/tools/double", {"input": value})
    assert (status, answer["ok"], answer["error"]) == (400, False, "invalid_input")
    assert "double" in answer["message"]


async def test_a_direct_calls_body_is_checked(served: Served) -> None:
    wrong: list[Any] = [{"inputs": {}}, {"input": {}, "sessionId": 5}, {"dryRun": "x"}, []]
    for body in wrong:
        status, answer = await served.ask("POST", "/v1/tools/double", body)
        assert (status, answer["error"]) == (400, "invalid_request")
    for as_of in ("yesterday", "2025-01-01", "2025-01-01T00:00:00", "9999-01-01T00:00:00Z", ""):
        body = {"input": {"number": 1}, "asOf": as_of}
        status, answer = await served.ask("POST", "/v1/tools/double", body)
        assert (status, answer["error"]) == (400, "invalid_request")


async def test_a_tool_that_fails_says_so(served: Served) -> None:
    status, answer = await served.ask("POST", "/v1/tools/broken", {})
    assert (status, answer["ok"], answer["isError"]) == (200, False, True)
    assert answer["error"] == "tool_failed"
    assert answer["message"] == 'Tool "broken" failed: no luck'


async def test_a_bound_call_takes_the_sessions_lock(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    bound = {"input": {"number": 2}, "sessionId": first["sessionId"]}
    status, answer = await served.ask("POST", "/v1/tools/double", bound)
    assert (status, answer["error"]) == (409, "session_busy")
    assert (await served.ask("POST", "/v1/tools/double", {"input": {"number": 2}}))[0] == 200
    gate.release()
    await served.rest(first["sessionId"])

    token = {"input": {"text": "hi"}, "continuationToken": first["continuationToken"]}
    status, answer = await served.ask("POST", "/v1/tools/note", token)
    assert status == 200
    workspace = served.state / "sessions" / first["sessionId"] / "workspace"
    assert answer["result"] == str(workspace)
    assert (workspace / "note.txt").read_text() == "hi"
    both = {**token, "sessionId": first["sessionId"]}
    assert (await served.ask("POST", "/v1/tools/note", both))[0] == 200
    other = await served.start()
    mixed = {**token, "sessionId": other["sessionId"]}
    assert (await served.ask("POST", "/v1/tools/note", mixed))[1]["error"] == "stale_token"


async def test_a_message_waits_for_a_bound_call(served: Served, gate: Gate) -> None:
    first = await served.start("hi")
    await served.rest(first["sessionId"])
    bound = {"sessionId": first["sessionId"]}
    call = asyncio.create_task(served.ask("POST", "/v1/tools/work", bound))
    await gate.held()
    status, second = await served.follow_up(first, "next")
    assert (status, second["admitted"]) == (200, "queued")
    gate.release()
    assert (await call)[1]["result"] == "worked"
    await served.rest(first["sessionId"], 2)


async def test_a_workspace_that_cannot_be_made(served: Served) -> None:
    (served.state / "tool-calls").write_text("in the way")
    status, answer = await served.ask("POST", "/v1/tools/note", {"input": {"text": "hi"}})
    assert (status, answer["error"]) == (500, "workspace_unavailable")
    assert (await served.ask("POST", "/v1/tools/double", {"input": {"number": 1}}))[0] == 200


# Deliveries and blobs


async def test_a_deliverys_state_moves_at_once(served: Served, gate: Gate) -> None:
    first = await served.start("work", deliveryId="one")
    await gate.held()
    status, one = await served.ask("GET", "/v1/deliveries/one")
    assert status == 200
    assert one == {
        "deliveryId": "one",
        "sessionId": first["sessionId"],
        "channel": "http",
        "state": "prompted",
        "admission": "preempt",
        "at": one["at"],
        "eventIndex": 1,
        "turnId": one["turnId"],
        "outbound": [],
    }
    await served.follow_up(first, "two", admission="coalesce", deliveryId="two words/é")
    path = "/v1/deliveries/two%20words%2F%C3%A9"
    assert (await served.ask("GET", path))[1]["state"] == "accepted"
    gate.release()
    await served.rest(first["sessionId"])
    two = (await served.ask("GET", path))[1]
    events = await served.events(first["sessionId"])
    assert (two["state"], two["turnId"]) == ("steered", one["turnId"])
    assert events[two["eventIndex"]]["type"] == "nudge.delivered"


async def test_a_deleted_sessions_delivery_is_cleared(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    await served.follow_up(first, "two", admission="coalesce", deliveryId="two")
    await served.ask("DELETE", f"/v1/session/{first['sessionId']}")
    status, two = await served.ask("GET", "/v1/deliveries/two")
    assert (status, two["state"]) == (200, "cleared")
    assert (await served.ask("GET", "/v1/deliveries/two", user="bob"))[0] == 404
    gate.release()


async def test_a_large_output_is_a_blob(tmp_path: Path) -> None:
    @tool(effect="read")
    async def work() -> list[str]:
        """Return much."""
        return ["é" * 1000] * 10

    made = agent(blob_threshold=1000)
    object.__setattr__(made, "tools", [work])
    async with serve(tmp_path, made) as served:
        first = await served.start("work")
        events = await served.rest(first["sessionId"])
        result = next(e["data"] for e in events if e["type"] == "action.result")
        path = f"/v1/session/{first['sessionId']}/blobs/{result['truncated']['blobId']}"
        status, blob = await served.ask("GET", path)
        assert (status, blob) == (200, ["é" * 1000] * 10)
        assert result["truncated"]["size"] == len(json.dumps(blob, ensure_ascii=False).encode()) - 9
        for wrong in ("blob_x", "..", "blob_..", "session.json", "blob_" + "0" * 24):
            wrong_path = f"/v1/session/{first['sessionId']}/blobs/{wrong}"
            assert (await served.ask("GET", wrong_path))[0] == 404


# Discovery and logs


async def test_info_says_what_discovery_found(served: Served) -> None:
    status, info = await served.ask("GET", "/v1/info")
    assert status == 200
    assert info["name"] == "Tester"
    assert info["slug"] == "bot"
    assert info["version"] == VERSION
    assert (info["harness"], info["model"]) == ("scripted", "scripted")
    assert [channel["id"] for channel in info["channels"]] == ["http", "mcp", "mcp-tools"]
    listed = [route for channel in info["channels"] for route in channel["routes"]]
    routes = {(route["method"], route["path"]) for route in listed}
    assert {("POST", "/v1/session"), ("POST", "/v1/mcp"), ("POST", "/v1/mcp/tools")} <= routes
    assert all(route["description"] for route in listed)
    assert info["diagnostics"] == []


@pytest.fixture
def book() -> Iterator[LogBook]:
    book = LogBook()
    before = structlog.get_config()
    configure(book)
    yield book
    structlog.configure(**before)
    import logging

    logging.getLogger().handlers = []


async def test_logs_show_no_lines_of_anothers(tmp_path: Path, book: LogBook) -> None:
    async with serve(tmp_path, agent(), book=book) as served:
        first = await served.start(user="ann")
        session = first["sessionId"]
        log = structlog.get_logger("threadline.test")
        log.warning("about a session", session=session)
        log.warning("about a task", task=f"handlers {session}")
        log.warning("about another agent", agent="other")
        log.warning("about a caller", principal="user:ann")
        log.warning("about nobody", odd=object(), text="\udcff")

        async def events(user: str, after: int = 0) -> tuple[list[str], int]:
            status, body = await served.ask("GET", f"/v1/logs?after={after}", user=user)
            assert status == 200
            return [line["event"] for line in body["logs"]], body["next"]

        everything = ["about a session", "about a task", "about a caller", "about nobody"]
        assert (await events("ann"))[0] == everything
        assert (await events("bob"))[0] == ["about nobody"]
        seen, cursor = await events("root")
        assert seen == everything
        assert await events("root", cursor) == ([], cursor)
        log.warning("news")
        assert (await events("root", cursor))[0] == ["news"]
        for wrong in ("-1", "x"):
            assert (await served.ask("GET", f"/v1/logs?after={wrong}"))[0] == 400


async def test_secrets_are_masked_in_logs(tmp_path: Path, book: LogBook) -> None:
    secret: dict[str, Any] = {"bearer_token": "a-long-secret", "book": book}
    async with serve(tmp_path, agent(auth=None), **secret) as served:
        structlog.get_logger("x").error("failed", error="sent a-long-secret there")
        headers = {"authorization": "Bearer a-long-secret"}
        _, body = await served.ask("GET", "/v1/logs", headers=headers)
        assert body["logs"][-1]["error"] == "sent [masked] there"


def test_the_book_never_raises() -> None:
    book = LogBook(kept=2)
    loop: list[Any] = []
    loop.append(loop)

    class Rude:
        def __str__(self) -> str:
            raise ValueError

    for value in (loop, Rude(), float("nan"), "\ud800", {1: b"x"}):
        book(None, "info", {"event": "e", "value": value})
    records, cursor = book.after(0, lambda _: True)
    assert [record["n"] for record in records] == [4, 5]
    assert cursor == 5


# The host


async def test_agents_are_listed_without_auth(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(auth=[]), agent(description="Second")) as served:
        url = served.host.local_url
        async with served.client.get(f"{url}/v1/agents") as response:
            agents = (await response.json())["agents"]
        assert agents == [
            {"slug": "bot", "name": "Tester", "description": None, "url": f"{url}/bot"},
            {"slug": "bot1", "name": "Tester", "description": "Second", "url": f"{url}/bot1"},
        ]
        async with served.client.get(f"{url}/") as response:
            page = await response.text()
        assert "/bot1/playground" in page
    async with serve(tmp_path / "s", agent(), mode="single") as served:
        assert (await served.ask("GET", "/v1/agents"))[0] == 404


async def test_health_and_readiness(served: Served) -> None:
    url = served.host.local_url
    for path in ("/healthz", "/readyz"):
        async with served.client.get(url + path) as response:
            assert (response.status, await response.json()) == (200, {"ok": True})
        async with served.client.head(url + path) as response:
            assert response.status == 200
    await served.host.drain(0.0)
    async with served.client.get(url + "/healthz") as response:
        assert response.status == 200
    async with served.client.get(url + "/readyz") as response:
        assert (response.status, (await response.json())["error"]) == (503, "draining")


async def test_metrics_stand_behind_the_command_lines_auth(tmp_path: Path) -> None:
    proxied = {"x-forwarded-for": "192.0.2.1"}
    async with serve(tmp_path, agent()) as served:
        first = await served.start()
        await served.rest(first["sessionId"])
        url = served.host.local_url + "/metrics"
        async with served.client.get(url) as response:
            assert response.content_type == "text/plain"
            text = await response.text()
        assert 'threadline_deliveries_total{agent="bot",answer="accepted"} 1.0' in text
        assert 'threadline_turns_total{agent="bot",status="completed"} 1.0' in text
        async with served.client.get(url, headers=proxied) as response:
            assert response.status == 401
    async with serve(tmp_path / "t", agent(), bearer_token="tok") as served:
        url = served.host.local_url + "/metrics"
        for headers, expected in (({}, 401), ({"authorization": "Bearer tok"}, 200)):
            async with served.client.get(url, headers=headers | proxied) as response:
                assert response.status == expected
    async with (
        serve(tmp_path / "a", agent(), allow_anonymous=True) as served,
        served.client.get(served.host.local_url + "/metrics", headers=proxied) as got,
    ):
        assert got.status == 200


async def test_the_playground_is_served_safely(served: Served) -> None:
    base = served.host.local_url + served.prefix
    kinds = {
        "playground": "text/html",
        "playground/assets/playground.js": "text/javascript",
        "playground/assets/playground.css": "text/css",
        "playground/assets/icon.svg": "image/svg+xml",
    }
    for path, kind in kinds.items():
        async with served.client.get(f"{base}/{path}") as response:
            assert response.status == 200
            assert response.content_type == kind
            assert response.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'self'" in response.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    for name in ("nothing.js", "..%2fpages.py", "%2e%2e", "playground", ".js", "%00.js"):
        async with served.client.get(f"{base}/playground/assets/{name}") as response:
            assert response.status == 404


async def test_pages_can_be_left_out(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(), playground=False, docs=False) as served:
        url = served.host.local_url
        for path in ("/", "/bot/playground", "/bot/playground/assets/playground.js", "/docs"):
            async with served.client.get(url + path) as response:
                assert response.status == 404
                assert (await response.json())["error"] == "not_found"
        assert (await served.ask("GET", "/v1/sessions"))[0] == 200


async def test_the_documentation(served: Served) -> None:
    url = served.host.local_url
    for path in ("/docs", "/docs/", "/docs/http-api", "/docs/http-api.md"):
        async with served.client.get(url + path) as response:
            assert (response.status, response.content_type) == (200, "text/html")
            page = await response.text()
            assert "<h1>" in page
            assert '.md"' not in page
    for path in ("/docs/nothing", "/docs/../README", "/docs/%2e%2e/README", "/docs//etc/passwd"):
        async with served.client.get(url + path) as response:
            assert response.status == 404


async def test_addresses_never_come_from_a_foreign_host(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(), public_url="https://agents.example/x/") as served:
        status, answer = await served.ask(
            "POST",
            "/v1/session",
            {"message": "hi"},
            headers={"host": "evil.example", "x-forwarded-host": "evil.example"},
        )
        assert status == 200
        base = "https://agents.example/x/bot"
        assert answer["playgroundUrl"] == f"{base}/playground?sessionId={answer['sessionId']}"
        assert answer["traceUrl"] == f"{base}/v1/session/{answer['sessionId']}/events"
    async with serve(tmp_path / "2", agent()) as served:
        headers = {"host": "evil.example"}
        _, answer = await served.ask("POST", "/v1/session", {"message": "hi"}, headers=headers)
        assert answer["playgroundUrl"].startswith(f"http://127.0.0.1:{served.host.port}/bot/")


# The end


async def test_a_drain_ends_streams_and_refuses_new_work(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    base = served.host.local_url + served.prefix
    url = f"{base}/v1/session/{first['sessionId']}/stream"
    headers = {"x-user": "ann"}
    ended: list[bytes] = []

    async def read() -> None:
        async with served.client.get(url, headers=headers) as response:
            ended.append(await response.read())

    readers = [asyncio.create_task(read()) for _ in range(5)]
    head = served.runtime.store._heads[first["sessionId"]]
    await until(lambda: len(head.waiters) == 5)
    draining = asyncio.create_task(served.host.drain(2.0))
    await asyncio.wait_for(asyncio.gather(*readers), 1.0)
    assert len({body.replace(b"\n\n", b"\n") for body in ended}) == 1
    assert not draining.done()
    for method, path, body in (
        ("POST", "/v1/session", {"message": "hi"}),
        ("GET", f"/v1/session/{first['sessionId']}/stream", None),
        ("POST", "/v1/tools/double", {"input": {"number": 1}}),
    ):
        status, answer = await served.ask(method, path, body)
        assert (status, answer["error"]) == (503, "draining")
    assert (await served.follow_up(first, "x"))[0] == 503
    assert (await served.ask("GET", "/v1/sessions"))[0] == 200
    gate.release()
    await draining
    events = await served.events(first["sessionId"])
    assert events[-2]["type"] == "turn.completed"


async def test_a_turn_that_outlasts_the_drain_goes_on_after_the_restart(
    tmp_path: Path, gate: Gate
) -> None:
    async with serve(tmp_path, agent(gate)) as served:
        first = await served.start("work")
        await gate.held()
        await served.host.drain(0.05)
        events = await served.events(first["sessionId"])
        failed = next(e["data"] for e in events if e["type"] == "turn.failed")
        assert (failed["status"], failed["code"]) == ("interrupted", "host_shutdown")
    async with serve(tmp_path, agent(gate)) as served:
        await gate.held()
        gate.release()
        events = await served.rest(first["sessionId"], 2)
        assert events[: len(events)][-2]["type"] == "turn.completed"
        assert sum(e["type"] == "message.received" for e in events) == 1


async def test_after_the_end_everything_is_503(served: Served) -> None:
    await served.host.stop(0.0)
    for path in ("/v1/sessions", "/v1/info", "/v1/session/ses_x/events"):
        status, answer = await served.ask("GET", path)
        assert (status, answer["error"]) == (503, "draining")
