"""The table of Web API methods, and what each of them is given."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from threadline_slack.testing.activity import Activity, Author
from threadline_slack.testing.events import Publisher
from threadline_slack.testing.model import App, Channel, Install, Json, User
from threadline_slack.testing.refusal import Refusal, invalid
from threadline_slack.testing.sockets import Sockets
from threadline_slack.testing.state import State
from threadline_slack.testing.uploads import Uploads
from threadline_slack.testing.views import Views

__all__ = ["METHODS", "Ask", "Desk", "Method", "method"]

T = TypeVar("T")

_TRUE = (True, "true", "1", 1)


@dataclass(slots=True)
class Desk:
    """What methods work with."""

    state: State
    activity: Activity
    publisher: Publisher
    views: Views
    sockets: Sockets
    uploads: Uploads


@dataclass(slots=True)
class Ask:
    """One call: its arguments, and who calls. ``forced_ts`` is the ts a test wants given."""

    desk: Desk
    args: Json
    token: str | None
    app: App | None
    installed: Install | None
    forced_ts: str | None = None
    basic: tuple[str, str] | None = None

    @property
    def state(self) -> State:
        """The workspaces."""
        return self.desk.state

    @property
    def install(self) -> Install:
        """The installation whose bot token this is."""
        if self.installed is None:
            raise Refusal("not_allowed_token_type")
        return self.installed

    @property
    def team(self) -> str:
        """The team the call is about: the token's, or the one an org-wide app names."""
        team = self.install.team or self.args.get("team_id")
        if team is None:
            raise invalid("missing required field: team_id", error="missing_argument")
        if team not in self.state.teams:
            raise Refusal("team_not_found")
        return str(team)

    # Arguments

    def text(self, name: str, default: str = "") -> str:
        """Return a text argument."""
        value = self.args.get(name)
        return default if value is None else str(value)

    def need(self, name: str) -> str:
        """Return a text argument that has to be there."""
        if self.args.get(name) in (None, ""):
            raise invalid(f"missing required field: {name}")
        return str(self.args[name])

    def maybe(self, name: str) -> str | None:
        """Return a text argument, None when it is missing or empty."""
        return self.text(name) or None

    def flag(self, name: str) -> bool:
        """Return a boolean argument."""
        return self.args.get(name) in _TRUE

    def number(self, name: str, default: int) -> int:
        """Return a whole number."""
        try:
            return int(self.args.get(name) or default)
        except (TypeError, ValueError):
            raise invalid(f"must be a valid integer [json-pointer:/{name}]") from None

    def value(self, name: str, error: str = "invalid_arguments") -> Any:
        """Return an argument that is JSON, decoded if it came as text; None when it is missing."""
        value = self.args.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            raise Refusal(error) from None

    # What arguments name

    def channel(self, name: str = "channel", *, open_im: bool = False) -> Channel:
        """Return the conversation an argument names, if the app can see it."""
        identity = self.need(name)
        if open_im and identity in self.state.users:
            return self.state.im(self.install.bot_user, identity)
        try:
            channel = self.state.channel(identity)
        except LookupError:
            raise Refusal("channel_not_found") from None
        if not self.state.sees(self.install, channel):
            raise Refusal("channel_not_found")
        return channel

    def user(self, name: str = "user") -> User:
        """Return the user an argument names."""
        user = self.state.users.get(self.need(name))
        if user is None:
            raise Refusal("user_not_found")
        return user

    def bot(self) -> Author:
        """Return the calling app's bot as an author."""
        team = self.install.team
        if team is None:
            team = self.state.users[self.install.bot_user].team
        return Author.bot(self.install, team)

    def require(self, *scopes: str) -> None:
        """Refuse unless the token has one of these scopes."""
        have = self.install.scopes
        if scopes and not any(scope in have for scope in scopes):
            raise Refusal("missing_scope", needed=scopes[0], provided=",".join(sorted(have)))

    def page(
        self, items: Sequence[T], default: int, most: int = 1_000
    ) -> tuple[list[T], dict[str, str]]:
        """Return one page of items and the ``response_metadata`` that leads to the next."""
        limit = self.number("limit", default)
        if not 1 <= limit <= most:
            raise Refusal("invalid_limit")
        start = 0
        if cursor := self.text("cursor"):
            try:
                start = int(base64.b64decode(cursor, validate=True).removeprefix(b"next:"))
            except ValueError:
                raise Refusal("invalid_cursor") from None
        following = ""
        if start + limit < len(items):
            following = base64.b64encode(f"next:{start + limit}".encode()).decode()
        return list(items[start : start + limit]), {"next_cursor": following}


Answering: TypeAlias = Callable[[Ask], Json]


@dataclass(frozen=True, slots=True)
class Method:
    """A row: ``scopes`` are those of which a token needs one, ``tier`` its rate limit.

    ``token`` is what kind it takes: of a bot, of an app (for sockets), or none.
    """

    name: str
    answer: Answering
    scopes: tuple[str, ...]
    tier: int
    token: str = "bot"


METHODS: dict[str, Method] = {}
"""Every method there is, by name."""


def method(
    name: str,
    *scopes: str,
    tier: int = 3,
    token: str = "bot",
) -> Callable[[Answering], Answering]:
    """Enter a function in the table of methods."""

    def enter(function: Answering) -> Answering:
        METHODS[name] = Method(name, function, scopes, tier, token)
        return function

    return enter
