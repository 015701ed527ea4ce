"""A pull request's working folder: puts a commit there, whatever an agent has left.

The host's git works on the folder with the mirror's git folder and an index outside of it, and
never reads the git folder inside, which is written anew each time and is the agent's alone: it
borrows the mirror's objects, has a detached head, and the branches as ``origin/<name>``; it knows
no address and no credential.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from threadline_github.workspace import disk
from threadline_github.workspace.git import GitFailed
from threadline_github.workspace.mirror import Mirror
from threadline_github.workspace.tree import (
    PRIVATE,
    Change,
    Entry,
    index_lines,
    is_instruction,
    is_private,
)

__all__ = ["Plan", "State", "WorkingFolder"]

_PRIVATE = PRIVATE.decode()
_GIT = ".git"
_CONFIG = (
    b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
    b"\tlogallrefupdates = true\n[gc]\n\tauto = 0\n"
)
_PACKED = b"# pack-refs with: sorted\n"
_SPECIAL = re.compile(rb"([\\*?\[ !#])")
_MOST_LEFT = 16 * 1024 * 1024  # bytes of names


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be in a folder: the files of a commit, but for the change.

    ``others`` are paths that count as instructions beside the known names.
    """

    head: str
    base: str
    trusted: bool
    files: Mapping[bytes, Entry] = field(repr=False)
    change: Change = field(default_factory=Change, repr=False)
    others: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """What the host has put into a folder.

    ``guarded`` says of each instruction file what the disk tells of it, as ``_seen`` returns it.
    """

    head: str
    base: str
    trusted: bool
    guarded: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> State | None:
        """Read a kept state; None when there is none that can be read."""
        try:
            kept: Any = json.loads(path.read_bytes())
            return cls(kept["head"], kept["base"], kept["trusted"], dict(kept["guarded"]))
        except (OSError, ValueError, TypeError, KeyError):
            return None


