"""``threadline dev``: serve for local development, and start again when files change.

A supervisor watches the projects and runs ``serve --dev`` as a child process. A change is checked
first: a project that is broken leaves the old host running.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from threadline.cli import exits, options, output
from threadline.cli.serve import DEFAULTS, ServeOptions
from threadline.errors import ThreadlineError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["dev", "wanted"]

DRAIN_SECONDS = 30.0
CHECK_SECONDS = 60.0
_IGNORED = frozenset(
    {".git", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".threadline", ".venv"}
    | {"__pycache__", "node_modules"}
)


class MissingWatcherError(ThreadlineError):
    """The library that watches files is not installed."""

    code = "missing_extra"


def dev(projects: options.ProjectPaths = None, /, *, how: ServeOptions = DEFAULTS) -> int:
    """Serve agents for local development, and reload them when their files change."""
    how.check()
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise MissingWatcherError(
            "Reloading needs the watchfiles package: pip install 'threadline[reload]'.\n"
            "Without it, use 'threadline serve --dev' and restart it yourself."
        ) from None
    from threadline.project import find_projects

    paths = projects or [options.HERE]
    find_projects(paths)
    return asyncio.run(_Supervisor(paths, how).run())


def wanted(path: Path, roots: Sequence[Path], state_root: Path | None) -> bool:
    """Tell whether a change of this file is one of the project's code or data."""
    if state_root is not None and path.is_relative_to(state_root):
        return False
    root = next((root for root in roots if path.is_relative_to(root)), None)
    parts = path.relative_to(root).parts if root is not None else path.parts
    return not _IGNORED.intersection(parts) and not path.name.endswith((".pyc", "~", ".swp"))


class _Supervisor:
    """Keeps one child serving the newest version of the projects that works."""

    def __init__(self, paths: Sequence[Path], how: ServeOptions) -> None:
        self.paths = [str(path) for path in paths]
        self.roots = [path.resolve() for path in paths]
        self.state_root = how.state_root.resolve() if how.state_root else None
        self.arguments = ["serve", *self.paths, "--dev", *_flags(how)]
        self.child: asyncio.subprocess.Process | None = None
        self.stopping = asyncio.Event()

    async def run(self) -> int:
        """Serve until a signal; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signal)
        try:
            await self._start()
            return await self._watch()
        finally:
            await self._stop()

    def _signal(self) -> None:
        """The first one drains the child, the second ends it at once."""
        if self.stopping.is_set() and self.child is not None and self.child.returncode is None:
            self.child.terminate()
        self.stopping.set()

    async def _watch(self) -> int:
        from watchfiles import Change, awatch

        def relevant(_: Change, path: str) -> bool:
            return wanted(Path(path), self.roots, self.state_root)

        changes = awatch(*self.roots, watch_filter=relevant, stop_event=self.stopping, debounce=300)
        watching = asyncio.ensure_future(anext(changes, None))
        while True:
            ended = asyncio.ensure_future(self.child.wait()) if self.child else None
            await asyncio.wait(
                [task for task in (watching, ended) if task is not None],
                return_when=asyncio.FIRST_COMPLETED,
            )
            if ended is not None and ended.done() and not self.stopping.is_set():
                code = self._ended(ended.result())
                if code is not None:
                    watching.cancel()
                    return code
            elif ended is not None:
                ended.cancel()
            if watching.done():
                changed = watching.result()
                if changed is None:
                    return exits.OK
                await self._reload(sorted(Path(path).name for _, path in changed))
                watching = asyncio.ensure_future(anext(changes, None))

    def _ended(self, code: int) -> int | None:
        """The child ended by itself: a taken port stays taken, a broken project can be mended."""
        self.child = None
        if code in (exits.OK, exits.USAGE, exits.UNREACHABLE):
            return code
        output.note(f"The host ended with {code}. Waiting for a change.")
        return None

    async def _reload(self, names: Sequence[str]) -> None:
        output.note(f"Changed: {', '.join(names[:5])}{' …' if len(names) > 5 else ''}")
        if not await self._checks():
            kept = "the version before it still runs" if self.child else "nothing runs"
            output.note(f"Not reloaded: {kept}.")
            return
        await self._stop()
        await self._start()

    async def _checks(self) -> bool:
        """Load the projects in a process of its own, which prints what is wrong."""
        check = await self._run(["validate", *self.paths, "--quiet"])
        try:
            return await asyncio.wait_for(check.wait(), CHECK_SECONDS) == exits.OK
        except TimeoutError:
            check.kill()
            output.note(f"The projects did not load within {CHECK_SECONDS:.0f} s.")
            return False

    async def _start(self) -> None:
        self.child = await self._run(self.arguments)

    async def _run(self, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        # A group of its own: Ctrl-C reaches the supervisor only, which passes it on once.
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "threadline.cli.main",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def _stop(self) -> None:
        child = self.child
        if child is None or child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), DRAIN_SECONDS)
        except TimeoutError:
            child.kill()
            await child.wait()
        self.child = None


def _flags(how: ServeOptions) -> list[str]:
    """Return the command line of the child; a free port is chosen once, so that it stays."""
    port = how.port or _free_port(how.host)
    flags = ["--mode", how.mode, "--host", how.host, "--port", str(port)]
    flags += ["--log-level", how.log_level, "--max-body", str(how.max_body)]
    for name, value in (
        ("--state-root", how.state_root),
        ("--bearer-token", how.bearer_token),
        ("--public-url", how.public_url),
    ):
        flags += [name, str(value)] if value is not None else []
    for name, given in (
        ("--allow-anonymous", how.allow_anonymous),
        ("--no-playground", how.no_playground),
        ("--no-docs", how.no_docs),
    ):
        flags += [name] if given else []
    return flags


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
