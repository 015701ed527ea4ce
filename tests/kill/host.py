"""A real host in a process of its own: started, killed, terminated and started again."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import aiohttp

__all__ = ["HostProcess", "free_port"]

PROJECT = Path(__file__).parent / "project"
START_SECONDS = 30.0


def free_port() -> int:
    """Return a port of the loopback interface that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class HostProcess:
    """One state root and address, served by one process after another."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        project: Path = PROJECT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.project = project
        self.environment = dict(environment or {})
        self.state = folder / "state"
        self.handled = folder / "handled.ndjson"
        self.log = folder / "host.log"
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: asyncio.subprocess.Process | None = None
        self._command = self.command()

    def command(self) -> list[str]:
        """Return the command line, by the CLI where there is one."""
        if importlib.util.find_spec("threadline.cli.serve") is not None:
            program = ["-m", "threadline.cli.main", "serve", "--dev"]
            more = ["--mode", "single", "--host", "127.0.0.1", "--no-playground", "--no-docs"]
        else:
            program, more = [str(Path(__file__).parent / "runner.py")], []
        place = ["--port", str(self.port), "--state-root", str(self.state)]
        return [sys.executable, *program, str(self.project), *place, *more]

    async def start(self) -> None:
        """Start a process; it need not be ready yet."""
        assert self.process is None
        environment = {**os.environ, "KILL_HANDLED": str(self.handled), **self.environment}
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment,
            )  # fmt: skip

    async def ready(self) -> None:
        """Return when the host takes requests; raise with its log when it ended instead."""
        async with aiohttp.ClientSession() as client, asyncio.timeout(START_SECONDS):
            while True:
                if self.process is None or self.process.returncode is not None:
                    raise RuntimeError(f"The host ended at its start:\n{self.tail()}")
                try:
                    async with client.get(f"{self.url}/readyz") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """End the process at once, as a power switch would end it."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> int:
        """Ask the process to end, and return its exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        process = self.process
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(number)
        code = await process.wait()
        self.process = None
        return code

    def log_bytes(self, session_id: str) -> bytes:
        """Return the stored log of a session."""
        return (self.state / "sessions" / session_id / "events.ndjson").read_bytes()

    def tail(self, size: int = 4000) -> str:
        """Return the end of what the host said."""
        return self.log.read_bytes()[-size:].decode("utf-8", "replace") if self.log.exists() else ""
