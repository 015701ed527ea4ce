"""The OpenAPI document: valid, complete, and made from the routes that serve."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel, Field

from threadline import Accepted, Agent, Channel, RouteContext, tool
from threadline.auth import bearer
from threadline.harness.scripted import Scripted
from threadline.testing import TestHost

METHODS = {"get", "put", "post", "patch", "delete"}


class Ticket(BaseModel):
    """A ticket."""

    id: str
    priority: int = Field(default=1, description="From 1 to 3.")


class Search(BaseModel):
    limit: int = Field(default=10, ge=1)


def desk() -> Channel:
    channel = Channel(auth=[bearer(token="t")])

    @channel.post("/tickets/{id}")
    async def opened(ctx: RouteContext, body: Ticket) -> Accepted:
        """Tell the ticket's conversation about it.

        More about it.
        """
        return Accepted(await ctx.send("x", continuation_token=body.id))

    @channel.get("/tickets")
    async def search(ctx: RouteContext, query: Search) -> list[Ticket]:
        """Look for tickets."""
        return [Ticket(id=str(query.limit))]

    return channel


def agent() -> Agent:
    @tool
    def look() -> str:
        """Look."""
        return "x"

    return Agent(
        name="Documented",
        instructions="x",
        harness=Scripted(),
        tools=[look],
        channels={"desk": desk()},
    )


async def document(host: TestHost, path: str = "/v1/openapi.json") -> dict[str, Any]:
    answer = await host.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/json")
    found: dict[str, Any] = answer.json()
    validate(found)
    return found


def operations(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(m.upper(), p) for p, item in found["paths"].items() for m in item if m in METHODS}


async def test_every_route_that_is_served_is_documented() -> None:
    async with TestHost(agent) as host:
        found = await document(host)
        assert found["openapi"].startswith("3.1")
        served = {
            (route.method, route.resource.canonical)
            for route in host.host.app().router.routes()
            if route.method in {m.upper() for m in METHODS} and route.resource is not None
        }
        shown = {(method, path.rstrip("/") or "/") for method, path in operations(found)}
        missing = {
            (method, path)
            for method, path in served
            if (method, path.replace(":.*", "").rstrip("/") or "/") not in shown
        }
        assert not missing
        names = [
            item[method]["operationId"]
            for item in found["paths"].values()
            for method in item
            if method in METHODS
        ]
        assert len(names) == len(set(names))


async def test_a_custom_route_is_documented_without_doing_anything() -> None:
    async with TestHost(agent) as host:
        found = await document(host)
        opened = found["paths"]["/v1/channels/desk/tickets/{id}"]["post"]
        assert opened["summary"] == "Tell the ticket's conversation about it"
        assert [p["name"] for p in opened["parameters"] if p["in"] == "path"] == ["id"]
        assert opened["requestBody"]["required"] is True
        assert {"202", "400", "401", "413", "503"} <= set(opened["responses"])
        assert opened["security"]
        search = found["paths"]["/v1/channels/desk/tickets"]["get"]
        (limit,) = [p for p in search["parameters"] if p["in"] == "query"]
        assert (limit["name"], limit["schema"]["minimum"]) == ("limit", 1)
        assert "application/json" in search["responses"]["200"]["content"]


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("get", "/v1/session/{sessionId}/stream", {"200", "403", "404", "409"}),
        ("post", "/v1/session/{sessionId}/approvals/{callId}", {"200", "403", "404", "409"}),
        ("post", "/v1/tools/{name}", {"200", "400", "404", "409", "500"}),
        ("get", "/v1/artifacts/{id}/content", {"200", "403", "404"}),
        ("post", "/v1/mcp", {"200", "202", "400"}),
    ],
)
async def test_what_a_route_may_answer(method: str, path: str, statuses: set[str]) -> None:
    async with TestHost(agent) as host:
        responses = (await document(host))["paths"][path][method]["responses"]
        ranges = {status for status in statuses if status not in responses}
        assert not ranges or "default" in responses or "2XX" in responses, responses.keys()
        if path.endswith("/stream"):
            assert set(responses["200"]["content"]) == {
                "application/x-ndjson",
                "text/event-stream",
            }


async def test_several_agents_have_a_document_each() -> None:
    async with TestHost(agent, agent) as host:
        paths = (await document(host, "/agent/v1/openapi.json"))["paths"]
        server = (await document(host, "/agent/v1/openapi.json"))["servers"][0]["url"]
        assert any(path.endswith("/v1/session") for path in paths)
        assert server.startswith("http://127.0.0.1:")
        own = await document(host)
        assert "/v1/agents" in own["paths"]
        assert "/healthz" in own["paths"]
