"""``threadline info`` and ``threadline version``."""

from __future__ import annotations

import asyncio
import platform
from typing import TYPE_CHECKING, Any

from threadline.cli import options, output
from threadline.cli.target import Target
from threadline.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["info", "info_text", "version"]


def info(
    project: options.ProjectPath = options.HERE,
    /,
    *,
    url: options.Url = None,
    bearer_token: options.BearerToken = None,
    json: options.Json = False,
) -> None:
    """Show what discovery found in a project, or what a host at --url found."""
    target = Target(project, url, bearer_token)
    found = asyncio.run(_ask(target, url) if url is not None else _look(target))
    if json:
        output.write_json(found)
    else:
        output.write(info_text(found))


async def _ask(target: Target, url: str) -> dict[str, Any]:
    async with target.client(url) as client:
        return await client.info()


async def _look(target: Target) -> dict[str, Any]:
    from threadline.cli.inprocess import describe
    from threadline.cli.projects import load

    place = target.place()
    assert place is not None
    project = load(place.project)
    # Looking at an installed channel type imports its package, which may print.
    with output.kept_clean():
        return await describe(project, place.state)


def info_text(found: Mapping[str, Any]) -> str:
    """Return ``/v1/info`` for people."""
    harness = found.get("harness") or "none; turns fail until agent.py configures one"
    model = found.get("model") or "chosen when a turn starts"
    lines = [
        output.paint(f"{found['name']} ({found['slug']})", "bold"),
        f"harness    {harness}",
        *([f"model      {model}"] if found.get("harness") else []),
        f"threadline {found['version']}",
    ]
    if found.get("description"):
        lines.insert(1, str(found["description"]))
    lines += _section("tools", [_tool(tool) for tool in found["tools"]])
    lines += _section("skills", [f"{s['name']}  {s['description']}" for s in found["skills"]])
    kinds = found.get("artifacts", {}).get("kinds", ())
    lines += _section("artifacts", [f"{k['name']}  {k['description']}" for k in kinds])
    channels = [line for channel in found["channels"] for line in _channel(channel)]
    lines += _section("channels", channels)
    types = [_channel_type(type_) for type_ in found.get("channelTypes", ())]
    lines += _section("installed channel types", types)
    lines += _section("diagnostics", [str(line) for line in found["diagnostics"]])
    return "\n".join(lines)


def _section(title: str, entries: list[str]) -> list[str]:
    return (
        ["", output.paint(title, "bold"), *(f"  {entry}" for entry in entries)] if entries else []
    )


def _tool(tool: Mapping[str, Any]) -> str:
    return "  ".join(str(tool[key]) for key in ("name", "effect", "source") if tool.get(key))


def _channel_type(type_: Mapping[str, Any]) -> str:
    named = [type_["name"], type_["distribution"] or "?", type_["version"] or "?", type_["value"]]
    problem = [output.paint(f"problem: {type_['problem']}", "red")] if "problem" in type_ else []
    return "  ".join([*named, *problem])


def _channel(channel: Mapping[str, Any]) -> list[str]:
    routes = [f"  {route['method']:6} {route['path']}" for route in channel["routes"]]
    return [f"{channel['id']}  {channel['admission']}", *routes]


def version(*, json: options.Json = False) -> None:
    """Print the version."""
    if json:
        output.write_json({"version": VERSION, "python": platform.python_version()})
    else:
        output.write(f"threadline {VERSION}")
