"""The files of a commit, and which of them are instructions to a harness; no I/O.

Harnesses take some files of the folder they work in for instructions, settings or commands to run.
Those of a pull request from outside are its author's, so the base's are put in their place.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

__all__ = [
    "INSTRUCTIONS",
    "PRIVATE",
    "Change",
    "Entry",
    "change",
    "index_lines",
    "is_instruction",
    "is_private",
    "links",
    "parse",
    "target",
]

PRIVATE = b".threadline"
"""The folder at the top that is the host's own."""
INSTRUCTIONS = frozenset(
    {
        b"agents.md",
        b"agents.override.md",
        b"claude.md",
        b"claude.local.md",
        b".agents",
        b".claude",
        b".codex",
        b".cursor",
        b".cursorrules",
        b".mcp.json",
    }
)
"""Names of files and folders, at any depth, in small letters."""
_LINK = "120000"
_MODULE = "160000"
_NOTHING = "0" * 40


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree: a regular file, a link, or a submodule; ``size`` is in bytes."""

    path: bytes
    mode: str
    sha: str
    size: int = 0

    @property
    def is_link(self) -> bool:
        """Tell whether it is a symbolic link."""
        return self.mode == _LINK

    @property
    def is_module(self) -> bool:
        """Tell whether it is a submodule."""
        return self.mode == _MODULE

    def same(self, other: Entry | None) -> bool:
        """Tell whether the other is the same file with the same content."""
        return other is not None and (self.mode, self.sha) == (other.mode, other.sha)


@dataclass(frozen=True, slots=True)
class Change:
    """What differs on the disk from the commit: files that are not there, files of the base."""

    removed: tuple[Entry, ...] = ()
    added: tuple[Entry, ...] = ()

    @property
    def hidden(self) -> tuple[bytes, ...]:
        """The commit's paths that git is not to look at on the disk."""
        return tuple(entry.path for entry in self.removed)

    @property
    def foreign(self) -> tuple[bytes, ...]:
        """The paths on the disk that the commit does not have."""
        there = set(self.hidden)
        return tuple(entry.path for entry in self.added if entry.path not in there)

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def parse(listing: bytes) -> dict[bytes, Entry]:
    r"""Read ``git ls-tree -r -l -z --full-tree``: ``mode type sha size<TAB>path\0`` for each."""
    found = {}
    for line in listing.split(b"\0"):
        about, tab, path = line.partition(b"\t")
        if tab:
            mode, _kind, sha, size = about.decode().split()
            found[path] = Entry(path, mode, sha, int(size) if size.isdecimal() else 0)
    return found


def is_private(path: bytes) -> bool:
    """Tell whether a path is, or is in, the host's own folder."""
    return _folded(path.split(b"/", 1)[0]) == PRIVATE


def is_instruction(path: bytes, others: Collection[bytes] = ()) -> bool:
    """Tell whether a harness may take a file for instructions.

    ``others`` are further paths of files and folders: what instructions of the base link to.
    """
    parts = path.split(b"/")
    if any(_folded(part) in INSTRUCTIONS for part in parts):
        return True
    return bool(others) and any(b"/".join(parts[: n + 1]) in others for n in range(len(parts)))


def links(base: Mapping[bytes, Entry], others: Collection[bytes]) -> list[Entry]:
    """Return the instructions of the base that are links."""
    return [
        entry for entry in base.values() if entry.is_link and is_instruction(entry.path, others)
    ]


def target(link: bytes, content: bytes) -> bytes | None:
    """Return the path in the tree that a link leads to; None for the top and what is outside."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(link), content))
    outside = path.startswith(b"/") or path.split(b"/", 1)[0] in (b".", b"..")
    return None if outside else path


def change(
    head: Mapping[bytes, Entry],
    base: Mapping[bytes, Entry] | None,
    others: Collection[bytes] = (),
) -> Change:
    """Return what is to differ from the head; ``base`` is None when its author is trusted.

    A file of the base gives way where the head has a folder of that name, or the reverse.
    """
    removed = [entry for entry in head.values() if is_private(entry.path)]
    if base is None:
        return Change(tuple(removed))
    wanted = _instructions(base, others)
    found = _instructions(head, others)
    removed += [entry for path, entry in found.items() if not entry.same(wanted.get(path))]
    gone = {entry.path for entry in removed}
    added = [entry for path, entry in wanted.items() if path in gone or path not in head]
    if added:
        left = [path for path in head if path not in gone]
        files = set(left)
        folders = {parent for path in left for parent in _parents(path)}
        added = [entry for entry in added if _fits(entry.path, files, folders)]
    return Change(tuple(removed), tuple(added))


def index_lines(removed: Iterable[bytes], added: Iterable[Entry]) -> bytes:
    """Return the input of ``git update-index -z --index-info``."""
    lines = [f"0 {_NOTHING}\t".encode() + path for path in removed]
    lines += [f"{entry.mode} {entry.sha}\t".encode() + entry.path for entry in added]
    return b"".join(line + b"\0" for line in lines)


def _instructions(files: Mapping[bytes, Entry], others: Collection[bytes]) -> dict[bytes, Entry]:
    return {
        path: entry
        for path, entry in files.items()
        if is_instruction(path, others) and not is_private(path)
    }


def _fits(path: bytes, files: Collection[bytes], folders: Collection[bytes]) -> bool:
    return path not in folders and not any(parent in files for parent in _parents(path))


def _parents(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]


def _folded(name: bytes) -> bytes:
    return name.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")
