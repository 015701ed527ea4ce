"""``threadline validate``: every problem of the projects, at once."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from threadline.cli import exits, options, output

__all__ = ["validate"]


def validate(
    projects: options.ProjectPaths = None,
    /,
    *,
    json: options.Json = False,
    quiet: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print nothing when all is well.")
    ] = False,
) -> int:
    """Check agent projects; print every problem and warning as file:line: what to do."""
    from threadline.cli.projects import discover

    found = discover(projects or [options.HERE])
    good = not found.problems
    if json:
        output.write_json(
            {
                "ok": good,
                "projects": [
                    {"slug": p.slug, "name": p.name, "root": str(p.root)} for p in found.projects
                ],
                "problems": found.problems,
                "warnings": found.warnings,
            }
        )
        return exits.OK if good else exits.FAILED
    lines = [output.paint(problem, "red") for problem in found.problems]
    lines += [
        output.paint(f"{place}: warning: {said}", "yellow")
        for place, _, said in (warning.partition(": ") for warning in found.warnings)
    ]
    if good and not quiet:
        lines += [f"{project.slug}: {_holds(len(project.tools))}" for project in found.projects]
    if lines:
        output.write("\n".join(lines))
    if not good:
        count = len(found.problems)
        output.complain(f"{count} problem{'s' if count > 1 else ''}.")
    return exits.OK if good else exits.FAILED


def _holds(tools: int) -> str:
    return f"ok, {tools} tool{'' if tools == 1 else 's'}"
