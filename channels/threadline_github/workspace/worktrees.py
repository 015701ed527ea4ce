"""Working folders of pull requests: one a pull request, at the commit that a turn works on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from threadline_github.workspace import disk
from threadline_github.workspace.checkout import Plan, WorkingFolder
from threadline_github.workspace.git import OLDEST, GitFailed, git
from threadline_github.workspace.mirror import Mirror, Source
from threadline_github.workspace.tree import Entry, change, links, parse, target

__all__ = ["Checkout", "GitFailed", "Source", "Worktrees", "cut_short"]

_MB = 1024 * 1024
_MOST_DIFF = 5 * _MB
_MOST_LISTING = 64 * _MB
_MOST_LINKS = 64
_ROUNDS = 4
_BIG_FILE = "10m"  # Above it a file counts as binary: to compare it may take all memory.
_FILE = "\ndiff --git "
_PULL = re.compile(r"pull-([1-9]\d*)")
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A pull request's code on the disk.

    ``head`` is the commit that is there, ``base`` the merge base with the base branch. ``diff`` is
    the unified diff between both, of the commits and not of the disk, at most 5 MB: of ``cut``
    files it has nothing, and its first line says so. ``moved`` is False when the commit was there
    already; then what the agent has changed since is there, too.
    """

    path: Path
    head: str
    base: str
    diff: str = field(repr=False)
    moved: bool
    cut: int = 0


