"""Where host code tags artifacts and finds them again.

An artifact is durable before its session's log says ``artifact.tagged``; what a crash kept from the
log is told when the agent starts again, so that each tag is told at least once.
"""

from __future__ import annotations

import asyncio
import io
import mimetypes
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import structlog

from threadline.agent.artifacts import Artifacts, is_line
from threadline.errors import Forbidden, InvalidRequest, NotFound, ThreadlineError, TooLarge
from threadline.principal import Principal
from threadline.session import workspace
from threadline.session.access import Action
from threadline.store.base import Artifact, ArtifactRecord, Tag

if TYPE_CHECKING:
    from threadline.session.core import SessionCore

__all__ = ["ContextArtifacts", "Place", "Shelf", "content_type_of", "extension_of"]

log = structlog.get_logger("threadline.artifacts")

MAX_KEY = 200
MAX_TITLE = 300
MAX_FILENAME = 200
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(?:; ?[\w-]{1,40}=[\w.+-]{1,100})*", re.A)
_OFFICE = "application/vnd.openxmlformats-officedocument."
_MORE_TYPES = {
    ".docx": f"{_OFFICE}wordprocessingml.document",
    ".md": "text/markdown",
    ".ndjson": "application/x-ndjson",
    ".pptx": f"{_OFFICE}presentationml.presentation",
    ".webp": "image/webp",
    ".xlsx": f"{_OFFICE}spreadsheetml.sheet",
}
_TYPES = mimetypes.MimeTypes()  # Not the machine's own list, which differs from one to another.


@dataclass(frozen=True, slots=True)
class Place:
    """Where an artifact is tagged: whose it becomes, and the session that records it."""

    owner: Principal
    session_id: str | None = None
    turn_id: str | None = None
    workspace: Path | None = None
    dry_run: bool = False


Reach = Callable[[str, Action], Place]
"""Returns the place of a session that this code may reach; raises NotFound or Forbidden."""


