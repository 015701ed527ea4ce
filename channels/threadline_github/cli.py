"""``threadline github``: an agent's App, what is wrong with its set-up, deliveries by hand."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from threadline.cli import exits, options, output
from threadline.cli.exits import HostUnreachableError, UsageError

if TYPE_CHECKING:
    from threadline.project import Project
    from threadline_github.channel import GitHubChannel
    from threadline_github.inbound.decide import Me
    from threadline_github.setup.manifest import Needs
    from threadline_github.setup.replay import Answered, Delivery

__all__ = ["app"]

_LONGEST = 300
_ADMITTED = {
    "started": "a turn has started",
    "queued": "it waits behind what runs",
    "preempted": "it has interrupted what ran",
    "duplicate": "it was accepted before; --new-id sends a file as something new",
}
_DOCS = (
    "https://docs.github.com/en/apps/sharing-github-apps/registering-a-github-app-from-a-manifest"
)

app = App(name="github", help="Set up an agent's GitHub App, check it, and send it deliveries.")

PublicUrl = Annotated[
    str | None,
    Parameter(
        help="The agent's address as GitHub reaches it, such as https://agents.example.com/review."
    ),
]


@app.command
def manifest(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    channel: options.ChannelId = None,
    url: PublicUrl = None,
    org: Annotated[
        str | None, Parameter(help="The organisation that is to own the App; else it is yours.")
    ] = None,
    html: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Print a page with a button that registers it."
        ),
    ] = False,
) -> None:
    """Print the manifest of the GitHub App that the agent needs, to register it from."""
    from threadline_github.config import API_URL
    from threadline_github.setup.manifest import address, link, page, register_at
    from threadline_github.setup.manifest import manifest as made

    loaded, found = _project(project, channel)
    if url is None:
        raise UsageError("Give --url, the agent's public address: GitHub sends events to it.")
    if not url.startswith(("https://", "http://")):
        raise UsageError(f"{url!r} is no address: it begins with https://.")
    prefix = found.env_prefix
    api_url = _variable(found, "API_URL").rstrip("/") or API_URL
    shown = made(_needs(loaded, found), url=url, hook_url=address(url, found))
    at = register_at(api_url, org)
    if html:
        output.write(page(shown, at, api_url, prefix).rstrip())
    else:
        output.write_json(shown)
    names = [f"{prefix}GITHUB_{name}" for name in ("APP_ID", "APP_PRIVATE_KEY", "WEBHOOK_SECRET")]
    output.note(
        f"Register the App with these settings at\n  {link(shown, at)}\n"
        f"or post this as the field 'manifest' of a form to {at}, which the page of --html does "
        f"({_DOCS}).\n"
        f"Then set {names[0]}, {names[1]} (a private key that the App's settings make) and "
        f"{names[2]} (the webhook's, made up by you), install the App in the repositories, and "
        f"run `threadline github doctor --url {url}`, which also asks the host."
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
    """Check credentials, permissions, webhooks, deliveries and git; print each problem's fix."""
    from threadline.cli.checks import report
    from threadline.clock import SystemClock
    from threadline_github.setup.doctor import examine
    from threadline_github.setup.manifest import address

    loaded, found = _project(project, channel)
    checks = asyncio.run(
        examine(
            _needs(loaded, found),
            os.environ,
            prefix=found.env_prefix,
            url=None if url is None else address(url, found),
            clock=SystemClock(),
        )
    )
    return report(checks, json=json)


@app.command
def replay(
    what: Annotated[
        str, Parameter(name="WHAT", help="owner/repo#7, or a file with a payload or a delivery.")
    ],
    project: options.ProjectPath = options.HERE,
    /,
    *,
    event: Annotated[
        str | None, Parameter(help="A file's event, such as pull_request; else it is guessed.")
    ] = None,
    comment: Annotated[
        str | None, Parameter(help="Somebody says this there; else a pull request is opened.")
    ] = None,
    login: Annotated[
        str | None, Parameter(name="--as", help="Who does it; else it is the author.")
    ] = None,
    new_id: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Send a file as something that happens now."
        ),
    ] = False,
    channel: options.ChannelId = None,
    url: options.Url = None,
    state_root: options.StateRoot = None,
    json: options.Json = False,
) -> int:
    """Send a running host a signed delivery: one that was saved, or one of a pull request.

    owner/repo#7 is read with the bot's credentials; nothing is written at GitHub. A file is a
    webhook's payload, or a delivery as GitHub's deliveries API tells it, which keeps its id.
    """
    from threadline_github.setup.replay import reasons, send, target

    asked = target(what)
    if asked is None and (comment is not None or login is not None):
        raise UsageError("--comment and --as are for owner/repo#7; a file says who did what.")
    if asked is not None and (event is not None or new_id):
        raise UsageError("--event and --new-id are for a file.")
    _, found = _project(project, channel)

    async def work() -> tuple[Delivery, Answered, list[str]]:
        where = await _webhook(found, project, url, state_root)
        if asked is None:
            made, me = _saved(what, event, new_id=new_id), None
        else:
            made, me = await _synthesised(found, *asked, comment, login)
        answered = await send(where, _secret(found), made)
        if not answered.ok or answered.accepted:
            return made, answered, []
        return made, answered, reasons(made, me or await _me(found), found.rules)

    delivery, answered, why = asyncio.run(work())
    if json:
        said = {"status": answered.status, "answer": answered.body, "reasons": why}
        output.write_json({"event": delivery.event, "deliveryId": delivery.guid, **said})
    else:
        output.write("\n".join(_told(delivery, answered, why, found.env_prefix)))
    return exits.OK if answered.ok else exits.FAILED


