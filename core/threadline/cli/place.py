"""Where an agent's project and state are, and the host that runs there, if one does."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadline.cli.exits import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Place", "place_of", "running_host"]

STARTING_SECONDS = 10.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Place:
    """One project on this machine; ``state`` may not exist yet."""

    project: Path
    slug: str
    state: Path

    @property
    def used(self) -> bool:
        """True when an agent ever kept something here."""
        return (self.state / "threadline.db").exists() or (self.state / "sessions").exists()


def place_of(project: Path, state_root: Path | None = None) -> Place:
    """Return the place of one project; a state root is meant as ``serve`` takes it.

    Raises ProjectError when there is no project, UsageError when there are several.
    """
    from threadline.project import find_projects

    found = find_projects([project])
    if len(found) > 1:
        names = ", ".join(str(path) for path in found)
        raise UsageError(f"{project} holds {len(found)} projects. Name one: {names}.")
    root = found[0]
    slug = root.resolve().name.lower()
    if state_root is None:
        return Place(root, slug, root.resolve() / ".threadline")
    single = (state_root / "threadline.db").exists() or (state_root / "lock").exists()
    return Place(root, slug, state_root if single else state_root / slug)


async def running_host(state: Path) -> str | None:
    """Return the address of the host that has the state root open; None when there is none.

    A host that has just taken it is given time to say its address. Without one, the answer is None
    too, and opening the state root tells who holds it.
    """
    deadline = asyncio.get_running_loop().time() + STARTING_SECONDS
    while True:
        held, url = _lock(state / "lock")
        if not held or url:
            return url
        if asyncio.get_running_loop().time() > deadline:
            return None
        await asyncio.sleep(_POLL_SECONDS)


def _lock(path: Path) -> tuple[bool, str | None]:
    """Tell whether a lock is held, and which address it names.

    Trying the lock could get in the way of a host that starts in this very moment, so it is tried
    only when the process that wrote it still lives.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False, None
    try:
        said = _said(os.pread(handle, 4096, 0))
        pid = said.get("pid")
        if not isinstance(pid, int) or not _alive(pid) or pid == os.getpid():
            return False, None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            url = said.get("url")
            return True, url if isinstance(url, str) and url else None
        return False, None
    finally:
        os.close(handle)


def _said(data: bytes) -> dict[str, object]:
    try:
        said = json.loads(data)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
