"""The bot in each workspace: its client, its own ids, and what it remembers of its workspace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadline import Context
from threadline_slack.config import Config
from threadline_slack.gather import Gatherer, Limits
from threadline_slack.inbound import Me
from threadline_slack.status import Status
from threadline_slack.thread import error_of

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Bot", "Bots"]

_CALL_SECONDS = 30
_HELLO_SECONDS = 10.0


@dataclass(eq=False)
class Bot:
    """The bot of one installation."""

    client: AsyncWebClient
    me: Me
    status: Status
    gatherer: Gatherer


class Bots:
    """Finds the bot of a workspace, between ``open`` and ``close``."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        self._http: aiohttp.ClientSession | None = None
        self._bot: Bot | None = None

    async def open(self, ctx: Context, config: Config) -> None:
        """Begin; while Slack is away the bot's own ids are learned from events."""
        import aiohttp

        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS))
        self._bot = self._made(config.bot_token, config.api_url, self._http)
        await self._hello(ctx, self._bot)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()
        self._http = self._bot = None

    async def of(self, team: str) -> Bot:
        """Return the bot of a workspace; no call to Slack is made for it."""
        if self._bot is None:
            raise RuntimeError("The channel has not been started.")
        return self._bot

    def _made(self, token: str, api_url: str, http: aiohttp.ClientSession) -> Bot:
        from slack_sdk.web.async_client import AsyncWebClient

        client = AsyncWebClient(token, api_url, session=http, retry_handlers=[])
        return Bot(client, Me(), Status(client), Gatherer(client, http, self._limits))

    async def _hello(self, ctx: Context, bot: Bot) -> None:
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                answer = await bot.client.auth_test()
        except Exception as error:
            said = error_of(error) or repr(error)
            ctx.log.error("slack.unknown_bot", error=said, hint="Check the bot's token.")
            return
        bot.me = Me(answer.get("user_id"), answer.get("bot_id"), answer.get("app_id"))
