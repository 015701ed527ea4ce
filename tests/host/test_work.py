"""Work that is cancelled before its first step leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc

import pytest

from threadline import Channel, RouteContext
from threadline.host.endpoint import Work
from threadline.testing import TestHost


async def test_a_handler_that_never_began_is_closed() -> None:
    work = Work()

    async def handler() -> None: ...

    running = asyncio.create_task(work.run(handler()))
    await asyncio.sleep(0)
    for task in work.tasks:
        task.cancel()
    with pytest.raises(RuntimeError, match="from the inside"):
        await running
    gc.collect()


async def test_deferred_work_that_never_began_is_closed() -> None:
    channel = Channel()

    @channel.post("/in")
    async def hook(ctx: RouteContext) -> None:
        async def later() -> None: ...

        ctx.defer(later())
        for task in ctx._runtime._deferred:
            task.cancel()

    async with TestHost(lambda: channel) as host:
        assert (await host.post("/v1/channels/channel/in")).ok
    gc.collect()
