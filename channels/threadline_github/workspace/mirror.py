"""A repository's mirror: a bare copy of its branches, and of the heads of its pull requests.

Only the host's git uses the mirror. A pull request's folder borrows the mirror's objects, but has
a git folder of its own, so that what an agent does there to its git, such as to set a hook or an
address, is not what the host's git goes by when it fetches with a token. An agent with a shell may
still find the mirror on the disk: whatever git goes by is written anew before each fetch.

A mirror is made under another name and gets its own at its end, so none is ever half made.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadline.agent.process import Completed
from threadline.ids import new_id
from threadline_github.workspace import disk
from threadline_github.workspace.git import GitFailed, call, header

__all__ = ["Mirror", "Source"]

_MB = 1024 * 1024
_LOOK_SECONDS = 0.5
_URL = re.compile(r"((https?|git)://[^\s@/\\]+/[^\s\\]+|file:///[^\x00-\x1f\x7f]+)")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_DEFAULT = re.compile(r"ref: refs/heads/(\S+)\tHEAD")
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
_HEAD = b"ref: refs/heads/main\n"
# What would let git read, run or leave out something else. The mirror has none of it.
_FOREIGN = (
    "commondir",
    "config.worktree",
    "gitdir",
    "hooks",
    "info",
    "modules",
    "objects/info",
    "refs/replace",
    "shallow",
    "worktrees",
)
_PART = ".part"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the code of a pull request is.

    ``url`` is the address of the repository that the pull request is for, without a user or token:
    the heads of its pull requests are there, also those of forks that are gone. ``base`` is the
    name of a branch. ``size_kb`` is the size that GitHub tells. ``token`` is asked at each fetch.
    """

    url: str
    base: str
    size_kb: int | None = None
    token: Callable[[], Awaitable[str]] | None = None


