"""What a test puts into a workspace before anything happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from threadline_slack.testing.activity import Author
from threadline_slack.testing.model import (
    ALL_SCOPES,
    App,
    Channel,
    Guest,
    Install,
    Kind,
    Message,
    Team,
    User,
)
from threadline_slack.testing.pages import Pages
from threadline_slack.testing.state import State

__all__ = ["DEFAULTS", "Seeding"]

DEFAULTS = {
    "team": "T0AGENT001",
    "app": "A0AGENT001",
    "bot_user": "U0AGENT001",
    "bot": "B0AGENT001",
    "person": "U0HUMAN001",
    "other": "U0HUMAN002",
    "channel": "C0CHAN0001",
    "dm": "D0DM000001",
    "group_dm": "G0MPIM0001",
    "signing_secret": "slack-signing-secret-for-tests",
}
"""The ids of what there is from the start."""

_PLANTED = frozenset(
    {"subtype", "username", "blocks", "attachments", "metadata", "client_msg_id", "edited"}
)


class Seeding:
    """Adds teams, people, apps, channels and messages; no app hears of it."""

    state: State
    pages: Pages
    app: App

    def seed(self) -> None:
        """Make the workspace that there is from the start: a team, an app, two people."""
        self.add_team(DEFAULTS["team"], name="Acme", domain="acme-test")
        for number, key in enumerate(("person", "other"), 1):
            self.add_user(DEFAULTS[key], f"dev{number}", email=f"dev{number}@acme.test")
        self.app = self.add_app(DEFAULTS["app"], "agent", signing_secret=DEFAULTS["signing_secret"])
        self.install(self.app, bot_user=DEFAULTS["bot_user"], bot_id=DEFAULTS["bot"])
        bot, person, other = DEFAULTS["bot_user"], DEFAULTS["person"], DEFAULTS["other"]
        self.add_channel(DEFAULTS["channel"], "general", members=[bot, person, other])
        self.add_channel(DEFAULTS["dm"], "", members=[person, bot], kind="im")
        self.add_channel(DEFAULTS["group_dm"], "mpdm-1", members=[person, other, bot], kind="mpim")

    def add_team(
        self,
        identity: str,
        *,
        name: str | None = None,
        domain: str | None = None,
        enterprise: str | None = None,
    ) -> Team:
        """Add a workspace, in an organisation or on its own."""
        team = Team(identity, name or identity, domain or identity.lower(), enterprise)
        self.state.teams[identity] = team
        return team

    def add_user(
        self,
        identity: str,
        name: str | None = None,
        *,
        team: str | None = None,
        real_name: str | None = None,
        email: str | None = None,
        guest: Guest | None = None,
    ) -> User:
        """Add a person to a team, as a member or as a guest."""
        known = name or identity.lower()
        where = team or next(iter(self.state.teams), "")
        return self.state.add_user(
            User(identity, where, known, real_name or known.title(), email, guest)
        )

    def add_bot(
        self, identity: str, name: str, *, bot_id: str, app: str, team: str | None = None
    ) -> User:
        """Add the bot of another app, which nothing is sent to; see ``slack.bot(bot_id)``."""
        where = team or next(iter(self.state.teams), "")
        return self.state.add_user(
            User(identity, where, name, name.title(), bot_id=bot_id, app=app)
        )

    def add_channel(
        self,
        identity: str,
        name: str,
        *,
        members: Iterable[str] = (),
        kind: Kind = "channel",
        teams: Iterable[str] = (),
        creator: str = "USLACKBOT",
    ) -> Channel:
        """Add a conversation: ``channel`` is public, ``group`` private.

        With several ``teams``, the first of which owns it, it is a Slack Connect channel unless all
        are of one organisation.
        """
        owners = list(teams) or [next(iter(self.state.teams), "")]
        now = self.state.now()
        channel = Channel(identity, kind, name, owners, creator, now, dict.fromkeys(members))
        orgs = {
            self.state.teams[one].enterprise or one for one in owners if one in self.state.teams
        }
        channel.external = len(orgs) > 1
        return self.state.add_channel(channel)

    def add_group(self, identity: str, handle: str, *, users: Iterable[str] = ()) -> None:
        """Add a user group."""
        members = list(users)
        self.state.groups[identity] = {
            "id": identity,
            "team_id": next(iter(self.state.teams), ""),
            "is_usergroup": True,
            "name": handle.title(),
            "handle": handle,
            "description": "",
            "date_delete": 0,
            "user_count": len(members),
            "users": members,
        }

    def add_app(
        self,
        identity: str,
        name: str,
        *,
        signing_secret: str | None = None,
        events: Iterable[str] | None = None,
        is_agent: bool = True,
    ) -> App:
        """Add an app that is installed nowhere yet."""
        app = App(
            identity,
            name,
            signing_secret or f"signing-secret-of-{identity}",
            f"xapp-1-{identity}-1",
            f"client-{identity}",
            f"client-secret-of-{identity}",
            events=None if events is None else set(events),
            is_agent=is_agent,
        )
        self.state.apps[identity] = app
        return app

    def install(
        self,
        app: App,
        *,
        team: str | None = None,
        enterprise: str | None = None,
        scopes: Iterable[str] = ALL_SCOPES,
        bot_user: str | None = None,
        bot_id: str | None = None,
        token: str | None = None,
    ) -> Install:
        """Install an app in a team, the first one unless given, or in a whole ``enterprise``."""
        where = team if team or enterprise else next(iter(self.state.teams), None)
        return self.state.install(
            app,
            team=where,
            enterprise=enterprise,
            scopes=scopes,
            bot_user=bot_user,
            bot_id=bot_id,
            token=token,
        )

    def grant_code(self, install: Install) -> str:
        """Return a code that ``oauth.v2.access`` exchanges for this installation's token."""
        code = self.state.mint("code-")
        self.state.codes[code] = install
        return code

    def add_webhook(self, channel: str, name: str, *, app: str | None = None) -> str:
        """Add an incoming webhook of a channel; returns its address."""
        where = self.state.channel(channel)
        bot_id = self.state.mint("B")
        path = f"{where.teams[0]}/{bot_id}/secret"
        author = Author(where.teams[0], None, bot_id, app or self.state.mint("A"), name)
        self.pages.webhooks[path] = (author, where.id)
        return f"{self.state.url}/services/{path}"

    def plant(self, event: Mapping[str, Any]) -> Message:
        """Keep the message of a message event as if it had been posted, and tell nobody.

        For tests that send an event of their own making: answers in its thread need a root. Its
        channel, and whoever wrote it, are added if they are not there.
        """
        channel = self._channel_of(event)
        user = event.get("user")
        if user is not None and user not in self.state.users:
            self._strange(event)
        root = event.get("thread_ts")
        message = Message(
            channel.id,
            str(event["ts"]),
            str(event.get("team") or channel.teams[0]),
            str(event.get("text", "")),
            user,
            event.get("bot_id"),
            event.get("app_id"),
            root=root if root != event["ts"] else None,
            **{name: event[name] for name in _PLANTED if name in event},
        )
        channel.posts[message.ts] = message
        if message.root is not None:
            top = channel.posts.get(message.root)
            if top is None:
                top = Message(
                    channel.id, message.root, message.team, "", event.get("parent_user_id")
                )
                channel.posts[message.root] = top
            top.replies.append(message.ts)
        return message

    def _channel_of(self, event: Mapping[str, Any]) -> Channel:
        identity = str(event["channel"])
        if identity in self.state.channels:
            return self.state.channels[identity]
        kinds: dict[str, Kind] = {"im": "im", "mpim": "mpim", "group": "group"}
        kind = kinds.get(str(event.get("channel_type")), "channel")
        members = [self.app.bot_user]
        if event.get("user") in self.state.users:
            members.append(str(event["user"]))
        return self.add_channel(identity, identity.lower(), members=members, kind=kind)

    def _strange(self, event: Mapping[str, Any]) -> None:
        team = str(event.get("user_team") or event.get("team") or next(iter(self.state.teams)))
        if team not in self.state.teams:
            self.add_team(team)
        user = str(event["user"])
        self.state.add_user(
            User(
                user,
                team,
                user.lower(),
                user.title(),
                bot_id=event.get("bot_id"),
                app=event.get("app_id"),
            )
        )
