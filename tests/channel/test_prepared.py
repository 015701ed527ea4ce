"""A channel that prepares messages has started before it is asked to."""

from __future__ import annotations

from threadline import Channel, Context, Prepared, RouteContext
from threadline.store.base import DeliveryRecord
from threadline.testing import Gated, TestHost


def channel() -> Channel:
    """Return a channel that can fetch only between its start and its stop."""
    made = Started()

    @made.post("/say")
    async def say(ctx: RouteContext, body: str) -> None:
        await ctx.send(body, continuation_token="one", admission="coalesce")

    return made


class Started(Channel):
    """Says in what it fetches whether it had started."""

    started = False

    async def on_start(self, ctx: Context) -> None:
        self.started = True

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared:
        return Prepared([f"started: {self.started}"])


async def test_what_waited_at_a_restart_is_prepared_when_its_channel_has_started() -> None:
    harness = Gated(hold=["answer"])
    async with TestHost(channel, harness=harness) as host:
        for text in ("one", "two"):
            await host.post("/v1/channels/channel/say", json=text)
        await harness.gates["answer"].reached()
        await host.kill()
        harness.release()
        await host.start()
        await host.rest()
        (session,) = host.sessions()
        prompts = session.events("message.received")
        assert [one["data"]["context"] for one in prompts] == [["started: True"]] * 2
        host.check_laws()
