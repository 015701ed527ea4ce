"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from threadline.cli.exits import UsageError

__all__ = [
    "HERE",
    "AsOf",
    "BearerToken",
    "ChannelId",
    "DryRun",
    "Json",
    "ProjectPath",
    "ProjectPaths",
    "StateRoot",
    "Url",
    "known",
]

HERE = Path()

ProjectPath = Annotated[Path, Parameter(name="PROJECT", help="The folder that holds agent/.")]
ProjectPaths = Annotated[
    list[Path] | None,
    Parameter(
        name="PROJECT",
        show_default=lambda _: ".",
        help="Folders that hold agent/, or folders of such folders.",
    ),
]
Url = Annotated[
    str | None,
    Parameter(
        env_var="THREADLINE_URL",
        help="The address of an agent on a running host, such as http://127.0.0.1:3000/oncall.",
    ),
]
DryRun = Annotated[
    bool, Parameter(negative="", show_default=False, help="Run what reads, stub what writes.")
]
AsOf = Annotated[
    str | None,
    Parameter(help="The time that tools run as of, such as 2026-01-31T12:00:00Z."),
]
BearerToken = Annotated[
    str | None,
    Parameter(env_var="THREADLINE_BEARER_TOKEN", help="The token that the host asks for."),
]
StateRoot = Annotated[
    Path | None,
    Parameter(
        env_var="THREADLINE_STATE_ROOT",
        help="Where state is kept, as given to serve; the project's .threadline by default.",
    ),
]
ChannelId = Annotated[
    str | None, Parameter(name="--channel", help="Which channel, when a project has several bots.")
]
Json = Annotated[bool, Parameter(negative="", show_default=False, help="Print JSON.")]


def known(value: str, what: str) -> str:
    """Return a text that must not be empty.

    Raises UsageError.
    """
    if not value.strip():
        raise UsageError(f"{what} is empty.")
    return value
