"""Everything at this GitHub: what there is, found by name or id, and new ids; no events."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from threadline.clock import Clock
from threadline_github.testing.model import (
    Account,
    App,
    Check,
    Comment,
    Hook,
    Installation,
    Issue,
    Pull,
    Repository,
    Review,
    ReviewComment,
    Token,
)

__all__ = ["Options", "State"]

_WRITERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


@dataclass(slots=True)
class Options:
    """How this GitHub behaves; a test may change it at any time.

    - ``token_seconds``: how long an installation's token lives.
    - ``hourly``: calls an hour that a token, or an app, has.
    - ``answer_within``: seconds an app has to answer a webhook.
    - ``keep_deliveries``: how long the deliveries API knows of a delivery.
    - ``moved``: the status that tells of another name: 301; 307 for calls that change things.
    """

    token_seconds: float = 3600.0
    hourly: int = 5000
    answer_within: float = 10.0
    keep_deliveries: timedelta = timedelta(days=3)
    moved: Literal[301, 302, 307, 308] | None = None


@dataclass(slots=True)
class State:
    """All that exists. ``url`` is where it listens, ``api`` where the API begins."""

    clock: Clock
    options: Options = field(default_factory=Options)
    url: str = ""
    api: str = ""
    accounts: dict[str, Account] = field(default_factory=dict)
    apps: dict[int, App] = field(default_factory=dict)
    repositories: dict[int, Repository] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    associations: dict[tuple[int | None, str], str] = field(default_factory=dict)
    permissions: dict[tuple[int | None, str], str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(70_001))
    _commits: Iterator[int] = field(default_factory=itertools.count)

    # Ids and times

    def mint(self) -> int:
        """Return an id that nothing has yet."""
        return next(self._numbers)

    def sha(self) -> str:
        """Return the id of a commit that nothing has yet."""
        seed = f"commit {next(self._commits)}".encode()
        return hashlib.sha1(seed, usedforsecurity=False).hexdigest()

    def now(self) -> datetime:
        """Return the time, in whole seconds as GitHub has it."""
        return self.clock.now().astimezone(UTC).replace(microsecond=0)

    # Finding; all raise LookupError with what to do

    def account(self, login: str) -> Account:
        """Return an account by its login, in any letter case."""
        try:
            return self.accounts[login.lower()]
        except KeyError:
            raise LookupError(f"There is no {login!r}; call github.add_user().") from None

    def repository(self, name: str) -> Repository:
        """Return a repository by the name that it has or had, in any letter case."""
        found = self.names.get(name.lower())
        if found is None:
            raise LookupError(f"There is no {name!r}; call github.add_repository().")
        return self.repositories[found]

    def thread(self, repository: Repository, number: int) -> Issue:
        """Return an issue or pull request."""
        try:
            return repository.threads[number]
        except KeyError:
            raise LookupError(f"There is no {repository.full_name}#{number}.") from None

    def pull(self, repository: Repository, number: int) -> Pull:
        """Return a pull request."""
        found = self.thread(repository, number)
        if not isinstance(found, Pull):
            raise LookupError(f"{repository.full_name}#{number} is an issue.")
        return found

    def pulls(self, repository: Repository) -> list[Pull]:
        """Return the pull requests of a repository."""
        return [one for one in repository.threads.values() if isinstance(one, Pull)]

    def comment(self, repository: Repository, identity: int) -> Comment:
        """Return a comment that is there."""
        for thread in repository.threads.values():
            for comment in thread.comments:
                if comment.id == identity and not comment.deleted:
                    return comment
        raise LookupError(f"There is no comment {identity}.")

    def review_comment(self, repository: Repository, identity: int) -> ReviewComment:
        """Return a review comment that is there."""
        for pull in self.pulls(repository):
            for comment in pull.review_comments:
                if comment.id == identity and not comment.deleted:
                    return comment
        raise LookupError(f"There is no review comment {identity}.")

    def review(self, pull: Pull, identity: int) -> Review:
        """Return a review."""
        for review in pull.reviews:
            if review.id == identity:
                return review
        raise LookupError(f"There is no review {identity}.")

    def check(self, repository: Repository, identity: int) -> Check:
        """Return a check run."""
        for check in repository.checks:
            if check.id == identity:
                return check
        raise LookupError(f"There is no check run {identity}.")

    def hook(self, repository: Repository, identity: int) -> Hook:
        """Return a repository's webhook."""
        for hook in repository.hooks:
            if hook.id == identity:
                return hook
        raise LookupError(f"There is no hook {identity}.")

    def knows_commit(self, repository: Repository, sha: str) -> bool:
        """Whether a commit is one of a repository, its pull requests included."""
        if sha == repository.base_sha or sha in repository.branches.values():
            return True
        return any(sha in pull.diffs or sha == pull.base_sha for pull in self.pulls(repository))

    def resolve(self, repository: Repository, ref: str) -> str | None:
        """Return the commit that a ref names: a sha, a branch, or ``pull/7/head``."""
        if self.knows_commit(repository, ref):
            return ref
        name = ref.removeprefix("refs/").removeprefix("heads/")
        if name.startswith("pull/"):
            number = name.split("/")[1]
            found = repository.threads.get(int(number)) if number.isdecimal() else None
            return found.head if isinstance(found, Pull) else None
        return repository.branches.get(name)

    # Who may

    def installations(self) -> Iterator[Installation]:
        """Yield every installation that there is."""
        for app in self.apps.values():
            yield from (one for one in app.installations if not one.deleted)

    def installed(self, app: App, repository: Repository) -> Installation | None:
        """Return the installation of an app that covers a repository."""
        return next((one for one in app.installations if one.covers(repository)), None)

    def association(self, repository: Repository, account: Account) -> str:
        """Return ``author_association``: what somebody is to a repository."""
        if account is repository.owner:
            return "OWNER"
        login = account.login.lower()
        default = self.associations.get((None, login), "NONE")
        return self.associations.get((repository.id, login), default)

    def permission(self, repository: Repository, account: Account) -> str:
        """Return what somebody may do: ``admin``, ``write``, ``read`` or ``none``."""
        login = account.login.lower()
        given = self.permissions.get((repository.id, login), self.permissions.get((None, login)))
        if given is not None:
            return given
        association = self.association(repository, account)
        if association == "OWNER":
            return "admin"
        if association in _WRITERS:
            return "write"
        return "none" if repository.private else "read"