class Shelf:
    """One agent's artifacts; ``url`` makes an address of a path below the agent's own."""

    def __init__(
        self,
        core: SessionCore,
        declared: Artifacts | None = None,
        *,
        url: Callable[[str], str] = lambda path: path,
    ) -> None:
        self.declared = declared or Artifacts()
        self._core = core
        self._url = url

    async def start(self) -> None:
        """Tell the logs what an earlier process could not."""
        for record in self._core.store.artifacts.untold():
            await self._tell(record, record.artifact.session_id, None)

    def at(self, place: Place, reach: Reach) -> ContextArtifacts:
        """Return what code at a place may do."""
        return ContextArtifacts(self, self._core, place, reach)

    def in_session(self, session_id: str, *, dry_run: bool = False) -> Place:
        """Return the place of a session; raises NotFound."""
        record = self._core.store.session(session_id)
        if record is None:
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        folder = self._core.folder(session_id)
        return Place(record.owner, session_id, None, folder, dry_run or record.dry_run)

    def shown(self, record: ArtifactRecord) -> Artifact:
        """Return an artifact with the address of its content."""
        artifact = record.artifact
        if record.content is None:
            return artifact
        url = self._url(f"/v1/artifacts/{artifact.id}/content")
        return replace(artifact, content_url=url)

    async def keep(self, tag: Tag, turn_id: str | None) -> Artifact:
        """Store an artifact and tell its session's log, whole, whatever becomes of the caller."""
        task = asyncio.get_running_loop().create_task(self._keep(tag, turn_id), name="artifact")
        tasks = self._core.services.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def _keep(self, tag: Tag, turn_id: str | None) -> Artifact:
        try:
            record = await self._core.store.artifacts.tag(tag)
        finally:
            if tag.content is not None:
                tag.content.close()
        await self._tell(record, tag.session_id, turn_id)
        return self.shown(record)

    async def _tell(
        self, record: ArtifactRecord, session_id: str | None, turn_id: str | None
    ) -> None:
        """Record ``artifact.tagged``; what fails here is told at the next start."""
        if session_id is None:
            return
        artifact = record.artifact
        data = {"artifactId": artifact.id, "kind": artifact.kind, "key": artifact.key}
        if artifact.title is not None:
            data["title"] = artifact.title
        try:
            told = await self._core.note(session_id, "artifact.tagged", data, turn_id)
        except ThreadlineError as error:
            log.warning("artifact.untold", artifact=artifact.id, error=error.message)
            return
        if told or self._core.store.session(session_id) is None:
            self._core.store.artifacts.told(record)


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class ContextArtifacts:
    """Artifacts, as a tool, a route or a handler sees them."""

    def __init__(self, shelf: Shelf, core: SessionCore, place: Place, reach: Reach) -> None:
        self._shelf = shelf
        self._core = core
        self._store = core.store.artifacts
        self._place = place
        self._reach = reach

    async def tag(
        self,
        *,
        key: str,
        kind: str = "artifact",
        title: str | None = None,
        data: Any = None,
        content: bytes | str | Path | None = None,
        content_type: str | None = None,
        filename: str | None = None,
        session_id: str | None = None,
    ) -> Artifact:
        """Make an artifact, or replace the one of this kind and key; durable when it returns.

        It stays the same artifact with the same id, and is what this tag says: title, data and
        content of an earlier one do not stay. ``content`` is bytes, text, or the path of a file; a
        relative path starts at the workspace, whose files are read without following links.
        ``session_id`` names another session than the one that this code runs in.

        In a dry run nothing is stored. Raises InvalidRequest, TooLarge, NotFound, Forbidden or
        StoreUnavailable.
        """
        place = self._place if session_id is None else self._reach(session_id, "send")
        if content is None and (content_type is not None or filename is not None):
            raise InvalidRequest("content_type and filename describe a content: give content too.")
        if content is not None:
            filename, content_type = _described(content, filename, content_type)
        _check_line("key", key, MAX_KEY)
        if title is not None:
            _check_line("title", title, MAX_TITLE)
        declared = self._shelf.declared
        tag = Tag(
            kind=kind,
            key=key,
            owner=place.owner,
            at=self._core.services.stamp(),
            keep=declared.max,
            max_bytes=declared.max_bytes,
            title=title,
            data=declared.parse(kind, data),
            session_id=place.session_id,
            content=_opened(content, place.workspace),
            content_type=content_type,
            filename=filename,
        )
        if place.dry_run or self._place.dry_run:
            return self._pretended(tag)
        return await self._shelf.keep(tag, place.turn_id)

    def _pretended(self, tag: Tag) -> Artifact:
        """Return what a tag would make."""
        before = self._store.find(tag.owner.key, tag.kind, tag.key)
        size = None
        if tag.content is not None:
            with tag.content as file:
                size = file.seek(0, io.SEEK_END)
            if size > tag.max_bytes:
                raise TooLarge(f"An artifact's content has at most {tag.max_bytes:,} bytes.")
        return replace(tag.applied(before.artifact if before else None, size), dry_run=True)

    async def list(
        self,
        *,
        kind: str | None = None,
        session_id: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Artifact]:
        """Return the owner's artifacts, or those of a session, newest-updated first."""
        if limit is not None and limit < 1:
            raise InvalidRequest(f"limit must be a whole number from 1, not {limit!r}.")
        owner: str | None = self._place.owner.key
        if session_id is not None and self._reaches(session_id, "read"):
            owner = None
        found = self._store.list(owner=owner, kind=kind, session_id=session_id, limit=limit)
        return [self._shelf.shown(record) for record in found]

    async def get(self, artifact_id: str) -> Artifact | None:
        """Return an artifact, or None when there is none; raises Forbidden for another's."""
        record = self._get(artifact_id, "read")
        return self._shelf.shown(record) if record is not None else None

    async def read(self, artifact_id: str) -> bytes | None:
        """Return an artifact's content; None when it has none. Raises Forbidden for another's."""
        for _ in range(2):
            record = self._get(artifact_id, "read")
            path = self._store.path(record) if record is not None else None
            if path is None:
                return None
            try:
                return await asyncio.to_thread(path.read_bytes)
            except FileNotFoundError:
                continue  # It was replaced in this very moment.
        return None

    async def delete(self, artifact_id: str) -> bool:
        """Remove an artifact; False when there is none. Raises Forbidden for another's."""
        record = self._get(artifact_id, "delete")
        if record is None or self._place.dry_run:
            return record is not None
        return await self._store.delete(artifact_id)

    def _get(self, artifact_id: str, action: Action) -> ArtifactRecord | None:
        record = self._store.get(artifact_id)
        if record is None or record.owner.key == self._place.owner.key:
            return record
        session_id = record.artifact.session_id
        if session_id is None or not self._reaches(session_id, action):
            raise Forbidden("This artifact belongs to another principal.")
        return record

    def _reaches(self, session_id: str, action: Action) -> bool:
        """Tell whether a session is there; raises Forbidden for another's."""
        try:
            self._reach(session_id, action)
        except NotFound:
            return False
        return True


