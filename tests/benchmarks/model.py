"""The model of row 6, and the same turns by ``agent.iter`` without a host around them."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

PIECES = 20


def function_model() -> Any:
    """Return a model that streams twenty pieces of text."""
    from pydantic_ai.models.function import FunctionModel

    async def stream(messages: Any, info: Any) -> AsyncIterator[str]:
        for _ in range(PIECES):
            yield "twenty bytes of text"

    return FunctionModel(stream_function=stream, model_name="bench")


async def turns(count: int, clients: int) -> float:
    """Return turns a second of bare ``agent.iter`` that streams every event."""
    from pydantic_ai import Agent

    agent = Agent(function_model(), instructions="Play.")
    left = iter(range(count))

    async def turn() -> None:
        async with agent.iter("hello") as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        async for _event in events:
                            pass

    async def client() -> None:
        for _ in left:
            await turn()

    await turn()
    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.perf_counter() - began)


def main() -> None:
    """Print turns a second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", type=int)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    print(asyncio.run(turns(options.turns, options.clients)))


if __name__ == "__main__":
    main()
