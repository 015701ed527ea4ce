"""What a channel of any author can do with tools, chains and callers who hang up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.serving import Gate, agent, by_header, serve, until

from threadline import Channel, Principal, RouteContext, ToolContext, tool
from threadline.auth import anonymous, bearer

if TYPE_CHECKING:
    from pathlib import Path

RUN = "/v1/channels/desk/run"
AWAY = {"x-forwarded-for": "203.0.113.9"}


def desk(**options: Any) -> Channel:
    """Return a channel that runs what its callers name."""
    channel = Channel(**{"auth": [by_header], **options})

    @channel.post("/run")
    async def run(ctx: RouteContext, body: dict[str, Any]) -> dict[str, Any]:
        """Run a tool."""
        result = await ctx.call_tool(body.pop("tool"), body.pop("input", None), **body)
        return {
            "output": result.output,
            "error": result.code,
            "callId": result.call_id,
        }

    @channel.get("/tools")
    async def tools(ctx: RouteContext) -> list[dict[str, Any]]:
        """List the tools."""
        return [
            {
                "name": info.name,
                "effect": info.effect,
                "output": info.output_schema,
                "repeatable": info.idempotent,
                "file": info.source.rpartition(":")[0].rpartition("/")[2],
            }
            for info in ctx.tools()
        ]

    @channel.get("/about")
    async def about(ctx: RouteContext) -> dict[str, str]:
        """Say who answers."""
        return {"name": ctx.agent, "description": ctx.description, "who": ctx.principal.key}

    return channel


async def test_a_channel_runs_tools(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk()})) as served:
        status, ran = await served.ask("POST", RUN, {"tool": "double", "input": {"number": 4}})
        assert (status, ran["output"], ran["error"]) == (200, {"doubled": 8}, None)
        assert ran["callId"].startswith("call_")
        status, ran = await served.ask("POST", RUN, {"tool": "broken"})
        assert (status, ran["error"]) == (200, "tool_failed")
        status, ran = await served.ask("POST", RUN, {"tool": "double", "input": {}})
        assert (status, ran["error"]) == (200, "invalid_input")
        status, refused = await served.ask("POST", RUN, {"tool": "nope"})
        assert (status, refused["error"]) == (404, "not_found")
        assert set(refused["available"]) >= {"broken", "double", "note", "work"}


async def test_a_call_in_a_session_is_its_owners(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path, agent(gate, channels={"desk": desk()})) as served:
        session = (await served.start("hello"))["sessionId"]
        await served.rest(session)
        note = {"tool": "note", "input": {"text": "kept"}, "session_id": session}
        status, ran = await served.ask("POST", RUN, note)
        assert (status, ran["output"]) == (200, str(served.runtime.core.folder(session)))
        for user, wanted in (("bob", 403), ("root", 403)):
            status, refused = await served.ask("POST", RUN, note, user=user)
            assert (status, refused["error"]) == (wanted, "forbidden")
        status, refused = await served.ask("POST", RUN, {**note, "session_id": "ses_none"})
        assert status == 404
        token = (await served.start("work"))["sessionId"]
        await gate.held()
        status, refused = await served.ask("POST", RUN, {**note, "session_id": token})
        assert (status, refused["error"]) == (409, "session_busy")
        gate.release()
        await served.rest(token)


async def test_the_tool_sees_the_caller(tmp_path: Path) -> None:
    @tool
    async def who(ctx: ToolContext) -> str:
        """Say who calls."""
        return f"{ctx.principal.key} {ctx.direct}"

    one = agent(channels={"desk": desk()})
    one = replace(one, tools=[*one.tools, who])
    async with serve(tmp_path, one) as served:
        _, ran = await served.ask("POST", RUN, {"tool": "who"})
        assert ran["output"] == "user:ann True"


async def test_a_time_must_be_one(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(channels={"desk": desk()})) as served:
        for as_of in ("yesterday", "2999-01-01T00:00:00Z", "2020-01-01T00:00:00"):
            call = {"tool": "double", "input": {"number": 1}, "as_of": as_of}
            status, refused = await served.ask("POST", RUN, call)
            assert status == 400
            assert "asOf" in refused["message"]


async def test_a_channel_lists_tools(tmp_path: Path) -> None:
    about = "Knows the rota."
    async with serve(tmp_path, agent(channels={"desk": desk()}, description=about)) as served:
        _, tools = await served.ask("GET", "/v1/channels/desk/tools")
        named = {one["name"]: one for one in tools}
        assert named["note"]["effect"] == "write"
        assert named["note"]["output"] == {"type": "string"}
        assert named["note"]["repeatable"] is False
        assert named["double"]["file"] == "serving.py"
        _, said = await served.ask("GET", "/v1/channels/desk/about")
        assert said == {"name": "Tester", "description": about, "who": "user:ann"}


# Chains


@pytest.mark.parametrize(
    ("auth", "options", "who", "status"),
    [
        ("session", {}, {"x-user": "ann", **AWAY}, 200),
        ("session", {}, {}, 401),
        ("session", {"bearer_token": "t"}, {"x-user": "ann"}, 401),
        ("session", {"bearer_token": "t"}, {"authorization": "Bearer t", **AWAY}, 200),
        ("session", {"allow_anonymous": True}, AWAY, 200),
        ("host", {}, {}, 200),
        ("host", {}, {"x-user": "ann", **AWAY}, 401),
        ("host", {"bearer_token": "t"}, {}, 401),
        ("host", {"bearer_token": "t"}, {"authorization": "Bearer t", **AWAY}, 200),
        ("host", {"allow_anonymous": True}, AWAY, 200),
        ([anonymous()], {"bearer_token": "t"}, AWAY, 200),
        ([bearer(token="own")], {"allow_anonymous": True}, AWAY, 401),
    ],
)
async def test_a_channel_may_stand_behind_a_chain_of_the_host(
    tmp_path: Path, auth: Any, options: dict[str, Any], who: dict[str, str], status: int
) -> None:
    one = agent(channels={"desk": desk(auth=auth)})
    async with serve(tmp_path, one, **options) as served:
        got, _ = await served.ask("GET", "/v1/channels/desk/about", user=None, headers=who)
        assert got == status


async def test_the_chain_is_that_of_each_host(tmp_path: Path) -> None:
    """The same agent, served again with other options, is guarded by those."""
    one = agent(channels={"desk": desk(auth="host")})
    for options, status in (
        ({"bearer_token": "t"}, 401),
        ({}, 200),
        ({"bearer_token": "u"}, 401),
    ):
        async with serve(tmp_path, one, **options) as served:
            got, _ = await served.ask("GET", "/v1/channels/desk/about", user=None)
            assert got == status


def test_no_other_chain_has_a_name() -> None:
    with pytest.raises(ValueError, match="'session' or 'host', not 'everybody'"):
        Channel(auth="everybody")  # type: ignore[arg-type]
    # Until it is mounted nobody is known but who calls on this machine.
    assert len(Channel(auth="host").auth) == 1


# Hanging up


async def test_a_handler_hears_of_a_caller_who_hangs_up(tmp_path: Path) -> None:
    heard: list[str] = []
    gate = Gate()
    channel = Channel(auth=[anonymous(Principal("user", "ann"))])

    @channel.post("/slow")
    async def slow(ctx: RouteContext) -> None:
        """Wait for the caller to go."""
        holding = asyncio.create_task(gate.hold())
        await ctx.hung_up()
        heard.append(ctx.path)
        gate.release()
        await holding

    @channel.post("/quick")
    async def quick(ctx: RouteContext) -> None:
        """Wait for no longer than the answer takes."""
        try:
            async with asyncio.timeout(0):
                await ctx.hung_up()
        except TimeoutError:
            heard.append("still there")

    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        calling = served.ask("POST", "/v1/channels/desk/slow")
        task = asyncio.create_task(calling)
        await gate.held()
        assert heard == []
        task.cancel()
        await until(lambda: heard)
        assert heard == ["/bot/v1/channels/desk/slow"]
        await served.ask("POST", "/v1/channels/desk/quick")
        assert heard[1:] == ["still there"]


async def test_a_handler_hears_that_the_host_ends(tmp_path: Path) -> None:
    gate = Gate()
    channel = Channel(auth=[anonymous()])

    @channel.get("/wait")
    async def wait(ctx: RouteContext) -> dict[str, str]:
        """Wait for the end."""
        holding = asyncio.create_task(gate.hold())
        await ctx.shutting_down()
        holding.cancel()
        return {"said": "later"}

    async with serve(tmp_path, agent(channels={"desk": channel})) as served:
        task = asyncio.create_task(served.ask("GET", "/v1/channels/desk/wait"))
        await gate.held()
        await served.host.drain(0.0)
        assert await task == (200, {"said": "later"})
