"""Loading the projects that a command line names, with all that is wrong with any of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from threadline.cli import output
from threadline.cli.exits import UsageError
from threadline.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from threadline.project import Project

__all__ = ["Found", "discover", "load", "load_all", "load_channel"]

C = TypeVar("C")


@dataclass(slots=True)
class Found:
    """What the paths hold: the projects that load, and the problems of those that do not."""

    projects: list[Project] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """What does no harm."""
        return [warning for project in self.projects for warning in project.warnings]


def discover(paths: Sequence[Path]) -> Found:
    """Load every project of the paths, and keep every problem."""
    from threadline.project import load_project

    found = Found()
    for root in _roots(paths, found.problems):
        try:
            with output.kept_clean():
                found.projects.append(load_project(root))
        except ProjectError as error:
            found.problems.extend(error.problems)
    return found


def _roots(paths: Sequence[Path], problems: list[str]) -> list[Path]:
    """Return the projects; a path that names none does not hide what is wrong with the others."""
    from threadline.project import find_projects

    try:
        return find_projects(paths)
    except ProjectError as error:
        problems.extend(error.problems)
    roots: dict[Path, Path] = {}
    for path in paths:
        try:
            roots |= {root.resolve(): root for root in find_projects([path])}
        except ProjectError:
            continue
    return list(roots.values())


def load_all(paths: Sequence[Path]) -> list[Project]:
    """Load every project, or raise ProjectError with every problem; warnings go to stderr."""
    found = discover(paths)
    if found.problems:
        raise ProjectError(found.problems)
    _warn(found.warnings)
    return found.projects


def load(root: Path) -> Project:
    """Load one project; raises ProjectError."""
    from threadline.project import load_project

    with output.kept_clean():
        return load_project(root)


def load_channel(path: Path, kind: type[C], channel_id: str | None) -> tuple[Project, C]:
    """Load a project, and find its one channel of a kind, or the one of this id.

    Raises ProjectError and UsageError.
    """
    from threadline.cli.place import place_of

    project = load(place_of(path).project)
    found = {name: one for name, one in project.channels.items() if isinstance(one, kind)}
    what = kind.__name__
    title, example = what.removesuffix("Channel"), what.removesuffix("Channel").lower()
    if not found:
        raise UsageError(
            f"{path} has no {title} channel: write channel = {what}() into "
            f"agent/channels/{example}.py."
        )
    if channel_id is None and len(found) > 1:
        raise UsageError(f"{path} has several bots. Name one by --channel: {', '.join(found)}.")
    if channel_id is not None and channel_id not in found:
        raise UsageError(f"{path} has no {title} channel {channel_id!r}, but: {', '.join(found)}.")
    return project, found[channel_id or next(iter(found))]


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        output.note(output.paint(f"warning: {warning}", "yellow"))