@app.command
def demo(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    channel: options.ChannelId = None,
    server: Annotated[
        Path | None,
        Parameter(help="The program of the local GitHub server; without it FakeGitHub is served."),
    ] = None,
    port: Annotated[int, Parameter(help="The port of GitHub's addresses; 0 takes a free one.")] = 0,
    host_port: Annotated[int, Parameter(help="The agent's port; 0 takes a free one.")] = 0,
) -> None:
    """Serve the agent with a GitHub on this machine, where a pull request opens, until Ctrl-C."""
    from threadline_github.setup.demo.run import demo as served

    loaded, found = _project(project, channel)
    served(loaded, found.id, found, server=server, port=port, host_port=host_port)


def _saved(file: str, event: str | None, *, new_id: bool) -> Delivery:
    """Return the delivery that a file holds; raises UsageError."""
    from threadline.clock import SystemClock
    from threadline_github.setup.replay import read

    try:
        text = Path(file).read_text("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{file} is neither owner/repo#7 nor a file to read: {why}.") from None
    return read(text, event, new_id=new_id, now=SystemClock().now())


async def _synthesised(
    channel: GitHubChannel, repository: str, number: int, comment: str | None, login: str | None
) -> tuple[Delivery, Me]:
    """Return a delivery made of what GitHub says, and who the bot is."""
    from threadline.clock import SystemClock
    from threadline_github.client import Client
    from threadline_github.config import Config
    from threadline_github.setup.replay import Asked, synthesised

    clock = SystemClock()
    client = Client(Config.read(os.environ, channel.env_prefix), clock)
    try:
        return await synthesised(client, Asked(repository, number, comment, login), clock)
    finally:
        await client.close()


async def _me(channel: GitHubChannel) -> Me:
    """Return who the bot is, as far as the variables and GitHub tell."""
    from threadline.clock import SystemClock
    from threadline.errors import ThreadlineError
    from threadline_github.client import Client
    from threadline_github.config import Config
    from threadline_github.inbound.decide import Me
    from threadline_github.setup.replay import me_of

    try:
        client = Client(Config.read(os.environ, channel.env_prefix), SystemClock())
    except ThreadlineError:
        return Me()
    try:
        return await me_of(client)
    except ThreadlineError:
        return Me()
    finally:
        await client.close()


async def _webhook(
    channel: GitHubChannel, project: Path, url: str | None, state_root: Path | None
) -> str:
    """Return the address of the channel's webhook on a running host."""
    from threadline.cli.target import Target
    from threadline_github.setup.manifest import address

    found = await Target(project, url, None, state_root).address()
    if found is None:
        raise HostUnreachableError(
            f"No host serves {project} on this machine.\nStart one with 'threadline serve', or "
            "give --url."
        )
    if not found.startswith(("https://", "http://")):
        raise UsageError(f"{found!r} is no address of a host: it begins with http:// or https://.")
    return address(found, channel)


def _told(delivery: Delivery, answered: Answered, why: list[str], prefix: str) -> list[str]:
    """Return what a person reads of an answer."""
    what = f"{delivery.event} {delivery.guid}: {answered.status}"
    if answered.status == 401:
        name = f"{prefix}GITHUB_WEBHOOK_SECRET"
        return [f"{what}, the host does not take the signature.", f"Is its {name} another one?"]
    if not answered.ok:
        said = answered.object.get("message") or str(answered.body)[:_LONGEST]
        return [f"{what}, {said or 'it was refused.'}"]
    if not answered.accepted:
        return [f"{what}, it starts nothing: {'; '.join(why) or 'the log of the host says why'}."]
    return [
        f"{what}, session {one['sessionId']}: {_ADMITTED.get(str(one.get('admitted')), 'accepted')}"
        for one in answered.accepted
    ]


def _needs(project: Project, channel: GitHubChannel) -> Needs:
    from threadline_github.setup.manifest import needs_of

    return needs_of(
        channel,
        name=project.name,
        description=project.agent.description,
        tools=project.tools,
    )


def _project(path: Any, channel: str | None) -> tuple[Project, GitHubChannel]:
    """Return a project, and the one GitHub channel that is meant."""
    from threadline.cli.projects import load_channel
    from threadline_github.channel import GitHubChannel

    return load_channel(path, GitHubChannel, channel)


def _variable(channel: GitHubChannel, name: str) -> str:
    """Return what the environment says of a bot, empty when it says nothing."""
    return os.environ.get(f"{channel.env_prefix}GITHUB_{name}", "").strip()


def _secret(channel: GitHubChannel) -> str:
    """Return the webhook's secret; raises UsageError."""
    secret = _variable(channel, "WEBHOOK_SECRET")
    if not secret:
        name = f"{channel.env_prefix}GITHUB_WEBHOOK_SECRET"
        raise UsageError(f"{name} is not set. The host takes only what is signed with it.")
    return secret
