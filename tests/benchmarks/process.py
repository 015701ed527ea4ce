"""Server processes on one core, and what they cost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.kill.host import free_port

__all__ = ["LOAD_CORE", "SERVER_CORE", "Server", "number_of", "pin_load"]

ROOT = Path(__file__).parents[2]
_CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = _CORES[0]
LOAD_CORE = _CORES[-1]


def pin_load() -> None:
    """Keep this process off the servers' core, where there are two."""
    os.sched_setaffinity(0, {LOAD_CORE})


class Server:
    """A module under ``tests.benchmarks.servers`` in a process of its own."""

    def __init__(self, module: str, *arguments: str | Path, port: int | None = None) -> None:
        self.port = port or free_port()
        self._module = f"tests.benchmarks.servers.{module}"
        self._arguments = [str(argument) for argument in arguments]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Server:
        """Start it and wait until it takes connections."""
        await self.spawn()
        while not await self._answers():
            assert self._process is not None
            if self._process.returncode is not None:
                raise RuntimeError(f"{self._module} ended with {self._process.returncode}")
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it by its pid."""
        process = self._process
        assert process is not None
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def spawn(self) -> None:
        """Start the process; it need not be ready yet."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", self._module, "--port", str(self.port),
            "--core", str(SERVER_CORE), *self._arguments, cwd=ROOT,
        )  # fmt: skip

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    @property
    def rss(self) -> float:
        """Resident memory in MB."""
        assert self._process is not None
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the server is gone")


async def number_of(module: str, *arguments: str) -> float:
    """Run a module to its end on the servers' core and return the number that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, "--core", str(SERVER_CORE), *arguments,
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}")
    return float(out)
