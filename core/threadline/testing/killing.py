"""What stands for SIGKILL within one process: tasks end where they are, files are closed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from threadline.channel.context import Context
from threadline.host.agent import AgentRuntime
from threadline.host.app import Host

__all__ = ["bury", "cancel"]


def cancel(host: Host) -> None:
    """Tell every task of a host to end before it takes another step."""
    tasks: set[asyncio.Future[Any]] = set(host.work.tasks)
    for agent in host.agents.values():
        tasks |= agent.services.tasks
        for runtime in agent.runtimes.values():
            tasks |= runtime._deferred  # noqa: SLF001 - a SIGKILL asks nobody
    for task in tasks - {asyncio.current_task()}:
        task.cancel()


async def bury(agent: AgentRuntime) -> None:
    """Wait for the tasks of a dead agent, and close what it has open."""
    await asyncio.gather(*agent.services.tasks, return_exceptions=True)
    for runtime in agent.runtimes.values():
        await runtime.finish(0.0)
        with contextlib.suppress(Exception):
            await runtime.channel.on_stop(Context(runtime))
    await agent.store.close()
