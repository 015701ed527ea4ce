"""A channel's routes: what a handler is given, what it may answer, and how it may fail."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import BaseModel, Field
from tests.host.serving import Served, agent, by_header, serve, until

from threadline import Accepted, Channel, Reply
from threadline.channel.context import RouteContext
from threadline.errors import Conflict, ProjectError
from threadline.host import endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NONSENSE: dict[str, Any] = {
    "a number": 5,
    "a string": "text",
    "a tuple": (1, 2),
    "an object": object(),
    "an object within": {"a": object()},
    "a surrogate": {"a": "\ud800"},
    "bytes within": {"a": b"x"},
    "a class": dict,
    "a status too low": Reply(status=7),
    "a status too high": Reply(status=1000),
    "a header with a line": Reply({}, headers={"x-a": "b\r\nSet-Cookie: c=d"}),
    "a header name with a space": Reply({}, headers={"x a": "b"}),
    "itself": [],
}
NONSENSE["itself"].append(NONSENSE["itself"])
ERRORS: list[BaseException] = [
    ValueError("secret detail"),
    KeyError("secret"),
    ConnectionRefusedError("secret upstream"),
    TimeoutError("secret"),
    asyncio.CancelledError(),
    SystemExit(3),
    KeyboardInterrupt(),
    RecursionError(),
    MemoryError(),
    ExceptionGroup("secret", [ValueError("secret")]),
]


class Filter(BaseModel):
    tag: str
    limit: int = Field(default=10, ge=1)


class Item(BaseModel):
    name: str
    price: Decimal = Decimal("1.50")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    channel = Channel(auth=[by_header])
    started: list[str] = []

    @channel.get("/nonsense/{which}")
    async def nonsense(ctx: RouteContext) -> Any:
        return NONSENSE[ctx.params["which"]]

    @channel.get("/raise/{which}")
    async def fail(ctx: RouteContext) -> None:
        raise ERRORS[int(ctx.params["which"])]

    @channel.get("/documented")
    async def documented(ctx: RouteContext) -> None:
        raise Conflict("Already closed.", closedBy="ann")

    @channel.get("/http/{status}")
    async def http_error(ctx: RouteContext) -> None:
        kinds: dict[str, Any] = {
            "302": web.HTTPFound("/elsewhere"),
            "401": web.HTTPUnauthorized(),
            "404": web.HTTPNotFound(),
            "418": web.HTTPTooManyRequests(),
            "503": web.HTTPServiceUnavailable(headers={"Retry-After": "5"}),
        }
        raise kinds[ctx.params["status"]]

    @channel.post("/hang")
    async def hang(ctx: RouteContext) -> None:
        started.append("hang")
        try:
            await asyncio.Event().wait()
        finally:
            started.append("cancelled")

    @channel.get("/started")
    async def shown(ctx: RouteContext) -> list[str]:
        return started

    @channel.post("/slow/{token}")
    async def slow(ctx: RouteContext) -> Accepted:
        started.append("slow")
        await asyncio.sleep(0.05)
        return Accepted(await ctx.send("after all", continuation_token=ctx.params["token"]))

    @channel.get("/echo/{a}/{b}")
    async def echo(ctx: RouteContext, query: Filter) -> dict[str, Any]:
        return {
            "params": dict(ctx.params),
            "query": query.model_dump(),
            "header": ctx.headers.get("x-custom"),
            "principal": ctx.principal.to_wire(),
            "url": ctx.url("/x"),
            "channel": ctx.channel,
            "agent": ctx.agent,
        }

    @channel.put("/items")
    async def items(ctx: RouteContext, body: list[Item]) -> Item:
        return body[0]

    @channel.post("/anything")
    async def anything(ctx: RouteContext, body: Any) -> dict[str, Any]:
        return {"got": body}

    @channel.get("/replies/{which}")
    async def replies(ctx: RouteContext) -> Any:
        found: dict[str, Any] = {
            "empty": Reply(status=204),
            "text": Reply("tëxt", headers={"X-A": "b"}),
            "html": Reply("<p>ä</p>", content_type="text/html"),
            "bytes": Reply(b"\x00\xff", content_type="image/png"),
            "problem": Reply(
                {"a": 1}, status=422, headers={"Content-Type": "application/problem+json"}
            ),
            "none": None,
            "list": [1, Path("/x"), {3}],
            "raw": web.Response(text="raw"),
            "accepted": Accepted(extra={"queued": 3}),
        }
        return found[ctx.params["which"]]

    @channel.get("/")
    async def root(ctx: RouteContext) -> dict[str, str]:
        return {"root": "here"}

    async with serve(tmp_path, agent(channels={"c": channel})) as running:
        yield running


def only_an_id(status: int, answer: Any) -> None:
    assert status == 500
    assert set(answer) == {"ok", "error", "message"}
    assert answer["error"] == "internal_error"
    assert "err_" in answer["message"]
    assert "secret" not in str(answer)
    assert "Error" not in answer["message"]


async def test_nonsense_is_a_500_with_an_id_only(served: Served) -> None:
    for which in NONSENSE:
        only_an_id(*await served.ask("GET", f"/v1/channels/c/nonsense/{which}"))
    assert (await served.ask("GET", "/v1/sessions"))[0] == 200


async def test_a_route_that_raises_is_a_500_with_an_id_only(served: Served) -> None:
    for which in range(len(ERRORS)):
        only_an_id(*await served.ask("GET", f"/v1/channels/c/raise/{which}"))
    assert (await served.ask("GET", "/v1/sessions"))[0] == 200


async def test_documented_errors_keep_their_status(served: Served) -> None:
    status, answer = await served.ask("GET", "/v1/channels/c/documented")
    assert status == 409
    assert answer == {
        "ok": False,
        "error": "conflict",
        "message": "Already closed.",
        "closedBy": "ann",
    }


@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [
        ("401", 401, "unauthorized"),
        ("404", 404, "not_found"),
        ("418", 429, "invalid_request"),
        ("503", 503, "unavailable"),
    ],
)
async def test_aiohttps_errors_are_json(
    served: Served, status: str, expected: int, code: str
) -> None:
    found, answer = await served.ask("GET", f"/v1/channels/c/http/{status}")
    assert (found, answer["error"], answer["ok"]) == (expected, code, False)


async def test_a_redirect_and_retry_after_pass(served: Served) -> None:
    base = f"{served.host.local_url}{served.prefix}/v1/channels/c"
    headers = {"x-user": "ann"}
    get = served.client.get
    async with get(f"{base}/http/302", headers=headers, allow_redirects=False) as response:
        assert (response.status, response.headers["location"]) == (302, "/elsewhere")
    async with get(f"{base}/http/503", headers=headers) as response:
        assert response.headers["retry-after"] == "5"


async def test_a_hanging_route_holds_up_nobody(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "LINGER_SECONDS", 0.05)
    url = served.host.local_url + served.prefix + "/v1/channels/c/hang"
    timeout = aiohttp.ClientTimeout(total=0.1)
    with pytest.raises(asyncio.TimeoutError):
        await served.client.post(url, headers={"x-user": "ann"}, timeout=timeout)

    async def cancelled() -> bool:
        started = (await served.ask("GET", "/v1/channels/c/started"))[1]
        return bool(started == ["hang", "cancelled"])

    await until(cancelled)
    first = await served.start()
    await served.rest(first["sessionId"])
    await until(lambda: not served.host.work.tasks)


async def test_a_caller_who_hangs_up_does_not_lose_the_message(served: Served) -> None:
    url = served.host.local_url + served.prefix + "/v1/channels/c/slow/t"
    timeout = aiohttp.ClientTimeout(total=0.02)
    with pytest.raises(asyncio.TimeoutError):
        await served.client.post(url, headers={"x-user": "ann"}, timeout=timeout)

    async def stored() -> bool:
        sessions = (await served.ask("GET", "/v1/sessions"))[1]["sessions"]
        started = (await served.ask("GET", "/v1/channels/c/started"))[1]
        return bool(len(sessions) == started.count("slow"))

    await until(stored)


async def test_what_a_handler_is_given(served: Served) -> None:
    status, answer = await served.ask(
        "GET", "/v1/channels/c/echo/x%20y/%C3%A9?tag=t&limit=3&more=1", headers={"X-Custom": "v"}
    )
    assert status == 200
    assert answer == {
        "params": {"a": "x y", "b": "é"},
        "query": {"tag": "t", "limit": 3},
        "header": "v",
        "principal": {"kind": "user", "id": "ann"},
        "url": f"{served.host.base_url}{served.prefix}/x",
        "channel": "c",
        "agent": "Tester",
    }
    for query in ("", "?tag=t&limit=0", "?tag=t&limit=x"):
        status, answer = await served.ask("GET", f"/v1/channels/c/echo/a/b{query}")
        assert (status, answer["error"]) == (400, "invalid_request")
        assert "The query is not valid" in answer["message"]


async def test_bodies_are_typed(served: Served) -> None:
    status, answer = await served.ask("PUT", "/v1/channels/c/items", [{"name": "a"}])
    assert (status, answer) == (200, {"name": "a", "price": "1.50"})
    status, answer = await served.ask("PUT", "/v1/channels/c/items", [{"name": 5}, {}])
    assert status == 400
    assert "0.name: Input should be a valid string" in answer["message"]
    assert "1.name: Field required" in answer["message"]
    assert (await served.ask("PUT", "/v1/channels/c/items"))[0] == 400
    assert await served.ask("POST", "/v1/channels/c/anything", [1, None]) == (
        200,
        {"got": [1, None]},
    )


async def test_replies(served: Served) -> None:
    base = f"{served.host.local_url}{served.prefix}/v1/channels/c/replies"
    expected = {
        "empty": (204, None, b""),
        "text": (200, "text/plain; charset=utf-8", "tëxt".encode()),
        "html": (200, "text/html; charset=utf-8", "<p>ä</p>".encode()),
        "bytes": (200, "image/png", b"\x00\xff"),
        "problem": (422, "application/problem+json", b'{"a":1}'),
        "none": (200, "application/json; charset=utf-8", b'{"ok":true}'),
        "list": (200, "application/json; charset=utf-8", b'[1,"/x",[3]]'),
        "raw": (200, "text/plain; charset=utf-8", b"raw"),
        "accepted": (202, "application/json; charset=utf-8", b'{"ok":true,"queued":3}'),
    }
    for which, (status, kind, body) in expected.items():
        async with served.client.get(f"{base}/{which}", headers={"x-user": "ann"}) as response:
            assert response.status == status
            assert await response.read() == body
            if kind is not None:
                assert response.headers["content-type"] == kind


async def test_a_root_route_has_two_addresses(served: Served) -> None:
    for path in ("/v1/channels/c", "/v1/channels/c/"):
        assert await served.ask("GET", path) == (200, {"root": "here"})


async def test_the_chain_comes_before_the_body(served: Served) -> None:
    status, answer = await served.ask("PUT", "/v1/channels/c/items", raw=b"{", user=None)
    assert (status, answer["error"]) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("mount", "path", "other"),
    [
        ("/v1", "/session", "channel http"),
        ("/v1", "/session/{another}", "channel http"),
        ("/v1", "/tools/{x}", "channel http"),
        ("/", "/healthz", "the host"),
    ],
)
def test_a_channel_cannot_hide_a_route(tmp_path: Path, mount: str, path: str, other: str) -> None:
    from threadline.host.app import Host, Options
    from threadline.project import Project

    async def handler(ctx: RouteContext) -> None: ...

    channel = Channel(mount=mount)
    channel.post(path)(handler)
    channel.get(path)(handler)
    project = Project.of(agent(channels={"zz": channel}), slug="bot")
    with pytest.raises(ProjectError, match=other):
        Host([project], Options(mode="single", state_root=tmp_path))


def test_a_handler_that_cannot_be_served_is_named_before_the_start(tmp_path: Path) -> None:
    from threadline.host.app import Host, Options
    from threadline.project import Project

    async def bad(ctx: RouteContext, surprise: int) -> None: ...

    channel = Channel()
    channel.post("/x")(bad)
    project = Project.of(agent(channels={"c": channel}), slug="bot")
    with pytest.raises(ProjectError, match="takes surprise"):
        Host([project], Options(state_root=tmp_path))


async def test_a_channel_may_be_mounted_elsewhere(tmp_path: Path) -> None:
    channel = Channel(auth=[by_header], mount="/hooks")

    @channel.post("/in")
    async def hook(ctx: RouteContext) -> None: ...

    for mode in ("multi", "single"):
        agents = agent(channels={"c": channel})
        async with serve(tmp_path / mode, agents, mode=mode) as served:
            assert (await served.ask("POST", "/hooks/in"))[0] == 200
            assert (await served.ask("GET", "/hooks/in"))[0] == 405


async def test_a_route_may_take_more_than_the_host_allows_the_others(tmp_path: Path) -> None:
    channel = Channel(auth=[by_header])

    async def size(ctx: RouteContext) -> dict[str, int]:
        return {"size": len(ctx.body)}

    channel.post("/usual")(size)
    channel.post("/large", max_body=3_000)(size)
    channel.post("/small", max_body=10)(size)
    async with serve(tmp_path, agent(channels={"c": channel}), max_body=1_000) as served:

        async def post(path: str, count: int) -> int:
            url = f"{served.host.base_url}/bot/v1/channels/c/{path}"
            sent = {"data": b"x" * count, "headers": {"x-user": "ada"}}
            async with served.client.post(url, **sent) as answer:
                assert (await answer.json()).get("size", count) == count
                return answer.status

        assert [await post("usual", 1_000), await post("usual", 1_001)] == [200, 413]
        assert [await post("large", 3_000), await post("large", 3_001)] == [200, 413]
        assert [await post("small", 1_000), await post("small", 1_001)] == [200, 413]
        assert await post("usual", 5) == 200


async def test_a_body_that_says_to_be_too_large_is_not_waited_for(tmp_path: Path) -> None:
    channel = Channel(auth=[by_header])

    @channel.post("/in")
    async def hook(ctx: RouteContext) -> None: ...

    async with serve(tmp_path, agent(channels={"c": channel}), max_body=1_000) as served:
        port = int(served.host.base_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = "POST /bot/v1/channels/c/in HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n"
        writer.write(head.encode())
        assert b" 413 " in await reader.readline()
        writer.close()
        await writer.wait_closed()
