"""How much goes on at once, and that nothing that hangs holds up the rest."""

from __future__ import annotations

import asyncio

import pytest

from threadline.channel import turnstile
from threadline.channel.turnstile import Turnstile


async def test_so_many_work_at_once_in_the_order_they_came() -> None:
    gate, stile = asyncio.Event(), Turnstile(2)
    begun: list[int] = []

    async def work(number: int) -> None:
        async with stile.place():
            begun.append(number)
            await gate.wait()

    tasks = [asyncio.create_task(work(number)) for number in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun == [0, 1]
    gate.set()
    await asyncio.gather(*tasks)
    assert begun == [0, 1, 2, 3, 4]


async def test_what_hangs_gives_its_place_away_and_never_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turnstile, "_LEASE_SECONDS", 0.01)
    gate, all_in, stile = asyncio.Event(), asyncio.Barrier(4), Turnstile(1)

    async def hang() -> None:
        async with stile.place():
            await all_in.wait()
            await gate.wait()

    tasks = [asyncio.create_task(hang()) for _ in range(3)]
    async with asyncio.timeout(10):
        await all_in.wait()
    gate.set()
    await asyncio.gather(*tasks)
    assert stile._free._value == 1


async def test_what_fails_or_is_cancelled_gives_its_place_back() -> None:
    stile = Turnstile(1)
    with pytest.raises(ValueError, match="no"):
        async with stile.place():
            raise ValueError("no")
    held = stile.place()
    await held.__aenter__()
    waiting = asyncio.create_task(stile.place().__aenter__())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await held.__aexit__(None, None, None)
    async with asyncio.timeout(10), stile.place():
        pass
