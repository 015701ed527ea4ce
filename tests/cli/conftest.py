"""Real processes of the command, on the on-call example and a state root of the test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Cli = Callable[..., subprocess.CompletedProcess[str]]
    Start = Callable[..., "Process"]

ONCALL = Path(__file__).parents[2] / "examples" / "oncall"
SECONDS = 60
COMMAND = [sys.executable, "-m", "threadline.cli.main"]
SETTINGS = ("THREADLINE_", "ANTHROPIC_", "OPENAI_", "NO_COLOR")


def _heed_ctrl_c() -> None:
    """Let a child end at SIGINT though this run, in the background of a shell, ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """A command that runs beside the test; its output is read line by line."""

    def __init__(self, arguments: tuple[str, ...], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
            bufsize=1,
            preexec_fn=_heed_ctrl_c,
        )
        self.seen: list[str] = []

    def line(self) -> str:
        """Return the next line of output; the test's own timeout bounds the wait."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the command ended: {''.join(self.seen)}"
        self.seen.append(line)
        return line

    def until(self, text: str) -> str:
        """Read up to a line that holds the text, and return it."""
        while text not in (line := self.line()):
            pass
        return line

    def ready(self) -> dict[str, Any]:
        """Read up to what ``serve --json`` says when it is ready."""
        found: dict[str, Any] = json.loads(self.until('{"ok": true'))
        return found

    def type(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Close the input, read the rest, and return the exit code."""
        rest, _ = self.process.communicate(timeout=SECONDS)
        self.seen.append(rest)
        return self.process.returncode

    @property
    def output(self) -> str:
        """All that was read so far."""
        return "".join(self.seen)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state root that does not exist yet."""
    return tmp_path / "state"


@pytest.fixture
def env(state: Path) -> dict[str, str]:
    """An environment without keys, whose demo model makes no pauses."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(SETTINGS)}
    return kept | {"ONCALL_PACE": "0", "THREADLINE_STATE_ROOT": str(state), "COLUMNS": "200"}


@pytest.fixture
def cli(env: dict[str, str]) -> Cli:
    """Run a command line to its end."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        options.setdefault("env", env)
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            **options,
        )

    return run


@pytest.fixture
def start(env: dict[str, str]) -> Iterator[Start]:
    """Start command lines that run beside the test; they are killed when it ends."""
    started: list[Process] = []

    def run(*arguments: str, **more: str) -> Process:
        started.append(Process(arguments, env | more))
        return started[-1]

    yield run
    for process in started:
        if process.process.poll() is None:
            process.signal(signal.SIGKILL)
        process.process.communicate(timeout=SECONDS)


@pytest.fixture
def oncall() -> str:
    """The path of the on-call example."""
    return str(ONCALL)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A project with a problem in each of two files."""
    project = tmp_path / "broken"
    (project / "agent" / "tools").mkdir(parents=True)
    (project / "agent" / "instructions.md").write_text("")
    (project / "agent" / "tools" / "look.py").write_text("import nothing_of_that_name\n")
    return project