class Worktrees:
    """The working folders of a bot, below ``<folder>/<repository id>``, with a mirror for all.

    ``seconds`` is how long it may take to bring one up to date, ``most_mb`` how large a repository
    may be: its mirror, and the files of a commit. A mirror is made once; one task at a time works
    on a repository, and repositories do not wait for each other.
    """

    def __init__(self, folder: Path, *, seconds: float = 300, most_mb: int = 2048) -> None:
        self._folder = folder.absolute()
        self._seconds = seconds
        self._most_mb = most_mb
        self._locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._known: set[int] = set()
        self._checked = False

    def path(self, repository: int, number: int) -> Path:
        """Return where a pull request's folder is, or will be."""
        return self._folder / str(repository) / f"pull-{number}"

    def ready(self, repository: int, number: int) -> Path:
        """Return a pull request's folder, made if there is none yet."""
        path = self.path(repository, number)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not disk.is_folder(path):
            disk.discard(path)
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def current(self, repository: int, number: int) -> str | None:
        """Return the commit that is there; None when none is there as a whole."""
        state = WorkingFolder(self.path(repository, number)).state()
        return state.head if state is not None else None

    async def move(
        self, repository: int, number: int, source: Source, *, head: str, trusted: bool
    ) -> Checkout:
        """Fetch, and put a pull request's commit into its folder: between turns only.

        What the agent has changed there goes, local commits included, unless the commit is there
        already; the folder ``.threadline`` stays. The commit is ``head``, or the newest head of
        the pull request when ``head`` is empty or can no longer be had. When it is not
        ``trusted``, what harnesses take for instructions is that of the merge base.

        Raises GitFailed, TimeoutError after so many seconds, and what asking for the token raises.
        """
        folder = WorkingFolder(self.path(repository, number))
        async with self._locks[repository]:
            try:
                async with asyncio.timeout(self._seconds):
                    mirror = await self._opened(repository)
                    moving = functools.partial(
                        self._move, mirror, folder, number, source, head=head, trusted=trusted
                    )
                    try:
                        return await moving()
                    except GitFailed as error:
                        if error.reason != "damaged":
                            raise
                    return await moving(anew=True)
            except TimeoutError:
                raise TimeoutError(
                    f"The code of pull request {number} was not there within {self._seconds:g} "
                    "seconds (seconds of the channel's worktrees)."
                ) from None
            except OSError as error:
                raise GitFailed(
                    f"The working folder of pull request {number} cannot be written: "
                    f"{error.strerror or error}."
                ) from error

    async def remove(
        self, repository: int, number: int, *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Remove a pull request's folder; the repository's mirror stays.

        ``unless`` is asked when nobody else works on the repository, which may be a while later.
        Raises OSError when something there cannot be removed.
        """
        folder = WorkingFolder(self.path(repository, number))
        async with self._locks[repository]:
            if not disk.is_folder(folder.path.parent):
                return
            mirror = await self._opened(repository)
            if unless():
                return
            await folder.remove()
            with contextlib.suppress(GitFailed, TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await mirror.forget(number)

    # Upkeep

    def repositories(self) -> list[int]:
        """Return the repositories of which something is on the disk."""
        if not disk.is_folder(self._folder):
            return []
        found = (child for child in self._folder.iterdir() if child.name.isdecimal())
        return sorted(int(child.name) for child in found if disk.is_folder(child))

    def untouched(self, before: float) -> list[tuple[int, int]]:
        """Return repository and number of the folders that were moved last before a time.

        The time is in seconds of the epoch.
        """
        return [
            (repository, number)
            for repository in self.repositories()
            for number in self._numbers(repository)
            if _touched(self.path(repository, number)) < before
        ]

    async def tidy(self, repository: int, before: float) -> None:
        """Remove a repository's mirror when there is no folder and it was not used since a time."""
        folder = self._folder / str(repository)
        async with self._locks[repository]:
            mirror = await self._opened(repository)
            if not self._numbers(repository) and mirror.used() < before:
                await disk.to_the_end(disk.discard, folder)

    def _numbers(self, repository: int) -> list[int]:
        folder = self._folder / str(repository)
        if not disk.is_folder(folder):
            return []
        found = (_PULL.fullmatch(child.name) for child in folder.iterdir())
        return sorted(int(one[1]) for one in found if one is not None)

    # Moving

    async def _opened(self, repository: int) -> Mirror:
        folder = self._folder / str(repository)
        if repository not in self._known:
            await disk.to_the_end(_end_orphans, folder)
            self._known.add(repository)
        return Mirror(folder, seconds=self._seconds, most_mb=self._most_mb)

    async def _move(
        self,
        mirror: Mirror,
        folder: WorkingFolder,
        number: int,
        source: Source,
        *,
        head: str,
        trusted: bool,
        anew: bool = False,
    ) -> Checkout:
        if not self._checked:
            await _check_version(self._seconds)
            self._checked = True
        await mirror.fetch(source, number, anew=anew)
        commit = await _commit(mirror, source, number, head)
        base = await _base(mirror, source, number, commit)
        await mirror.keep(number, commit, base)
        plan = await self._plan(mirror, commit, base, trusted=trusted)
        moved = not await folder.holds(plan, mirror)
        if moved:
            await folder.put(plan, mirror)
        diff, cut = await _diff(mirror, base, commit)
        return Checkout(folder.path, commit, base, diff, moved, cut)

    async def _plan(self, mirror: Mirror, head: str, base: str, *, trusted: bool) -> Plan:
        files = await self._files(mirror, head)
        if trusted:
            return Plan(head, base, trusted, files, await disk.to_the_end(change, files, None))
        known = await self._files(mirror, base, checked=False)
        others = await _linked(mirror, known)
        changed = await disk.to_the_end(change, files, known, others)
        return Plan(head, base, trusted, files, changed, others)

    async def _files(
        self, mirror: Mirror, commit: str, *, checked: bool = True
    ) -> dict[bytes, Entry]:
        """Return the files of a commit; refuses one that would fill the disk."""
        words = ("ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        done = await mirror.git(*words, most=_MOST_LISTING)
        if done.truncated:
            raise GitFailed(
                f"The commit {commit} has too many files for a working folder.", "large"
            )
        files = await disk.to_the_end(parse, done.stdout)
        size = sum(entry.size for entry in files.values())
        if checked and size > self._most_mb * _MB:
            raise GitFailed(
                f"The files of the commit {commit} take {size // _MB} MB, and the limit is "
                f"most_mb={self._most_mb}. A larger most_mb of the channel's worktrees raises it.",
                "large",
            )
        return files


def _touched(path: Path) -> float:
    """Return when a folder was made or moved last; never, when it is gone."""
    times = [0.0]
    for place in (path, path.with_name(f"{path.name}.json")):
        with contextlib.suppress(OSError):
            times.append(place.lstat().st_mtime)
    return max(times)


async def _check_version(seconds: float) -> None:
    said = await git("version", cwd=Path("/"), seconds=seconds)
    found = _VERSION.search(said)
    if found is None or tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise GitFailed(f"git {oldest} or later is needed; this is {said.strip()!r}.")


def _end_orphans(folder: Path) -> None:
    """End what a host that was killed has left running: its git would still write here."""
    import psutil

    mine = os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            place = process.environ().get("GIT_DIR", "")
            if Path(place).parent != folder or process.pid == mine:
                continue
            if all(parent.pid != mine for parent in process.parents()):
                process.kill()
                process.wait(1)  # A zombie may stay for good.


async def _commit(mirror: Mirror, source: Source, number: int, head: str) -> str:
    """Return the commit to put there: the one that is meant if it can be had, else the newest.

    After a push GitHub may tell of a commit before the pull request's ref leads to it.
    """
    if await mirror.has(head) or await mirror.fetch_commit(source, head):
        return head
    newest = await mirror.ref(f"refs/pull/{number}/head")
    if newest is None:
        raise GitFailed(f"Pull request {number} has no commit.", "missing")
    return newest


async def _base(mirror: Mirror, source: Source, number: int, head: str) -> str:
    """Return the merge base with the base branch; while that is gone, with what is nearest to it.

    Histories with nothing in common have the base branch itself.
    """
    tip = await mirror.ref(f"refs/heads/{source.base}")
    if tip is None:
        kept = await mirror.kept_base(number)
        if kept is not None and await mirror.merge_base(kept, head) == kept:
            return kept
        default = await mirror.default_branch(source)
        tip = await mirror.ref(f"refs/heads/{default}") if default else None
    if tip is None:
        raise GitFailed(f"The base branch {source.base!r} is not in the repository.", "missing")
    return await mirror.merge_base(tip, head) or tip


async def _linked(mirror: Mirror, base: Mapping[bytes, Entry]) -> frozenset[bytes]:
    """Return what the base's instructions link to: it is instructions as well."""
    others: set[bytes] = set()
    for _ in range(_ROUNDS):
        found = set()
        for entry in links(base, others)[:_MOST_LINKS]:
            content = (await mirror.git("cat-file", "blob", entry.sha)).stdout
            found.add(target(entry.path, content))
        fresh = {path for path in found if path is not None} - others
        if not fresh:
            break
        others |= fresh
    return frozenset(others)


async def _diff(mirror: Mirror, base: str, head: str) -> tuple[str, int]:
    """Return the diff, cut between two files when it is too long, and how many files are cut."""
    words = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames")
    shape = ("--src-prefix=a/", "--dst-prefix=b/", f"{base}..{head}", "--")
    more = (("core.bigFileThreshold", _BIG_FILE),)
    done = await mirror.git(*words, *shape, more=more, most=_MOST_DIFF)
    if not done.truncated:
        return done.text, 0
    names = ("diff", "--no-ext-diff", "--find-renames", "--name-only", "-z")
    listed = await mirror.git(*names, f"{base}..{head}", "--", most=_MOST_LISTING)
    return cut_short(done.text, listed.stdout.count(b"\0"))


def cut_short(text: str, files: int) -> tuple[str, int]:
    """Return the whole files of a diff that ends somewhere, and how many of all are not there."""
    end = text.rfind(_FILE)
    whole = text[: end + 1] if end >= 0 else ""
    there = whole.count(_FILE) + whole.startswith(_FILE[1:])
    note = f"# This diff is cut: it has {there} of {files} files; the others are only in git.\n"
    return note + whole, files - there
