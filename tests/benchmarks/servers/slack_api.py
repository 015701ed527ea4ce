"""Slack's Web API as far as a host under load needs it: every call is well, and posts are counted.

``GET /posts`` returns how many messages were posted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
from typing import Any

from aiohttp import web

ANSWERS: dict[str, dict[str, Any]] = {
    "auth.test": {
        "url": "https://acme-test.slack.com/",
        "team": "Acme",
        "team_id": "T0AGENT001",
        "user": "agent",
        "user_id": "U0AGENT001",
        "bot_id": "B0AGENT001",
        "app_id": "A0AGENT001",
    },
    "users.info": {
        "user": {
            "id": "U0HUMAN001",
            "team_id": "T0AGENT001",
            "name": "dev1",
            "real_name": "Dev One",
            "profile": {"display_name": "dev1", "real_name": "Dev One"},
        }
    },
    "bots.info": {"bot": {"id": "B0AGENT001", "app_id": "A0AGENT001", "user_id": "U0AGENT001"}},
    "conversations.replies": {"messages": [], "has_more": False},
    "conversations.history": {"messages": [], "has_more": False},
    "conversations.info": {"channel": {"id": "C0CHAN0001", "name": "general"}},
}


class Api:
    """Answers, and counts."""

    def __init__(self) -> None:
        self.posts = 0
        self._numbers = itertools.count(1)

    async def call(self, request: web.Request) -> web.Response:
        """Answer a call of a method."""
        await request.read()
        method = request.match_info["method"]
        body = {"ok": True, **ANSWERS.get(method, {})}
        if method == "chat.postMessage":
            self.posts += 1
            body |= {"channel": "C0CHAN0001", "ts": f"1900000000.{next(self._numbers):06d}"}
        return web.json_response(body)

    async def count(self, _: web.Request) -> web.Response:
        """Return how many messages were posted."""
        return web.json_response({"posts": self.posts})


async def serve(port: int) -> None:
    """Serve until a signal comes."""
    api = Api()
    app = web.Application()
    app.router.add_post("/api/{method}", api.call)
    app.router.add_get("/posts", api.count)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
    await asyncio.Event().wait()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    asyncio.run(serve(options.port))


if __name__ == "__main__":
    main()
