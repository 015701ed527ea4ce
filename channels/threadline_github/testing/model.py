"""What there is at GitHub: accounts, apps, repositories and what stands in them; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

__all__ = [
    "ALL_PERMISSIONS",
    "Account",
    "App",
    "Check",
    "Comment",
    "Hook",
    "Installation",
    "Issue",
    "Json",
    "Pull",
    "Reaction",
    "Repository",
    "Review",
    "ReviewComment",
    "Token",
]

Json: TypeAlias = dict[str, Any]
AccountType = Literal["User", "Organization", "Bot"]

ALL_PERMISSIONS = {
    "actions": "read",
    "checks": "write",
    "contents": "read",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
    "repository_hooks": "write",
}
"""What the app may do where it is installed, unless a test says otherwise."""


@dataclass(slots=True, eq=False)
class Account:
    """A person, an organisation, or the bot of an app."""

    id: int
    login: str
    type: AccountType = "User"


@dataclass(slots=True, eq=False)
class Hook:
    """A webhook; nothing is sent without a ``url``. ``events`` None are all events."""

    id: int
    kind: Literal["integration", "repository"]
    target: int
    secret: str = field(repr=False)
    url: str | None = None
    content_type: Literal["json", "form"] = "json"
    events: set[str] | None = None
    active: bool = True


@dataclass(slots=True, eq=False)
class App:
    """A GitHub App; ``private_key`` is its key in PEM."""

    id: int
    slug: str
    name: str
    owner: Account
    bot: Account
    private_key: str = field(repr=False)
    hook: Hook
    permissions: dict[str, str] = field(default_factory=lambda: dict(ALL_PERMISSIONS))
    installations: list[Installation] = field(default_factory=list, repr=False)

    @property
    def webhook_url(self) -> str | None:
        """Where its webhooks go; nothing is sent before this is set."""
        return self.hook.url

    @webhook_url.setter
    def webhook_url(self, url: str | None) -> None:
        self.hook.url = url

    @property
    def webhook_secret(self) -> str:
        """What its webhooks are signed with."""
        return self.hook.secret

    @property
    def hook_id(self) -> int:
        """The id of its webhook."""
        return self.hook.id

    @property
    def content_type(self) -> Literal["json", "form"]:
        """How its webhooks are written."""
        return self.hook.content_type

    @content_type.setter
    def content_type(self, value: Literal["json", "form"]) -> None:
        self.hook.content_type = value

    @property
    def events(self) -> set[str] | None:
        """The events that it hears of; None for all."""
        return self.hook.events

    @events.setter
    def events(self, events: set[str] | None) -> None:
        self.hook.events = events


@dataclass(slots=True, eq=False)
class Installation:
    """An app in an account; ``repositories`` None are all of the account's."""

    id: int
    app: App
    account: Account
    permissions: dict[str, str]
    repositories: list[Repository] | None = None
    suspended: bool = False
    deleted: bool = False

    def covers(self, repository: Repository) -> bool:
        """Whether it is in force for a repository."""
        if self.deleted or self.suspended:
            return False
        if self.repositories is not None:
            return repository in self.repositories
        return repository.owner is self.account and not repository.unlisted


@dataclass(slots=True, eq=False)
class Token:
    """An installation's token, or a person's own, which has no end.

    ``scopes`` are those of a classic token; fine-grained ones have permissions.
    """

    value: str = field(repr=False)
    account: Account
    issued_at: datetime
    installation: Installation | None = None
    expires_at: datetime | None = None
    permissions: dict[str, str] = field(default_factory=dict)
    scopes: str | None = None
    revoked: bool = False


@dataclass(slots=True, eq=False)
class Repository:
    """A repository; ``bare`` is the real git repository behind it, if a test made one.

    ``unlisted``: installations in "all repositories" do not reach it.
    """

    id: int
    owner: Account
    name: str
    created_at: datetime
    base_sha: str
    clone_url: str = ""
    private: bool = False
    default_branch: str = "main"
    size: int = 120
    fork_of: Repository | None = None
    unlisted: bool = False
    bare: Path | None = None
    hooks: list[Hook] = field(default_factory=list, repr=False)
    threads: dict[int, Issue] = field(default_factory=dict, repr=False)
    checks: list[Check] = field(default_factory=list, repr=False)
    branches: dict[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """``owner/name``."""
        return f"{self.owner.login}/{self.name}"


@dataclass(slots=True, eq=False)
class Reaction:
    """An emoji by somebody."""

    id: int
    account: Account
    content: str
    created_at: datetime


@dataclass(slots=True, eq=False)
class Issue:
    """An issue, or as :class:`Pull` a pull request."""

    id: int
    number: int
    repository: Repository = field(repr=False)
    author: Account
    title: str
    body: str | None
    created_at: datetime
    updated_at: datetime
    state: Literal["open", "closed"] = "open"
    closed_at: datetime | None = None
    locked: bool = False
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list, repr=False)
    reactions: list[Reaction] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Pull(Issue):
    """A pull request. ``diffs`` has the diff of every head it ever had."""

    head: str = ""
    base_sha: str = ""
    base: str = "main"
    branch: str = "change"
    draft: bool = False
    merged: bool = False
    merged_at: datetime | None = None
    merged_by: Account | None = None
    source: Repository | None = None
    diffs: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, tuple[str | None, str | None]] = field(default_factory=dict, repr=False)
    requested: list[Account] = field(default_factory=list)
    reviews: list[Review] = field(default_factory=list, repr=False)
    review_comments: list[ReviewComment] = field(default_factory=list, repr=False)

    @property
    def diff(self) -> str:
        """The unified diff of the head against the base."""
        return self.diffs[self.head]

    @property
    def is_fork(self) -> bool:
        """Whether its code is of another repository, or of one that is gone."""
        return self.source is not self.repository

    @property
    def fork(self) -> Repository | None:
        """The fork that its code is of, if it is there."""
        return self.source if self.is_fork else None


@dataclass(slots=True, eq=False)
class Comment:
    """A comment on an issue or pull request; ``history`` has the bodies it had before."""

    id: int
    thread: Issue = field(repr=False)
    author: Account
    body: str
    created_at: datetime
    updated_at: datetime
    app: App | None = None
    deleted: bool = False
    history: list[str] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class ReviewComment:
    """A comment on a line of the diff; ``reply_to`` is the first one of its thread."""

    id: int
    pull: Pull = field(repr=False)
    author: Account
    body: str
    path: str
    line: int | None
    side: str
    commit: str
    hunk: str
    created_at: datetime
    updated_at: datetime
    start_line: int | None = None
    review: int | None = None
    reply_to: int | None = None
    app: App | None = None
    deleted: bool = False
    history: list[str] = field(default_factory=list)
    reactions: list[Reaction] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Review:
    """A review; ``state`` is as the API has it, such as ``CHANGES_REQUESTED``.

    ``implied``: it only holds a comment that was made by itself.
    """

    id: int
    pull: Pull = field(repr=False)
    author: Account
    body: str
    state: str
    commit: str
    submitted_at: datetime | None
    app: App | None = None
    implied: bool = False
    history: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Check:
    """A check run of an app, which is ``app``, or one that runs elsewhere."""

    id: int
    repository: Repository = field(repr=False)
    app: App | None
    name: str
    head_sha: str
    updated_at: datetime
    external_id: str = ""
    details_url: str | None = None
    status: str = "queued"
    conclusion: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: list[Json] = field(default_factory=list)
    actions: list[Json] = field(default_factory=list)
