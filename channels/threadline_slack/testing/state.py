"""The workspaces themselves: who and what there is, found by id; no network, no events."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from threadline.clock import Clock
from threadline_slack.testing.model import (
    ALL_SCOPES,
    AgentThread,
    App,
    Channel,
    Install,
    Json,
    Kind,
    Message,
    StoredFile,
    Team,
    User,
    View,
)

__all__ = ["Options", "State"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = 100  # microseconds between two timestamps of one moment


@dataclass(slots=True)
class Options:
    """How this Slack behaves; a test may change it at any time.

    - ``rate_limits``: the documented tiers hold; off, nothing is ever limited.
    - ``history_limit``: calls a minute of ``conversations.history`` and ``.replies``; 1 is what
      apps that are distributed outside the Marketplace have. Counts only with ``rate_limits``.
    - ``retries``: seconds before each retry of an event that was not acknowledged.
    - ``ack_within``: seconds an app has for an answer.
    - ``split_posts_over``: posts with a longer text become several messages, of which one ts is
      returned; None never splits.
    - ``stream_seconds``, ``stream_characters``: how long a stream lives, how much it holds.
    - ``own_events``: an app's own posts come back to it as events, as they do.
    """

    rate_limits: bool = False
    history_limit: int | None = None
    retries: tuple[float, ...] = (0.0, 60.0, 300.0)
    ack_within: float = 3.0
    split_posts_over: int | None = None
    stream_seconds: float = 300.0
    stream_characters: int = 12_000
    own_events: bool = True


@dataclass(slots=True)
class State:
    """All that exists, whatever team it belongs to."""

    clock: Clock
    options: Options = field(default_factory=Options)
    url: str = ""
    teams: dict[str, Team] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    apps: dict[str, App] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    codes: dict[str, Install] = field(default_factory=dict)
    _last: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # Ids and times

    def mint(self, prefix: str) -> str:
        """Return an id that nothing has yet, such as ``F0000000A1``."""
        return f"{prefix}{next(self._numbers):09d}"

    def ts(self) -> str:
        """Return a message timestamp later than any before, as near to now as that allows."""
        now = (self.clock.now() - _EPOCH) // timedelta(microseconds=1)
        self._last = max(now, self._last + _STEP)
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"

    def now(self) -> int:
        """Return the time in seconds of the epoch."""
        return int(self.clock.now().timestamp())

    # Making

    def add_user(self, user: User) -> User:
        """Keep a user; raises ValueError for a team that does not exist or an id that does."""
        if user.team not in self.teams:
            raise ValueError(f"There is no team {user.team!r}; call slack.add_team() first.")
        if user.id in self.users:
            raise ValueError(f"There is a user {user.id!r} already.")
        self.users[user.id] = user
        return user

    def add_channel(self, channel: Channel) -> Channel:
        """Keep a channel; raises ValueError for unknown teams or members, or an id in use."""
        unknown = [team for team in channel.teams if team not in self.teams]
        unknown += [user for user in channel.members if user not in self.users]
        if unknown:
            raise ValueError(f"There is no {', '.join(unknown)}; add teams and users first.")
        if channel.id in self.channels:
            raise ValueError(f"There is a channel {channel.id!r} already.")
        self.channels[channel.id] = channel
        return channel

    def install(
        self,
        app: App,
        *,
        team: str | None,
        enterprise: str | None = None,
        bot_user: str | None = None,
        bot_id: str | None = None,
        token: str | None = None,
        scopes: Iterable[str] = ALL_SCOPES,
        installer: str = "USLACKBOT",
    ) -> Install:
        """Install an app in a team, or with ``team`` None in an organisation."""
        teams = [one for one in self.teams.values() if one.id == team]
        if team is None:
            teams = [one for one in self.teams.values() if one.enterprise == enterprise]
        if not teams:
            raise ValueError(f"There is no team for {team or enterprise!r}; add it first.")
        number = len(app.installs) + 1
        made = Install(
            app,
            team,
            enterprise or teams[0].enterprise,
            bot_user or self.mint("U"),
            bot_id or self.mint("B"),
            token or f"xoxb-{app.id}-{team or enterprise}-{number}",
            set(scopes),
            installer,
        )
        bot = User(made.bot_user, teams[0].id, app.name, app.name, bot_id=made.bot_id, app=app.id)
        self.users.setdefault(bot.id, bot)
        app.installs.append(made)
        return made

    def im(self, *users: str) -> Channel:
        """Return the direct or group conversation of these users; it is made if there is none."""
        wanted = set(users)
        kind: Kind = "im" if len(wanted) <= 2 else "mpim"
        for channel in self.channels.values():
            if channel.kind == kind and set(channel.members) == wanted:
                return channel
        teams = list(dict.fromkeys(self.user(user).team for user in users))
        name = "mpdm-" + "--".join(self.user(user).name for user in users) + "-1"
        made = Channel(
            self.mint("D" if kind == "im" else "G"),
            kind,
            "" if kind == "im" else name,
            teams,
            users[0],
            self.now(),
            dict.fromkeys(users),
        )
        return self.add_channel(made)

    def agent_thread(self, channel: Channel, ts: str, app: str) -> AgentThread:
        """Return what this app has said of a thread; made if it said nothing yet."""
        return channel.threads.setdefault((ts, app), AgentThread(channel.id, ts, app))

    # Finding; all raise LookupError with what to do

    def user(self, identity: str) -> User:
        """Return a user by id."""
        try:
            return self.users[identity]
        except KeyError:
            raise LookupError(f"There is no user {identity!r}; call slack.add_user().") from None

    def channel(self, identity: str) -> Channel:
        """Return a channel by id, or by name with or without ``#``."""
        if identity in self.channels:
            return self.channels[identity]
        name = identity.removeprefix("#")
        for channel in self.channels.values():
            if channel.name and channel.name == name:
                return channel
        raise LookupError(f"There is no channel {identity!r}; call slack.add_channel().")

    def app(self, identity: str) -> App:
        """Return an app by id."""
        try:
            return self.apps[identity]
        except KeyError:
            raise LookupError(f"There is no app {identity!r}; call slack.add_app().") from None

    def message(self, ts: str, channel: str | None = None) -> Message:
        """Return a message that is there, by its timestamp; ephemeral ones too."""
        where = [self.channel(channel)] if channel else list(self.channels.values())
        for one in where:
            if ts in one.posts:
                return one.posts[ts]
            for message in one.ephemeral:
                if message.ts == ts and not message.deleted:
                    return message
        raise LookupError(f"There is no message {ts} (any more); see slack.messages(channel).")

    def expire(self, message: Message) -> None:
        """End a stream that has lived too long."""
        stream = message.stream
        if stream is not None and stream.state == "in_progress":
            lived = self.clock.monotonic() - stream.opened
            if lived > self.options.stream_seconds:
                stream.state = "errored"

    def root(self, message: Message) -> Message | None:
        """Return the root of a reply's thread, if it is still there."""
        return self.channels[message.channel].posts.get(message.root or "")

    def installs(self) -> Iterator[Install]:
        """Yield every installation that has not been revoked."""
        for app in self.apps.values():
            yield from (one for one in app.installs if not one.revoked)

    def by_token(self, token: str) -> Install | None:
        """Return the installation of a bot token, a revoked one too."""
        for app in self.apps.values():
            for one in app.installs:
                if one.token == token:
                    return one
        return None

    def installed(self, app: App, user: User) -> Install:
        """Return the installation that serves a user: their team's, else the first one."""
        for one in app.installs:
            if not one.revoked and self.in_reach(one, user.team):
                return one
        return app.install

    def in_reach(self, install: Install, team: str) -> bool:
        """Whether an installation is for this team."""
        if install.team is not None:
            return install.team == team
        return self.teams[team].enterprise == install.enterprise

    def sees(self, install: Install, channel: Channel) -> bool:
        """Whether an app knows of a channel: it is public in its team, or the bot is a member."""
        if not any(self.in_reach(install, team) for team in channel.teams):
            return False
        return not channel.private or install.bot_user in channel.members
