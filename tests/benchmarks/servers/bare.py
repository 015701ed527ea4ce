"""What aiohttp does alone with the same bytes: the baseline of most rows."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import orjson
from aiohttp import web

CHUNK = 64 * 1024
NDJSON = {"Content-Type": "application/x-ndjson"}


class Bare:
    """Answers with given bytes, or with events that it encodes and writes one by one."""

    def __init__(self, answer: bytes, log: bytes, file: Path | None) -> None:
        self.answer = answer
        self.log = log
        self.file = file

    async def start(self, request: web.Request) -> web.Response:
        """Take a JSON body and answer with the bytes of a start."""
        orjson.loads(await request.read())
        return web.Response(body=self.answer, content_type="application/json")

    async def stream(self, _: web.Request) -> web.Response:
        """Answer with the bytes of a turn's log."""
        return web.Response(body=self.log, headers=NDJSON)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Encode and write each event."""
        response = web.StreamResponse(headers=NDJSON)
        await response.prepare(request)
        for number in range(int(request.query["count"])):
            event = {
                "type": "message.appended",
                "index": number,
                "sessionId": "ses_0123456789abcdefghijkl",
                "turnId": "turn_0123456789abcdefghijkl",
                "at": "2026-01-01T00:00:00.000Z",
                "data": {"messageId": f"m{number & 1}", "delta": "twenty bytes of text"},
            }
            await response.write(orjson.dumps(event) + b"\n")
        await response.write(b'{"type":"session.waiting"}\n')
        return response

    async def replay(self, request: web.Request) -> web.StreamResponse:
        """Send a file in chunks of 64 KiB."""
        assert self.file is not None
        response = web.StreamResponse(headers=NDJSON)
        await response.prepare(request)
        with self.file.open("rb") as file:
            while chunk := file.read(CHUNK):
                await response.write(chunk)
        return response


async def serve(bare: Bare, port: int) -> None:
    """Serve until a signal comes."""
    app = web.Application()
    app.router.add_post("/v1/session", bare.start)
    app.router.add_get("/stream", bare.stream)
    app.router.add_get("/events", bare.events)
    app.router.add_get("/replay", bare.replay)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
    await asyncio.Event().wait()


def main() -> None:
    """Run from the command line; the bytes come from files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--core", type=int)
    parser.add_argument("--answer", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    answer = options.answer.read_bytes() if options.answer else b"{}"
    log = options.log.read_bytes() if options.log else b""
    asyncio.run(serve(Bare(answer, log, options.file), options.port))


if __name__ == "__main__":
    main()
