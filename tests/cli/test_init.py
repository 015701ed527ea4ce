"""``threadline init``: what it writes works as it is, and it overwrites nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from threadline.cli import init as module

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[2]
PROJECT = [
    ".gitignore",
    "README.md",
    "agent/agent.py",
    "agent/instructions.md",
    "agent/lib/demo_model.py",
    "agent/tools/count_words.py",
    "pyproject.toml",
    "tests/test_agent.py",
]
CHANNEL = ["agent/channels/desk.py", "tests/test_desk_channel.py"]
TOOL = ["agent/tools/look_up.py", "tests/test_look_up_tool.py"]


def written(folder: Path) -> list[str]:
    """Return the files below a folder, but for what tools leave behind."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "cache" not in str(path)
    )


def python(folder: Path, env: dict[str, str], *arguments: str) -> str:
    """Run a module of Python in a folder, as its owner would; return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a project may be made; not inside this repository, whose settings would apply."""
    return tmp_path / "help-desk"


def test_what_it_writes_works_as_it_is(cli: Cli, folder: Path, env: dict[str, str]) -> None:
    done = cli("init", str(folder), "--channel", "desk", "--tool", "look_up")
    assert (done.returncode, done.stderr) == (0, "")
    assert written(folder) == sorted([*PROJECT, *CHANNEL, *TOOL])
    assert "placeholder" not in done.stdout
    for step in (f"cd {folder}", "threadline validate", "python -m pytest", "threadline chat"):
        assert f"  {step}\n" in done.stdout
    checked = cli("validate", str(folder), "--json")
    told = json.loads(checked.stdout)
    assert (checked.returncode, told["problems"], told["warnings"]) == (0, [], [])
    passed = python(folder, env, "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")
    assert " passed" in passed
    assert "skipped" not in passed
    ran = json.loads(cli("run", str(folder), "--message", "one two three").stdout)
    assert ran["reply"] == "Words in your message: 3."
    assert [call["toolName"] for call in ran["toolCalls"]] == ["count_words"]


def test_what_it_writes_is_clean(cli: Cli, folder: Path, env: dict[str, str]) -> None:
    assert cli("init", str(folder), "--channel", "desk", "--tool", "look_up").returncode == 0
    python(folder, env, "ruff", "check", "--no-cache", ".")
    python(folder, env, "ruff", "format", "--no-cache", "--check", ".")
    python(folder, env, "mypy", "--cache-dir", str(folder.parent / "cache"))
    config = ROOT / "pyproject.toml"
    python(
        folder,
        env,
        "ruff",
        "check",
        "--no-cache",
        "--ignore",
        "INP,D,I001,TC",
        "--config",
        str(config),
        ".",
    )
    text = "".join((folder / path).read_text() for path in written(folder))
    assert "$" not in text.replace("${", "$")
    assert "TODO" not in text


def test_a_channel_and_a_tool_are_added_to_a_project(
    cli: Cli, folder: Path, env: dict[str, str]
) -> None:
    assert cli("init", str(folder)).returncode == 0
    assert written(folder) == PROJECT
    before = {path: (folder / path).read_text() for path in PROJECT}
    added = cli("init", "--channel", "desk", "--tool", "look_up", "--json", cwd=folder)
    assert json.loads(added.stdout) == {"ok": True, "root": ".", "files": [*CHANNEL, *TOOL]}
    assert {path: (folder / path).read_text() for path in PROJECT} == before
    assert "ok, 2 tools" in cli("validate", str(folder)).stdout
    again = cli("init", str(folder), "--channel", "other")
    assert "threadline chat" not in again.stdout
    assert "Then edit agent/channels/other.py.\n" in again.stdout
    names = json.loads(cli("info", str(folder), "--json").stdout)["channels"]
    assert [channel["id"] for channel in names] == ["desk", "other", "http", "mcp", "mcp-tools"]


@pytest.mark.parametrize(("name", "kind"), [("github", "GitHubChannel"), ("slack", "SlackChannel")])
def test_a_channel_that_is_installed_is_taken_as_it_is(
    cli: Cli, folder: Path, name: str, kind: str
) -> None:
    assert cli("init", str(folder)).returncode == 0
    done = cli("init", str(folder), "--channel", name)
    assert done.returncode == 0
    file = folder / "agent" / "channels" / f"{name}.py"
    assert f"from threadline_{name} import {kind}\n\nchannel = {kind}()\n" in file.read_text()
    assert not list((folder / "tests").glob(f"*{name}*"))
    assert cli("validate", str(folder)).returncode == 0


