"""A channel's code reads what a session's log says of some types."""

from __future__ import annotations

from threadline import Channel, RouteContext
from threadline.testing import TestHost


def channel() -> Channel:
    made = Channel(admission="coalesce", owner="channel")

    @made.post("/say")
    async def say(ctx: RouteContext, body: str) -> None:
        await ctx.send(body, continuation_token="one")

    @made.get("/log")
    async def log(ctx: RouteContext) -> list[tuple[str, int]]:
        session = ctx.session("one")
        assert session is not None
        wanted = ctx.query["types"].split(",")
        found = session.recorded(*wanted, start=int(ctx.query.get("start", "0")))
        return [(one["type"], one["index"]) async for one in found]

    return made


async def test_only_these_types_in_order_from_an_index_on() -> None:
    async with TestHost(channel) as host:
        # What a message says is no type of an event.
        for text in ('"turn.completed"', "two"):
            await host.post("/v1/channels/channel/say", json=text)
            await host.rest()
        whole = [(one["type"], one["index"]) for one in host.sessions()[0].events()]
        types = ("turn.completed", "message.received")
        wanted = [list(one) for one in whole if one[0] in types]
        path = f"/v1/channels/channel/log?types={','.join(types)}"
        assert (await host.get(path)).json() == wanted
        assert len(wanted) == 4
        last = wanted[-1]
        assert (await host.get(f"{path}&start={last[1]}")).json() == [last]
        assert (await host.get("/v1/channels/channel/log?types=turn.failed")).json() == []
