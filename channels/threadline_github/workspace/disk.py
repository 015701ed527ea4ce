"""Folders that others may have worked in: emptied, removed and measured; no link is followed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from threadline.agent.started import in_thread

__all__ = ["discard", "empty", "is_folder", "replace", "size", "to_the_end"]

T = TypeVar("T")


def is_folder(path: Path) -> bool:
    """Tell whether there is a true folder, no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def discard(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing there is fine.

    Raises OSError.
    """
    if is_folder(path):
        try:
            shutil.rmtree(path)
        except PermissionError:
            _unlock(path)
            shutil.rmtree(path)
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def empty(path: Path, keep: Collection[str] = ()) -> None:
    """Make it a folder in which there is nothing, but what is to be kept.

    A folder stays the same one: some process may be in it. Raises OSError.
    """
    if not is_folder(path):
        discard(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(path.stat().st_mode | stat.S_IRWXU)
    for child in path.iterdir():
        if child.name not in keep:
            discard(child)


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; raises OSError."""
    if is_folder(path):
        discard(path)
    fresh = path.with_name(f"{path.name}.new")
    discard(fresh)
    fresh.write_bytes(data)
    fresh.replace(path)


def size(path: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile counts as none."""
    total = 0
    for folder, _folders, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
    return total


async def to_the_end(function: Callable[..., T], *args: Any) -> T:
    """Run blocking work in a thread, and be back only when it has ended, even if cancelled."""
    work = functools.partial(function, *args)
    task = asyncio.ensure_future(in_thread(work, "github-files", daemon=False))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _unlock(path: Path) -> None:
    """Take off the locks that somebody has put on a folder and those in it."""
    path.chmod(stat.S_IRWXU)
    for child in path.iterdir():
        if is_folder(child):
            _unlock(child)
