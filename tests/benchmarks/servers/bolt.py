"""Bolt on aiohttp with listeners that do nothing: verified, routed, acknowledged."""

from __future__ import annotations

import argparse
import asyncio
import os

from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.async_app import AsyncApp
from slack_sdk.web.async_client import AsyncWebClient


def bolt(secret: str, api_url: str) -> AsyncApp:
    """Return an app that hears mentions and messages."""
    client = AsyncWebClient("xoxb-bench", api_url)
    app = AsyncApp(signing_secret=secret, client=client)

    @app.event("app_mention")
    async def mentioned() -> None: ...

    @app.event("message")
    async def said() -> None: ...

    return app


async def serve(app: AsyncApp, port: int) -> None:
    """Serve until a signal comes."""

    async def events(request: web.Request) -> web.Response:
        answer = await app.async_dispatch(await to_bolt_request(request))
        return await to_aiohttp_response(answer)

    application = web.Application()
    application.router.add_post("/slack/events", events)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
    await asyncio.Event().wait()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--core", type=int)
    parser.add_argument("--secret", required=True)
    parser.add_argument("--api", required=True)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    asyncio.run(serve(bolt(options.secret, options.api), options.port))


if __name__ == "__main__":
    main()
