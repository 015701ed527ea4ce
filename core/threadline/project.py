"""An agent project: a folder that holds ``agent/``, discovered and loaded.

Each load imports the project's files under a package name of its own, so that two projects, or two
loads of one, share no module. To the project's code the folder ``agent/`` looks as if it came first
on ``sys.path``: ``from lib.x import y`` works at the top of a file and inside a function, in any
thread, and means this project's ``lib``. What does not go through an import statement, such as
``importlib.import_module("lib.x")``, does not see it.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import itertools
import linecache
import re
import sys
import traceback
import types
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadline.agent.artifacts import Artifacts
from threadline.agent.calls import Catalog
from threadline.agent.config import Agent, is_channel_id
from threadline.agent.tools import Tool, is_tool_name
from threadline.channel.installed import channel_types
from threadline.errors import ProjectError, ThreadlineError
from threadline.ids import is_slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from threadline.channel.channel import Channel

__all__ = ["Project", "Skill", "channel_types", "find_projects", "load_project"]

_ROOT = "_threadline_projects"
_UNSUPPORTED = {
    "connections": "MCP connections",
    "extensions": "extensions",
    "hooks": "hooks",
    "host-connections": "MCP connections",
    "host_connections": "MCP connections",
    "mcp-connections": "MCP connections",
    "reminders": "reminders",
    "schedules": "schedules",
    "subagents": "subagents",
}
_KNOWN = {
    "__init__.py",
    "agent.py",
    "artifacts.py",
    "channels",
    "instructions",
    "instructions.md",
    "instructions.py",
    "lib",
    "sandbox",
    "skills",
    "tools",
}
_FRONTMATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$\n?", re.M | re.S)
_FRONTMATTER_FIELD = re.compile(r"^(\w[\w-]*):[ \t]*(.*(?:\n[ \t]+.*)*)$", re.M)


@dataclass(frozen=True, slots=True)
class Skill:
    """A procedure that the model loads on demand; ``path`` is its Markdown file."""

    name: str
    description: str
    text: str
    path: Path


@dataclass(frozen=True, eq=False, kw_only=True)
class Project:
    """A loaded agent.

    ``seeds`` is the folder whose files every new workspace gets. ``warnings`` are lines
    ``file:line: what to do`` about what does no harm.
    """

    root: Path
    slug: str
    name: str
    agent: Agent
    instructions: str
    tools: Catalog = field(default_factory=Catalog)
    channels: Mapping[str, Channel] = field(default_factory=dict)
    seeds: Path | None = None
    skills: Mapping[str, Skill] = field(default_factory=dict)
    artifacts: Artifacts = field(default_factory=Artifacts)
    warnings: Sequence[str] = ()
    package: str | None = None

    @classmethod
    def of(cls, agent: Agent, *, slug: str = "agent", root: Path | None = None) -> Project:
        """Return a project of an agent that was made in code; ``root`` defaults to the cwd.

        Raises :class:`~threadline.errors.ProjectError`.
        """
        problems = [] if is_slug(slug) else [f"{slug}: {_bad_slug(slug)}"]
        if agent.instructions is None:
            problems.append(f"{slug}: give Agent(instructions=…), the agent's prompt.")
        if problems:
            raise ProjectError(problems)
        for channel_id, channel in agent.channels.items():
            channel.id = channel_id
        return cls(
            root=(root or Path.cwd()).resolve(),
            slug=slug,
            name=agent.name or slug,
            agent=agent,
            instructions=agent.instructions or "",
            tools=Catalog(agent.tools),
            channels=dict(agent.channels),
            artifacts=agent.artifacts or Artifacts(),
        )

    def unload(self) -> None:
        """Forget the project's modules; call it when nothing of the project runs any more."""
        if self.package is not None:
            _forget(self.package)