class WorkingFolder:
    """One pull request's folder, with what the host keeps of it beside it.

    Only one task may change it at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index = path.with_name(f"{path.name}.index")
        self._state = path.with_name(f"{path.name}.json")

    def state(self) -> State | None:
        """Return what was put there last; None when that is not there as a whole."""
        if not disk.is_folder(self.path / _GIT) or not disk.is_folder(self.path):
            return None
        return State.read(self._state)

    async def holds(self, plan: Plan, mirror: Mirror) -> bool:
        """Tell whether the plan is what is there, but for what an agent has changed since.

        An agent's own commit is not the plan; nor is a change of its instructions, when the
        commit comes from outside.
        """
        state = self.state()
        if state is None or (state.head, state.trusted) != (plan.head, plan.trusted):
            return False
        if state.base != plan.base and not plan.trusted:
            return False
        if not await disk.to_the_end(self._untouched, plan, state):
            return False
        return plan.trusted or not await self._has_own_instructions(plan, mirror)

    async def put(self, plan: Plan, mirror: Mirror) -> None:
        """Put it there; only the host's own folder stays. Raises GitFailed and TimeoutError."""
        await disk.to_the_end(self._begin)
        tree = await self._tree(plan, mirror)
        try:
            await self._check_out(plan, tree, mirror)
        except TimeoutError:
            raise
        except (GitFailed, OSError) as error:
            if isinstance(error, GitFailed) and error.reason == "damaged":
                raise
            # The agent has left what git cannot clean up: a folder without rights, and the like.
            await disk.to_the_end(self._clear)
            await self._check_out(plan, tree, mirror)
        index = self._fresh / "index"
        astray = [] if plan.trusted else await disk.to_the_end(self._cut_links, plan)
        await disk.to_the_end(self._write_git, plan, mirror.path, await mirror.branches())
        if plan.change:
            await self._hide(plan.change, mirror, index)
        if astray:
            await self._skip(astray, mirror, index)
        await disk.to_the_end(self._finish, plan)

    async def remove(self) -> None:
        """Remove it and what is kept of it; raises OSError."""
        await disk.to_the_end(self._remove)

    # With git

    async def _tree(self, plan: Plan, mirror: Mirror) -> str:
        """Return the tree that is to be on the disk, made when it is no commit's."""
        if not plan.change:
            return f"{plan.head}^{{tree}}"
        env = {"GIT_INDEX_FILE": str(self._fresh)}
        await mirror.git("read-tree", plan.head, env=env)
        lines = index_lines(plan.change.hidden, plan.change.added)
        await mirror.git("update-index", "-z", "--index-info", env=env, stdin=lines)
        tree = (await mirror.git("write-tree", env=env)).text.strip()
        await disk.to_the_end(disk.discard, self._fresh)
        return tree

    async def _check_out(self, plan: Plan, tree: str, mirror: Mirror) -> None:
        await mirror.git("read-tree", "--reset", "-u", tree, cwd=self.path, env=self._outside())
        # Twice forced: also repositories of the agent's go.
        words = ("clean", "-ffdxq", "-e", f"/{_PRIVATE}")
        await mirror.git(*words, cwd=self.path, env=self._outside())
        await disk.to_the_end(self._empty_modules, plan)

    async def _hide(self, change: Change, mirror: Mirror, index: Path) -> None:
        """Let the agent's git take the files that are not the commit's for the commit's."""
        lines = index_lines((entry.path for entry in change.added), change.removed)
        await self._updated(mirror, index, "--index-info", stdin=lines)
        await self._skip(change.hidden, mirror, index)

    async def _skip(self, paths: Iterable[bytes], mirror: Mirror, index: Path) -> None:
        """Let the agent's git not look for these files on the disk."""
        listed = b"".join(path + b"\0" for path in paths)
        await self._updated(mirror, index, "--skip-worktree", "--stdin", stdin=listed)

    async def _updated(self, mirror: Mirror, index: Path, *words: str, stdin: bytes) -> None:
        env = {**self._over(), "GIT_INDEX_FILE": str(index)}
        await mirror.git("update-index", "-z", *words, cwd=self.path, env=env, stdin=stdin)

    async def _has_own_instructions(self, plan: Plan, mirror: Mirror) -> bool:
        """Tell whether there are files that harnesses take for instructions, put there since."""
        words = ("ls-files", "--others", "-z")
        done = await mirror.git(*words, cwd=self.path, env=self._outside(), most=_MOST_LEFT)
        left = [path for path in done.stdout.split(b"\0") if path]
        return done.truncated or any(
            path.endswith(b"/") or is_instruction(path, plan.others)
            for path in left
            if not is_private(path)
        )

    def _over(self) -> dict[str, str]:
        return {"GIT_WORK_TREE": str(self.path)}

    def _outside(self) -> dict[str, str]:
        return {**self._over(), "GIT_INDEX_FILE": str(self._index)}

    # On the disk

    @property
    def _fresh(self) -> Path:
        return self.path.with_name(f"{self.path.name}.git")

    def _begin(self) -> None:
        """From here on nothing is there, until all is."""
        disk.discard(self._state)
        disk.discard(self._fresh)
        for place in (self._index, self._fresh):
            disk.discard(place.with_name(f"{place.name}.lock"))
        if not disk.is_folder(self.path):
            disk.empty(self.path)
        if not disk.is_folder(self.path / _PRIVATE):
            disk.discard(self.path / _PRIVATE)
        # What lies beside the folder is around it: harnesses read instructions there, too.
        for child in self.path.parent.iterdir():
            if is_instruction(os.fsencode(child.name)):
                disk.discard(child)

    def _clear(self) -> None:
        disk.discard(self._index)
        disk.discard(self._index.with_name(f"{self._index.name}.lock"))
        disk.empty(self.path, keep=(_PRIVATE,))

    def _cut_links(self, plan: Plan) -> list[bytes]:
        """Remove the links that lead out of the folder: what is there is not the commit's to show.

        Where a link leads depends on others, so it is the disk that is asked.
        """
        root = os.path.realpath(os.fsencode(self.path))
        links = [entry.path for entry in plan.files.values() if entry.is_link]
        places = [(path, os.path.join(root, path)) for path in links]  # noqa: PTH118
        astray = [
            (path, place)
            for path, place in places
            if os.path.islink(place)  # noqa: PTH114
            and not (os.path.realpath(place) + b"/").startswith(root + b"/")
        ]
        for _, place in astray:
            os.unlink(place)  # noqa: PTH108
        return [path for path, _ in astray]

    def _empty_modules(self, plan: Plan) -> None:
        for entry in plan.files.values():
            if entry.is_module and not is_instruction(entry.path, plan.others):
                place = self.path / os.fsdecode(entry.path)
                if disk.is_folder(place):
                    disk.empty(place)

    def _write_git(self, plan: Plan, mirror: Path, branches: bytes) -> None:
        fresh = self._fresh
        for name in ("info", "objects/info", "refs"):
            (fresh / name).mkdir(mode=0o700, parents=True)
        (fresh / "HEAD").write_text(f"{plan.head}\n")
        (fresh / "config").write_bytes(_CONFIG)
        (fresh / "packed-refs").write_bytes(_PACKED + branches)
        (fresh / "objects/info/alternates").write_bytes(os.fsencode(mirror / "objects") + b"\n")
        (fresh / "info/exclude").write_bytes(_excluded((PRIVATE, *plan.change.foreign)))
        shutil.copy2(self._index, fresh / "index")

    def _finish(self, plan: Plan) -> None:
        disk.discard(self.path / _GIT)
        self._fresh.rename(self.path / _GIT)
        guarded = {}
        for path in _on_disk(plan):
            seen = _seen(self.path, path)
            if seen is not None:
                guarded[os.fsdecode(path)] = seen
        state = State(plan.head, plan.base, plan.trusted, guarded)
        disk.replace(self._state, json.dumps(asdict(state)).encode())

    def _untouched(self, plan: Plan, state: State) -> bool:
        """Tell whether the agent is still at the commit, with the instructions that were there."""
        head = self.path / _GIT / "HEAD"
        with contextlib.suppress(OSError, ValueError):
            if head.is_symlink() or head.read_text("ascii").strip() != plan.head:
                return False
            return plan.trusted or all(
                _seen(self.path, os.fsencode(name)) == seen for name, seen in state.guarded.items()
            )
        return False

    def _remove(self) -> None:
        disk.discard(self._state)
        for left in (self.path, self._fresh, self._index):
            disk.discard(left)
            disk.discard(left.with_name(f"{left.name}.lock"))


def _on_disk(plan: Plan) -> list[bytes]:
    """Return the instruction files that are there, for a commit from outside."""
    if plan.trusted:
        return []
    hidden = set(plan.change.hidden)
    there = [
        path for path in plan.files if path not in hidden and is_instruction(path, plan.others)
    ]
    return [*there, *(entry.path for entry in plan.change.added)]


def _seen(root: Path, path: bytes) -> list[int] | None:
    """Return what the disk tells of a file; whoever writes it or puts another there changes that.

    The time of the last change of the file's node cannot be set back by a program.
    """
    try:
        told = os.lstat(os.path.join(os.fsencode(root), path))  # noqa: PTH118
    except OSError:
        return None
    return [told.st_ino, told.st_mode, told.st_size, told.st_mtime_ns, told.st_ctime_ns]


def _excluded(paths: tuple[bytes, ...]) -> bytes:
    """Return patterns for just these paths; one with a line break in it has none."""
    lines = [b"/" + _SPECIAL.sub(rb"\\\1", path) for path in paths if b"\n" not in path]
    return b"".join(line + b"\n" for line in lines)
