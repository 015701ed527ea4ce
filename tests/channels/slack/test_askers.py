"""Who asked last, also after a restart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.channels.slack.world import BOT, OTHER, PERSON, TEAM, World, served

from threadline import Channel
from threadline.channel.context import Session
from threadline.testing import Gated
from threadline_slack.inbound.decide import Person
from threadline_slack.outbound.askers import Askers


def context(world: World, ts: str) -> Any:
    """Return what ``of`` needs of a handler's context."""
    runtime = world.host.agent().runtimes["slack"]
    found = runtime.find(f"slack:{TEAM}:C0CHAN0001:{ts}")
    assert isinstance(found, Session)
    return SimpleNamespace(session_record=found)


@pytest.mark.parametrize("steered", [False, True])
async def test_the_log_says_who_asked_last(steered: bool) -> None:
    harness = Gated(calls=1, hold=["call"]) if steered else Gated()
    async with served(harness) as world:
        ts = world.say(f"<@{BOT}> one")
        if steered:
            await harness.gates["call"].reached()
        else:
            await world.shown(2, ts)
            await world.session(ts).rest()
        world.slack.user(OTHER).post("C0CHAN0001", "two", thread_ts=ts)
        await world.slack.until(lambda: len(world.accepted) == 2)
        harness.release()
        await world.session(ts).rest()
        asked = await Askers(Channel()).of(context(world, ts))
        assert asked == Person(TEAM, OTHER)


async def test_a_conversation_that_was_not_asked_has_nobody() -> None:
    async with served() as world:
        ts = world.say(f"<@{BOT}> one")
        await world.shown(2, ts)
        await world.session(ts).rest()
        assert await Askers(Channel()).of(context(world, ts)) == Person(TEAM, PERSON)
