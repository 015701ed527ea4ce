"""The manifest of an agent's GitHub App: made from what its channel does; no I/O.

https://docs.github.com/en/apps/sharing-github-apps/registering-a-github-app-from-a-manifest
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from threadline_github.inbound.decide import DEFAULT_ON

if TYPE_CHECKING:
    from threadline.agent.tools import Tool
    from threadline_github.channel import GitHubChannel

__all__ = [
    "EVENT_PERMISSIONS",
    "Needs",
    "address",
    "events",
    "link",
    "manifest",
    "needs_of",
    "page",
    "permissions",
    "register_at",
    "site",
]

_NAME = 34
_SPOKEN = frozenset({"command", "comment", "mention", "review"})
_CODE = frozenset(
    {
        "closed",
        "draft",
        "edited",
        "opened",
        "ready_for_review",
        "reopened",
        "review_requested",
        "synchronize",
    }
)
_REPORTS = "github_check"
"""The type of what a tool returns to report a check, in its schema."""

EVENT_PERMISSIONS = {
    "check_run": "checks",
    "check_suite": "checks",
    "issue_comment": "issues",
    "issues": "issues",
    "pull_request": "pull_requests",
    "pull_request_review": "pull_requests",
    "pull_request_review_comment": "pull_requests",
    "repository": "metadata",
}
"""The permission without which GitHub lets no App subscribe to an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an agent's App has to be allowed and told.

    ``on`` is what starts turns, as :class:`~threadline_github.inbound.decide.Rules` has it.
    ``checks``: it reports check runs. ``worktree``: it clones the repositories. ``repositories``:
    full names, None for all that it is installed in. ``path`` is where its webhook comes to, as
    the end of an address.
    """

    name: str
    description: str = ""
    on: frozenset[str] = DEFAULT_ON
    checks: bool = False
    worktree: bool = True
    repositories: frozenset[str] | None = None
    path: str = "/v1/channels/github"


def permissions(needs: Needs) -> dict[str, str]:
    """Return the repository permissions, ``"read"`` or ``"write"`` by name, sorted.

    Comments, reviews and labels of a pull request need ``pull_requests`` alone; ``issues`` is for
    those who speak to the agent, whose comments GitHub counts as an issue's.
    """
    found = {"metadata": "read", "pull_requests": "write"}
    if needs.worktree:
        found["contents"] = "read"
    if needs.on & _SPOKEN:
        found["issues"] = "write"
    if needs.checks:
        found["checks"] = "write"
    elif "check_failed" in needs.on:
        found["checks"] = "read"
    return dict(sorted(found.items()))


def events(needs: Needs) -> list[str]:
    """Return the events to subscribe to, sorted.

    ``workflow_run`` is not among them: each run of a workflow has a check suite. A worktree is
    removed when its pull request closes, and a repository's new name is followed.
    """
    found = {"repository"}
    if needs.on & _CODE or needs.worktree:
        found.add("pull_request")
    if needs.on & _SPOKEN:
        found |= {"issue_comment", "pull_request_review", "pull_request_review_comment"}
    if needs.on & (_SPOKEN - {"review"}):
        found.add("issues")
    if needs.checks or "check_failed" in needs.on:
        found |= {"check_run", "check_suite"}
    return sorted(found)


def manifest(needs: Needs, *, url: str, hook_url: str) -> dict[str, Any]:
    """Return the manifest; ``url`` is the App's home page, ``hook_url`` where its events come to.

    The App is private: only its owner can install it.
    """
    description = " ".join(needs.description.split())
    return {
        "name": _short(needs.name, _NAME),
        **({"description": description} if description else {}),
        "url": url,
        "hook_attributes": {"url": hook_url, "active": True},
        "public": False,
        "default_permissions": permissions(needs),
        "default_events": events(needs),
    }


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


# How an App is registered


def site(api_url: str) -> str:
    """Return the address of the web pages of a server, by that of its API.

    ``https://api.github.com`` and ``https://api.<name>.ghe.com`` have them beside the API,
    ``https://<host>/api/v3`` above it.
    """
    parts = urlsplit(api_url)
    if parts.netloc.startswith("api."):
        return f"{parts.scheme}://{parts.netloc.removeprefix('api.')}"
    return api_url.rstrip("/").removesuffix("/api/v3")


def register_at(api_url: str, org: str | None = None) -> str:
    """Return the page where a person, or an organisation, registers an App."""
    owner = f"/organizations/{org}" if org else ""
    return f"{site(api_url)}{owner}/settings/apps/new"


def link(made: dict[str, Any], at: str) -> str:
    """Return an address that opens the page with a manifest's settings filled in.

    https://docs.github.com/en/apps/sharing-github-apps/registering-a-github-app-using-url-parameters
    """
    hook = made["hook_attributes"]
    plain = {key: made[key] for key in ("name", "description", "url") if key in made}
    query = [
        *plain.items(),
        ("public", "false"),
        ("webhook_active", "true"),
        ("webhook_url", hook["url"]),
        *made["default_permissions"].items(),
        *(("events[]", event) for event in made["default_events"]),
    ]
    return f"{at}?{urlencode(query, safe='[]:/')}"


_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Register {name}</title>
<form action="{at}" method="post">
<p>Register the GitHub App <b>{name}</b>, with the settings of its manifest.</p>
<input type="hidden" name="manifest" value="{manifest}">
<button>Register at GitHub</button>
</form>
<p>Afterwards GitHub leads to {url}?code=&hellip; Within the hour, take the code from there:</p>
<pre>curl -X POST {api}/app-manifests/CODE/conversions</pre>
<p>The answer has <code>id</code>, <code>pem</code> and <code>webhook_secret</code>, for
{prefix}GITHUB_APP_ID, {prefix}GITHUB_APP_PRIVATE_KEY and {prefix}GITHUB_WEBHOOK_SECRET.</p>
"""


def page(made: dict[str, Any], at: str, api_url: str, prefix: str = "") -> str:
    """Return a page with a button that posts a manifest to GitHub, as its API wants it."""
    whole = made | {"redirect_url": made["url"]}
    filled = {
        "name": made["name"],
        "at": at,
        "manifest": json.dumps(whole, ensure_ascii=False),
        "url": made["url"],
        "api": api_url,
        "prefix": prefix,
    }
    return _PAGE.format_map({key: html.escape(value) for key, value in filled.items()})


# What a channel needs


def needs_of(
    channel: GitHubChannel,
    *,
    name: str,
    description: str | None = None,
    tools: Iterable[Tool] = (),
) -> Needs:
    """Return what a channel needs; a tool of ``tools`` may say that it returns a Check."""
    return Needs(
        name=name,
        description=description or "",
        on=channel.rules.on,
        checks=channel.check is not None or any(map(_reports, tools)),
        worktree=channel.worktree,
        repositories=channel.rules.repositories,
        path=_path(channel),
    )


def _reports(tool: Tool) -> bool:
    """Return whether a tool reports checks, by the type that it says it returns."""
    return tool.output is not None and _REPORTS in json.dumps(tool.output.schema)


def address(base: str, channel: GitHubChannel) -> str:
    """Return the address of a channel's webhook; ``base`` may be that address already."""
    path, base = _path(channel), base.rstrip("/")
    return base if base.endswith(path) else base + path


def _path(channel: GitHubChannel) -> str:
    """Return where the channel's one route is, below the agent's address."""
    route = next((route.path for route in channel.routes if route.method == "POST"), "")
    return channel.prefix + route.rstrip("/")
