"""A message that does not steer waits for its own turn, and is prepared when that begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from threadline import Channel, Context, Prepared, RouteContext
from threadline.store.base import DeliveryRecord
from threadline.testing import Gated, TestHost


class Pulls(Channel):
    """Steers with what people say, not with what happens; notes when each is prepared."""

    def __init__(self, prepared: list[tuple[str, str]]) -> None:
        super().__init__(admission="coalesce", owner="channel")
        self.prepared = prepared
        self.post("/{how}")(self.take)

    async def take(self, ctx: RouteContext, body: str) -> None:
        steer = ctx.params["how"] == "said"
        await ctx.send(body, continuation_token="one", steer=steer)

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared:
        session = ctx.session(delivery.session_id)
        assert session is not None
        self.prepared.append((delivery.text, session.status))
        return Prepared([f"about {delivery.text}"])


async def tell(host: TestHost, how: str, text: str) -> None:
    assert (await host.post(f"/v1/channels/channel/{how}", json=text)).status == 200


@pytest.mark.parametrize("kill", [False, True])
async def test_it_enters_no_running_turn_and_neither_does_what_is_behind_it(kill: bool) -> None:
    prepared: list[tuple[str, str]] = []
    harness = Gated(calls=1, hold=["call"])
    async with TestHost(lambda: Pulls(prepared), harness=harness) as host:
        await tell(host, "happened", "opened")
        await harness.gates["call"].reached()
        await tell(host, "said", "look at the tests")
        await tell(host, "happened", "pushed")
        await tell(host, "happened", "pushed again")
        await tell(host, "said", "and the docs")
        if kill:
            await host.kill()
            await host.start()
        harness.release()
        await host.rest()
        (session,) = host.sessions()
        first, second = session.events("message.received")[-2:]
        assert first["data"]["text"] == "opened"
        parts = [part["text"] for part in second["data"]["parts"]]
        assert parts == ["pushed", "pushed again", "and the docs"]
        assert second["data"]["context"] == [f"about {text}" for text in parts]
        (nudge,) = session.events("nudge.delivered")
        assert nudge["data"]["text"] == "look at the tests"
        waited = [status for text, status in prepared if text.startswith("pushed")]
        assert waited
        assert set(waited) == {"queued"}
        host.check_laws()


class Moving(Pulls):
    """What belongs to a message is as of the turn that runs."""

    async def prepare(self, ctx: Context, delivery: DeliveryRecord) -> Prepared:
        found = await super().prepare(ctx, delivery)
        running = self.prepared[-1][1] == "running"
        how = "while it ran" if running else "for its turn"
        return replace(found, context=[f"{delivery.text}, {how}"], provisional=True)


@pytest.mark.parametrize("steers", [True, False])
async def test_what_is_provisional_is_prepared_once_more_for_a_turn_of_its_own(
    steers: bool,
) -> None:
    prepared: list[tuple[str, str]] = []
    harness = Gated(calls=1, hold=["call", "answer"])
    async with TestHost(lambda: Moving(prepared), harness=harness) as host:
        await tell(host, "said", "first")
        await harness.gates["call"].reached()
        if steers:
            await tell(host, "said", "more")
            (session,) = host.sessions()
            await host.until(lambda: host.agent().core.prepared(session.id))
        harness.release("call")
        await harness.gates["answer"].reached()
        if not steers:
            await tell(host, "said", "more")
        harness.release()
        await host.rest()
        (session,) = host.sessions()
        told = [one["data"]["context"] for one in session.events("message.received")]
        nudged = [one["data"]["context"] for one in session.events("nudge.delivered")]
        assert told[0] == ["first, for its turn"]
        assert (told[1:], nudged) == (
            ([], [["more, while it ran"]]) if steers else ([["more, for its turn"]], [])
        )
        assert len(prepared) == (2 if steers else 3) + 1
        host.check_laws()


async def test_a_stop_drops_it_like_everything_else() -> None:
    harness = Gated(hold=["answer"])
    async with TestHost(lambda: Pulls([]), harness=harness) as host:
        await tell(host, "happened", "opened")
        await harness.gates["answer"].reached()
        await tell(host, "happened", "pushed")
        (session,) = host.sessions()
        await host.agent().core.stop(session.id, clear_pending=True)
        await host.rest()
        (cleared,) = session.events("deliveries.cleared")
        assert len(cleared["data"]["deliveryIds"]) == 1
        assert len(harness.prompts) == 1
        host.check_laws()
