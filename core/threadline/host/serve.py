"""Run a host until a signal says stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator

import structlog
from aiohttp import web

from threadline.errors import StateRootError
from threadline.host.app import Host

__all__ = ["hanging_up", "serve"]

log = structlog.get_logger("threadline.host")

BACKLOG = 2048
OPEN_FILES = 65_536
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def hanging_up() -> Iterator[None]:
    """Let a terminal that is closed end what is served as SIGTERM does.

    What is to be ignored, as ``nohup`` says, stays so.
    """
    loop = asyncio.get_running_loop()
    heard = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    if heard:
        loop.add_signal_handler(signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM)
    try:
        yield
    finally:
        if heard:
            loop.remove_signal_handler(signal.SIGHUP)


async def serve(host: Host, *, on_ready: Callable[[Host], None] = lambda _: None) -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the process at once.

    Raises StateRootError when the address or a state root cannot be had.
    """
    _raise_open_files()
    listener = _listen(host)
    try:
        host.port = listener.getsockname()[1]
        await host.start()
        await _run(host, listener, on_ready)
    finally:
        listener.close()


async def _run(host: Host, listener: socket.socket, on_ready: Callable[[Host], None]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    runner = host.runner()
    try:
        await runner.setup()
        await web.SockSite(runner, listener, backlog=BACKLOG).start()
        host.announce(listener.getsockname()[1])
        on_ready(host)
        await stopping.wait()
        log.info("host.draining")
    finally:
        # While turns end, new requests still get their 503; the stores close when none is left.
        await host.drain()
        await runner.cleanup()
        await host.close()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _raise_open_files() -> None:
    """Take as many open files as may be had: each stream has two, each busy session one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listen(host: Host) -> socket.socket:
    """Bind before anything is opened, so that a taken port changes nothing."""
    address = (host.options.host, host.options.port)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise StateRootError(
            f"{address[0]}:{address[1]} cannot be bound: {error.strerror or error}. Is another "
            "host running there? Give another --port."
        ) from error
    listener.setblocking(False)
    return listener
