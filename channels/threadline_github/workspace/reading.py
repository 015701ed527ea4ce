"""Reads a pull request or an issue: GitHub's API and the working folder.

What cannot be had is said in the reading; nothing is raised for it.
https://docs.github.com/en/rest/pulls/pulls
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from threadline import Context, ThreadlineError, TryAgain
from threadline.clock import Clock
from threadline_github.client import DIFF
from threadline_github.hub import Hub
from threadline_github.inbound.decide import Me, is_fork
from threadline_github.inbound.names import Thread
from threadline_github.workspace.diff import excerpt, parse
from threadline_github.workspace.git import GitFailed
from threadline_github.workspace.render import (
    Changed,
    Comment,
    CommentKind,
    Disk,
    Patch,
    Reading,
    Subject,
)
from threadline_github.workspace.told import Told

__all__ = ["Checkout", "Folders", "Reader", "subject_of"]

_READ_SECONDS = 25.0
_EXCERPT = 60_000  # characters
_FILES = 300
_NEW, _REVIEWS = 200, 300  # comments, reviews
_PAGE = 100
_LARGE = 10_000_000  # characters of a diff; a longer one is only listed
_RUNNING = "a turn was running when this message came"

T = TypeVar("T")


class Checkout(Protocol):
    """What is in a working folder: the commit, the one with which the diff compares, the diff."""

    @property
    def head(self) -> str:
        """The commit that is there."""

    @property
    def base(self) -> str:
        """The commit at which it parted from its base branch."""

    @property
    def diff(self) -> str:
        """The unified diff between the two."""

    @property
    def moved(self) -> bool:
        """False when the commit was there already."""

    @property
    def cut(self) -> int:
        """How many files the diff lacks, because it is too long."""


class Folders(Protocol):
    """The working folders of pull requests."""

    async def move(
        self, repository: int, number: int, source: Any, *, head: str, trusted: bool
    ) -> Checkout:
        """Check a commit out."""

    def current(self, repository: int, number: int) -> Any:
        """Return the commit that is checked out, None for none; may be awaitable."""


@dataclass(frozen=True, slots=True)
class _Code:
    """What is known of the code: the folder, the diff if it is new, what to write of it."""

    disk: Disk | None = None
    patch: Patch | None = None
    whole: bytes = b""
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads for one channel; ``seconds`` is how long a working folder may take to be moved."""

    hub: Hub
    folders: Callable[[], Folders | None]
    seconds: float = 300.0

    async def read(
        self, ctx: Context, thread: Thread, told: Told | None, *, running: bool
    ) -> Reading:
        """Read what is new since ``told``; while a turn runs its files stay as they are."""
        kind = "pulls" if thread.is_pull else "issues"
        path = f"/{kind}/{thread.number}"
        found, why = await self._tried(ctx, self._get(ctx, thread, path), _READ_SECONDS)
        if not isinstance(found, dict):
            what = "pull request" if thread.is_pull else "issue"
            return Reading(None, missing=(f"The {what} could not be read: {why}.",))
        subject = subject_of(thread, found)
        code, (comments, kinds, unread) = await asyncio.gather(
            self._code(ctx, thread, found, subject, told, running=running),
            self._comments(ctx, thread, subject, told),
        )
        return Reading(
            subject,
            code.disk,
            code.patch,
            code.whole,
            tuple(comments),
            kinds,
            (*code.missing, *unread),
        )

    # Code

    async def _code(
        self,
        ctx: Context,
        thread: Thread,
        found: Mapping[str, Any],
        subject: Subject,
        told: Told | None,
        *,
        running: bool,
    ) -> _Code:
        """Return what is on disk, and the diff if it is new."""
        if not thread.is_pull or subject.head is None:
            return _Code()
        folders, repository = self.folders(), thread.repository.id
        if running:
            return _Code(await self._running(folders, repository, thread.number))
        known = (told.head, told.base) if told is not None else None
        if folders is None:
            if known == (subject.head, subject.base):
                return _Code()
            return await self._patch(ctx, thread, None, None)
        current = await self._current(folders, repository, thread.number)
        if known == (subject.head, subject.base) == (current, subject.base) and not subject.fork:
            return _Code(Disk(current))
        moving = self._move(ctx, folders, thread, found, subject)
        checkout, why = await self._tried(ctx, moving, self.seconds)
        if checkout is None:
            if known == (subject.head, subject.base):
                return _Code(Disk(current, why))
            return await self._patch(ctx, thread, Disk(current, why), None)
        if known == (checkout.head, subject.base):
            # The folder may be a new one.
            return _Code(
                Disk(checkout.head), None, _bytes(checkout.diff) if checkout.moved else b""
            )
        return await self._patch(ctx, thread, Disk(checkout.head), checkout)

    async def _running(self, folders: Folders | None, repository: int, number: int) -> Disk | None:
        if folders is None:
            return None
        return Disk(await self._current(folders, repository, number), _RUNNING)

    async def _current(self, folders: Folders | None, repository: int, number: int) -> str | None:
        found = None if folders is None else folders.current(repository, number)
        current = await found if inspect.isawaitable(found) else found
        return str(current) if current is not None else None

    async def _move(
        self,
        ctx: Context,
        folders: Folders,
        thread: Thread,
        found: Mapping[str, Any],
        subject: Subject,
    ) -> Checkout:
        from threadline_github.workspace.worktrees import Source

        repository = _dict(_dict(found.get("base")).get("repo"))
        url, size = _text(repository.get("clone_url")), repository.get("size")

        async def token() -> str:
            return await self.hub.git_token(ctx, thread.repository)

        source = Source(
            url=url,
            base=subject.base,
            size_kb=size if isinstance(size, int) else None,
            token=token if url.startswith(("https://", "http://")) else None,
        )
        assert subject.head is not None
        return await folders.move(
            thread.repository.id,
            thread.number,
            source,
            head=subject.head,
            trusted=not subject.fork,
        )

    async def _patch(
        self, ctx: Context, thread: Thread, disk: Disk | None, checkout: Checkout | None
    ) -> _Code:
        """Return the diff, from git or from GitHub, which has none of very large ones."""
        path, base, lost = f"/pulls/{thread.number}", None, 0
        if checkout is not None:
            diff: str | None = checkout.diff
            base, lost, why = checkout.base, checkout.cut, ""
        else:
            diff, why = await self._diff(ctx, thread, path)
        whole = _bytes(diff or "")
        if diff is not None and len(diff) <= _LARGE:
            patch, why = await self._tried(ctx, asyncio.to_thread(_patch_of, diff, base), 60.0)
            if patch is not None:
                cut = [f"The diff is cut: {lost} files are only on disk."] if lost else []
                return _Code(disk, patch, whole, cut)
        elif diff is not None:
            why = f"it has {len(diff)} characters"
        asking = self._pages(ctx, thread, f"{path}/files?per_page={_PAGE}", most=_FILES)
        files, no_list = await self._tried(ctx, asking, _READ_SECONDS)
        sentence = f"The diff could not be read: {why}."
        if files is None:
            missing = [sentence, f"Nor could the list of files: {no_list}."]
            return _Code(disk, None, whole, missing)
        listed = tuple(Changed.listed(one) for one in files if isinstance(one, dict))
        return _Code(disk, Patch(listed, base=base), whole, [sentence])

    async def _diff(self, ctx: Context, thread: Thread, path: str) -> tuple[str | None, str]:
        """Return the diff that GitHub makes; or None, and why there is none."""
        asking = self._get(ctx, thread, path, accept=DIFF)
        found, why = await self._tried(ctx, asking, _READ_SECONDS)
        if isinstance(found, bytes):
            found = found.decode("utf-8", "replace")
        return (found, "") if isinstance(found, str) else (None, why or "GitHub sent no text")

    # Comments

    async def _comments(
        self, ctx: Context, thread: Thread, subject: Subject, told: Told | None
    ) -> tuple[list[Comment], frozenset[CommentKind], list[str]]:
        """Return the newest comments, which kinds could be read, and what is missing."""
        work: dict[CommentKind, Awaitable[list[Any]]] = {
            "comment": self._talk(ctx, thread, subject, told)
        }
        if thread.is_pull:
            work["review_comment"] = self._on_lines(ctx, thread, told)
            path = f"/pulls/{thread.number}/reviews?per_page={_PAGE}"
            work["review"] = self._pages(ctx, thread, path, most=_REVIEWS)
        results = await asyncio.gather(
            *(self._tried(ctx, one, _READ_SECONDS) for one in work.values())
        )
        me, found, read, why = self.hub.me, list[Comment](), set[CommentKind](), ""
        for kind, (items, wrong) in zip(work, results, strict=True):
            if items is None:
                why = wrong
                continue
            read.add(kind)
            found += _read_all(kind, items, me)
        missing = [f"Not all comments could be read: {why}."] if why else []
        return found, frozenset(read), missing

    async def _talk(
        self, ctx: Context, thread: Thread, subject: Subject, told: Told | None
    ) -> list[Any]:
        """Return what is below the description: the last page, or what came since."""
        path = f"/issues/{thread.number}/comments?per_page={_PAGE}"
        if told is not None and told.since:
            return await self._pages(ctx, thread, f"{path}&since={quote(told.since)}", most=_NEW)
        last = max(1, -(-subject.count // _PAGE))
        found = await self._get(ctx, thread, f"{path}&page={last}")
        return found if isinstance(found, list) else []

    async def _on_lines(self, ctx: Context, thread: Thread, told: Told | None) -> list[Any]:
        path = f"/pulls/{thread.number}/comments?per_page={_PAGE}"
        if told is not None and told.since:
            return await self._pages(ctx, thread, f"{path}&since={quote(told.since)}", most=_NEW)
        found = await self._get(ctx, thread, f"{path}&sort=created&direction=desc")
        return found if isinstance(found, list) else []

    # Calls

    def _get(self, ctx: Context, thread: Thread, path: str, **options: Any) -> Awaitable[Any]:
        return self.hub.request(ctx, thread.repository, "GET", path, **options)

    def _pages(self, ctx: Context, thread: Thread, path: str, *, most: int) -> Awaitable[list[Any]]:
        return self.hub.pages(ctx, thread.repository, path, most=most)

    async def _tried(
        self, ctx: Context, work: Awaitable[T], seconds: float
    ) -> tuple[T | None, str]:
        """Return what comes of it; or None, and why nothing does."""
        try:
            return await _within(ctx.clock, seconds, work), ""
        except Exception as error:
            # Whatever is wrong, the question goes on; it says what it lacks.
            ctx.log.warning("github.unread", error=f"{type(error).__name__}: {error}")
            return None, _reason(error, seconds)


def subject_of(thread: Thread, found: Mapping[str, Any]) -> Subject:
    """Read GitHub's pull request or issue."""
    state = _text(found.get("state")) or "open"
    merged = found.get("merged") is True or _text(found.get("merged_at")) != ""
    labels = (_text(_dict(one).get("name")) for one in _list(found.get("labels")))
    head, base, count = _dict(found.get("head")), _dict(found.get("base")), found.get("comments")
    return Subject(
        thread.kind,
        thread.number,
        _text(found.get("title")),
        _text(found.get("body")),
        _text(_dict(found.get("user")).get("login")),
        _text(found.get("author_association")),
        "merged" if merged else state,
        found.get("draft") is True,
        tuple(label for label in labels if label),
        count if isinstance(count, int) else 0,
        _text(head.get("sha")) or None if thread.is_pull else None,
        _text(head.get("ref")),
        _text(base.get("ref")),
        thread.is_pull and is_fork(found),
    )


def _patch_of(diff: str, base: str | None) -> Patch:
    """Parse a diff; it takes a while for a large one. Raises ValueError."""
    files = parse(diff)
    fits = excerpt(files, _EXCERPT)
    changed = tuple(Changed.of(file, fits.why.get(file.path, "")) for file in files)
    return Patch(changed, fits, base)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _read_all(kind: CommentKind, items: Iterable[Any], me: Me) -> list[Comment]:
    found = (Comment.of(kind, one, me) for one in items if isinstance(one, dict))
    return [one for one in found if one is not None]


async def _within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Return what comes of it in time; raises TimeoutError, and then it is cancelled."""
    doing = asyncio.ensure_future(work)
    late = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait([doing, late], return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise TimeoutError
        return doing.result()
    finally:
        doing.cancel()
        late.cancel()


def _reason(error: Exception, seconds: float) -> str:
    """Return why something is missing, for the prompt: in words of ours or of GitHub's alone."""
    said = str(error) if isinstance(error, ThreadlineError | TimeoutError) else ""
    said = (error.plain if isinstance(error, GitFailed) else said).strip().rstrip(".")
    if isinstance(error, TimeoutError) and not said:
        return f"it took longer than {seconds:g} s"
    if isinstance(error, TryAgain) and error.retry_after is not None:
        return f"{said}; it can be tried again in {error.retry_after:.0f} s"
    if isinstance(error, ValueError):
        return "it is none that can be read"
    return said or type(error).__name__


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
