"""``threadline slack``: the manifest of an agent's app, and what is wrong with its set-up."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from threadline.cli import options, output
from threadline.cli.exits import UsageError

if TYPE_CHECKING:
    from threadline.project import Project
    from threadline_slack.channel import SlackChannel

__all__ = ["app"]


app = App(name="slack", help="Set up an agent's Slack app, and check it.")

PublicUrl = Annotated[
    str | None,
    Parameter(
        help="The agent's address as Slack reaches it, such as https://agents.example.com/oncall."
    ),
]
Transport = Annotated[
    Literal["socket", "http"] | None,
    Parameter(
        help="How events come; by default what --url and the variables ask for, else socket.",
    ),
]


@app.command
def manifest(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    channel: options.ChannelId = None,
    url: PublicUrl = None,
    transport: Transport = None,
    org: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Let a whole organisation install the app."
        ),
    ] = False,
    yaml: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print YAML; needs PyYAML.")
    ] = False,
) -> None:
    """Print the manifest of the app that the agent needs, to create it from or to update it."""
    from threadline_slack.setup.manifest import address, needs_of
    from threadline_slack.setup.manifest import manifest as made

    loaded, found = _project(project, channel)
    env = _environment(found)
    many = bool(env["CLIENT_ID"])
    socket = transport == "socket" if transport is not None else _by_socket(env, url, many=many)
    if url is None and (many or not socket):
        why = "OAuth returns to it" if socket else "Slack sends events to it"
        raise UsageError(f"Give --url, the agent's public address: {why}.")
    if url is not None and socket and not many:
        raise UsageError("With Socket Mode Slack calls no address: leave --url out.")
    if url is not None and not url.startswith("https://"):
        raise UsageError(f"Slack takes addresses with https:// only, not {url!r}.")
    shown = made(
        needs_of(
            found,
            name=loaded.name,
            description=loaded.agent.description,
            socket=socket,
            many=many,
        ),
        events_url=None if url is None else address(url, found, "/events"),
        redirect_url=None if url is None else address(url, found, _return_path(found)),
        org=org,
    )
    if yaml:
        output.write(_yaml(shown))
    else:
        output.write_json(shown)
    output.note(
        "Create the app from this at https://api.slack.com/apps?new_app=1 (From a manifest), or "
        "put it into App Manifest of the app there is, and install the app again."
    )


@app.command
def doctor(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    channel: options.ChannelId = None,
    url: PublicUrl = None,
    json: options.Json = False,
) -> int:
    """Check tokens, scopes, the way events come and the channels; print each problem's fix."""
    from threadline.cli.checks import report
    from threadline.clock import SystemClock
    from threadline_slack.setup.doctor import examine
    from threadline_slack.setup.manifest import address, needs_of

    loaded, found = _project(project, channel)
    env = _environment(found)
    needs = needs_of(
        found, name=loaded.name, socket=bool(env["APP_TOKEN"]), many=bool(env["CLIENT_ID"])
    )
    checks = asyncio.run(
        examine(
            needs,
            os.environ,
            prefix=found.env_prefix,
            events_url=None if url is None else address(url, found, "/events"),
            install_url=None if url is None else address(url, found, "/install"),
            clock=SystemClock(),
        )
    )
    return report(checks, json=json)


@app.command
def demo(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    channel: options.ChannelId = None,
    server: Annotated[
        Path | None,
        Parameter(help="The program of the local Slack server; without it FakeSlack is served."),
    ] = None,
    port: Annotated[int, Parameter(help="The port of the Slack page; 0 takes a free one.")] = 0,
    host_port: Annotated[int, Parameter(help="The agent's port; 0 takes a free one.")] = 0,
    first: Annotated[str, Parameter(name="--try", help="What to suggest to write.")] = "hello",
) -> None:
    """Serve the agent in a Slack on this machine, with a page to write in, until Ctrl-C."""
    from threadline.host.logs import LogBook, configure
    from threadline_slack.setup.demo.run import ready_text, run
    from threadline_slack.setup.demo.servers import Fake, Local
    from threadline_slack.setup.manifest import user_name

    loaded, found = _project(project, channel)
    bot = user_name(loaded.name)
    book = LogBook()
    configure(book, level="warning")

    async def main() -> None:
        slack = Fake(bot, port) if server is None else Local(server, bot, port)

        def ready(url: str) -> None:
            output.write(ready_text(slack, loaded, bot, url, first))

        await run(
            loaded,
            found,
            slack,
            prefix=found.env_prefix,
            host_port=host_port,
            book=book,
            on_ready=ready,
        )

    asyncio.run(main())


def _project(path: Any, channel: str | None) -> tuple[Project, SlackChannel]:
    """Return a project, and the one Slack channel that is meant."""
    from threadline.cli.projects import load_channel
    from threadline_slack.channel import SlackChannel

    return load_channel(path, SlackChannel, channel)


def _environment(channel: SlackChannel) -> dict[str, str]:
    """Return what the environment says of a bot, empty for what it does not."""
    from threadline_slack.setup.demo.run import NAMES

    prefix = channel.env_prefix
    return {name: os.environ.get(f"{prefix}SLACK_{name}", "").strip() for name in NAMES}


def _by_socket(env: dict[str, str], url: str | None, *, many: bool) -> bool:
    """Tell how events come where the command line does not say it; OAuth needs an address too."""
    if env["APP_TOKEN"]:
        return url is None or many
    return url is None and not env["SIGNING_SECRET"]


def _return_path(channel: SlackChannel) -> str:
    """Return the route that OAuth comes back to."""
    paths = [route.path for route in channel.routes if route.method == "GET"]
    return next((path for path in paths if "callback" in path or "redirect" in path), "/oauth")


def _yaml(value: Any) -> str:
    import importlib

    try:
        library = importlib.import_module("yaml")
    except ImportError:
        raise UsageError(
            "YAML needs PyYAML: pip install pyyaml, or leave --yaml out; Slack takes JSON too."
        ) from None
    return str(library.safe_dump(value, sort_keys=False, allow_unicode=True)).rstrip()
