"""``threadline serve``: run a host until a signal says stop."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from threadline.cli import options, output
from threadline.cli.exits import UsageError

if TYPE_CHECKING:
    from threadline.host.app import Host

__all__ = ["DEFAULTS", "ServeOptions", "ready_text", "serve"]

EXIT_SECONDS = 2.0

Level = Literal["debug", "info", "warning", "error"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How to serve."""

    mode: Annotated[
        Literal["multi", "single"],
        Parameter(help="multi mounts each agent at /SLUG, single one agent at /."),
    ] = "multi"
    host: Annotated[str, Parameter(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Parameter(help="The port to listen on; 0 takes a free one.")] = 3000
    state_root: Annotated[
        Path | None,
        Parameter(
            env_var="THREADLINE_STATE_ROOT",
            help="Where state is kept, a folder per agent; each project's .threadline by default.",
        ),
    ] = None
    bearer_token: Annotated[
        str | None,
        Parameter(
            env_var="THREADLINE_BEARER_TOKEN",
            help="Admit HTTP callers that send this token, and nobody else.",
        ),
    ] = None
    allow_anonymous: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Admit every HTTP caller, all as one principal."
        ),
    ] = False
    no_playground: Annotated[
        bool, Parameter(negative="", show_default=False, help="Serve no playground or index.")
    ] = False
    no_docs: Annotated[
        bool, Parameter(negative="", show_default=False, help="Serve no documentation.")
    ] = False
    public_url: Annotated[
        str | None,
        Parameter(env_var="THREADLINE_PUBLIC_URL", help="The host's address as callers know it."),
    ] = None
    log_level: Annotated[
        Level, Parameter(env_var="THREADLINE_LOG_LEVEL", help="What stderr shows.")
    ] = "info"
    max_body: Annotated[int, Parameter(help="The largest request body, in bytes.")] = 10_000_000

    def check(self) -> None:
        """Raise UsageError for what cannot be served."""
        if self.bearer_token is not None and self.allow_anonymous:
            raise UsageError(
                "--bearer-token (or THREADLINE_BEARER_TOKEN) and --allow-anonymous exclude each "
                "other: give one."
            )
        if self.bearer_token is not None:
            options.known(self.bearer_token, "The bearer token")
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is 0 to 65535, not {self.port}.")
        if self.max_body < 1:
            raise UsageError("--max-body is at least 1 byte.")
        if self.public_url and not self.public_url.startswith(("http://", "https://")):
            raise UsageError("--public-url begins with http:// or https://.")


DEFAULTS = ServeOptions()


def serve(
    projects: options.ProjectPaths = None,
    /,
    *,
    how: ServeOptions = DEFAULTS,
    dev: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Local development: schedules do not fire."
        ),
    ] = False,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print one JSON line when ready.")
    ] = False,
) -> None:
    """Serve one or more agents over HTTP until SIGTERM or Ctrl-C."""
    how.check()
    from threadline.cli.projects import load_all
    from threadline.host.app import Host, Options
    from threadline.host.logs import LogBook, configure
    from threadline.host.serve import serve as run_host

    book = LogBook()
    configure(book, level=how.log_level)
    loaded = load_all(projects or [options.HERE])

    async def main() -> None:
        host = Host(
            loaded,
            Options(
                mode=how.mode,
                host=how.host,
                port=how.port,
                state_root=how.state_root,
                dev=dev,
                bearer_token=how.bearer_token,
                allow_anonymous=how.allow_anonymous,
                playground=not how.no_playground,
                docs=not how.no_docs,
                public_url=how.public_url,
                max_body=how.max_body,
            ),
            book=book,
        )
        await run_host(host, on_ready=lambda host: _ready(host, json))
        # Everything is on disk. A tool that takes no cancellation, or that holds a thread, must
        # not hold up the exit.
        threading.Thread(target=_leave, name="exit", daemon=True).start()

    asyncio.run(main())


def _leave() -> None:
    """End the process when it does not end by itself."""
    time.sleep(EXIT_SECONDS)
    output.note("A tool still runs; the host ends without it.")
    os._exit(0)


def _ready(host: Host, json: bool) -> None:
    # What is loaded by now stays: looking through it again and again would take a fifth of a busy
    # host's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    _announce(host, json)


def _announce(host: Host, json: bool) -> None:
    agents = [
        {
            "slug": slug,
            "name": agent.project.name,
            "url": host.base_url + host.prefix(slug),
            "stateRoot": str(getattr(agent.store, "root", "")),
        }
        for slug, agent in host.agents.items()
    ]
    ready: dict[str, Any] = {
        "ok": True,
        "url": host.base_url,
        "port": host.port,
        "pid": os.getpid(),
        "agents": agents,
    }
    if json:
        output.write_json(ready, one_line=True)
    else:
        output.write(
            ready_text(
                [(str(agent["name"]), str(agent["url"])) for agent in agents],
                playground=host.options.playground,
                bearer=host.options.bearer_token is not None,
            )
        )


def ready_text(agents: list[tuple[str, str]], *, playground: bool, bearer: bool) -> str:
    """Return what a host that is ready says: addresses, and three lines to paste into a shell."""
    lines = []
    for name, url in agents:
        shown = url + "/playground" if playground else url
        lines.append(f"{output.paint(name, 'bold')}  {output.paint(shown, 'cyan')}")
    auth = ' -H "authorization: Bearer $THREADLINE_BEARER_TOKEN"' if bearer else ""
    lines += [
        "",
        "Paste these into a shell, one after another:",
        "",
        *curl_lines(agents[0][1], auth),
    ]
    return "\n".join([*lines, "", "Ctrl-C drains and stops."])


def curl_lines(url: str, auth: str = "") -> list[str]:
    """Return three shell lines: start a session, stream it, follow up; they need curl and sh.

    The stream ends by itself after ten seconds, so that the third line gets its turn.
    """
    send = f"curl -sS{auth} -H 'content-type: application/json'"
    cut = """sed 's/.*"{0}":"\\([^"]*\\)".*/\\1/'"""
    session, token = cut.format("sessionId"), cut.format("continuationToken")
    start = (
        f'R=$({send} -d \'{{"message":"What can you do?"}}\' {url}/v1/session); echo "$R"; '
        f'S=$(echo "$R" | {session}); T=$(echo "$R" | {token})'
    )
    stream = f'curl -sN -m 10{auth} "{url}/v1/session/$S/stream?startIndex=0"'
    body = '{\\"continuationToken\\":\\"$T\\",\\"message\\":\\"Make it shorter.\\"}'
    return [start, stream, f'{send} -d "{body}" "{url}/v1/session/$S"']
