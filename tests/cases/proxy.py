"""A real nginx with its default buffering and compression, in front of the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from tests.cases.world import World

__all__ = ["check", "nginx"]

_CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; gzip on; gzip_min_length 1;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  proxy_read_timeout {read_timeout}s;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {base}; proxy_http_version 1.1; }} }}
}}
"""


@contextlib.asynccontextmanager
async def nginx(base: str, folder: Path, *, read_timeout: int) -> AsyncIterator[str]:
    """Run nginx; its read timeout stands to the heartbeat as 60 s stand to 15 s, at least."""
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(
        _CONFIG.format(folder=folder, read_timeout=read_timeout, port=port, base=base)
    )
    program = shutil.which("nginx")
    assert program is not None
    process = await asyncio.create_subprocess_exec(program, "-c", str(config), "-p", str(folder))
    try:
        address = f"http://127.0.0.1:{port}"
        await _answers(address)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def _answers(address: str) -> None:
    async with aiohttp.ClientSession() as client, asyncio.timeout(10):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with client.get(address + "/healthz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.01)


async def check(world: World, address: str, session_id: str, *, silence: float) -> None:
    """An event written during a long silence arrives at once, over the same connection."""
    owner = world.core._owners[session_id]
    url = f"{address}/v1/session/{session_id}/stream"
    headers = {"Accept-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(url, headers=headers) as response,
    ):
        assert response.headers["Content-Type"].startswith("application/x-ndjson")
        assert "Content-Encoding" not in response.headers
        assert "Content-Length" not in response.headers
        first = await asyncio.wait_for(response.content.readline(), 1)
        assert json.loads(first)["type"] == "session.started"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(silence):
                while await response.content.readline():
                    pass
                raise AssertionError("the proxy ended the stream")
        owner.emit("agent.bound", {"harness": "here", "conversationId": "1"})
        async with asyncio.timeout(1):
            while b"agent.bound" not in await response.content.readline():
                pass