def test_an_example_gets_a_channel_whose_test_passes(
    cli: Cli, tmp_path: Path, env: dict[str, str]
) -> None:
    project = tmp_path / "old"
    (project / "agent").mkdir(parents=True)
    (project / "agent" / "instructions.md").write_text("Be brief.")
    assert cli("init", str(project), "--channel", "desk", "--tool", "look_up").returncode == 0
    assert written(project) == sorted(["agent/instructions.md", *CHANNEL, *TOOL])
    python(project, env, "pytest", "-q", "-p", "no:cacheprovider")


class TestRefusals:
    def test_existing_files_are_named_and_kept(self, cli: Cli, folder: Path) -> None:
        (folder / "agent").mkdir(parents=True)
        mine = {"README.md": "mine", "agent/agent.py": "mine too"}
        for path, text in mine.items():
            (folder / path).write_text(text)
        done = cli("init", str(folder))
        assert done.returncode == 1
        assert done.stdout == ""
        assert all(f"  {path}\n" in done.stderr for path in mine)
        assert "Nothing was written" in done.stderr
        assert "--channel NAME or --tool NAME" in done.stderr
        assert {path: (folder / path).read_text() for path in written(folder)} == mine

    def test_a_second_init_and_a_second_channel(self, cli: Cli, folder: Path) -> None:
        assert cli("init", str(folder), "--channel", "desk").returncode == 0
        (folder / "agent" / "channels" / "desk.py").write_text("mine")
        whole = cli("init", str(folder))
        assert (whole.returncode, whole.stderr.count("\n    ")) == (1, len(PROJECT))
        part = cli("init", str(folder), "--channel", "desk", "--tool", "look_up")
        assert part.returncode == 1
        assert "agent/channels/desk.py" in part.stderr
        assert not (folder / TOOL[0]).exists()
        assert (folder / "agent" / "channels" / "desk.py").read_text() == "mine"

    def test_a_link_that_leads_nowhere_is_something(self, cli: Cli, folder: Path) -> None:
        folder.mkdir()
        (folder / "README.md").symlink_to(folder / "gone")
        done = cli("init", str(folder))
        assert (done.returncode, "README.md" in done.stderr) == (1, True)
        assert not (folder / "gone").exists()

    def test_an_agent_of_other_files_is_not_mixed_with_ours(self, cli: Cli, folder: Path) -> None:
        (folder / "agent" / "instructions").mkdir(parents=True)
        done = cli("init", str(folder))
        assert (done.returncode, written(folder)) == (1, [])

    def test_a_disk_that_fails_half_way_leaves_nothing(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder.mkdir()
        (folder / "tests").write_text("a file where a folder must be")
        with pytest.raises(module.NotWrittenError, match="cannot be written"):
            module.init(folder)
        assert written(folder) == ["tests"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "Name the folder of the new project"),
            (["--tool", "x"], "There is no agent/ here to add to"),
            (["Help_Desk"], "'Help_Desk' cannot name an agent"),
            (["docs"], "not a route of the host"),
            (["file"], "file is a file"),
            (["file/inside"], "file is a file"),
            (["a", "--channel", "Ops-Alerts"], "such as ops_alerts"),
            (["a", "--channel", ""], "'' cannot name a channel"),
            (["a", "--channel", "../x"], "cannot name a channel"),
            (["a", "--channel", "a.b"], "such as a_b"),
            (["a", "--channel", "class"], "no word of Python's"),
            (["a", "--channel", "http"], "every agent has the HTTP channel already"),
            (["a", "--tool", "1st"], "such as st"),
            (["a", "--tool", "x" * 65], "1 to 64"),
            (["a", "--tool", "überblick"], "cannot name a tool"),
            (["a", "--tool", "read_file"], "every agent has this tool already"),
            (["a", "--force"], "--force"),
        ],
    )
    def test_what_cannot_be(
        self, cli: Cli, tmp_path: Path, arguments: list[str], said: str
    ) -> None:
        (tmp_path / "file").touch()
        done = cli("init", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_templates_are_in_the_wheel() -> None:
    """Whatever is in a package's folder is in the wheel, unless git ignores it."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert "core/threadline" in wheel["targets"]["wheel"]["packages"]
    templates = sorted(module.TEMPLATES.rglob("*.tmpl"))
    assert len(templates) == len([*PROJECT, *CHANNEL, *TOOL, "an installed channel"])
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert not ignored.intersection(part for path in templates for part in path.parts)
