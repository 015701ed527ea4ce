"""What the model is told of a pull request or an issue, as text; no I/O.

The first prompt of a conversation gets all, later ones what is new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from threadline_github.inbound.decide import Kind, Me
from threadline_github.workspace.diff import Excerpt, FileDiff
from threadline_github.workspace.fence import NOTICE, cut, fenced, line, shown
from threadline_github.workspace.told import Told

__all__ = [
    "DIFF_FILE",
    "Changed",
    "Comment",
    "Disk",
    "Patch",
    "Reading",
    "Subject",
    "news",
    "unseen",
]

DIFF_FILE = ".threadline/pull-request.diff"
"""Where the whole diff is, in the working folder."""

_BODY = 10_000  # characters
_COMMENT = 4_000
_COMMENTS, _ALL_COMMENTS = 30, 20_000
_FILES = 300
_TRUSTED = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})

CommentKind: TypeAlias = Literal["comment", "review_comment", "review"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A pull request or an issue, as GitHub has it; ``count`` is of its comments.

    ``base`` is the branch into which it is to be merged, ``fork`` says that its code is from
    elsewhere.
    """

    kind: Kind
    number: int
    title: str = ""
    body: str = ""
    author: str = ""
    association: str = ""
    state: str = "open"
    draft: bool = False
    labels: tuple[str, ...] = ()
    count: int = 0
    head: str | None = None
    branch: str = ""
    base: str = ""
    fork: bool = False

    @property
    def text(self) -> str:
        """Return what stands for title and description."""
        said = "\0".join([self.title, self.body])
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def standing(self) -> str:
        """Return how it stands: ``open``, ``closed``, ``merged`` or ``a draft``."""
        return "a draft" if self.draft and self.state == "open" else self.state


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, a comment on a line (``where``), or a review; ``at`` is when, by GitHub."""

    kind: CommentKind
    id: int
    author: str
    association: str
    at: str
    text: str
    own: bool = False
    where: str = ""
    state: str = ""

    @property
    def name(self) -> str:
        """Return what it is known by."""
        return f"{self.kind}/{self.id}"

    @classmethod
    def of(cls, kind: CommentKind, found: Mapping[str, Any], me: Me) -> Comment | None:
        """Read GitHub's; None for one that says nothing."""
        identity, author = found.get("id"), _dict(found.get("user"))
        text = shown(_text(found.get("body"))[: 4 * _COMMENT]).strip()
        state = _text(found.get("state")).lower().replace("_", " ")
        if not isinstance(identity, int) or not (
            text or state in ("approved", "changes requested")
        ):
            return None
        number = found.get("line") or found.get("original_line")
        path = _text(found.get("path"))
        return cls(
            kind,
            identity,
            _text(author.get("login")) or "ghost",
            _text(found.get("author_association")) or "NONE",
            _text(found.get("created_at")) or _text(found.get("submitted_at")),
            cut(text, _COMMENT),
            me.wrote(author, found.get("performed_via_github_app")),
            f"{path}:{number}" if path and number else path,
            state if kind == "review" else "",
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """A changed file; ``note`` says what is special about it."""

    path: str
    added: int
    removed: int
    note: str = ""

    @classmethod
    def of(cls, file: FileDiff, why: str = "") -> Changed:
        """Read one of a diff; ``why`` is why its diff is not shown."""
        if file.before == "/dev/null":
            kind = "new"
        elif "\n+++ /dev/null\n" in file.text or "\ndeleted file mode " in file.text[:1_000]:
            kind = "deleted"
        else:
            kind = "" if file.before == file.path else f"was {file.before}"
        return cls(file.path, file.added, file.removed, ", ".join(filter(None, [kind, _left(why)])))

    @classmethod
    def listed(cls, found: Mapping[str, Any]) -> Changed:
        """Read one of GitHub's list of files."""
        kinds = {"added": "new", "removed": "deleted"}
        before = _text(found.get("previous_filename"))
        note = f"was {before}" if before else kinds.get(_text(found.get("status")), "")
        added, removed = found.get("additions"), found.get("deletions")
        return cls(
            _text(found.get("filename")),
            added if isinstance(added, int) else 0,
            removed if isinstance(removed, int) else 0,
            note,
        )


@dataclass(frozen=True, slots=True)
class Disk:
    """The working folder: ``head`` is the commit that is there, ``why`` why it is another."""

    head: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """What a pull request changes: its files, and the diff that is fit to read.

    ``base`` is the commit with which the diff compares, where that is known.
    """

    files: tuple[Changed, ...]
    excerpt: Excerpt = field(default_factory=lambda: Excerpt(""))
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What GitHub and git say at one moment; ``missing`` are sentences about what they do not.

    ``disk`` is None where no code is checked out at all, ``patch`` when it was not asked for.
    ``whole`` is the whole diff, where it is to be written into the working folder. ``read`` are
    the kinds of comments that could be read.
    """

    subject: Subject | None
    disk: Disk | None = None
    patch: Patch | None = None
    whole: bytes = b""
    comments: tuple[Comment, ...] = ()
    read: frozenset[CommentKind] = frozenset()
    missing: tuple[str, ...] = ()

    @property
    def head(self) -> str | None:
        """Return the commit to work on: the one on disk, if it is the newest."""
        if self.subject is None:
            return None
        if self.disk is not None and self.disk.head is not None and not self.disk.why:
            return self.disk.head
        return self.subject.head

    def spent(self) -> Reading:
        """Return it without what is large, once that is told."""
        newest = sorted(self.comments, key=_when)[-2 * _COMMENTS :]
        return replace(self, patch=None, whole=b"", comments=tuple(newest))


def news(
    reading: Reading,
    told: Told | None,
    *,
    asked: Collection[str] = (),
    place: str,
    spoke_of: str | None = None,
) -> tuple[list[str], Told | None]:
    """Return blocks for the prompt, and all that is told with them.

    ``asked`` are the names of comments that are messages themselves, ``place`` is the repository,
    ``spoke_of`` the commit that the message is about.
    """
    subject = reading.subject
    if subject is None:
        return [_missing(reading)], told
    before = told or Told()
    comments, left_out = _fitting(unseen(reading.comments, told, asked))
    blocks = [
        _description(subject) if subject.text != before.text else "",
        _files(reading.patch),
        _diff(reading.patch, reading.head),
        _said(comments, left_out),
    ]
    outside = [block for block in blocks if block]
    facts = _facts(reading, subject, before, place, spoke_of)
    said = [part for part in (facts, NOTICE if outside else "") if part]
    missing = [_missing(reading)] if reading.missing else []
    told_now = _told(reading, subject, before)
    return [*(["\n".join(said)] if said else []), *outside, *missing], told_now


def unseen(
    comments: Sequence[Comment], told: Told | None, asked: Collection[str] = ()
) -> list[Comment]:
    """Return the comments that the model has not, in order; at first those after its own last."""
    found = sorted(comments, key=_when)
    if told is None:
        own = [number for number, one in enumerate(found) if one.own]
        found = found[own[-1] + 1 if own else 0 :]
    else:
        found = [one for one in found if one.id > getattr(told, one.kind)]
    return [one for one in found if not one.own and one.name not in asked]


def _when(comment: Comment) -> tuple[str, int]:
    return comment.at, comment.id


def _told(reading: Reading, subject: Subject, before: Told) -> Told:
    """Return what is told from now on; what could not be read is not."""
    newest = {
        kind: max(
            [getattr(before, kind), *(one.id for one in reading.comments if one.kind == kind)]
        )
        for kind in ("comment", "review_comment", "review")
    }
    return replace(
        before,
        head=reading.head if reading.patch is not None else before.head,
        named=reading.head,
        base=subject.base or None,
        text=subject.text,
        state=subject.standing,
        since=max([before.since, *(one.at for one in reading.comments)]),
        **newest,
    )


# Ours


def _facts(
    reading: Reading, subject: Subject, before: Told, place: str, spoke_of: str | None
) -> str:
    """Return what is sure: where it stands, at which commit, and what is on disk."""
    head = reading.head
    name = "Pull request" if subject.kind == "pr" else "Issue"
    parts = []
    if subject.standing != before.state:
        parts.append(f"It is {subject.standing}.")
    if head is not None and head != before.named:
        was = f"; before it was {before.named}" if before.named else ""
        parts.append(f"Its head is {head}{was}.")
    if subject.kind == "pr" and (subject.base or None) != before.base:
        base = reading.patch.base if reading.patch is not None else None
        at = f", from which it parts at {base}" if base else ""
        parts.append(f"It is to be merged into {line(subject.base)}{at}.")
        if subject.fork:
            parts.append("Its code is from a fork: nobody of this repository may have read it.")
    parts += _on_disk(reading, head, before)
    if spoke_of is not None and head is not None and spoke_of != head:
        parts.append(f"This message spoke of {spoke_of}; the head is {head} now.")
    if not parts:
        return ""
    return f"[{name} #{subject.number} of {place}: {' '.join(parts)}]"


def _on_disk(reading: Reading, head: str | None, before: Told) -> list[str]:
    disk, patch = reading.disk, reading.patch
    if head is None:
        return []
    whole = [f"The whole diff is in {DIFF_FILE}."] if patch is not None and reading.whole else []
    if disk is None:
        return whole
    if disk.head is None:
        return [f"Its files are not on disk: {disk.why}.", *whole]
    if disk.head != head:
        return [f"The files on disk are those of {disk.head}: {disk.why}.", *whole]
    if head == before.named and patch is None:
        return []
    return [f"The files on disk are those of {disk.head}.", *whole]


def _missing(reading: Reading) -> str:
    return f"[{' '.join(reading.missing)}]"


# What is from outside


def _description(subject: Subject) -> str:
    body = cut(shown(subject.body).strip(), _BODY) or "(There is no description.)"
    return fenced(
        "pull_request" if subject.kind == "pr" else "issue",
        f"{line(subject.title, 300)}\n\n{body}",
        number=subject.number,
        author=subject.author or "ghost",
        association=_association(subject.association),
        branch=subject.branch or None,
        labels=", ".join(subject.labels) or None,
    )


def _files(patch: Patch | None) -> str:
    if patch is None:
        return ""
    if not patch.files:
        return fenced("changed_files", "(No file is changed.)")
    lines = [
        f"{line(file.path, 400)} +{file.added} -{file.removed}"
        + (f" ({line(file.note, 400)})" if file.note else "")
        for file in patch.files[:_FILES]
    ]
    if len(patch.files) > _FILES:
        lines.append(f"… and {len(patch.files) - _FILES} more")
    return fenced("changed_files", "\n".join(lines))


def _diff(patch: Patch | None, head: str | None) -> str:
    if patch is None or not patch.excerpt.text:
        return ""
    return fenced("diff", patch.excerpt.text, head=head)


def _fitting(comments: Sequence[Comment]) -> tuple[list[Comment], int]:
    """Return the newest comments, of which there is room, and how many others there are."""
    room, kept = _ALL_COMMENTS, 0
    for one in reversed(comments[-_COMMENTS:]):
        room -= len(one.text)
        if room < 0:
            break
        kept += 1
    return list(comments[len(comments) - kept :]), len(comments) - kept


def _said(comments: Sequence[Comment], left_out: int) -> str:
    if not comments:
        return ""
    parts = [f"({left_out} older ones are left out here.)"] if left_out else []
    parts += [
        fenced(
            "comment",
            one.text or "(without words)",
            author=one.author,
            association=_association(one.association),
            at=one.at or None,
            on=one.where or None,
            review=one.state or None,
        )
        for one in comments
    ]
    inner = "\n".join(parts)
    return f"<comments>\n{inner}\n</comments>"


def _association(association: str) -> str | None:
    """Return how somebody belongs to the repository; of strangers, that they do not."""
    if not association:
        return None
    return association if association in _TRUSTED else f"{association}, a stranger"


def _left(why: str) -> str:
    return f"not shown: {why}" if why else ""


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
