"""Runs a command for a tool, and leaves nothing of it behind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadline.agent.started import Started, in_thread

__all__ = ["LIMIT", "Completed", "environment", "run"]

LIMIT = 1024 * 1024
_KEPT = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_CLOSING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: a negative ``returncode`` is the number of the signal that ended it.

    ``truncated``: it wrote more than the limit, and what came later is not here.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False

    @property
    def text(self) -> str:
        """The standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")


async def run(
    command: Sequence[str],
    *,
    started: Started,
    cwd: Path | None = None,
    stdin: bytes | str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    limit: int = LIMIT,
) -> Completed:
    """Run a command to its end, and end everything that it has started.

    It gets a session, a home and a folder for temporary files of its own, which are removed
    afterwards; its environment is :func:`environment` and ``env``; without ``stdin`` that is at its
    end. ``limit`` is in bytes, for each of its outputs.

    Raises TimeoutError after ``timeout`` seconds, OSError when it cannot be started, and ToolFailed
    when the call was given up.
    """
    words = [os.fspath(word) for word in command]
    if not words:
        raise ValueError("run() needs a command, such as run('git', 'status').")
    below = started.below()
    home = tempfile.mkdtemp(prefix="threadline-home-")
    capture = _Capture(asyncio.get_running_loop(), limit)
    transport: asyncio.SubprocessTransport | None = None
    try:
        spawning = asyncio.ensure_future(
            capture.loop.subprocess_exec(
                lambda: capture,
                *words,
                stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
                cwd=cwd if cwd is not None else home,
                env=below.marks({**environment(home), **(env or {})}),
                start_new_session=True,
            )
        )
        try:
            # Cancelled half-way, asyncio would wait for pipes that a grandchild may hold for ever.
            await _to_the_end(spawning)
        finally:
            if spawning.done() and not spawning.cancelled() and spawning.exception() is None:
                transport = spawning.result()[0]
                below.led_by(transport.get_pid())
        assert transport is not None
        if stdin is not None:
            _feed(transport.get_pipe_transport(0), stdin)
        async with asyncio.timeout(timeout):
            await capture.exited
    except TimeoutError:
        raise TimeoutError(f"{words[0]} did not end within {timeout:g} seconds.") from None
    finally:
        clean = in_thread(functools.partial(_clean, below, home), "end-command", daemon=False)
        try:
            await _to_the_end(clean)
        finally:
            if transport is not None:
                await _close(transport, capture)
    return capture.result(transport.get_returncode())


def environment(home: str) -> dict[str, str]:
    """Return the little that a command is told of the host; never its secrets."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **kept, "HOME": home, "TMPDIR": home}


def _clean(below: Started, home: str) -> None:
    below.end()
    shutil.rmtree(home, ignore_errors=True)


async def _to_the_end(work: Any) -> None:
    """Wait for the work even if the waiting is cancelled once."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.shield(task)
        raise


async def _close(transport: asyncio.SubprocessTransport, capture: _Capture) -> None:
    """Read what is left in the pipes; all that could hold them open has ended."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_SECONDS):
            await capture.closed
    transport.close()


def _feed(pipe: Any, data: bytes | str) -> None:
    pipe.write(data.encode() if isinstance(data, str) else data)
    pipe.close()


class _Capture(asyncio.SubprocessProtocol):
    """Keeps the beginning of each output and drops the rest, so that the command never waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self.loop = loop
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._outputs = {1: bytearray(), 2: bytearray()}
        self._truncated = False
        self._limit = limit

    def result(self, code: int | None) -> Completed:
        out, err = (bytes(self._outputs[fd]) for fd in (1, 2))
        return Completed(code or 0, out, err, self._truncated)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        kept = self._outputs[fd]
        room = self._limit - len(kept)
        kept += data[:room]
        self._truncated = self._truncated or len(data) > room

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
