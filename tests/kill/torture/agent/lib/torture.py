"""Tools that block, print, raise, leak, fork and never end."""

# ruff: noqa: ASYNC221, ASYNC251

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from typing import Any

from threadline import Tool, tool

DAEMON = """
import os, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
time.sleep(600)
"""


# Blocking the event loop


@tool
async def block(how: str) -> str:
    """Block the loop."""
    match how:
        case "sleep":
            time.sleep(600)
        case "busy":
            for _ in itertools.count():
                pass
        case "lock":
            threading.Lock().acquire()
            threading.Semaphore(0).acquire()
        case "subprocess":
            subprocess.run(["sleep", "600"], check=False)
        case "subtask":
            await asyncio.gather(_nap(), _nap())
        case "stubborn":
            while True:
                try:
                    time.sleep(600)
                except BaseException:
                    continue
        case "busy and stubborn":
            while True:
                try:
                    pass
                except BaseException:
                    continue
    return "came back"


async def _nap() -> None:
    time.sleep(600)


# Printing


@tool
async def shout(megabytes: int) -> str:
    """Print a lot from the event loop."""
    for _ in range(megabytes * 16):
        print("x" * 65535)
    return "printed"


@tool
def shout_sync(megabytes: int) -> str:
    """Print a lot from a thread."""
    for _ in range(megabytes * 16):
        print("x" * 65535)
    return "printed"


# Results


@tool
async def give(what: str) -> Any:
    """Return something odd."""
    match what:
        case "nan":
            return {"a": float("nan"), "b": [float("inf"), float("-inf")], "c": 1e400}
        case "deep":
            value: Any = 1
            for _ in range(100_000):
                value = [value]
            return value
        case "deepish":
            value = 1
            for _ in range(300):
                value = [value]
            return value
        case "circle":
            value = []
            value.append(value)
            return value
        case "huge":
            return "x" * 200_000_000
        case "object":
            return object()
        case "big-number":
            return 10**400
    return None


# Raising

ERRORS: dict[str, BaseException] = {
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(3),
    "GeneratorExit": GeneratorExit(),
    "BaseException": BaseException("base"),
    "CancelledError": asyncio.CancelledError(),
    "MemoryError": MemoryError(),
    "StopIteration": StopIteration(),
    "StopAsyncIteration": StopAsyncIteration(),
}


def _throw(error: str) -> None:
    if error == "RecursionError":
        _throw(error)
    raise ERRORS[error]


@tool
async def throw(error: str) -> None:
    """Raise it."""
    _throw(error)


@tool
def throw_sync(error: str) -> None:
    """Raise it in a thread."""
    _throw(error)


@tool
async def throw_in_task(error: str) -> None:
    """Raise it in a task of its own."""
    task = asyncio.create_task(_throw_async(error))
    await asyncio.sleep(0)
    await task


async def _throw_async(error: str) -> None:
    _throw(error)


# Threads

_FOREVER = threading.Event()


@tool
async def leak_threads(number: int, daemon: bool = True) -> int:
    """Start threads that never end."""
    for _ in range(number):
        threading.Thread(target=_FOREVER.wait, daemon=daemon).start()
    return threading.active_count()


@tool
async def fill_pool(number: int) -> str:
    """Hold the loop's own pool for ever."""
    for _ in range(number):
        asyncio.get_running_loop().run_in_executor(None, _FOREVER.wait)
    await asyncio.to_thread(_FOREVER.wait)
    return "never"


# Never ending


@tool
async def stay() -> None:
    """Never end, and take no cancellation."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@tool
def stay_sync() -> None:
    """Never end, in a thread."""
    _FOREVER.wait()


@tool
def spin_sync() -> None:
    """Never end, in a thread that is busy."""
    while True:
        pass


# Processes


@tool
def daemon_sync() -> None:
    """Start a process that daemonises, then one that is waited for."""
    subprocess.run([sys.executable, "-c", DAEMON], check=True)
    subprocess.run(["sleep", "600"], check=False)


@tool
async def daemon() -> None:
    """Start a process that daemonises, and wait for another."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON)
    await process.wait()
    process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 600 & sleep 600")
    await process.wait()


@tool(timeout=1)
def daemon_timeout() -> None:
    """Start a process that daemonises, and take too long."""
    subprocess.run([sys.executable, "-c", DAEMON], check=True)
    subprocess.run(["sh", "-c", "trap '' TERM; sleep 600"], check=False)


@tool
async def daemon_and_return() -> str:
    """Start a process that daemonises, and return."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON)
    await process.wait()
    return "left it"


TOOLS = [value for value in list(globals().values()) if isinstance(value, Tool)]
