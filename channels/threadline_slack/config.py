"""What a bot needs to know of its workspace, by environment, as Slack's own tools name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from threadline.errors import ProjectError

__all__ = ["API_URL", "Config"]

API_URL = "https://slack.com/api/"
_NAMES = "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_API_URL"


@dataclass(frozen=True, slots=True)
class Config:
    """The bot's tokens and secret; ``api_url`` ends in a slash.

    With an app token events come by Socket Mode, with a signing secret by HTTP.
    """

    bot_token: str = field(repr=False)
    app_token: str | None = field(default=None, repr=False)
    signing_secret: str | None = field(default=None, repr=False)
    api_url: str = API_URL

    @classmethod
    def read(cls, environ: Mapping[str, str], prefix: str = "") -> Config:
        """Read the variables, each with the prefix of this bot; raises ProjectError."""
        bot, app, secret, url = (environ.get(prefix + name, "").strip() for name in _NAMES)
        names = [prefix + name for name in _NAMES]
        problems = []
        if not bot:
            problems.append(f"{names[0]} is not set. It is the bot's token, and begins with xoxb-.")
        elif bot.startswith("xapp-"):
            problems.append(f"{names[0]} holds an app token. The bot's begins with xoxb-.")
        if app and not app.startswith("xapp-"):
            problems.append(f"{names[1]} is no app token. One begins with xapp-.")
        if not app and not secret:
            problems.append(
                f"Neither {names[2]} nor {names[1]} is set. Set the first to receive events by "
                "HTTP, or the second for Socket Mode; without either no event could be trusted."
            )
        if url and not url.startswith(("https://", "http://")):
            problems.append(f"{names[3]} is no address: {url!r}.")
        if problems:
            raise ProjectError(problems)
        return cls(bot, app or None, secret or None, url.rstrip("/") + "/" if url else API_URL)
