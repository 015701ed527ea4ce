"""auth.*, oauth.v2.access, apps.connections.open and api.test."""

from __future__ import annotations

from threadline_slack.testing.model import App, Install, Json
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.table import Ask, method

__all__: list[str] = []

_ROTATION_SECONDS = 43_200


@method("api.test", tier=4, token="none")
def api_test(ask: Ask) -> Json:
    """Answer."""
    return {"args": dict(ask.args)}


@method("auth.test", tier=5)
def auth_test(ask: Ask) -> Json:
    """Say whose token this is."""
    install = ask.install
    bot = ask.state.user(install.bot_user)
    team = ask.state.teams[install.team or bot.team]
    body: Json = {
        "url": f"https://{team.domain}.slack.com/",
        "team": team.name,
        "user": bot.name,
        "team_id": install.team or install.enterprise,
        "user_id": bot.id,
        "bot_id": install.bot_id,
        "app_id": install.app.id,
        "is_enterprise_install": install.team is None,
    }
    return body | ({"enterprise_id": install.enterprise} if install.enterprise else {})


@method("auth.revoke", tier=3)
def auth_revoke(ask: Ask) -> Json:
    """Take the token back."""
    if ask.flag("test"):
        return {"revoked": False}
    ask.install.revoked = True
    return {"revoked": True}


@method("apps.connections.open", tier=3, token="app")
def connections_open(ask: Ask) -> Json:
    """Give an address for one connection of Socket Mode."""
    if ask.app is None:
        raise Refusal("invalid_auth")
    return {"url": ask.desk.sockets.ticket(ask.app)}


@method("oauth.v2.access", tier=5, token="none")
def oauth_access(ask: Ask) -> Json:
    """Exchange a code, or a refresh token, for the bot token of an installation."""
    app = _client(ask)
    if ask.text("grant_type") == "refresh_token":
        refresh = ask.text("refresh_token")
        for install in app.installs:
            if install.refresh_token and install.refresh_token == refresh:
                install.token = f"{install.token}-{ask.state.mint('r')}"
                return _granted(ask, install)
        raise Refusal("invalid_refresh_token")
    found = ask.state.codes.pop(ask.text("code"), None)
    if found is None or found.app is not app:
        raise Refusal("invalid_code")
    return _granted(ask, found)


def _client(ask: Ask) -> App:
    client, secret = ask.basic or (ask.text("client_id"), ask.text("client_secret"))
    for app in ask.state.apps.values():
        if app.client_id == client:
            if app.client_secret != secret:
                raise Refusal("bad_client_secret")
            return app
    raise Refusal("invalid_client_id")


def _granted(ask: Ask, install: Install) -> Json:
    team = ask.state.teams.get(install.team or "")
    enterprise = install.enterprise
    body: Json = {
        "access_token": install.token,
        "token_type": "bot",
        "scope": ",".join(sorted(install.scopes)),
        "bot_user_id": install.bot_user,
        "app_id": install.app.id,
        "team": {"id": team.id, "name": team.name} if team else None,
        "enterprise": {"id": enterprise, "name": enterprise} if enterprise else None,
        "authed_user": {"id": install.installer},
        "is_enterprise_install": install.team is None,
    }
    if install.refresh_token:
        body |= {"refresh_token": install.refresh_token, "expires_in": _ROTATION_SECONDS}
    return body
