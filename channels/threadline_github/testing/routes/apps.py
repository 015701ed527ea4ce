"""Apps, their installations, and who one is.

https://docs.github.com/en/rest/apps/apps
"""

from __future__ import annotations

from threadline_github.testing.auth import issue
from threadline_github.testing.model import App, Installation
from threadline_github.testing.places import stamp
from threadline_github.testing.refusal import forbidden, not_found
from threadline_github.testing.table import Ask, Reply, endpoint, paged

__all__: list[str] = []


def _app(ask: Ask) -> App:
    assert ask.caller.app is not None
    return ask.caller.app


def _installation(ask: Ask) -> Installation:
    for one in _app(ask).installations:
        if one.id == ask.number("id") and not one.deleted:
            return one
    raise not_found()


@endpoint("GET /app", who="app")
def get_app(ask: Ask) -> Reply:
    app = _app(ask)
    standing = sum(not one.deleted for one in app.installations)
    return Reply({**(ask.wire.app(app) or {}), "installations_count": standing})


@endpoint("GET /app/installations", who="app")
def list_installations(ask: Ask) -> Reply:
    standing = [one for one in _app(ask).installations if not one.deleted]
    return paged(ask, standing, ask.wire.installation)


@endpoint("GET /app/installations/{id}", who="app")
def get_installation(ask: Ask) -> Reply:
    return Reply(ask.wire.installation(_installation(ask)))


@endpoint("POST /app/installations/{id}/access_tokens", who="app")
def create_token(ask: Ask) -> Reply:
    installation = _installation(ask)
    if installation.suspended:
        raise forbidden("This installation has been suspended")
    fields = ask.fields
    made = issue(ask.state, installation, fields.get("repositories"), fields.get("permissions"))
    body = {
        "token": made.value,
        "expires_at": stamp(made.expires_at),
        "permissions": made.permissions,
        "repository_selection": "all" if installation.repositories is None else "selected",
    }
    return Reply(body, 201)


@endpoint("GET /installation", who="app", below=True)
def get_installation_of_repository(ask: Ask) -> Reply:
    found = ask.state.installed(_app(ask), ask.repository)
    if found is None:
        raise not_found()
    return Reply(ask.wire.installation(found))


@endpoint("GET /installation/repositories", who="token")
def list_repositories(ask: Ask) -> Reply:
    installation = ask.caller.installation
    if installation is None:
        raise forbidden("You must authenticate with an installation access token")
    every = ask.state.repositories.values()
    covered = [one for one in every if installation.covers(one)]
    return paged(ask, covered, ask.wire.repository, "repositories")


@endpoint("DELETE /installation/token", who="token")
def revoke_token(ask: Ask) -> Reply:
    assert ask.caller.token is not None
    ask.caller.token.revoked = True
    return Reply(status=204)


@endpoint("GET /user", who="token")
def get_user(ask: Ask) -> Reply:
    account = ask.acting
    if ask.caller.installation is not None:
        raise forbidden()
    assert ask.caller.token is not None
    scopes = ask.caller.token.scopes
    headers = {} if scopes is None else {"X-OAuth-Scopes": scopes}
    return Reply({**ask.wire.account(account), "name": None, "email": None}, headers=headers)


@endpoint("GET /users/{login}", who="anybody")
def get_account(ask: Ask) -> Reply:
    return Reply(ask.wire.account(ask.find(lambda: ask.state.account(ask.params["login"]))))


@endpoint("GET /rate_limit", who="anybody")
def get_limits(ask: Ask) -> Reply:
    hourly = ask.state.options.hourly
    reset = int(ask.state.now().timestamp()) // 3600 * 3600 + 3600
    core = {"limit": hourly, "remaining": hourly, "used": 0, "reset": reset}
    return Reply({"resources": {"core": core}, "rate": core})


@endpoint("GET /meta", who="anybody")
def get_meta(ask: Ask) -> Reply:
    del ask
    return Reply({"verifiable_password_authentication": False, "hooks": ["127.0.0.0/8"]})