def find_projects(paths: Iterable[Path | str]) -> list[Path]:
    """Return the projects that the paths name, each path a project or a folder of projects.

    Raises :class:`~threadline.errors.ProjectError` when a path names none, or when two projects
    have the same folder name.
    """
    found: dict[Path, Path] = {}
    problems: list[str] = []
    for path in map(Path, paths):
        here = _projects_at(path)
        if not here:
            problems.append(f"{path}:1: {_nothing_at(path)}")
        for project in here:
            found.setdefault(project.resolve(), project)
    slugs: dict[str, Path] = {}
    for resolved, project in found.items():
        other = slugs.setdefault(resolved.name.lower(), project)
        if other is not project:
            problems.append(
                f"{project}:1: the folder has the same name as {other}, so both agents would be "
                f'"{resolved.name.lower()}": rename one.'
            )
    if problems:
        raise ProjectError(problems)
    return list(found.values())


def _projects_at(path: Path) -> list[Path]:
    if (path / "agent").is_dir():
        return [path]
    try:
        children = sorted(path.iterdir())
    except OSError:
        return []
    return [child for child in children if child.name[0] != "." and (child / "agent").is_dir()]


def _nothing_at(path: Path) -> str:
    if not path.exists():
        return "there is no such folder."
    if not path.is_dir():
        return "this is a file: name the folder that holds agent/."
    if path.resolve().name == "agent":
        return "this is the folder agent/ itself: name the project, which is its parent."
    return "there is no agent here: a project is a folder that holds agent/."


def load_project(path: Path | str) -> Project:
    """Load the project in a folder.

    Loading again loads its files anew. Raises :class:`~threadline.errors.ProjectError` with every
    problem at once, sorted, each ``file:line: what to do``.
    """
    return _Loading(Path(path)).load()


def _bad_slug(name: str) -> str:
    return (
        f'an agent cannot be named "{name}": give its folder a name of lower-case letters, digits '
        f'and "-" that is not a route of the host, such as docs, v1 or playground.'
    )


