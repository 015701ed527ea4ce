"""users.*, usergroups.list, bots.info, team.info and emoji.list."""

from __future__ import annotations

from threadline_slack.testing.model import Json, User
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import bot_json, team_json, user_json

__all__: list[str] = []


def _seen(ask: Ask, user: User) -> Json:
    """Return a user with what the token may know; strangers come by way of Slack Connect."""
    body = user_json(user)
    if not ask.state.in_reach(ask.install, user.team):
        body["is_stranger"] = True
    elif user.email and "users:read.email" in ask.install.scopes:
        body["profile"]["email"] = user.email
    return body


@method("users.info", "users:read", tier=4)
def info(ask: Ask) -> Json:
    """Return one user."""
    return {"user": _seen(ask, ask.user())}


@method("users.list", "users:read", tier=2)
def list_(ask: Ask) -> Json:
    """Return the users of a team."""
    team = ask.team
    users = [user for user in ask.state.users.values() if user.team == team]
    page, more = ask.page(users, 1_000)
    return {
        "members": [_seen(ask, user) for user in page],
        "cache_ts": ask.state.now(),
        "response_metadata": more,
    }


@method("users.lookupByEmail", "users:read.email", tier=3)
def lookup_by_email(ask: Ask) -> Json:
    """Return the user with an email."""
    wanted = ask.need("email").lower()
    for user in ask.state.users.values():
        known = (user.email or "").lower()
        if known == wanted and ask.state.in_reach(ask.install, user.team) and not user.deleted:
            return {"user": _seen(ask, user)}
    raise Refusal("users_not_found")


@method("usergroups.list", "usergroups:read", tier=2)
def usergroups(ask: Ask) -> Json:
    """Return the user groups of a team, with their members if that is wanted."""
    team = ask.team
    groups = []
    for group in ask.state.groups.values():
        if group["team_id"] == team:
            shown = dict(group)
            if not ask.flag("include_users"):
                shown.pop("users")
            groups.append(shown)
    return {"usergroups": groups}


@method("bots.info", "users:read", tier=3)
def bot_info(ask: Ask) -> Json:
    """Return one bot."""
    wanted = ask.need("bot")
    for user in ask.state.users.values():
        if user.bot_id == wanted:
            return {"bot": bot_json(user)}
    raise Refusal("bot_not_found")


@method("team.info", "team:read", tier=3)
def team_info(ask: Ask) -> Json:
    """Return the token's team, or another one that the app can see."""
    team = ask.state.teams.get(ask.text("team") or ask.team)
    if team is None:
        raise Refusal("team_not_found")
    return {"team": team_json(team)}


@method("emoji.list", "emoji:read", tier=2)
def emoji(ask: Ask) -> Json:
    """Return the team's own emoji: none."""
    del ask
    return {"emoji": {}, "cache_ts": "1750000000.000000"}
