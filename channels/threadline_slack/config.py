"""What a bot needs to know of its workspace, by environment, as Slack's own tools name it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from threadline.errors import ProjectError

__all__ = ["API_URL", "MAKE_KEY", "Config", "OAuth"]

API_URL = "https://slack.com/api/"
MAKE_KEY = (
    'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'
)
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class OAuth:
    """How many workspaces install the app, and where that is kept.

    ``keys`` encrypt the tokens: the first one what is written, each of them what is read.
    ``installations`` is a folder or a database's address; None is the host's own store. ``prefix``
    is that of the variables, for errors.
    """

    client_id: str
    client_secret: str = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    installations: str | None = field(default=None, repr=False)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """The bot's tokens and secrets; ``api_url`` ends in a slash.

    With ``bot_token`` the bot serves one workspace, with ``oauth`` those that install it. With an
    app token events come by Socket Mode, with a signing secret by HTTP.
    """

    bot_token: str | None = field(default=None, repr=False)
    app_token: str | None = field(default=None, repr=False)
    signing_secret: str | None = field(default=None, repr=False)
    api_url: str = API_URL
    oauth: OAuth | None = None

    @classmethod
    def read(cls, environ: Mapping[str, str], prefix: str = "") -> Config:
        """Read the variables, each with the prefix of this bot; raises ProjectError."""
        given = _Variables(environ, prefix)
        bot, app, secret = given["BOT_TOKEN"], given["APP_TOKEN"], given["SIGNING_SECRET"]
        url = given["API_URL"]
        problems = [*_identity(given), *_transport(given)]
        if url and not url.startswith(("https://", "http://")):
            problems.append(f"{given.name('API_URL')} is no address: {url!r}.")
        if problems:
            raise ProjectError(problems)
        return cls(
            bot or None,
            app or None,
            secret or None,
            url.rstrip("/") + "/" if url else API_URL,
            None if bot else _oauth(given),
        )


class _Variables:
    """The variables of one bot, by what follows ``SLACK_``; empty when they are not set."""

    def __init__(self, environ: Mapping[str, str], prefix: str) -> None:
        self._environ = environ
        self.prefix = prefix

    def name(self, short: str) -> str:
        return f"{self.prefix}SLACK_{short}"

    def __getitem__(self, short: str) -> str:
        return self._environ.get(self.name(short), "").strip()


def _oauth(given: _Variables) -> OAuth:
    return OAuth(
        given["CLIENT_ID"],
        given["CLIENT_SECRET"],
        _keys(given),
        given["INSTALLATIONS"] or None,
        given.prefix,
    )


def _keys(given: _Variables) -> tuple[str, ...]:
    return tuple(given["ENCRYPTION_KEY"].replace(",", " ").split())


def _identity(given: _Variables) -> list[str]:
    """Return what is wrong with whom the bot is: one workspace's, or any that installs it."""
    token, one, other = map(given.name, ("BOT_TOKEN", "CLIENT_ID", "CLIENT_SECRET"))
    bot, client, secret = given["BOT_TOKEN"], given["CLIENT_ID"], given["CLIENT_SECRET"]
    if bot and (client or secret):
        return [
            f"{token} and {one if client else other} are both set. The first serves one "
            f"workspace; {one} and {other} serve every workspace that installs the app. Unset "
            "the one or the others."
        ]
    if bot:
        found = bot.startswith("xapp-")
        return [f"{token} holds an app token. The bot's begins with xoxb-."] if found else []
    if not client and not secret:
        return [
            f"{token} is not set. It is the bot's token, and begins with xoxb-. For more than one "
            f"workspace set {one} and {other} instead."
        ]
    missing = [name for name, value in ((one, client), (other, secret)) if not value]
    problems = [f"{name} is not set. Both are on the app's Basic Information." for name in missing]
    return [*problems, *_encryption(given)]


def _encryption(given: _Variables) -> list[str]:
    name, keys = given.name("ENCRYPTION_KEY"), _keys(given)
    if not keys:
        return [f"{name} is not set. It encrypts the tokens of installations; make one: {MAKE_KEY}"]
    if not all(map(_is_key, keys)):
        return [f"{name} holds what is no key. Make one: {MAKE_KEY}"]
    return []


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, altchars=b"-_", validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _transport(given: _Variables) -> list[str]:
    """Return what is wrong with how events come."""
    app, name = given["APP_TOKEN"], given.name("APP_TOKEN")
    if app and not app.startswith("xapp-"):
        return [f"{name} is no app token. One begins with xapp-."]
    if not app and not given["SIGNING_SECRET"]:
        return [
            f"Neither {given.name('SIGNING_SECRET')} nor {name} is set. Set the first to receive "
            "events by HTTP, or the second for Socket Mode; without either no event could be "
            "trusted."
        ]
    return []
