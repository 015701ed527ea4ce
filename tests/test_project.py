"""Discovering and loading agent projects."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from threadline import project as project_module
from threadline.agent.config import Agent
from threadline.agent.tools import tool
from threadline.errors import ProjectError
from threadline.project import (
    Project,
    channel_types,
    find_projects,
    load_project,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

INSTRUCTIONS = {"agent/instructions.md": "Be brief.\n"}
CHANNEL = """\
class Channel:
    id = ""
    routes = ()
    auth = None

    def __init__(self, label=""):
        self.label = label
"""


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write the files of a project and return its folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def a_tool(body: str = "return 1", head: str = "") -> str:
    """Return the text of a tool's file."""
    return (
        "from __future__ import annotations\n"
        "from threadline.agent.tools import ToolContext, tool\n"
        f"{head}\n"
        "@tool\n"
        "async def anything(ctx: ToolContext, a: int = 0) -> object:\n"
        '    """Do it."""\n'
        f"    {body}\n"
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "demo"


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    """Undo what a load leaves behind, and check that it is nothing but the project's modules."""
    before = set(sys.modules)
    path = list(sys.path)
    yield
    assert sys.path == path
    assert "lib" not in sys.modules
    for name in set(sys.modules) - before:
        if name.startswith("_threadline_projects."):
            del sys.modules[name]


def problems(root: Path | str) -> list[str]:
    with pytest.raises(ProjectError) as caught:
        load_project(root)
    return caught.value.problems


def call(project: Project, name: str, **arguments: Any) -> Any:
    return asyncio.run(project.tools.get(name).function(ctx=None, **arguments))


class TestDiscovery:
    def test_a_whole_project(self, root: Path) -> None:
        write(
            root,
            {
                **INSTRUCTIONS,
                "agent/agent.py": "from threadline.agent.config import Agent, Local\n"
                "agent = Agent(name='On-call helper', local=Local(cwd='work'))\n",
                "agent/tools/page_status.py": a_tool(),
                "agent/tools/_helper.py": "",
                "agent/tools/notes.txt": "",
                "agent/channels/slack.py": "from lib.kinds import Channel\nchannel = Channel()\n",
                "agent/lib/kinds.py": CHANNEL,
                "agent/sandbox/workspace/README.md": "seed",
                "agent/skills/triage/SKILL.md": "---\nname: triage\ndescription: How to.\n---\nDo.",
                "agent/.hidden/x.py": "",
                "work/x": "",
            },
        )
        project = load_project(root)
        assert (project.slug, project.name) == ("demo", "On-call helper")
        assert project.root == root
        assert project.instructions == "Be brief."
        assert project.tools.names == ["page_status"]
        assert project.tools.get("page_status").source == "agent/tools/page_status.py:4"
        assert list(project.channels) == ["slack"]
        assert project.channels["slack"].id == "slack"
        assert project.seeds == root / "agent/sandbox/workspace"
        assert project.skills["triage"].description == "How to."
        assert project.skills["triage"].text == "Do."
        assert project.agent.local is not None
        assert project.agent.local.cwd == root / "work"
        assert list(project.warnings) == []

    def test_the_least_project(self, root: Path) -> None:
        project = load_project(write(root, INSTRUCTIONS))
        assert (project.slug, project.name) == ("demo", "demo")
        assert len(project.tools) == 0
        assert project.seeds is None

    def test_the_slug_is_the_folder_in_lower_case(self, tmp_path: Path) -> None:
        assert load_project(write(tmp_path / "On-Call", INSTRUCTIONS)).slug == "on-call"

    def test_a_relative_path(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(root, {**INSTRUCTIONS, "agent/agent.py": "agent = 1"})
        monkeypatch.chdir(root)
        assert problems(".") == ["agent/agent.py:1: agent is a int: write agent = Agent(…)."]

    def test_a_given_name_wins_over_the_files(self, root: Path) -> None:
        text = a_tool().replace("@tool", "@tool(name='other-name')")
        project = load_project(write(root, {**INSTRUCTIONS, "agent/tools/x.py": text}))
        assert project.tools.names == ["other-name"]

    def test_tools_and_channels_of_the_agent_are_added(self, root: Path) -> None:
        write(
            root,
            {
                **INSTRUCTIONS,
                "agent/agent.py": "from lib.kinds import Channel, late\n"
                "from threadline.agent.config import Agent\n"
                "agent = Agent(tools=[late], channels={'queue': Channel()})\n",
                "agent/lib/kinds.py": CHANNEL
                + a_tool()
                .replace("@tool", "@tool(name='late')")
                # The import of annotations must be the first of a file.
                .replace("from __future__ import annotations\n", "")
                + "late = anything\n",
                "agent/tools/early.py": a_tool(),
            },
        )
        project = load_project(root)
        assert project.tools.names == ["early", "late"]
        assert project.tools.get("late").source.startswith("agent/lib/kinds.py:")
        assert project.channels["queue"].id == "queue"

    def test_a_tool_made_by_a_function_in_lib(self, root: Path) -> None:
        write(
            root,
            {
                **INSTRUCTIONS,
                "agent/lib/make.py": a_tool(head="def make():\n    return anything\n"),
                "agent/tools/made.py": "from lib.make import make\nx = make()\n",
                "agent/tools/own.py": a_tool(head="from tools.made import x"),
            },
        )
        assert load_project(root).tools.names == ["made", "own"]

    def test_skills_as_single_files_and_folded_descriptions(self, root: Path) -> None:
        text = "---\r\nname: x\r\ndescription: >-\n  When it\n  rains.\nother: y\n---\n# Do\n"
        write(root, {**INSTRUCTIONS, "agent/skills/rain.md": text, "agent/skills/sun.md": "Go."})
        project = load_project(root)
        assert project.skills["rain"].description == "When it rains."
        assert project.skills["rain"].text == "# Do\n"
        assert project.skills["sun"].text == "Go."
        assert [line.partition(":")[0] for line in project.warnings] == [
            str(root / "agent/skills/sun.md")
        ]

    def test_what_does_no_harm_is_a_warning(self, root: Path) -> None:
        write(
            root,
            {
                **INSTRUCTIONS,
                "agent/tool/x.py": "",
                "agent/helpers.py": "",
                "agent/sandbox/Dockerfile": "",
                "agent/tools/mute.py": a_tool().replace('    """Do it."""\n', ""),
                "evals/a.py": "",
            },
        )
        warned = [line.split(":")[0] for line in load_project(root).warnings]
        names = [
            "agent/helpers.py",
            "agent/sandbox/Dockerfile",
            "agent/tool",
            "agent/tools/mute.py",
        ]
        assert warned == [str(root / name) for name in [*names, "evals"]]


class TestInstructions:
    def test_a_folder_is_composed_in_the_order_of_names(self, root: Path) -> None:
        files = {"20.md": "Second.\n", "10.md": "\ufeffFirst.\n\n", "x.txt": "Not this."}
        write(root, {f"agent/instructions/{name}": text for name, text in files.items()})
        assert load_project(root).instructions == "First.\n\nSecond."

    @pytest.mark.parametrize("name", ["instructions", "prompt"])
    def test_a_module(self, root: Path, name: str) -> None:
        text = f'{name} = """\n    First.\n\n      Second.\n    """\n'
        write(root, {"agent/instructions.py": text})
        assert load_project(root).instructions == "First.\n\n  Second."

    def test_inline(self, root: Path) -> None:
        text = "from threadline.agent.config import Agent\nagent = Agent(instructions='Be.')\n"
        assert load_project(write(root, {"agent/agent.py": text})).instructions == "Be."

    @pytest.mark.parametrize(
        ("files", "place", "advice"),
        [
            ({"agent/x.md": ""}, "instructions.md:1", "is missing"),
            ({"agent/instructions.md": " \n"}, "instructions.md:1", "is empty"),
            ({"agent/instructions/x.txt": "a"}, "instructions:1", "is empty"),
            ({"agent/instructions.py": "x = 1"}, "instructions.py:1", "declares no instructions"),
            ({"agent/instructions.py": "prompt = 1"}, "instructions.py:1", "must be a text"),
            ({"agent/instructions.md": b"ok\n\xff"}, "instructions.md:2", "not UTF-8"),
            ({"agent/instructions.md/x": "a"}, "instructions.md:1", "cannot be read"),
            (
                {"agent/instructions.md": "a", "agent/instructions.py": ""},
                "instructions.md:1",
                "keep",
            ),
        ],
    )
    def test_what_is_wrong(
        self, root: Path, files: dict[str, str | bytes], place: str, advice: str
    ) -> None:
        (problem,) = problems(write(root, files))
        assert problem.startswith(f"{root}/agent/{place}: ")
        assert advice in problem

    def test_inline_and_a_file(self, root: Path) -> None:
        text = "from threadline.agent.config import Agent\nagent = Agent(instructions='Be.')\n"
        (problem,) = problems(write(root, {**INSTRUCTIONS, "agent/agent.py": text}))
        assert "instructions.md and Agent(instructions=…)" in problem


class TestProblems:
    def test_every_problem_at_once_with_file_and_line(self, tmp_path: Path) -> None:
        root = tmp_path / "My_Agent"
        write(
            root,
            {
                "agent/agent.py": "\nagent = {}\n",
                "agent/tools/syntax.py": "x = 1\ndef broken(:\n",
                "agent/tools/missing.py": "\n\nimport no_such_package\n",
                "agent/tools/broken_lib.py": "from lib.bad import x\n",
                "agent/tools/broken_lib_too.py": "import lib.bad\n",
                "agent/tools/gone.py": "from lib.gone import x\n",
                "agent/lib/bad.py": "\n\n1 / 0\n",
                "agent/tools/none.py": "x = 1\n",
                "agent/tools/two.py": a_tool()
                + a_tool().partition("tool\n\n")[2].replace("anything", "more"),
                "agent/tools/signature.py": a_tool().replace("a: int = 0", "*a: int"),
                "agent/tools/option.py": a_tool().replace("@tool", "@tool(approval=3)"),
                "agent/tools/twin.py": a_tool().replace("@tool", "@tool(name='whole')"),
                "agent/tools/whole.py": a_tool(),
                "agent/tools/bad name.py": a_tool(),
                "agent/tools/dot.ted.py": a_tool(),
                "agent/tools/exits.py": "raise SystemExit(2)\n",
                "agent/tools/sub/x.py": a_tool(),
                "agent/tools/latin.py": b'x = "\xff"\n',
                "agent/channels/empty.py": "",
                "agent/channels/wrong.py": "\n\nchannel = 3\n",
                "agent/channels/klass.py": f"{CHANNEL}\nchannel = Channel\n",
                "agent/channels/Bad.py": "",
                "agent/skills/x/README.md": "",
                "agent/sandbox/workspace": "",
                "agent/schedules/morning.md": "",
                "agent/hooks/a.py": "",
                "agent/subagents/x/agent.py": "",
                "agent/connections/a.py": "",
                "agent/host_connections/a.py": "",
                "agent/artifacts.py": "",
            },
        )
        found = [line.removeprefix(f"{root}/agent") for line in problems(root)]
        expected = [
            ":1: an agent cannot be named",
            "/agent.py:2: agent is a dict: write agent = Agent(…).",
            "/artifacts.py:1: declares no artifacts: write artifacts = Artifacts(…).",
            "/channels/Bad.py:1: ",
            "/channels/empty.py:1: declares no channel",
            "/channels/klass.py:9: channel is the class Channel",
            "/channels/wrong.py:3: channel is a int",
            "/connections:1: this version does not honour MCP connections",
            "/hooks:1: this version does not honour hooks",
            "/host_connections:1: this version does not honour MCP connections",
            "/lib/bad.py:3: ZeroDivisionError: division by zero",
            "/sandbox/workspace:1: must be a folder",
            "/schedules:1: this version does not honour schedules",
            "/skills/x/SKILL.md:1: cannot be read: No such file or directory.",
            "/subagents:1: this version does not honour subagents",
            '/tools/bad name.py:4: "bad name" cannot name a tool',
            "/tools/dot.ted.py:1: has a dot",
            "/tools/exits.py:1: SystemExit: 2",
            "/tools/gone.py:1: No module named 'lib.gone': install it",
            "/tools/latin.py:1: SyntaxError: ",
            "/tools/missing.py:3: No module named 'no_such_package': install it",
            "/tools/none.py:1: declares no tool",
            "/tools/option.py:4: tool(approval=…) must be",
            "/tools/signature.py:4: Tool anything: name each argument",
            "/tools/sub:1: folders in tools/ are not discovered",
            "/tools/syntax.py:2: SyntaxError: ",
            "/tools/two.py:8: declares 2 tools (anything, more)",
            '/tools/whole.py:4: the name "whole" is taken by the tool at agent/tools/twin.py:4',
        ]
        assert len(found) == len(expected), found
        for line, start in zip(found, expected, strict=True):
            assert line.startswith(start)

    def test_a_broken_agent_file_is_one_problem(self, root: Path) -> None:
        (problem,) = problems(write(root, {"agent/agent.py": "import json\nagent = Agnt()\n"}))
        assert problem == f"{root}/agent/agent.py:2: NameError: name 'Agnt' is not defined"

    def test_what_an_agent_refuses_stands_at_its_line(self, root: Path) -> None:
        text = "from threadline.agent.config import Agent\n\nagent = Agent(max_running_turns=0)\n"
        (problem,) = problems(write(root, {"agent/agent.py": text}))
        assert problem.startswith(f"{root}/agent/agent.py:3: Agent.max_running_turns must be")

    def test_an_agent_file_without_an_agent(self, root: Path) -> None:
        (problem,) = problems(write(root, {**INSTRUCTIONS, "agent/agent.py": ""}))
        assert problem == f"{root}/agent/agent.py:1: declares no agent: write agent = Agent(…)."

    def test_a_cwd_that_is_not_there(self, root: Path) -> None:
        text = (
            "from threadline.agent.config import Agent, Local\n"
            "agent = Agent(instructions='x', local=Local(cwd='gone'))\n"
        )
        (problem,) = problems(write(root, {"agent/agent.py": text}))
        assert problem.startswith(f"{root}/agent/agent.py:2: Local(cwd=…): there is no folder")

    def test_one_channel_in_two_files(self, root: Path) -> None:
        write(
            root,
            {
                **INSTRUCTIONS,
                "agent/lib/kinds.py": f"{CHANNEL}\nchannel = Channel()\n",
                "agent/channels/a.py": "from lib.kinds import channel\n",
                "agent/channels/b.py": "from lib.kinds import channel\n",
            },
        )
        (problem,) = problems(root)
        assert problem.startswith(f"{root}/agent/channels/b.py:1: this channel is declared twice")

    def test_an_empty_folder_of_an_unknown_feature_does_no_harm(self, root: Path) -> None:
        write(root, INSTRUCTIONS)
        (root / "agent/hooks").mkdir()
        load_project(root)

    @pytest.mark.parametrize("name", ["docs", "v1", "a.b", "-a"])
    def test_folders_that_cannot_name_an_agent(self, tmp_path: Path, name: str) -> None:
        (problem,) = problems(write(tmp_path / name, INSTRUCTIONS))
        assert f'cannot be named "{name}"' in problem

    def test_no_project(self, root: Path) -> None:
        root.mkdir()
        (problem,) = problems(root)
        assert "a project is a folder that holds agent/" in problem

    def test_nothing_is_left_behind(self, root: Path) -> None:
        before = set(sys.modules)
        problems(write(root, {"agent/tools/a.py": a_tool(), "agent/lib/x.py": ""}))
        assert {name for name in set(sys.modules) - before if ".p" in name} == set()


class TestModules:
    def project(self, folder: Path, label: str) -> Project:
        write(
            folder,
            {
                **INSTRUCTIONS,
                "agent/lib/__init__.py": f"LABEL = {label!r}\n",
                "agent/lib/deep/value.py": f"VALUE = {label!r}\n",
                "agent/lib/late.py": f"VALUE = {'late ' + label!r}\n",
                "agent/tools/x.py": a_tool("return VALUE", "from lib.deep.value import VALUE"),
                "agent/tools/late.py": a_tool("import lib.late as m; return m.VALUE"),
                "agent/tools/whole.py": a_tool("import lib.late; return lib.LABEL"),
                "agent/tools/relative.py": a_tool("from ..lib.late import VALUE; return VALUE"),
                "agent/tools/other.py": a_tool("from tools import x; return x.VALUE"),
                "agent/tools/gone.py": a_tool("import lib.gone"),
            },
        )
        return load_project(folder)

    @pytest.fixture
    def pair(self, tmp_path: Path) -> tuple[Project, Project]:
        return self.project(tmp_path / "a", "A"), self.project(tmp_path / "b", "B")

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("x", "%s"),
            ("late", "late %s"),
            ("whole", "%s"),
            ("relative", "late %s"),
            ("other", "%s"),
        ],
    )
    def test_two_projects_share_no_module(
        self, pair: tuple[Project, Project], name: str, expected: str
    ) -> None:
        assert [call(project, name) for project in pair] == [expected % "A", expected % "B"]

    def test_imports_at_run_time_work_in_any_thread(self, pair: tuple[Project, Project]) -> None:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(call(pair[1], "late")))
        thread.start()
        thread.join()
        assert results == ["late B"]

    def test_a_module_that_is_not_there(self, pair: tuple[Project, Project]) -> None:
        with pytest.raises(ModuleNotFoundError, match=r"^No module named 'lib\.gone'$"):
            call(pair[0], "gone")

    def test_other_code_does_not_see_the_project(self, pair: tuple[Project, Project]) -> None:
        with pytest.raises(ModuleNotFoundError):
            __import__("lib.late")

    def test_loading_again_sees_every_edit(self, root: Path) -> None:
        write(root, {**INSTRUCTIONS, "agent/lib/v.py": "V = 1\n"})
        write(root, {"agent/tools/x.py": a_tool("return V", "from lib.v import V")})
        first = load_project(root)
        write(root, {"agent/lib/v.py": "V = 2\n"})
        second = load_project(root)
        assert (call(first, "x"), call(second, "x")) == (1, 2)
        assert not list(root.rglob("__pycache__"))

    def test_unload_forgets_the_modules_of_one_project(self, pair: tuple[Project, Project]) -> None:
        first, second = pair
        assert first.package is not None
        first.unload()
        assert not [name for name in sys.modules if name.startswith(f"{first.package}.")]
        assert call(second, "late") == "late B"

    def test_a_project_may_have_a_module_named_as_one_of_the_library(self, root: Path) -> None:
        write(
            root,
            {
                **INSTRUCTIONS,
                "agent/lib/json.py": "VALUE = 'mine'\n",
                "agent/tools/x.py": a_tool(
                    "return VALUE, json.dumps(1)", "from lib.json import *"
                ).replace("from lib.json import *", "import json\nfrom lib.json import *"),
            },
        )
        assert call(load_project(root), "x") == ("mine", "1")


