"""Exit codes: what a script learns from a command's end."""

from __future__ import annotations

from threadline.errors import InvalidRequest, StateRootError, ThreadlineError, Unavailable

__all__ = [
    "BROKEN_PIPE",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "UNREACHABLE",
    "USAGE",
    "HostUnreachableError",
    "UsageError",
    "exit_code",
]

OK = 0
FAILED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130
BROKEN_PIPE = 141


class UsageError(InvalidRequest):
    """The command line asks for something that cannot be; nothing was done."""

    code = "usage"


class HostUnreachableError(Unavailable):
    """No host answers at the address."""

    code = "host_unreachable"


def exit_code(error: ThreadlineError) -> int:
    """Return the exit code that an error ends a command with."""
    match error:
        case UsageError():
            return USAGE
        case HostUnreachableError() | StateRootError():
            return UNREACHABLE
        case _:
            return FAILED
