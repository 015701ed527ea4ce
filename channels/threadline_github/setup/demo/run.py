"""Serve a project and a GitHub for it, and tell what happens there, until Ctrl-C ends both."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from threadline_github.setup.demo import story
from threadline_github.setup.demo.watch import Post, news, posts

if TYPE_CHECKING:
    from threadline.host.logs import LogBook
    from threadline.project import Project
    from threadline_github.channel import GitHubChannel
    from threadline_github.setup.demo.servers import Server

__all__ = [
    "NAMES",
    "demo",
    "do",
    "ended",
    "point",
    "ready_text",
    "run",
    "slug_of",
    "told",
    "typed",
]

NAMES = ("API_URL", "APP_ID", "APP_PRIVATE_KEY", "TOKEN", "WEBHOOK_SECRET")
"""The variables of a bot, after ``GITHUB_``."""
_PAUSE = 0.3  # seconds
_GRACE = 1.0  # seconds


def demo(
    project: Project,
    channel_id: str,
    channel: GitHubChannel,
    *,
    server: Path | None,
    port: int = 0,
    host_port: int = 0,
) -> None:
    """Serve an agent in a GitHub on this machine until Ctrl-C; a command's whole work.

    ``server`` is the local GitHub server's program; without it a FakeGitHub is served. ``port`` is
    that of its addresses. Raises Unavailable.
    """
    from threadline.cli import output
    from threadline.host.logs import LogBook, configure
    from threadline_github.setup.demo.fake import Fake
    from threadline_github.setup.demo.servers import Local

    book = LogBook()
    configure(book, level="warning")
    bot = slug_of(project.name)

    async def main() -> None:
        github = Fake(bot, port) if server is None else Local(server, bot, port)
        await run(
            project,
            channel_id,
            github,
            prefix=channel.env_prefix,
            host_port=host_port,
            book=book,
            say=output.write,
        )

    asyncio.run(main())


def slug_of(name: str) -> str:
    """Return what GitHub makes of an App's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def point(environ: MutableMapping[str, str], prefix: str, to: Mapping[str, str]) -> None:
    """Let a bot's variables name one server, and nothing of what they named before."""
    for name in NAMES:
        environ.pop(f"{prefix}GITHUB_{name}", None)
    environ.update({f"{prefix}GITHUB_{name}": value for name, value in to.items()})


async def run(
    project: Project,
    channel_id: str,
    server: Server,
    *,
    prefix: str = "",
    host_port: int = 0,
    book: LogBook | None = None,
    say: Callable[[str], None],
) -> None:
    """Serve until a signal says stop; ``say`` gets what happens in the pull request.

    State is kept in a folder that is gone afterwards: a demo begins anew.
    """
    from threadline.host.app import Host, Options
    from threadline.host.serve import hanging_up, serve
    from threadline_github.setup.demo.servers import check_free, free_port

    check_free(host_port)
    address = host_port or free_port()
    try:
        hook = f"http://127.0.0.1:{address}/v1/channels/{channel_id}"
        await server.start(hook, story.BASE)
        point(os.environ, prefix, server.environment)
        with tempfile.TemporaryDirectory(prefix="threadline-demo-") as state:
            # With ``dev`` whoever opens the playground here sees the channel's sessions.
            options = Options(mode="single", port=address, state_root=Path(state), dev=True)
            # Nothing is kept, so little is waited for.
            agent = replace(project.agent, drain_seconds=_GRACE)
            host = Host([replace(project, agent=agent)], options, book=book)
            playing: list[asyncio.Task[None]] = []

            def ready(host: Host) -> None:
                say(ready_text(server, project, host.base_url))
                playing.append(asyncio.create_task(play(server, say)))
                playing[0].add_done_callback(lambda task: ended(task, say))

            try:
                with hanging_up():
                    await serve(host, on_ready=ready)
            finally:
                for task in playing:
                    task.cancel()
                await asyncio.gather(*playing, return_exceptions=True)
    finally:
        await server.close()


def ended(task: asyncio.Task[None], say: Callable[[str], None]) -> None:
    """Say why no more is shown, unless that is since all ends."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        causes = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
        say(f"No more is shown: {'; '.join(map(repr, causes))}")


async def play(server: Server, say: Callable[[str], None]) -> None:
    """Open a pull request, tell what comes, and do what is typed."""
    number = await server.open_pull(story.BRANCH, story.CHANGE, story.TITLE, story.BODY)
    say(f"\nada opened {server.repository}#{number}: {story.TITLE}\n")
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(server, number, say))
        async for line in typed():
            answer = await do(server, number, line)
            if answer:
                say(answer)


async def follow(server: Server, number: int, say: Callable[[str], None]) -> None:
    """Tell whatever appears in a pull request or changes there, as it comes."""
    known: dict[str, Post] = {}
    while True:
        for post in news(known, await posts(server.read, number)):
            say(told(post, again=post.key in known))
            known[post.key] = post
        await asyncio.sleep(_PAUSE)


async def do(server: Server, number: int, line: str) -> str:
    """Do what was typed; returns what to say of it."""
    match line.strip():
        case "":
            return ""
        case "/push" | "/close" if await shut(server, number):
            return f"{server.repository}#{number} is closed already.\n"
        case "/push":
            commit = await server.push(number, story.FIX, "Say what is expected to fail")
            return f"ada pushed {commit[:7]}, without what was found.\n"
        case "/close":
            await server.shut(number)
            return ""
        case text:
            await server.comment(number, text)
            return ""


async def shut(server: Server, number: int) -> bool:
    """Return whether a pull request is closed."""
    pull = await server.read(f"/pulls/{number}")
    return pull is not None and pull["state"] != "open"


async def typed() -> AsyncIterator[str]:
    """Yield the lines of standard input; nothing where it is closed or cannot be waited for."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    if sys.stdin is None:
        return
    try:
        stdin = sys.stdin.fileno()
        loop.add_reader(stdin, lambda: chunks.put_nowait(_read(stdin)))
    except (OSError, ValueError):
        return
    rest = b""
    try:
        while chunk := await chunks.get():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode("utf-8", "replace")
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_reader(stdin)


def _read(stdin: int) -> bytes:
    """Return what there is, nothing at the end, as which a terminal that was closed counts."""
    try:
        return os.read(stdin, 65_536)
    except OSError:
        return b""


def told(post: Post, *, again: bool) -> str:
    """Return how the terminal shows a thing that appeared, or changed."""
    first = f"{post.what}{', edited' if again and post.text else ''}{':' if post.text else ''}"
    lines = [first, f"  {post.address}", *(f"  | {line}" for line in post.text.splitlines())]
    return "\n".join([*lines, ""])


def ready_text(server: Server, project: Project, host_url: str) -> str:
    """Return what to say when all is up: the addresses, and what to try."""
    return f"""{server.kind} is at {server.url}
{project.name} is @{server.bot} in {server.repository} there.
Its sessions, with each tool call, are at {host_url}/playground

A pull request is opened now. What appears in it is shown here, with the addresses where the API
tells it. A line that you write is a comment in it:
  @{server.bot} why is the bare except a problem?
Two lines are no comments: /push pushes a better version, /close closes the pull request.

Ctrl-C ends both."""
