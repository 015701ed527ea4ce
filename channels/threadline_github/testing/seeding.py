"""What a test puts into this GitHub before anything happens, and the changes of owners."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from threadline_github.testing import git
from threadline_github.testing.events import Publisher
from threadline_github.testing.model import (
    Account,
    App,
    Hook,
    Installation,
    Issue,
    Json,
    Repository,
    Token,
)
from threadline_github.testing.state import State
from threadline_github.testing.webhooks import Delivery, Webhooks

__all__ = ["DEFAULTS", "Seeding", "new_key"]

DEFAULTS: dict[str, Any] = {
    "owner": "octo-fixture",
    "owner_id": 700,
    "repository": "octo-fixture/widget",
    "repository_id": 900100,
    "app_id": 2201,
    "slug": "agent-fixture",
    "bot": "agent-fixture[bot]",
    "bot_id": 9001,
    "installation": 4401,
    "hook_id": 33001,
    "webhook_secret": "github-webhook-secret-for-tests",
    "person": "dev-one",
    "other": "dev-two",
    "stranger": "stranger",
}
"""What there is from the start: one repository, one app in it, three people."""

_PEOPLE = {"dev-one": (501, "MEMBER"), "dev-two": (502, "MEMBER"), "stranger": (599, "NONE")}


class Seeding:
    """Adds accounts, repositories, hooks and installations; nobody hears of it."""

    state: State
    webhooks: Webhooks
    publisher: Publisher
    app: App

    def seed(self) -> None:
        """Make what there is from the start."""
        owner = self.add_user(DEFAULTS["owner"], DEFAULTS["owner_id"], type="Organization")
        for login, (identity, association) in _PEOPLE.items():
            self.add_user(login, identity)
            self.associate(login, association)
        self.app = self.add_app(
            DEFAULTS["slug"],
            DEFAULTS["app_id"],
            owner=owner,
            bot_id=DEFAULTS["bot_id"],
            hook_id=DEFAULTS["hook_id"],
            secret=DEFAULTS["webhook_secret"],
        )
        self.add_repository(DEFAULTS["repository"], DEFAULTS["repository_id"])
        self.install(owner, identity=DEFAULTS["installation"])

    # Accounts and apps

    def add_user(
        self,
        login: str,
        identity: int | None = None,
        *,
        type: Literal["User", "Organization", "Bot"] = "User",  # noqa: A002
        bot: bool = False,
    ) -> Account:
        """Add a person, an organisation, or with ``bot`` the bot of another app."""
        kind: Literal["User", "Organization", "Bot"] = "Bot" if bot else type
        made = Account(identity or self.state.mint(), login, kind)
        self.state.accounts[login.lower()] = made
        return made

    def add_app(
        self,
        slug: str,
        identity: int | None = None,
        *,
        owner: Account | None = None,
        bot_id: int | None = None,
        hook_id: int | None = None,
        secret: str | None = None,
        permissions: Mapping[str, str] | None = None,
    ) -> App:
        """Add an app that is installed nowhere yet, with its bot."""
        number = identity or self.state.mint()
        bot = self.add_user(f"{slug}[bot]", bot_id, bot=True)
        hook = Hook(
            hook_id or self.state.mint(), "integration", number, secret or f"secret-of-{slug}"
        )
        made = App(
            number,
            slug,
            slug.replace("-", " ").title(),
            owner or self.state.account(DEFAULTS["owner"]),
            bot,
            _key(),
            hook,
        )
        if permissions is not None:
            made.permissions = dict(permissions)
        self.state.apps[number] = made
        return made

    def install(
        self,
        account: Account | str,
        *,
        app: App | None = None,
        repositories: Iterable[Repository] | None = None,
        permissions: Mapping[str, str] | None = None,
        identity: int | None = None,
    ) -> Installation:
        """Install an app in an account, for all its repositories unless said."""
        used = app or self.app
        where = self.state.account(account) if isinstance(account, str) else account
        made = Installation(
            identity or self.state.mint(),
            used,
            where,
            dict(used.permissions if permissions is None else permissions),
            None if repositories is None else list(repositories),
        )
        used.installations.append(made)
        return made

    def uninstall(self, installation: Installation) -> None:
        """Remove an installation: its tokens are good for nothing, and its app is told."""
        installation.deleted = True
        self.publisher.installation("deleted", installation, installation.account)

    def personal_token(
        self,
        login: str,
        permissions: Mapping[str, str] | None = None,
        *,
        scopes: str = "repo",
    ) -> str:
        """Return a token of a person's own: a classic one, or one with these permissions.

        Somebody who is not there yet is made, as a collaborator.
        """
        if login.lower() not in self.state.accounts:
            self.add_user(login)
            self.associate(login, "COLLABORATOR")
        value = f"ghp_{login}_{self.state.mint()}"
        token = Token(value, self.state.account(login), self.state.now())
        if permissions is None:
            token.scopes = scopes
        else:
            token.permissions = dict(permissions)
        self.state.tokens[value] = token
        return value

    def revoke(self, token: str | Installation) -> None:
        """Let a token, or all tokens of an installation, be good for nothing."""
        for one in self.state.tokens.values():
            if token in (one.value, one.installation):
                one.revoked = True

    @property
    def tokens(self) -> list[Token]:
        """The tokens of installations that were issued, the oldest first."""
        return [one for one in self.state.tokens.values() if one.installation is not None]

    # Repositories

    def repository(self, name: str = DEFAULTS["repository"]) -> Repository:
        """Return a repository by the name that it has or had."""
        return self.state.repository(name)

    def found(self, repository: Repository | str | None) -> Repository:
        """Return a repository that may be given by name, or not at all."""
        if isinstance(repository, Repository):
            return repository
        return self.repository() if repository is None else self.repository(repository)

    def add_repository(
        self,
        name: str,
        identity: int | None = None,
        *,
        private: bool = False,
        installed: bool = True,
        fork_of: Repository | None = None,
    ) -> Repository:
        """Add a repository; its owner is made if there is none.

        ``installed=False``: installations in all repositories of the owner do not reach it.
        """
        login, _, short = name.partition("/")
        if login.lower() not in self.state.accounts:
            self.add_user(login, type="Organization")
        owner = self.state.account(login)
        sha = self.state.sha()
        made = Repository(
            identity or self.state.mint(),
            owner,
            short,
            self.state.now(),
            sha,
            private=private,
            fork_of=fork_of,
            unlisted=not installed,
            branches={"main": sha},
        )
        if self.state.url:
            made.clone_url = self.clone_url(made)
        self.state.repositories[made.id] = made
        self.state.names[name.lower()] = made.id
        return made

    def clone_url(self, repository: Repository) -> str:
        """Return the address that git clones it from, if it has a real one behind it."""
        return f"{self.state.url}/{repository.full_name}.git"

    def fork(self, repository: Repository, owner: Account) -> Repository:
        """Return somebody's fork of a repository; it is made if there is none."""
        for one in self.state.repositories.values():
            if one.fork_of is repository and one.owner is owner:
                return one
        return self.add_repository(
            f"{owner.login}/{repository.name}", private=repository.private, fork_of=repository
        )

    def back(
        self, repository: Repository | str | None, folder: Path, *, http: bool = False
    ) -> Repository:
        """Have a real bare git repository in a folder: what is opened from now on is there.

        Its refs are ``refs/heads/<branch>`` and ``refs/pull/<n>/head``; diffs are those of git.
        ``clone_url`` is a file's, or with ``http`` one at this GitHub, which asks for a token when
        the repository is private.
        """
        where = self.found(repository)
        moment = int(self.state.now().timestamp())
        where.base_sha = git.begin(folder, where.default_branch, moment)
        where.branches = {where.default_branch: where.base_sha}
        where.bare = folder
        where.clone_url = self.clone_url(where) if http else folder.resolve().as_uri()
        return where

    def add_hook(
        self,
        repository: Repository | str | None,
        url: str,
        *,
        secret: str = DEFAULTS["webhook_secret"],
        content_type: Literal["json", "form"] = "json",
        events: Iterable[str] | None = None,
    ) -> Hook:
        """Add a webhook to a repository; None are all events."""
        where = self.found(repository)
        wanted = None if events is None else set(events)
        hook = Hook(self.state.mint(), "repository", where.id, secret, url, content_type, wanted)
        where.hooks.append(hook)
        return hook

    def rename(self, repository: Repository, name: str, *, by: str = "dev-one") -> None:
        """Give a repository another name; the old one leads to it."""
        before = repository.name
        repository.name = name
        changes: Json = {"repository": {"name": {"from": before}}}
        self._moved(repository, "renamed", by, changes)

    def transfer(
        self,
        repository: Repository,
        owner: str,
        *,
        by: str = "dev-one",
        installation: Installation | None = None,
    ) -> None:
        """Give a repository to another owner; the old name leads to it.

        The app of ``installation``, or of any installation of the new owner, hears of it.
        """
        before = repository.owner
        if owner.lower() not in self.state.accounts:
            self.add_user(owner, type="Organization")
        repository.owner = self.state.account(owner)
        if installation is not None and installation.repositories is not None:
            installation.repositories.append(repository)
        kind = "organization" if before.type == "Organization" else "user"
        changes: Json = {
            "owner": {"from": {kind: {"login": before.login, "id": before.id}}},
        }
        self._moved(repository, "transferred", by, changes)

    def _moved(self, repository: Repository, action: str, by: str, changes: Json) -> None:
        self.state.names[repository.full_name.lower()] = repository.id
        payload = {"action": action, "changes": changes}
        self.publisher.tell(repository, self.state.account(by), "repository", payload)

    # Who may

    def associate(
        self, login: str, association: str, repository: Repository | str | None = None
    ) -> None:
        """Say what somebody is to a repository, or to all of them."""
        where = None if repository is None else self.found(repository).id
        self.state.associations[where, login.lower()] = association

    def permit(
        self,
        login: str,
        permission: Literal["admin", "write", "read", "none"],
        repository: Repository | str | None = None,
    ) -> None:
        """Say what somebody may do in a repository, or in all of them."""
        where = None if repository is None else self.found(repository).id
        self.state.permissions[where, login.lower()] = permission

    # Webhooks out of nothing

    def send(
        self, event: str, payload: Json, *, guid: str | None = None, hook: Hook | None = None
    ) -> Delivery:
        """Send any payload, as the app's webhook or as another."""
        return self.webhooks.send(hook or self.app.hook, event, payload, guid)

    def ping(self, hook: Hook | None = None) -> Delivery:
        """Send what a new webhook gets first."""
        return self.publisher.ping(hook or self.app.hook, self.app.owner)

    def lock(self, thread: Issue) -> None:
        """Lock a conversation: apps cannot comment."""
        thread.locked = True


def new_key() -> str:
    """Return a private key in PEM that no app has."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


@functools.cache
def _key() -> str:
    """Return the key of the apps here: one for a process, since making one takes a while."""
    return new_key()
