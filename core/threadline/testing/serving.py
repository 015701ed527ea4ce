"""A web server on a free port of this machine, ended without leaving a connection behind."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

__all__ = ["end", "listen"]

_MOMENTS = 5  # of the event loop


async def listen(runner: web.AppRunner, port: int = 0) -> socket.socket:
    """Serve on 127.0.0.1; returns the socket that listens."""
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", port))
    await web.SockSite(runner, listening).start()
    return listening


async def end(runner: web.AppRunner, listening: socket.socket | None) -> None:
    """Stop serving, once what was accepted a moment before has its connection.

    Python 3.11 forgets a connection whose server closes in that moment. ``listening`` is None when
    it was ended before it listened.
    """
    if listening is not None:
        asyncio.get_running_loop().remove_reader(listening)
        for _ in range(_MOMENTS):
            await asyncio.sleep(0)
    await runner.cleanup()