def _check_line(name: str, text: Any, most: int) -> None:
    if not is_line(text, most):
        raise InvalidRequest(f"An artifact's {name} is 1 to {most} characters in one line.")


def content_type_of(filename: str | None) -> str | None:
    """Return the media type that a file's name suggests."""
    suffix = Path(filename or "").suffix.lower()
    return _MORE_TYPES.get(suffix) or (_TYPES.guess_type(f"x{suffix}")[0] if suffix else None)


def extension_of(content_type: str | None) -> str:
    """Return how the name of a file of this media type ends, or nothing."""
    kind = (content_type or "").partition(";")[0]
    more = {media_type: suffix for suffix, media_type in _MORE_TYPES.items()}
    return more.get(kind) or _TYPES.guess_extension(kind) or ""


def _described(
    content: bytes | str | Path, filename: str | None, content_type: str | None
) -> tuple[str | None, str]:
    """Return file name and media type of a content; raises InvalidRequest."""
    if not isinstance(content, (bytes, str, Path)):
        raise InvalidRequest(
            f"An artifact's content is bytes, text or a Path, not a {type(content).__name__}."
        )
    if filename is None and isinstance(content, Path):
        filename = content.name
    if filename is not None:
        _check_line("filename", filename, MAX_FILENAME)
        if re.search(r"[/\\]", filename) or filename.strip(". ") == "":
            raise InvalidRequest(f"An artifact's filename is a plain name, not {filename!r}.")
    if content_type is None:
        fallback = "text/plain" if isinstance(content, str) else "application/octet-stream"
        return filename, content_type_of(filename) or fallback
    if not isinstance(content_type, str) or _MEDIA_TYPE.fullmatch(content_type) is None:
        raise InvalidRequest(f"{content_type!r:.100} is no content type, such as 'text/csv'.")
    return filename, content_type


def _opened(content: bytes | str | Path | None, root: Path | None) -> BinaryIO | None:
    """Return a content as a stream; raises InvalidRequest."""
    match content:
        case None:
            return None
        case bytes():
            return io.BytesIO(content)
        case str():
            try:
                return io.BytesIO(content.encode())
            except UnicodeEncodeError:
                raise InvalidRequest("The content is text that is not valid Unicode.") from None
    try:
        file = _open_file(content, root)
    except OSError as error:
        raise InvalidRequest(f"{content} cannot be read: {error.strerror or error}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InvalidRequest(f"{content} cannot be read: it is no file.")
    return file


def _open_file(path: Path, root: Path | None) -> BinaryIO:
    """Open a file; in the workspace, where the model writes, no link is followed."""
    if root is not None:
        if not path.is_absolute():
            return workspace.open_file(root, path.as_posix())
        for base in (root, root.resolve()):
            if path.is_relative_to(base):
                return workspace.open_file(root, path.relative_to(base).as_posix())
    if not path.is_absolute():
        raise InvalidRequest(f"{path} is relative, and there is no workspace: give it whole.")
    # A pipe must not hold up the host.
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
