"""Unified diffs as git writes them, and which lines of them can be commented on; no I/O."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Files", "Patch", "hunk_at", "patches", "written"]

Files = Mapping[str, tuple[str | None, str | None]]
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(slots=True)
class Patch:
    """One file's part of a diff. ``right`` and ``left`` give a line's hunk, by its number."""

    path: str
    previous: str
    status: str
    hunks: list[str] = field(default_factory=list)
    right: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    additions: int = 0
    deletions: int = 0

    @property
    def text(self) -> str:
        """The hunks, as ``patch`` has them in the list of files."""
        return "".join(self.hunks).removesuffix("\n")

    def hunk_of(self, line: int, side: str) -> int | None:
        """Return the hunk that a line is part of."""
        return (self.right if side == "RIGHT" else self.left).get(line)


def written(files: Files) -> str:
    """Return the diff of files, each given as it was before and after; None is no file."""
    return "".join(_file(path, before, after) for path, (before, after) in sorted(files.items()))


def patches(diff: str) -> list[Patch]:
    """Read a diff."""
    blocks = re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)
    return [_read(block) for block in blocks if block.startswith("diff --git ")]


def hunk_at(diff: str, path: str, line: int, side: str) -> str | None:
    """Return the hunk up to a line, as ``diff_hunk`` has it; None when it is not in the diff."""
    for patch in patches(diff):
        index = patch.hunk_of(line, side)
        if patch.path == path and index is not None:
            shown = []
            for text, left, right in _numbered(patch.hunks[index]):
                shown.append(text.rstrip("\n"))
                if (right if side == "RIGHT" else left) == line:
                    break
            return "\n".join(shown)
    return None


def _file(path: str, before: str | None, after: str | None) -> str:
    if before == after:
        return ""
    head = [f"diff --git a/{path} b/{path}\n"]
    if before is None:
        head.append("new file mode 100644\n")
    if after is None:
        head.append("deleted file mode 100644\n")
    mode = " 100644" if before is not None and after is not None else ""
    head.append(f"index {_blob(before)}..{_blob(after)}{mode}\n")
    body = difflib.unified_diff(
        _lines(before or ""),
        _lines(after or ""),
        "/dev/null" if before is None else f"a/{path}",
        "/dev/null" if after is None else f"b/{path}",
    )
    return "".join(head) + "".join(
        line if line.endswith("\n") else line + "\n" + _NO_NEWLINE for line in body
    )


def _lines(text: str) -> list[str]:
    """Cut a text as git does: nothing but a newline ends a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _plain(name: str, quote: str) -> str:
    """Undo git's escapes in a name that it has put into quotes."""
    if not quote:
        return name
    return name.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")


def _blob(text: str | None) -> str:
    if text is None:
        return "0" * 7
    raw = text.encode()
    return hashlib.sha1(b"blob %d\0%s" % (len(raw), raw), usedforsecurity=False).hexdigest()[:7]


def _read(block: str) -> Patch:
    lines = _lines(block)
    starts = [number for number, line in enumerate(lines) if _HUNK.match(line)]
    header = lines[: starts[0]] if starts else lines
    patch = _named(header)
    for start, end in itertools.pairwise([*starts, len(lines)]):
        hunk = "".join(lines[start:end])
        index = len(patch.hunks)
        patch.hunks.append(hunk)
        for text, left, right in _numbered(hunk):
            if left is not None:
                patch.left[left] = index
            if right is not None:
                patch.right[right] = index
            patch.additions += text.startswith("+")
            patch.deletions += text.startswith("-")
    return patch


def _named(header: list[str]) -> Patch:
    first = re.fullmatch(r'diff --git ("?)a/(.*)\1 ("?)b/(.*)\3\n?', header[0])
    old, new = (_plain(first[2], first[1]), _plain(first[4], first[3])) if first else ("", "")
    status = "modified"
    for line in header:
        if line.startswith("new file"):
            status = "added"
        elif line.startswith("deleted file"):
            status = "removed"
        elif line.startswith("rename from "):
            status, old = "renamed", line.removeprefix("rename from ").rstrip("\n")
        elif line.startswith("rename to "):
            new = line.removeprefix("rename to ").rstrip("\n")
    return Patch(new, old, status)


def _numbered(hunk: str) -> Iterator[tuple[str, int | None, int | None]]:
    """Yield the lines of a hunk, each with its number in the old and in the new file."""
    lines = _lines(hunk)
    start = _HUNK.match(lines[0])
    assert start is not None
    left, right = int(start[1]), int(start[3])
    yield lines[0], None, None
    for line in lines[1:]:
        if line.startswith("+"):
            yield line, None, right
            right += 1
        elif line.startswith("-"):
            yield line, left, None
            left += 1
        elif line.startswith("\\"):
            yield line, None, None
        else:
            yield line, left, right
            left, right = left + 1, right + 1