class TestFindProjects:
    def test_a_project_and_a_folder_of_projects(self, tmp_path: Path) -> None:
        for name in ("one", "many/b", "many/a", "many/.hidden"):
            write(tmp_path / name, INSTRUCTIONS)
        (tmp_path / "many/not").mkdir()
        (tmp_path / "many/file").touch()
        found = find_projects([tmp_path / "one", str(tmp_path / "many"), tmp_path / "one"])
        assert found == [tmp_path / "one", tmp_path / "many/a", tmp_path / "many/b"]

    @pytest.mark.parametrize(
        ("path", "advice"),
        [
            ("gone", "there is no such folder"),
            ("empty", "a project is a folder that holds agent/"),
            ("demo/agent", "name the project, which is its parent"),
            ("demo/agent/instructions.md", "this is a file"),
        ],
    )
    def test_nothing_found(self, tmp_path: Path, path: str, advice: str) -> None:
        write(tmp_path / "demo", INSTRUCTIONS)
        (tmp_path / "empty").mkdir()
        with pytest.raises(ProjectError, match=advice):
            find_projects([tmp_path / path])

    def test_two_equal_names(self, tmp_path: Path) -> None:
        for name in ("x/demo", "y/Demo"):
            write(tmp_path / name, INSTRUCTIONS)
        with pytest.raises(ProjectError, match='both agents would be "demo"'):
            find_projects([tmp_path / "x", tmp_path / "y", tmp_path / "x"])

    def test_no_paths(self) -> None:
        assert find_projects([]) == []


class TestInCode:
    def test_a_project_without_a_folder(self, tmp_path: Path) -> None:
        agent = Agent(instructions="Be.", tools=[tool(name="a")(lambda: 1)])
        project = Project.of(agent, slug="inline", root=tmp_path)
        assert (project.name, project.instructions) == ("inline", "Be.")
        assert project.tools.names == ["a"]
        assert project.root == tmp_path
        project.unload()

    def test_what_is_missing(self) -> None:
        with pytest.raises(ProjectError) as caught:
            Project.of(Agent(), slug="Docs")
        assert len(caught.value.problems) == 2


def test_channel_types_are_entry_points() -> None:
    for name, entry in channel_types().items():
        assert entry.name == name
        assert entry.group == "threadline.channels"


def test_public_names_are_sorted() -> None:
    assert project_module.__all__ == sorted(project_module.__all__)
