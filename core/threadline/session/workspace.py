"""A session's workspace: which paths may be written, and how without following a link."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import shutil
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from threadline.errors import InvalidRequest, WorkspaceUnavailable

__all__ = [
    "CATALOG_BEGIN",
    "CATALOG_END",
    "PRIVATE",
    "Seeds",
    "check_links",
    "decode_files",
    "list_files",
    "notes",
    "open_file",
    "prepare",
    "read_file",
    "write_files",
]

_DEVICES = frozenset(
    {"con", "prn", "aux", "nul"}
    | {f"com{n}" for n in range(1, 10)}
    | {f"lpt{n}" for n in range(1, 10)}
)
PRIVATE = ".threadline"
"""The folder of a workspace that is the host's own."""
CATALOG_BEGIN = "<!-- threadline tools -->"
CATALOG_END = "<!-- end of threadline tools -->"
_MAX_PATH = 1024
_MAX_NAME = 255
_MAX_NOTES = 64 * 1024
_MAX_LISTED = 500


@dataclass(frozen=True, slots=True)
class Seeds:
    """What a new workspace starts with: a folder copied in, and skills by name."""

    folder: Path | None = None
    skills: Mapping[str, Path] = field(default_factory=dict)


def decode_files(files: Mapping[str, Any] | None) -> dict[str, bytes]:
    """Check ``workspaceFiles`` whole and return each path's bytes; paths are relative, with ``/``.

    Raises InvalidRequest for a path that could leave the workspace or be read as another, and for
    content that is neither text nor ``{"base64": …}``.
    """
    if not files:
        return {}
    decoded: dict[str, bytes] = {}
    seen: dict[str, str] = {}
    for path, content in files.items():
        _check_path(path)
        folded = unicodedata.normalize("NFC", path).casefold()
        if folded in seen:
            raise _bad(path, f"is the same file as {seen[folded]!r} on some disks")
        seen[folded] = path
        decoded[path] = _content(path, content)
    for folded, path in seen.items():
        for other in seen:
            if other.startswith(folded + "/"):
                raise _bad(path, f"is a file, but {seen[other]!r} needs a folder of that name")
    return decoded


def _check_path(path: Any) -> None:
    if not isinstance(path, str) or not path:
        raise _bad(path, "is empty")
    if len(path.encode("utf-8", "replace")) > _MAX_PATH:
        raise _bad(path[:40] + "…", f"is longer than {_MAX_PATH} bytes")
    if any(c in path for c in '\\:*?"<>|') or any(
        unicodedata.category(c) in ("Cc", "Cs") for c in path
    ):
        raise _bad(path, "has a character that file names may not have")
    for name in path.split("/"):
        if name in ("", ".", ".."):
            raise _bad(path, "must be relative, without '.', '..' or empty parts")
        if len(name.encode()) > _MAX_NAME:
            raise _bad(path[:40] + "…", f"has a name longer than {_MAX_NAME} bytes")
        if name != name.strip() or name.endswith("."):
            raise _bad(path, "has a name that begins or ends with a space, or ends with a dot")
        if name.casefold().partition(".")[0] in _DEVICES:
            raise _bad(path, f"has the device name {name!r}")
        if name.casefold() in ("agents.md", ".cursor", PRIVATE):
            raise _bad(
                path, "is protected: AGENTS.md, .cursor/ and .threadline/ are not for messages"
            )


def _content(path: str, content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError:
            raise _bad(path, "has text that is not valid Unicode; send it as base64") from None
    if isinstance(content, Mapping) and set(content) == {"base64"}:
        try:
            return base64.b64decode(content["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise _bad(path, "has content that is not valid base64") from None
    raise _bad(path, 'must have text, or {"base64": "…"}, as its content')


def _bad(path: Any, why: str) -> InvalidRequest:
    return InvalidRequest(f"workspaceFiles: {path!r} {why}.")


def check_links(root: Path, files: Mapping[str, bytes]) -> None:
    """Raise InvalidRequest when a path would go through a link, or over a folder, as things are."""
    for path in files:
        place = root
        for name in path.split("/"):
            place /= name
            if place.is_symlink():
                raise _bad(path, "goes through a link in the workspace")
        if place.is_dir():
            raise _bad(path, "is a folder in the workspace")


def prepare(root: Path, seeds: Seeds) -> None:
    """Make the workspace, with its seeds, unless it exists.

    Raises WorkspaceUnavailable.
    """
    if root.is_dir():
        return
    try:
        root.mkdir(mode=0o700, parents=True)
        if seeds.folder is not None:
            shutil.copytree(seeds.folder, root, symlinks=True, dirs_exist_ok=True)
        for name, source in seeds.skills.items():
            target = root / ".cursor" / "skills" / name
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target / "SKILL.md")
    except OSError as error:
        raise WorkspaceUnavailable(f"The workspace {root} cannot be made: {error}.") from error


def write_files(root: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write files, following no link; return a sentence for each that could not be written."""
    problems = []
    for path, data in files.items():
        try:
            _write(root, path, data)
        except OSError as error:
            problems.append(f"The file {path} could not be written: {error.strerror or error}.")
    return problems


def _write(root: Path, path: str, data: bytes) -> None:
    with os.fdopen(_open(root, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)


def read_file(root: Path, path: str, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a workspace file, following no link.

    Raises InvalidRequest for a path that could leave the workspace, OSError when it cannot be read.
    """
    with open_file(root, path) as file:
        return file.read(limit)


def open_file(root: Path, path: str) -> BinaryIO:
    """Open a workspace file for reading, following no link; raises as :func:`read_file` does."""
    _check_readable(path)
    return os.fdopen(_open(root, path, os.O_RDONLY), "rb")


def _check_readable(path: str) -> None:
    if not path or any(name in ("", ".", "..") for name in path.split("/")) or "\x00" in path:
        raise InvalidRequest(f"{path!r} must be a path inside the workspace, such as 'notes/a.md'.")


def list_files(root: Path) -> list[str]:
    """Return the workspace's files, at most 500, sorted; links are not followed."""
    found: list[str] = []
    for folder, folders, names in os.walk(root, followlinks=False):
        folders.sort()
        place = Path(folder).relative_to(root)
        found.extend((place / name).as_posix() for name in sorted(names))
        if len(found) >= _MAX_LISTED:
            break
    return found[:_MAX_LISTED]


def notes(folder: Path) -> str:
    """Return the ``AGENTS.md`` files of a folder and its parents, the outermost first."""
    texts: list[str] = []
    left = _MAX_NOTES
    for place in [folder, *folder.parents]:
        with contextlib.suppress(OSError):
            text = (place / "AGENTS.md").read_text("utf-8", "replace")[:left].strip()
            left -= len(text)
            texts.append(text)
    return "\n\n".join(reversed([text for text in texts if text]))


def _open(root: Path, path: str, how: int) -> int:
    """Open a file below the root; with O_CREAT its folders are made. A link anywhere is refused."""
    *folders, name = path.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            if how & os.O_CREAT:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder, 0o700, dir_fd=place)
            inner = os.open(folder, flags, dir_fd=place)
            os.close(place)
            place = inner
        # A pipe that somebody left there must not hold up the host.
        flags = how | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(name, flags, 0o600, dir_fd=place)
    finally:
        os.close(place)