class Mirror:
    """The mirror of one repository, in a folder that is the repository's.

    Only one task may use it at a time. ``seconds`` is for a single call of git.
    """

    def __init__(self, folder: Path, *, seconds: float, most_mb: int) -> None:
        self.folder = folder
        self.path = folder / "mirror.git"
        self._seconds = seconds
        self._most_mb = most_mb

    # Reading

    async def git(
        self,
        *words: str,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes | None = None,
        more: Sequence[tuple[str, str]] = (),
        most: int | None = None,
        allowed: Sequence[int] = (0,),
    ) -> Completed:
        """Call git on the mirror; raises GitFailed and TimeoutError."""
        return await call(
            *words,
            cwd=cwd or self.folder,
            seconds=self._seconds,
            env={"GIT_DIR": str(self.path), **(env or {})},
            stdin=stdin,
            more=more,
            most=most,
            allowed=allowed,
        )

    def used(self) -> float:
        """Return when it was used last, in seconds of the epoch; 0 when there is none."""
        try:
            return (self.path / "config").stat().st_mtime
        except OSError:
            return 0.0

    async def ref(self, name: str) -> str | None:
        """Return what a ref such as ``refs/heads/main`` points to."""
        done = await self.git("show-ref", "--verify", "--hash", "--", name, allowed=(0, 1, 128))
        return done.text.strip() or None

    async def has(self, sha: str) -> bool:
        """Tell whether there is a commit."""
        if not _SHA.fullmatch(sha):
            return False
        done = await self.git("cat-file", "-e", f"{sha}^{{commit}}", allowed=(0, 1, 128))
        return done.returncode == 0

    async def merge_base(self, one: str, other: str) -> str | None:
        """Return the commit that two histories have in common last."""
        done = await self.git("merge-base", one, other, allowed=(0, 1))
        return done.text.strip() or None

    async def branches(self) -> bytes:
        """Return ``sha name`` of each branch, one a line, as names of a remote called origin."""
        shape = "--format=%(objectname) refs/remotes/origin/%(refname:lstrip=2)"
        return (await self.git("for-each-ref", "--sort=refname", shape, "refs/heads")).stdout

    async def keep(self, number: int, head: str, base: str) -> None:
        """Let no later cleaning up take what a pull request's folder uses."""
        place = f"refs/threadline/{number}"
        lines = f"update {place}/head {head}\nupdate {place}/base {base}\n"
        await self.git("update-ref", "--stdin", stdin=lines.encode())

    async def kept_base(self, number: int) -> str | None:
        """Return the merge base that was kept the last time."""
        return await self.ref(f"refs/threadline/{number}/base")

    async def forget(self, number: int) -> None:
        """Drop a pull request's head, and clean up when there is much to clean up."""
        if not disk.is_folder(self.path):
            return
        await disk.to_the_end(self._put_right)
        place = f"refs/threadline/{number}"
        names = (f"refs/pull/{number}/head", f"{place}/head", f"{place}/base")
        lines = "".join(f"delete {name}\n" for name in names)
        await self.git("update-ref", "--stdin", stdin=lines.encode())
        more = (("gc.auto", "6700"), ("gc.autoPackLimit", "50"), ("gc.autoDetach", "false"))
        await self.git("gc", "--auto", "--quiet", more=more)

    # Fetching

    async def fetch(self, source: Source, number: int, *, anew: bool = False) -> None:
        """Bring the branches and the head of a pull request up to date.

        The mirror is made when there is none, when it has become too large, and with ``anew``.
        Raises GitFailed and TimeoutError.
        """
        if not _URL.fullmatch(source.url):
            raise GitFailed("The address of the repository is none that git may fetch from.")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await disk.to_the_end(self._sweep)
        wanted = ("+refs/heads/*:refs/heads/*", f"+refs/pull/{number}/head:refs/pull/{number}/head")
        if not anew and await disk.to_the_end(self._usable):
            await disk.to_the_end(self._put_right)
            await self._fetch(self.path, source, wanted)
        else:
            await self._make(source, wanted)

    async def fetch_commit(self, source: Source, sha: str) -> bool:
        """Fetch a commit that no ref leads to, or not yet; tell whether it is there."""
        if not _SHA.fullmatch(sha):
            return False
        with contextlib.suppress(GitFailed):
            await self._fetch(self.path, source, (sha,))
        return await self.has(sha)

    async def default_branch(self, source: Source) -> str | None:
        """Ask the server for the name of the default branch."""
        done = await self._asked(
            self.path, source, "ls-remote", "--quiet", "--symref", "--", source.url, "HEAD"
        )
        found = _DEFAULT.search(done.text)
        return found.group(1) if found else None

    async def _make(self, source: Source, wanted: Sequence[str]) -> None:
        if source.size_kb is not None and source.size_kb > self._most_mb * 1024:
            raise self._too_large(f"{source.size_kb // 1024} MB")
        part = self.folder / f"{new_id('mirror')}{_PART}"
        try:
            words = ("init", "--quiet", "--bare", "--template=", str(part))
            await call(*words, cwd=self.folder, seconds=self._seconds)
            await disk.to_the_end(_put_right, part)
            # Into one pack, so that what has come can be measured while it comes.
            await self._fetch(part, source, wanted, more=(("fetch.unpackLimit", "1"),))
            await disk.to_the_end(self._swap, part)
        finally:
            await disk.to_the_end(disk.discard, part)

    async def _fetch(
        self,
        place: Path,
        source: Source,
        wanted: Sequence[str],
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        words = ("fetch", "--quiet", "--force", "--prune", "--no-tags", "--no-write-fetch-head")
        fetching = self._asked(place, source, *words, "--", source.url, *wanted, more=more)
        await self._watched(place, fetching)

    async def _asked(
        self, place: Path, source: Source, *words: str, more: Sequence[tuple[str, str]] = ()
    ) -> Completed:
        """Call git with the token, if there is one and the address is one that takes it."""
        token = None
        if source.token is not None and source.url.startswith("http"):
            token = await source.token()
        return await call(
            *words,
            cwd=self.folder,
            seconds=self._seconds,
            env={"GIT_DIR": str(place)},
            more=(*more, header(source.url, token)) if token else more,
            secrets=(token,) if token else (),
        )

    async def _watched(self, place: Path, work: Awaitable[Any]) -> None:
        """Let the work go on for as long as the folder is not too large."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=_LOOK_SECONDS)
                await self._measure(place)
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            elif not task.cancelled():
                task.exception()  # Seen: the size goes before it.

    async def _measure(self, place: Path) -> None:
        if await disk.to_the_end(disk.size, place) > self._most_mb * _MB:
            raise self._too_large(f"more than {self._most_mb} MB")

    def _too_large(self, size: str) -> GitFailed:
        return GitFailed(
            f"The repository is too large for a working folder: it has {size}, and the limit is "
            f"most_mb={self._most_mb}. A larger most_mb of the channel's worktrees raises it.",
            "large",
        )

    # On the disk

    def _usable(self) -> bool:
        return disk.is_folder(self.path) and disk.size(self.path) <= self._most_mb * _MB

    def _put_right(self) -> None:
        _put_right(self.path)

    def _swap(self, part: Path) -> None:
        if self.path.exists() or self.path.is_symlink():
            self.path.rename(self.folder / f"{new_id('old')}{_PART}")
        part.rename(self.path)

    def _sweep(self) -> None:
        """Remove what a process that was killed has left."""
        for left in self.folder.glob(f"*{_PART}"):
            disk.discard(left)


def _put_right(place: Path) -> None:
    """Write what git goes by, and remove what it must not go by and what was left half done."""
    if not disk.is_folder(place / "objects") or not disk.is_folder(place / "refs"):
        return  # git tells what it misses.
    for name in _FOREIGN:
        disk.discard(place / name)
    disk.replace(place / "config", _CONFIG)
    disk.replace(place / "HEAD", _HEAD)
    for left in (place / "objects" / "pack").glob("tmp_*"):
        disk.discard(left)
    for lock in _locks(place):
        disk.discard(lock)


def _locks(place: Path) -> list[Path]:
    found = list(place.glob("*.lock"))
    for folder, _folders, names in os.walk(place / "refs"):
        found += [Path(folder) / name for name in names if name.endswith(".lock")]
    return found
