"""The bot in each workspace: its client, its own ids, and what it remembers of its workspace."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from threadline import Context
from threadline.errors import ProjectError, ThreadlineError
from threadline_slack.client import workspace_client
from threadline_slack.config import Config
from threadline_slack.inbound.decide import Me, Place
from threadline_slack.inbound.gather import Gatherer, Limits
from threadline_slack.installing.sealing import WrongKey
from threadline_slack.installing.shared import author_team, is_meant, through
from threadline_slack.installing.workspaces import Where, Workspaces, where_of
from threadline_slack.outbound.deleted import Deleted
from threadline_slack.outbound.status import Status
from threadline_slack.outbound.thread import Thread, error_of

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Bot", "Bots"]

_CALL_SECONDS = 30
_HELLO_SECONDS = 10.0
_MANY = 2_000
_STRANGE_SECONDS = 60.0
_ONE = (
    "SlackChannel(installations=…) is for many workspaces, and SLACK_BOT_TOKEN for one. Set "
    "SLACK_CLIENT_ID and SLACK_CLIENT_SECRET instead of it."
)
_REVOCATIONS = ("app_uninstalled", "tokens_revoked")


@dataclass(eq=False)
class Bot:
    """The bot of one installation."""

    client: AsyncWebClient
    me: Me
    status: Status
    gatherer: Gatherer
    deleted: Deleted = field(default_factory=Deleted)

    def thread(self, place: Place) -> Thread:
        """Return the place to post to."""
        return Thread(self.client, place, self.deleted)


class Bots:
    """Finds the bot of a workspace, between ``open`` and ``close``.

    With a bot token there is one, whatever the workspace; else ``workspaces`` has who installed the
    app. ``store`` is where they are kept, None for what the configuration says.
    """

    def __init__(
        self, limits: Limits | None = None, store: AsyncInstallationStore | None = None
    ) -> None:
        self.workspaces: Workspaces | None = None
        self._limits = limits
        self._store = store
        self._http: aiohttp.ClientSession | None = None
        self._api_url = ""
        self._bot: Bot | None = None
        self._bots: OrderedDict[str, Bot] = OrderedDict()
        self._strangers: dict[str, float] = {}

    async def open(self, ctx: Context, config: Config) -> None:
        """Begin; while Slack is away the bot's own ids are learned from events.

        Raises ProjectError when the installations cannot be opened.
        """
        import aiohttp

        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_SECONDS))
        self._api_url = config.api_url
        if config.oauth is not None:
            self.workspaces = await Workspaces.opened(
                ctx, config.oauth, self._api_url, self._http, self._store
            )
        elif self._store is not None:
            raise ProjectError([_ONE])
        else:
            self._bot = self._made_by_token(config.bot_token)
            await self._hello(ctx, self._bot)

    async def close(self) -> None:
        """Close the connections."""
        if self.workspaces is not None:
            await self.workspaces.close()
        if self._http is not None:
            await self._http.close()
        self._bots.clear()
        self._http = self._bot = self.workspaces = None

    async def of(self, team: str) -> Bot:
        """Return the bot of a workspace; no call to Slack is made for it.

        Where the app is not installed each call of the bot's client raises NotInstalled.
        """
        if self._bot is not None:
            return self._bot
        if self.workspaces is None:
            raise RuntimeError("The channel has not been started.")
        bot = self._bots.get(team) or self._made(team, self.workspaces)
        self._bots.move_to_end(team)
        try:
            grant = await self.workspaces.find(Where(team))
        except ThreadlineError:
            return bot  # its calls say why
        if grant is not None:
            bot.me = grant.me
            bot.client.token = grant.bot.bot_token
        return bot

    async def hears(self, ctx: Context, payload: Mapping[str, Any]) -> bool:
        """Tell whether a payload is for a bot of ours; no call to Slack is made for it.

        What somebody pressed always is: in a channel that others share it may name their workspace.
        Raises TryAgain when the installations cannot be read now.
        """
        where = where_of(payload)
        if self.workspaces is None or where is None:
            return True
        try:
            found = await self.workspaces.find(where) is not None
        except WrongKey as error:
            ctx.log.error("slack.wrong_key", team=where.team, error=error.message)
            found = False
        else:
            if not found:
                ctx.log.warning("slack.not_installed", team=where.team, enterprise=where.enterprise)
        return found or "user" in payload

    async def meant(
        self, ctx: Context, envelope: Mapping[str, Any], joined: Callable[[str], bool]
    ) -> Mapping[str, Any]:
        """Return an event as it is for the bot that is meant, in a channel that others share."""
        author = author_team(envelope)
        if self.workspaces is None or author is None:
            return envelope
        now = ctx.clock.monotonic()
        if now < self._strangers.get(author, now):
            return envelope
        try:
            grant = await self.workspaces.find(Where(author))
        except ThreadlineError:
            return envelope
        if grant is None:
            # Not at each of their posts: what is waited for here may change the order.
            self._strangers[author] = now + _STRANGE_SECONDS
            while len(self._strangers) > _MANY:
                self._strangers.pop(next(iter(self._strangers)))
            return envelope
        own = through(envelope, grant)
        return own if is_meant(own, grant, joined) else envelope

    def told(self, ctx: Context, envelope: Mapping[str, Any]) -> bool:
        """Take an event that says that tokens were revoked, or the app removed; else False."""
        event = envelope.get("event")
        kind = event.get("type") if isinstance(event, dict) else None
        if kind not in _REVOCATIONS:
            return False
        where = where_of(envelope)
        if self.workspaces is not None and where is not None:
            ctx.defer(self.workspaces.revoked(where))
        else:
            ctx.log.error("slack.revoked", kind=kind, hint="Install the app again.")
        return True

    def _made(self, team: str, workspaces: Workspaces) -> Bot:
        """Return a bot whose client looks up its token before each call."""

        async def prepare(client: AsyncWebClient) -> None:
            grant = await workspaces.grant(team)
            client.token = await grant.token()
            # A token of a whole organisation does not say which workspace is meant.
            whole = grant.key[1] is None and not team.startswith("E")
            client.default_params = {"team_id": team} if whole else {}

        assert self._http is not None
        bot = self._with(workspace_client(self._api_url, self._http, prepare))
        self._bots[team] = bot
        while len(self._bots) > _MANY:
            self._bots.popitem(last=False)
        return bot

    def _made_by_token(self, token: str | None) -> Bot:
        from slack_sdk.web.async_client import AsyncWebClient

        return self._with(
            AsyncWebClient(token, self._api_url, session=self._http, retry_handlers=[])
        )

    def _with(self, client: AsyncWebClient) -> Bot:
        assert self._http is not None
        gatherer = Gatherer(client, self._http, self._limits)
        deleted = Deleted(looks=self.workspaces is None)
        return Bot(client, Me(), Status(client), gatherer, deleted)

    async def _hello(self, ctx: Context, bot: Bot) -> None:
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                answer = await bot.client.auth_test()
        except Exception as error:
            said = error_of(error) or repr(error)
            ctx.log.error("slack.unknown_bot", error=said, hint="Check the bot's token.")
            return
        bot.me = Me(answer.get("user_id"), answer.get("bot_id"), answer.get("app_id"))
