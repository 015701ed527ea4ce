"""``threadline init``: write a new project, or a channel or a tool with its test.

What is written comes from the files in ``templates/``, whose names and texts hold placeholders.
"""

from __future__ import annotations

import keyword
import re
import shlex
import string
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from threadline.cli import options, output
from threadline.cli.exits import UsageError
from threadline.errors import ThreadlineError
from threadline.ids import is_slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["NotWrittenError", "init"]

TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAKEN = {
    "channel": {"http": "every agent has the HTTP channel already"},
    "tool": dict.fromkeys(
        ("list_files", "load_skill", "read_file"), "every agent has this tool already"
    ),
}


class NotWrittenError(ThreadlineError):
    """A file is there already, or cannot be written; nothing was written."""

    code = "not_written"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to write below ``root``: the text of each file, by its relative path."""

    root: Path
    new: bool
    files: Mapping[str, str]


def init(
    directory: Annotated[
        Path | None,
        Parameter(name="DIR", help="The project's folder; its name is the agent's in URLs."),
    ] = None,
    /,
    *,
    channel: Annotated[
        str | None, Parameter(help="Add a channel of this name, with its conformance test.")
    ] = None,
    tool: Annotated[str | None, Parameter(help="Add a tool of this name, with its test.")] = None,
    json: options.Json = False,
) -> None:
    """Write a new agent project, or add a channel or a tool to one. Nothing is overwritten.

    The new project runs as it is, on a demo model that needs no key.
    """
    plan = _plan(directory, channel, tool)
    _write(plan)
    if json:
        output.write_json({"ok": True, "root": str(plan.root), "files": list(plan.files)})
    else:
        output.write(_told(plan, channel, tool))


def _plan(directory: Path | None, channel: str | None, tool: str | None) -> _Plan:
    """Decide what to write, without writing; raises UsageError for what cannot be."""
    names = {"channel": channel, "tool": tool}
    for kind, name in names.items():
        if name is not None:
            _check_name(kind, name)
    root = directory or Path()
    adds = channel is not None or tool is not None
    here = (root / "agent").is_dir()
    if directory is None and not here:
        raise UsageError(
            "There is no agent/ here to add to. Name the folder of a project, or of a new one: "
            "threadline init DIR."
            if adds
            else "Name the folder of the new project: threadline init DIR."
        )
    new = not (adds and here)
    if new:
        _check_folder(root)
    slug = root.resolve().name.lower()
    values = {"slug": slug, "title": slug.replace("-", " ").capitalize()}
    files = _files("project", values) if new else {}
    for kind, name in names.items():
        if name is not None:
            own = {"name": name, "env": f"{name.upper()}_TOKEN"}
            there = _installed(name) if kind == "channel" else None
            files |= _files("installed" if there else kind, values | own | (there or {}))
    return _Plan(root, new, files)


def _installed(name: str) -> dict[str, str] | None:
    """Return where an installed channel of this name is imported from; None when there is none."""
    from threadline.project import channel_types

    entry = channel_types().get(name)
    if entry is None:
        return None
    module, _, kind = entry.value.partition(":")
    return {"module": module, "kind": kind}


def _check_name(kind: str, name: str) -> None:
    """Raise UsageError when a name can name no file, no function or is taken."""
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:64]
        fits = better != name and _NAME.fullmatch(better) and not keyword.iskeyword(better)
        raise UsageError(
            f'{name!r} cannot name a {kind}: use 1 to 64 lower-case letters, digits and "_", a '
            f"letter first, and no word of Python's{f', such as {better}' if fits else ''}."
        )
    if name in _TAKEN[kind]:
        raise UsageError(f"{name!r} cannot name a {kind}: {_TAKEN[kind][name]}. Use another name.")


def _check_folder(root: Path) -> None:
    """Raise UsageError when a folder cannot become a project."""
    name = root.resolve().name
    if not is_slug(name.lower()):
        raise UsageError(
            f"{name!r} cannot name an agent: give the folder a name of lower-case letters, digits "
            'and "-" that is not a route of the host, such as docs, v1 or playground.'
        )
    for place in (root, *root.absolute().parents):
        if place.exists():
            if not place.is_dir():
                raise UsageError(f"{place} is a file, so no project can be made in {root}.")
            return


def _files(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of one kind of template, filled in, by their relative paths."""
    folder = TEMPLATES / kind
    files = {}
    for template in sorted(folder.rglob(f"*{_SUFFIX}")):
        path = template.relative_to(folder).as_posix().removesuffix(_SUFFIX)
        path = path.replace("NAME", values.get("name", "")).replace("dot-", ".")
        text = template.read_text("utf-8")
        files[path] = string.Template(text).substitute(values)
    return files


def _write(plan: _Plan) -> None:
    """Write every file, or none.

    Raises NotWrittenError.
    """
    there = [path for path in plan.files if _exists(plan.root / path)]
    if plan.new and not there and _exists(plan.root / "agent"):
        there = ["agent"]
    if there:
        raise NotWrittenError(_refusal(plan.root, there))
    written: list[Path] = []
    try:
        for path, text in plan.files.items():
            file = plan.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8", newline="\n") as opened:
                written.append(file)
                opened.write(text)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        raise NotWrittenError(
            f"{error.filename or plan.root} cannot be written: {error.strerror}."
        ) from error


def _exists(path: Path) -> bool:
    """Tell whether something is there, also a link that leads nowhere."""
    return path.exists() or path.is_symlink()


def _refusal(root: Path, there: Iterable[str]) -> str:
    lines = [f"Nothing was written, because this is there already in {root}:"]
    lines += [f"  {path}" for path in there]
    if "agent" in there or "agent/agent.py" in there:
        lines.append("To add to an agent, give --channel NAME or --tool NAME.")
    else:
        lines.append("Choose another name, or move it away.")
    return "\n".join(lines)


def _told(plan: _Plan, channel: str | None, tool: str | None) -> str:
    """Return what was written, and the next steps, for people."""
    lines = [output.paint(f"Wrote {len(plan.files)} files in {plan.root}/", "bold")]
    lines += [f"  {path}" for path in plan.files]
    lines += ["", output.paint("Next", "bold")]
    steps = [f"cd {shlex.quote(str(plan.root))}"] if plan.root != Path() else []
    steps += ["threadline validate"]
    if any(path.startswith("tests/") for path in plan.files):
        steps += ["python -m pytest"]
    if plan.new:
        steps += ["threadline chat", "threadline dev"]
    edits = [f"agent/channels/{channel}.py"] if channel is not None else []
    edits += [f"agent/tools/{tool}.py"] if tool is not None else []
    edits += ["agent/instructions.md", "agent/agent.py"] if plan.new else []
    lines += [f"  {step}" for step in steps]
    lines += ["", f"Then edit {', '.join(edits)}."]
    return "\n".join(lines)
