"""The ``threadline`` command: which commands there are, and how a failure leaves it.

Commands are registered by import path, so that ``--help`` imports none of them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from threadline.cli import exits, output
from threadline.errors import ProjectError, ThreadlineError
from threadline.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main", "run"]

_EPILOGUE = """Exit codes: 0 it worked; 1 the operation failed, or the project has problems; \
2 the command line is wrong; 3 no host answers, or the state root or port is in use; \
130 interrupted."""

_COMMANDS = {
    "init": ("init:init", "Write a new project, or add a channel or a tool to one."),
    "dev": ("dev:dev", "Serve agents and reload them when their files change."),
    "serve": ("serve:serve", "Serve one or more agents over HTTP."),
    "chat": ("chat:chat", "Talk to an agent in the terminal."),
    "run": ("run:run", "Run one turn and print its result."),
    "call": ("call:call", "Call a tool without a model turn."),
    "session": ("session:app", "Look at sessions, stop or delete them."),
    "trajectory": ("trajectory:command", "Print the tool calls and reply of a saved event file."),
    "validate": ("validate:validate", "Check agent projects and print every problem."),
    "info": ("info:info", "Show what discovery found in a project."),
    "version": ("info:version", "Print the version."),
}

app = App(
    name="threadline",
    help="Durable agents that live where a team already talks.",
    help_format="plaintext",
    help_formatter="plain",
    help_epilogue=_EPILOGUE,
    version=VERSION,
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for _order, (_name, (_path, _help)) in enumerate(_COMMANDS.items()):
    app.command(f"threadline.cli.{_path}", name=_name, help=_help, sort_key=_order)


def main() -> None:
    """Run the command line of this process, and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not lose the rest of the output.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        output.silence_stdout()
        return exits.BROKEN_PIPE
    return code


def _run(arguments: Sequence[str]) -> int:
    try:
        _add_installed(arguments)
        result = app(list(arguments))
    except CycloptsError as error:
        output.complain(f"{error}\nSee 'threadline {_command(arguments)}--help'.")
        return exits.USAGE
    except ProjectError as error:
        for problem in error.problems:
            output.note(problem)
        output.complain(_count(error.problems))
        return exits.FAILED
    except ThreadlineError as error:
        output.complain(error.message)
        return exits.exit_code(error)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        raise
    except Exception as error:
        if os.environ.get("THREADLINE_DEBUG"):
            raise
        output.complain(
            f"{type(error).__name__}: {error}\n"
            "This is a fault of threadline or of the project's code. Set THREADLINE_DEBUG=1 to see "
            "where it happened."
        )
        return exits.FAILED
    return result if isinstance(result, int) else exits.OK


def _add_installed(arguments: Sequence[str]) -> None:
    """Add the commands of installed channel packages, when they may be asked for."""
    if arguments and arguments[0] in _COMMANDS:
        return
    from importlib.metadata import entry_points

    for entry in entry_points(group="threadline.commands"):
        if entry.name not in app:
            app.command(
                entry.value, name=entry.name, help=f"Set up and check {entry.name} channels."
            )


def _command(arguments: Sequence[str]) -> str:
    return f"{arguments[0]} " if arguments and arguments[0] in _COMMANDS else ""


def _count(problems: Sequence[str]) -> str:
    number = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f"{number}; fix what is named above and try again."


if __name__ == "__main__":
    main()
