"""The tutorials happen as they are written: files made and commands run, in the page's order."""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("getting-started.md", "testing-your-channel.md", "writing-a-channel.md")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
_FILE = re.compile(r"# ((?:agent|tests)/\S+)\n")
_SETTINGS = ("THREADLINE_", "ANTHROPIC_", "OPENAI_", "NO_COLOR", "PYTEST_")


@dataclass(frozen=True)
class File:
    """A block that is a file of the project."""

    path: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command of a console block, and lines of its output.

    ``…`` stands for anything, and a number for any number: the suite grows.
    """

    line: str
    output: list[str]


def steps(page: str) -> list[File | Command]:
    """Return what a page does, in order."""
    found: list[File | Command] = []
    for language, text in _BLOCK.findall((ROOT / "docs" / page).read_text("utf-8")):
        if language == "python" and (named := _FILE.match(text)):
            found.append(File(named[1], text[named.end() :]))
        elif language == "console":
            for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
                line, *output = part.splitlines()
                found.append(Command(line, output))
    return found


class Shell:
    """A folder in which the page's commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_SETTINGS)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
        self.env = kept | {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}

    def run(self, command: Command) -> None:
        """Run a command; its output holds the lines that the page shows, in their order."""
        if command.line.startswith("cd "):
            self.folder /= command.line.removeprefix("cd ")
            return
        done = subprocess.run(
            ["sh", "-eu", "-c", command.line],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = iter(done.stdout.splitlines())
        for wanted in command.output:
            pattern = re.sub(r"\d+", r"\\d+", re.escape(wanted)).replace("…", ".*")
            assert any(re.fullmatch(pattern, line) for line in lines), (
                f"{command.line} does not print {wanted!r}:\n{done.stdout}"
            )


@pytest.mark.parametrize("tutorial", PAGES)
@pytest.mark.timeout(300)
def test_a_tutorial(tutorial: str, tmp_path: Path) -> None:
    """Each file is written and each command run."""
    shell = Shell(tmp_path)
    done = steps(tutorial)
    assert any(isinstance(step, Command) for step in done)
    for step in done:
        if isinstance(step, File):
            file = shell.folder / step.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text)
        else:
            shell.run(step)


@pytest.mark.parametrize("tutorial", PAGES)
def test_a_tutorials_code_is_clean(tutorial: str, tmp_path: Path) -> None:
    """What readers copy is formatted and typed as the project is."""
    shell = Shell(tmp_path)
    shell.run(Command("threadline init project", []))
    shell.folder /= "project"
    for step in steps(tutorial):
        if isinstance(step, File):
            file = shell.folder / step.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text)
    shell.run(Command("ruff check --no-cache .", []))
    shell.run(Command("ruff format --no-cache --check .", []))
    shell.run(Command("mypy --cache-dir ../cache", []))


def code_lines(text: str) -> int:
    """Count the lines that hold code: no blank ones, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def test_a_channel_stays_as_small_as_the_tutorial_says() -> None:
    """A channel that passes is thirty lines; the example has no more than the finished one."""
    shown = [
        code_lines(step.text)
        for step in steps("writing-a-channel.md")
        if isinstance(step, File) and step.path == "agent/channels/tickets.py"
    ]
    first, *_, finished = shown
    assert first <= 30
    example = ROOT / "examples" / "incidents" / "agent" / "channels" / "incidents.py"
    assert code_lines(example.read_text("utf-8")) <= finished


def test_code_lines_counts_code() -> None:
    """The measure itself."""
    docstring = '"""One.\n\nTwo lines."""\n\n# why\n'
    assert code_lines(f"{docstring}x = [\n    1,  # one\n]\n\n\ndef f():\n    {docstring}") == 4
