"""A channel says which tools the model may use in a conversation."""

from __future__ import annotations

from threadline import Agent, Channel, Context, RouteContext, Session, tool
from threadline.harness.base import ToolInfo
from threadline.harness.scripted import Call, Say, Scripted
from threadline.testing import TestHost

ran: list[str] = []


@tool(effect="write", approval=True)
async def deploy(service: str) -> str:
    """Deploy a service."""
    ran.append(service)
    return "deployed"


@tool
async def look(service: str) -> str:
    """Look at a service."""
    ran.append(service)
    return "fine"


class Careful(Channel):
    """Refuses what writes in conversations of strangers; breaks in those that are odd."""

    def __init__(self) -> None:
        super().__init__(admission="coalesce", owner="channel")
        self.joined = {"stranger"}
        self.post("/{who}")(self.take)

    async def take(self, ctx: RouteContext) -> None:
        await ctx.send("go", continuation_token=ctx.params["who"])

    async def refuse_tool(self, ctx: Context, session: Session, tool: ToolInfo) -> str | None:
        if session.continuation_token == "odd":
            raise RuntimeError("no idea")
        strange = session.continuation_token in self.joined
        return f"No {tool.name} for strangers." if strange and tool.effect == "write" else None


def agent() -> Agent:
    script = Scripted([Call("look", {"service": "a"}), Call("deploy", {"service": "b"}), Say("ok")])
    channels = {"careful": Careful()}
    return Agent(
        name="it", instructions="Go.", harness=script, tools=[deploy, look], channels=channels
    )


async def results(host: TestHost, who: str) -> list[tuple[str, str | None, str | None]]:
    ran.clear()
    await host.post(f"/v1/channels/careful/{who}")
    await host.rest()
    session = host.sessions()[0]
    found = []
    for one in session.events("action.result"):
        error = one["data"].get("error") or {}
        found.append((one["data"]["toolName"], error.get("code"), error.get("message")))
    return found


async def test_a_refused_call_neither_runs_nor_waits_for_an_approval() -> None:
    async with TestHost(agent, channel_id="careful") as host:
        refused = ("deploy", "tool_not_allowed", "No deploy for strangers.")
        assert await results(host, "stranger") == [("look", None, None), refused]
        assert ran == ["a"]
        (session,) = host.sessions()
        assert not session.events("action.approval_requested")
        assert session.replies == ["ok"]
        host.check_laws()


async def test_who_cannot_be_asked_about_is_refused() -> None:
    async with TestHost(agent, channel_id="careful") as host:
        found = await results(host, "odd")
        assert [code for _, code, _ in found] == ["tool_not_allowed"] * 2
        assert ran == []
        assert "no idea" not in str(found)


async def test_what_waited_for_an_approval_is_asked_about_once_more() -> None:
    async with TestHost(agent, channel_id="careful") as host:
        await host.post("/v1/channels/careful/member")
        (session,) = host.sessions()
        await session.event("action.approval_requested")
        channel = host.channel()
        assert isinstance(channel, Careful)
        channel.joined.add("member")
        runtime = host.agent().runtimes["careful"]
        ctx = Context(runtime)
        (parked,) = await ctx.approvals(session.id)
        await ctx.resolve_approval(session.id, parked.call.call_id, "approved")
        await host.rest()
        results = session.events("action.result")
        assert results[-1]["data"]["error"]["code"] == "tool_not_allowed"
        assert session.replies == ["ok"]
        host.check_laws()


async def test_what_is_not_refused_is_as_ever() -> None:
    async with TestHost(agent, channel_id="careful") as host:
        await host.post("/v1/channels/careful/member")
        (session,) = host.sessions()
        await session.event("action.approval_requested")
        assert not session.events("turn.failed")
