"""The command line itself: help, usage errors, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

HEAVY = ("aiohttp", "asyncio", "pydantic", "pydantic_ai", "structlog", "orjson", "prompt_toolkit")
COMMANDS = (
    "call",
    "chat",
    "dev",
    "info",
    "init",
    "run",
    "serve",
    "trajectory",
    "validate",
    "version",
)
SESSION = ("delete", "get", "list", "stop")


def test_help_names_every_command_and_the_exit_codes(cli: Cli) -> None:
    done = cli("--help")
    assert done.returncode == 0
    assert all(f"  {name}: " in done.stdout for name in (*COMMANDS, "session"))
    assert "Exit codes: 0 " in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["run", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from threadline.cli.main import run\n"
        f"code = run({arguments!r})\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    # asyncio comes with the commands that run something, never with the list of commands.
    allowed = "[]\n" if arguments == ["--help"] else ("[]\n", "['asyncio']\n")
    assert done.stderr in allowed


@pytest.mark.parametrize("name", [*COMMANDS, *(f"session {name}" for name in SESSION)])
def test_every_command_has_help(cli: Cli, name: str) -> None:
    done = cli(*name.split(), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: threadline {name}")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "run",
        "run --message",
        "run --message hi --session ses_1",
        "run --message hi --url nowhere",
        "run --message hi --workspace-file x",
        "serve --port many",
        "serve --port 99999",
        "serve --bearer-token x --allow-anonymous",
        "session get",
        "session list --limit 0",
        "call page_status --input {",
        "chat --token x",
        "trajectory",
    ],
)
def test_a_wrong_command_line_is_said_so_without_a_trace(cli: Cli, line: str) -> None:
    done = cli(*line.split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("threadline: ")
    assert "Traceback" not in done.stderr


def test_version(cli: Cli) -> None:
    assert cli("version").stdout == f"threadline {cli('--version').stdout}"
    assert '"version"' in cli("version", "--json").stdout


def test_the_package_runs_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "threadline", "version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("threadline ")
