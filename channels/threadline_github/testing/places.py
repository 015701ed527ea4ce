"""Accounts, apps, repositories and hooks as the API and webhooks write them; no I/O."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from threadline_github.testing.model import Account, App, Hook, Installation, Json, Repository
from threadline_github.testing.state import State

__all__ = ["Places", "stamp"]


def stamp(moment: datetime | None) -> str | None:
    """Return a moment as GitHub writes it: UTC, whole seconds."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


EVENTS = (
    "check_run",
    "check_suite",
    "issue_comment",
    "issues",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "push",
    "repository",
    "workflow_run",
)


class Places:
    """Writes who and where, with the addresses of this GitHub."""

    def __init__(self, state: State) -> None:
        self._state = state

    # Who

    def account(self, account: Account) -> Json:
        """A person, an organisation or a bot."""
        api, login = self._state.api, quote(account.login)
        return {
            "login": account.login,
            "id": account.id,
            "node_id": f"U_{account.id}",
            "avatar_url": f"{self._state.url}/u/{account.id}?v=4",
            "gravatar_id": "",
            "url": f"{api}/users/{login}",
            "html_url": self._html(account),
            "repos_url": f"{api}/users/{login}/repos",
            "type": account.type,
            "user_view_type": "public",
            "site_admin": False,
        }

    def app(self, app: App | None) -> Json | None:
        """An app, as others see it."""
        if app is None:
            return None
        return {
            "id": app.id,
            "slug": app.slug,
            "node_id": f"A_{app.id}",
            "client_id": f"Iv1.{app.id:016x}",
            "owner": self.account(app.owner),
            "name": app.name,
            "description": "",
            "external_url": "https://example.com",
            "html_url": f"{self._state.url}/apps/{app.slug}",
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": "2024-01-01T00:00:00Z",
            "permissions": dict(app.permissions),
            "events": _events(app),
        }

    def installation(self, installation: Installation) -> Json:
        """An installation, as its app sees it."""
        api, account = self._state.api, installation.account
        return {
            "id": installation.id,
            "account": self.account(account),
            "repository_selection": "all" if installation.repositories is None else "selected",
            "access_tokens_url": f"{api}/app/installations/{installation.id}/access_tokens",
            "repositories_url": f"{api}/installation/repositories",
            "html_url": f"{self._state.url}/settings/installations/{installation.id}",
            "app_id": installation.app.id,
            "app_slug": installation.app.slug,
            "target_id": account.id,
            "target_type": account.type,
            "permissions": dict(installation.permissions),
            "events": _events(installation.app),
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": "2024-01-01T00:00:00Z",
            "single_file_name": None,
            "suspended_at": "2024-01-01T00:00:00Z" if installation.suspended else None,
            "suspended_by": None,
        }

    # Where

    def repository(self, repository: Repository) -> Json:
        """A repository."""
        return {
            "id": repository.id,
            "node_id": f"R_{repository.id}",
            "name": repository.name,
            "full_name": repository.full_name,
            "private": repository.private,
            "owner": self.account(repository.owner),
            "html_url": f"{self._state.url}/{repository.full_name}",
            "description": None,
            "fork": repository.fork_of is not None,
            "url": self.at(repository),
            "clone_url": repository.clone_url,
            "default_branch": repository.default_branch,
            "visibility": "private" if repository.private else "public",
            "archived": False,
            "disabled": False,
            "has_issues": True,
            "size": repository.size,
            "open_issues_count": sum(one.state == "open" for one in repository.threads.values()),
            "created_at": stamp(repository.created_at),
            "updated_at": stamp(repository.created_at),
            "pushed_at": stamp(repository.created_at),
        }

    def at(self, repository: Repository, path: str = "") -> str:
        """Return the address of something in a repository."""
        return f"{self._state.api}/repos/{repository.full_name}{path}"

    def hook(self, repository: Repository, hook: Hook) -> Json:
        """A repository's webhook."""
        return {
            "type": "Repository",
            "id": hook.id,
            "name": "web",
            "active": hook.active,
            "events": ["*"] if hook.events is None else sorted(hook.events),
            "config": self.hook_config(hook),
            "url": self.at(repository, f"/hooks/{hook.id}"),
            "deliveries_url": self.at(repository, f"/hooks/{hook.id}/deliveries"),
            "created_at": "2024-01-01T00:00:00Z",
            "updated_at": "2024-01-01T00:00:00Z",
        }

    def hook_config(self, hook: Hook) -> Json:
        """What a webhook is set to; its secret is not told."""
        return {
            "content_type": hook.content_type,
            "insecure_ssl": "0",
            "secret": "********",
            "url": hook.url or "",
        }

    # Smaller things

    def _association(self, repository: Repository, account: Account) -> str:
        return self._state.association(repository, account)

    def _html(self, account: Account) -> str:
        name = account.login
        if account.type == "Bot":
            return f"{self._state.url}/apps/{name.removesuffix('[bot]')}"
        return f"{self._state.url}/{name}"


def _events(app: App) -> list[str]:
    """Return the events that an app asked for; one that hears of all asked for these."""
    return sorted(EVENTS if app.events is None else app.events)