class _Loading:
    """One load of one project: what it finds, and what is wrong with it.

    Problems and warnings are ``(file, line, message)``; files are shown as the path was given.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path.resolve()
        self.folder = self.root / "agent"
        self.package = ""
        self.problems: set[tuple[str, int, str]] = set()
        self.warnings: set[tuple[str, int, str]] = set()

    def load(self) -> Project:
        if not self.folder.is_dir():
            raise ProjectError([f"{self.path}:1: {_nothing_at(self.path)}"])
        self.package = _new_package(self.folder)
        try:
            project = self._project()
        except BaseException:
            _forget(self.package)
            raise
        return project

    def _project(self) -> Project:
        slug = self.root.name.lower()
        if not is_slug(slug):
            self._problem(self.folder, _bad_slug(slug))
        self._check_names()
        agent = self._agent()
        project = Project(
            root=self.root,
            slug=slug,
            name=(agent and agent.name) or self.root.name,
            agent=agent or Agent(),
            instructions=self._instructions(agent),
            tools=self._tools(agent),
            channels=self._channels(agent),
            seeds=self._seeds(),
            skills=self._skills(),
            artifacts=self._artifacts(agent),
            warnings=_lines(self.warnings),
            package=self.package,
        )
        if self.problems:
            raise ProjectError(_lines(self.problems))
        return project

    # What is said

    def _problem(self, file: Path | str, message: str, line: int = 1) -> None:
        self.problems.add((self._shown(file), line, message))

    def _warning(self, file: Path | str, message: str, line: int = 1) -> None:
        self.warnings.add((self._shown(file), line, message))

    def _relative(self, file: Path | str) -> str:
        path = Path(file)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(file)

    def _shown(self, file: Path | str) -> str:
        return str(self.path / self._relative(file))

    # Files

    def _entries(self, folder: Path) -> list[Path]:
        """Return what a folder holds, sorted, without what is hidden; [] when it is not there."""
        if not folder.exists():
            return []
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            self._problem(folder, f"cannot be read as a folder: {error.strerror}.")
            return []
        return [entry for entry in entries if entry.name[0] != "." and entry.name != "__pycache__"]

    def _text(self, file: Path) -> str | None:
        try:
            data = file.read_bytes()
        except OSError as error:
            self._problem(file, f"cannot be read: {error.strerror}.")
            return None
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self._problem(file, "is not UTF-8 text: save it as UTF-8.", line)
            return None

    def _check_names(self) -> None:
        """Tell what in ``agent/`` would silently do nothing."""
        for entry in self._entries(self.folder):
            if entry.name in _UNSUPPORTED:
                if entry.is_file() or self._entries(entry):
                    feature = _UNSUPPORTED[entry.name]
                    self._problem(
                        entry, f"this version does not honour {feature}: remove {entry.name}."
                    )
            elif entry.name not in _KNOWN and (entry.is_dir() or entry.suffix == ".py"):
                self._warning(
                    entry, "nothing here is discovered: check the name, or move it to agent/lib/."
                )
        if self._entries(self.root / "evals"):
            self._warning(self.root / "evals", "this version does not run evals.")

    # Python files

    def _import(self, file: Path) -> types.ModuleType | None:
        """Import a file of the project; what goes wrong is a problem at the line that did it."""
        name = ".".join(file.relative_to(self.folder).with_suffix("").parts)
        try:
            return importlib.import_module(f"{self.package}.{name}")
        except (Exception, SystemExit) as error:
            where, line = self._place(error, file)
            self._problem(where, self._said(error), line)
            return None

    def _place(self, error: BaseException, file: Path) -> tuple[str, int]:
        """Return the innermost place in the project's own files that an error comes from."""
        inside = f"{self.folder}/"
        if isinstance(error, SyntaxError) and (error.filename or "").startswith(inside):
            return str(error.filename), max(1, error.lineno or 1)
        place = (str(file), 1)
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith(inside):
                place = (frame.f_code.co_filename, line or 1)
        return place

    def _said(self, error: BaseException) -> str:
        text = " ".join(str(error).split()).replace(f"{self.package}.", "")
        if isinstance(error, SyntaxError):
            return f"{type(error).__name__}: {error.msg}"
        if isinstance(error, ThreadlineError) or _raised_by_us(error):
            return text
        if isinstance(error, ModuleNotFoundError):
            return f"{text}: install it in this environment, or correct the name."
        return f"{type(error).__name__}: {text}" if text else type(error).__name__

    def _line_of(self, file: Path, name: str) -> int:
        """Return the last line at the top level of a file that binds a name."""
        bound = 1
        for node in ast.parse(file.read_bytes()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            for target in targets:
                target = getattr(target, "target", target)
                if name in (getattr(target, "id", None), getattr(target, "name", None)):
                    bound = node.lineno
        return bound

    def _files(self, folder: str) -> list[Path]:
        """Return the Python files of a folder of tools or channels."""
        files = []
        for entry in self._entries(self.folder / folder):
            if entry.name[0] == "_":
                continue
            if entry.is_dir() and any(entry.rglob("*.py")):
                self._problem(
                    entry,
                    f"folders in {folder}/ are not discovered: move the files up, or shared code "
                    f"to agent/lib/.",
                )
            elif entry.suffix == ".py" and "." in entry.stem:
                self._problem(entry, "has a dot in its name, so it cannot be imported: rename it.")
            elif entry.suffix == ".py":
                files.append(entry)
        return files

    # The agent

    def _agent(self) -> Agent | None:
        file = self.folder / "agent.py"
        if not file.exists():
            return Agent()
        module = self._import(file)
        if module is None:
            return None
        agent = getattr(module, "agent", None)
        if agent is None:
            self._problem(file, "declares no agent: write agent = Agent(…).")
        elif not isinstance(agent, Agent):
            self._problem(
                file,
                f"agent is {_a(agent)}: write agent = Agent(…).",
                self._line_of(file, "agent"),
            )
        else:
            return self._with_cwd(agent, file)
        return None

    def _with_cwd(self, agent: Agent, file: Path) -> Agent:
        if agent.local is None or agent.local.cwd is None:
            return agent
        cwd = (self.root / Path(agent.local.cwd).expanduser()).resolve()
        if not cwd.is_dir():
            self._problem(
                file, f"Local(cwd=…): there is no folder {cwd}.", self._line_of(file, "agent")
            )
        return replaced(agent, local=replaced(agent.local, cwd=cwd))

    def _instructions(self, agent: Agent | None) -> str:
        inline = agent.instructions if agent else None
        names = ("instructions.md", "instructions", "instructions.py")
        files = [self.folder / name for name in names if (self.folder / name).exists()]
        if len(files) + (inline is not None) > 1:
            sources = [file.name for file in files] + ["Agent(instructions=…)"] * bool(inline)
            self._problem(files[0], f"instructions come from {' and '.join(sources)}: keep one.")
        if not files:
            if agent is not None and inline is None:
                self._problem(
                    self.folder / names[0], "is missing: write the agent's instructions there."
                )
            return inline or ""
        return self._instructions_in(files[0])

    def _instructions_in(self, file: Path) -> str:
        if file.suffix == ".py":
            text = self._instructions_of_module(file)
        elif file.suffix == ".md":
            text = self._text(file)
        else:
            parts = [self._text(part) for part in self._entries(file) if part.suffix == ".md"]
            text = None if None in parts else "\n\n".join(part.strip() for part in parts if part)
        if text is not None and not text.strip():
            self._problem(file, "is empty: write the agent's instructions.")
        return (text or "").strip()

    def _instructions_of_module(self, file: Path) -> str | None:
        module = self._import(file)
        if module is None:
            return None
        for name in ("instructions", "prompt"):
            text = getattr(module, name, None)
            if isinstance(text, str):
                return cleandoc(text)
            if text is not None:
                self._problem(file, f"{name} is {_a(text)}: it must be a text.")
                return None
        self._problem(file, 'declares no instructions: write instructions = "…".')
        return None

    # Tools

    def _tools(self, agent: Agent | None) -> Catalog:
        taken: dict[str, Tool] = {}
        for given in agent.tools if agent else ():
            taken[given.name] = given.renamed(given.name, self._relative(given.source))
            if given.execution == "agent":
                self._problem(
                    self.folder / "agent.py",
                    f'tool "{given.name}" has execution="agent", so it needs a file of its own in '
                    "agent/tools/.",
                )
        for file in self._files("tools"):
            tool = self._tool(file)
            if tool is None:
                continue
            if tool.name in taken:
                self._problem(
                    file,
                    f'the name "{tool.name}" is taken by the tool at {taken[tool.name].source}: '
                    f"rename one.",
                    _line(tool.source),
                )
            taken.setdefault(tool.name, tool)
        return Catalog(taken.values())

    def _tool(self, file: Path) -> Tool | None:
        module = self._import(file)
        if module is None:
            return None
        declared = self._declared(module)
        if not declared:
            self._problem(file, "declares no tool: put the decorator @tool on its function.")
            return None
        if len(declared) > 1:
            names = ", ".join(tool.name for tool in declared)
            self._problem(
                file,
                f"declares {len(declared)} tools ({names}): a file is one tool; give each its own.",
                _line(declared[1].source),
            )
            return None
        return self._named(declared[0], file)

    def _declared(self, module: types.ModuleType) -> list[Tool]:
        """Return the tools of a module; those it imported from other tool files are not its own."""
        tools = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
        own = [t for t in tools.values() if t.function.__module__ == module.__name__]
        # A function that makes tools may live in lib/, and then so does the tool's function.
        others = f"{self.package}.tools."
        made = [t for t in tools.values() if not t.function.__module__.startswith(others)]
        return own or made

    def _named(self, tool: Tool, file: Path) -> Tool | None:
        name = tool.name if tool.named else file.stem
        line = _line(tool.source)
        if not is_tool_name(name):
            self._problem(
                file,
                f'"{name}" cannot name a tool: use 1 to 64 letters (a-z), digits, "_" and "-" in '
                f"the file's name, or give tool(name=…).",
                line,
            )
            return None
        if not tool.description:
            self._warning(file, "has no docstring, so the model sees no description.", line)
        return tool.renamed(name, self._relative(tool.source))

    # Channels

    def _channels(self, agent: Agent | None) -> dict[str, Channel]:
        channels: dict[str, Channel] = dict(agent.channels) if agent else {}
        for file in self._files("channels"):
            channel = self._channel(file)
            if channel is None:
                continue
            if file.stem in channels:
                self._problem(file, f'Agent(channels=…) has a channel "{file.stem}" too: keep one.')
            elif any(channel is other for other in channels.values()):
                self._problem(file, "this channel is declared twice: make a channel for each file.")
            channels.setdefault(file.stem, channel)
        for channel_id, channel in channels.items():
            channel.id = channel_id
        return channels

    def _channel(self, file: Path) -> Channel | None:
        if not is_channel_id(file.stem):
            self._problem(
                file,
                f'"{file.stem}" cannot name a channel: use lower-case letters, digits, "_" and "-" '
                f"in the file's name.",
            )
            return None
        module = self._import(file)
        if module is None:
            return None
        channel: Channel | None = getattr(module, "channel", None)
        if channel is None:
            self._problem(file, "declares no channel: write channel = Channel(…).")
            return None
        if not _is_channel(channel):
            self._problem(
                file,
                f"channel is {_a(channel)}: write channel = Channel(…).",
                self._line_of(file, "channel"),
            )
            return None
        return channel

    # Artifacts

    def _artifacts(self, agent: Agent | None) -> Artifacts:
        given = agent.artifacts if agent else None
        file = self.folder / "artifacts.py"
        if not file.exists():
            return given or Artifacts()
        if given is not None:
            self._problem(file, "Agent(artifacts=…) declares artifacts too: keep one.")
        module = self._import(file)
        if module is None:
            return Artifacts()
        artifacts = getattr(module, "artifacts", None)
        if isinstance(artifacts, Artifacts):
            return artifacts
        if artifacts is None:
            self._problem(file, "declares no artifacts: write artifacts = Artifacts(…).")
        else:
            self._problem(
                file,
                f"artifacts is {_a(artifacts)}: write artifacts = Artifacts(…).",
                self._line_of(file, "artifacts"),
            )
        return Artifacts()

    # Seeds and skills

    def _seeds(self) -> Path | None:
        for entry in self._entries(self.folder / "sandbox"):
            if entry.name != "workspace":
                self._warning(entry, "only files in sandbox/workspace/ reach a workspace.")
        seeds = self.folder / "sandbox" / "workspace"
        if seeds.exists() and not seeds.is_dir():
            self._problem(seeds, "must be a folder: its files are copied into each workspace.")
        return seeds if seeds.is_dir() else None

    def _skills(self) -> dict[str, Skill]:
        skills: dict[str, Skill] = {}
        for entry in self._entries(self.folder / "skills"):
            if entry.is_dir():
                file, name = entry / "SKILL.md", entry.name
            elif entry.suffix == ".md":
                file, name = entry, entry.stem
            else:
                self._warning(entry, "is no skill: a skill is <name>/SKILL.md or <name>.md.")
                continue
            if name in skills:
                self._problem(entry, f'there are two skills "{name}": rename one.')
            text = self._text(file)
            if text is None:
                continue
            skill = skills.setdefault(name, _skill(name, text, file))
            if not skill.description:
                self._warning(file, "has no description, so the model cannot tell when to use it.")
        return skills


def _skill(name: str, text: str, file: Path) -> Skill:
    head = _FRONTMATTER.match(text)
    fields = dict(_FRONTMATTER_FIELD.findall(head[1])) if head else {}
    description = " ".join(re.sub(r"\A[>|][+-]?\s", "", fields.get("description", "")).split())
    if len(description) > 1 and description[0] == description[-1] and description[0] in "'\"":
        description = description[1:-1]
    return Skill(name, description, text[head.end() :] if head else text, file)


def _lines(entries: Iterable[tuple[str, int, str]]) -> list[str]:
    return [f"{file}:{line}: {message}" for file, line, message in sorted(entries)]


def _line(source: str) -> int:
    return int(source.rpartition(":")[2])


def _a(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _is_channel(value: Any) -> bool:
    # A class has these attributes too, but a channel is one of its instances.
    return not isinstance(value, type) and hasattr(value, "routes") and hasattr(value, "auth")


def _raised_by_us(error: BaseException) -> bool:
    """Tell whether an error is a sentence of threadline's own, about how it is used."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = frames[-1].f_globals.get("__name__", "") if frames else ""
    return isinstance(error, (TypeError, ValueError)) and module.split(".")[0] == "threadline"


# Modules


class _Imports:
    """The ``__import__`` of one project's modules, which sees the project's own names first.

    Python looks it up in the builtins of the module that a function was written in, so it needs
    neither ``sys.path`` nor the names of other projects' modules, whenever and wherever it runs.
    """

    def __init__(self, package: str, folder: Path) -> None:
        self.package = package
        self.builtins = {**vars(builtins), "__import__": self}
        self._names = {file.stem for file in folder.glob("*.py")} - {"__init__"}
        self._names |= {file.parent.name for file in folder.glob("*/*.py")}
        self._names |= {"lib"} if (folder / "lib").is_dir() else set()

    def __call__(
        self,
        name: str,
        scope: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        head = name.partition(".")[0]
        if level or head not in self._names:
            return builtins.__import__(name, scope, local, fromlist or (), level)
        try:
            if fromlist:
                return builtins.__import__(f"{self.package}.{name}", scope, local, fromlist, 0)
            importlib.import_module(f"{self.package}.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith(f"{self.package}."):
                raise
            missing = error.name.removeprefix(f"{self.package}.")
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing) from None
        return sys.modules[f"{self.package}.{head}"]


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads a file of a project with the project's imports.

    It neither reads nor writes ``__pycache__``: an edit within the same second must not be missed,
    and a project may lie on a read-only disk.
    """

    def __init__(self, name: str, path: str, imports: _Imports) -> None:
        super().__init__(name, path)
        self._imports = imports

    def get_code(self, fullname: str) -> types.CodeType | None:
        return self.source_to_code(self.get_data(self.path), self.path)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = self._imports.builtins
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of loaded projects by their synthetic names."""

    def __init__(self) -> None:
        self.imports: dict[str, _Imports] = {}
        self.numbers = itertools.count(1)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = ".".join(fullname.split(".")[:2])
        if package not in self.imports:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _SourceLoader(fullname, spec.loader.path, self.imports[package])
        return spec


_finder = _Finder()


def _new_package(folder: Path) -> str:
    """Make an empty package whose modules are the files of the folder; return its name."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
        sys.modules[_ROOT] = _package_module(_ROOT, [])
    package = f"{_ROOT}.p{next(_finder.numbers)}"
    sys.modules[package] = _package_module(package, [str(folder)])
    _finder.imports[package] = _Imports(package, folder)
    importlib.invalidate_caches()
    linecache.checkcache()
    return package


def _package_module(name: str, path: list[str]) -> types.ModuleType:
    module = types.ModuleType(name, "Holds the modules of loaded agent projects.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = path
    return module


def _forget(package: str) -> None:
    _finder.imports.pop(package, None)
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]
