"""Serve a project and a Slack for it, until Ctrl-C ends both."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadline.host.logs import LogBook
    from threadline.project import Project
    from threadline_slack.channel import SlackChannel
    from threadline_slack.setup.demo.servers import Server

__all__ = ["NAMES", "point", "ready_text", "run"]

NAMES = (
    "BOT_TOKEN",
    "APP_TOKEN",
    "SIGNING_SECRET",
    "CLIENT_ID",
    "CLIENT_SECRET",
    "ENCRYPTION_KEY",
    "INSTALLATIONS",
    "API_URL",
)
"""The variables of a bot, after ``SLACK_``."""


def point(environ: MutableMapping[str, str], prefix: str, to: Mapping[str, str]) -> None:
    """Let a bot's variables name one server, and nothing of what they named before."""
    for name in NAMES:
        environ.pop(f"{prefix}SLACK_{name}", None)
    environ.update({f"{prefix}SLACK_{name}": value for name, value in to.items()})


async def run(
    project: Project,
    channel: SlackChannel,
    server: Server,
    *,
    prefix: str = "",
    host_port: int = 0,
    book: LogBook | None = None,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until a signal says stop; ``on_ready`` gets the host's address.

    State is kept in a folder that is gone afterwards: a demo begins anew.
    """
    from threadline.host.app import Host, Options
    from threadline.host.serve import hanging_up, serve

    try:
        await server.start()
        point(os.environ, prefix, server.environment)
        with tempfile.TemporaryDirectory(prefix="threadline-demo-") as state:
            # With ``dev`` whoever opens the playground here sees the channel's sessions.
            options = Options(mode="single", port=host_port, state_root=Path(state), dev=True)
            host = Host([project], options, book=book)
            adapting: list[asyncio.Task[None]] = []

            def ready(host: Host) -> None:
                adapting.append(asyncio.create_task(_adapt(channel, server)))
                on_ready(host.base_url)

            with hanging_up():
                await serve(host, on_ready=ready)
    finally:
        await server.close()


async def _adapt(channel: SlackChannel, server: Server) -> None:
    server.adapt((await channel.bots.of("")).client)


def ready_text(server: Server, project: Project, bot: str, host_url: str, first: str) -> str:
    """Return what to say when all is up: the address, and what to try."""
    return f"""{server.kind} is at {server.url}
{project.name} is @{bot} in it; what it does is also at {host_url}/playground

Open the first address, and try:
  1. In #general, write: @{bot} {first}
     The answer comes in the message's thread.
  2. Write into the thread while it works, without a mention: it hears you, too.
  3. stop, alone in a message of the thread, ends its turn.
  4. When it asks for approval, press a button.
  5. Post a file with a mention, or write to @{bot} directly.

Ctrl-C ends both."""
