"""Tools that every agent's model gets unless its harness reads the workspace by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from threadline.agent.calls import Catalog
from threadline.agent.context import ToolContext
from threadline.agent.tools import Tool, tool
from threadline.errors import ToolFailed
from threadline.session import workspace

__all__ = ["with_builtins"]

_MAX_READ = 200_000


class _Skill(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def text(self) -> str: ...


@tool
def list_files(ctx: ToolContext) -> list[str]:
    """List the files of the workspace, at most 500."""
    return workspace.list_files(ctx.workspace) if ctx.workspace is not None else []


@tool
def read_file(path: str, ctx: ToolContext) -> str:
    """Read a text file of the workspace.

    Args:
        path: relative to the workspace, for example "notes/plan.md".
    """
    if ctx.workspace is None:
        raise ToolFailed("This call has no workspace.")
    try:
        data = workspace.read_file(ctx.workspace, path, _MAX_READ + 1)
    except OSError as error:
        raise ToolFailed(f"{path} cannot be read: {error.strerror or error}.") from error
    text = data[:_MAX_READ].decode("utf-8", "replace")
    return text if len(data) <= _MAX_READ else f"{text}\n[cut at {_MAX_READ} bytes]"


def _load_skill(skills: Mapping[str, _Skill]) -> Tool:
    listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills.values())

    @tool(description=f"Load a procedure before you follow it. There are:\n{listed}")
    def load_skill(name: str) -> str:
        if name not in skills:
            raise ToolFailed(f"There is no skill {name!r}. There are: {', '.join(skills)}.")
        return skills[name].text

    return load_skill


def with_builtins(catalog: Catalog, skills: Mapping[str, Any]) -> Catalog:
    """Return the catalog with the built-in tools; a project's tool of the same name wins."""
    extra = [list_files, read_file]
    if skills:
        extra.append(_load_skill(skills))
    added = [t.renamed(t.name, "threadline") for t in extra if t.name not in catalog]
    return Catalog([*catalog, *added])
