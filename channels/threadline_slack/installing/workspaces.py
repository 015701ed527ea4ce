"""Which installation serves a workspace: its own, or that of its organisation."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from threadline import Context, TryAgain
from threadline.errors import ProjectError, ThreadlineError
from threadline_slack.client import app_client
from threadline_slack.config import OAuth
from threadline_slack.inbound.decide import team_of
from threadline_slack.installing.grants import Grant, Key, key_of
from threadline_slack.installing.installs import KeptStore, store_at
from threadline_slack.installing.sealing import Seal, SealedStore, WrongKey
from threadline_slack.outbound.thread import error_of

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.oauth.installation_store import Bot, Installation
    from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
    from slack_sdk.web.async_client import AsyncWebClient
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["NotInstalled", "Where", "Workspaces", "where_of"]

_MANY = 10_000


class NotInstalled(ThreadlineError):
    """The app is not installed in a workspace, or not any more."""

    code = "slack_not_installed"
    status = 410


@dataclass(frozen=True, slots=True)
class Where:
    """A workspace, or an organisation's id in its place; ``enterprise`` is its organisation."""

    team: str
    enterprise: str | None = None

    @property
    def keys(self) -> list[Key]:
        """Where its installation may be, in this order: its own comes before its organisation's.

        Its own may be without the organisation, from before it joined that.
        """
        if self.team.startswith("E"):
            return [(self.team, None)]
        alone: Key = None, self.team
        if self.enterprise is None:
            return [alone]
        return [(self.enterprise, self.team), alone, (self.enterprise, None)]


def where_of(payload: Mapping[str, Any]) -> Where | None:
    """Return the workspace that a payload of any kind came through; None when it names none."""
    team = _team(payload)
    return Where(team, _enterprise(payload)) if _is_id(team) else None


def _team(payload: Mapping[str, Any]) -> str:
    if payload.get("type") == "event_callback":
        return team_of(payload)
    message = _part(payload, "message")
    own = message.get("app_id") and message.get("app_id") == payload.get("api_app_id")
    found = (
        _part(payload, "view").get("app_installed_team_id"),
        message.get("team") if own else None,
        _part(payload, "team").get("id"),
        _part(payload, "user").get("team_id"),
        payload.get("team_id"),
    )
    return next((one for one in found if isinstance(one, str) and one), "")


def _enterprise(payload: Mapping[str, Any]) -> str | None:
    authorized = payload.get("authorizations")
    own = authorized[0] if isinstance(authorized, list) and authorized else {}
    # The last of them is the author's, and they may be of another organisation.
    ours = not payload.get("is_ext_shared_channel")
    found = (
        own.get("enterprise_id") if isinstance(own, dict) else None,
        payload.get("context_enterprise_id"),
        _part(payload, "enterprise").get("id"),
        _part(payload, "team").get("enterprise_id"),
        payload.get("enterprise_id") if ours else None,
    )
    return next((one for one in found if _is_id(one)), None)


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isalnum()


class Workspaces:
    """Finds installations, and remembers them; keeps what is new and forgets what is gone.

    ``app`` makes the calls by which tokens are refreshed. Which organisation a workspace is in is
    kept in the channel's values, since a conversation's token does not say it.
    """

    def __init__(
        self,
        ctx: Context,
        oauth: OAuth,
        store: SealedStore,
        app: AsyncWebClient,
        engine: AsyncEngine | None = None,
    ) -> None:
        self.oauth = oauth
        self.app = app
        self._ctx = ctx
        self._store = store
        self._engine = engine
        self._grants: dict[Key, Grant] = {}
        self._serving: OrderedDict[str, Grant] = OrderedDict()
        self._revoking = asyncio.Lock()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    async def opened(
        cls,
        ctx: Context,
        oauth: OAuth,
        api_url: str,
        http: aiohttp.ClientSession,
        given: AsyncInstallationStore | None = None,
    ) -> Workspaces:
        """Open the store, the given one or that of the configuration; raises ProjectError."""
        name = f"{oauth.prefix}SLACK_ENCRYPTION_KEY"
        try:
            seal = Seal(oauth.keys, name)
            await _check(ctx, seal)
        except ImportError:
            raise ProjectError(
                ["OAuth needs cryptography: pip install 'threadline[slack]'"]
            ) from None
        except WrongKey as error:
            raise ProjectError([error.message]) from None
        store, engine = given, None
        if store is None and oauth.installations is not None:
            variable = f"{oauth.prefix}SLACK_INSTALLATIONS"
            store, engine = await store_at(oauth.installations, oauth.client_id, variable)
        kept = store or cast("AsyncInstallationStore", KeptStore(ctx.kv, oauth.client_id))
        return cls(ctx, oauth, SealedStore(kept, seal), app_client(api_url, http), engine)

    async def close(self) -> None:
        """Wait for the refreshes that are under way, and close what was opened."""
        await asyncio.gather(*(grant.close() for grant in self._grants.values()))
        if self._engine is not None:
            await self._engine.dispose()

    async def find(self, where: Where) -> Grant | None:
        """Return the installation that serves a workspace; None when there is none.

        For one that is known nothing is waited for, and callers go on in the order in which they
        came. Raises WrongKey, and TryAgain when the store cannot be read now.
        """
        lock = self._locks.setdefault(where.team, asyncio.Lock())
        async with lock:
            grant = self._serving.get(where.team)
            if grant is None:
                grant = await self._looked_up(where)
            if grant is not None:
                self._serving[where.team] = grant
                self._serving.move_to_end(where.team)
                while len(self._serving) > _MANY:
                    self._serving.popitem(last=False)
            return grant

    async def grant(self, team: str) -> Grant:
        """Return the installation that serves a workspace; raises NotInstalled too."""
        found = await self.find(Where(team))
        if found is None:
            raise NotInstalled(
                f"The app is not installed in the workspace {team} (any more). It is installed at "
                f"{self._ctx.url(f'/v1/channels/{self._ctx.channel}/install')}."
            )
        return found

    async def _looked_up(self, where: Where) -> Grant | None:
        name = f"enterprise/{where.team}"
        kept = await self._ctx.kv.get(name)
        if where.enterprise is None and isinstance(kept, str):
            where = Where(where.team, kept)
        for key in where.keys:
            if (grant := await self._granted(key)) is not None:
                if key[0] not in (None, kept) and key[0] != where.team:
                    await self._ctx.kv.put(name, key[0])
                return grant
        return None

    async def _granted(self, key: Key) -> Grant | None:
        if key not in self._grants:
            bot = await self._stored(key)
            if bot is None or not bot.bot_token:
                return None
            self._grants.setdefault(key, Grant(bot, self._renew, self._ctx.clock))
        return self._grants[key]

    async def _stored(self, key: Key) -> Bot | None:
        enterprise, team = key
        try:
            return await self._store.async_find_bot(
                enterprise_id=enterprise, team_id=team, is_enterprise_install=team is None
            )
        except ThreadlineError:
            raise
        except Exception as error:
            said = type(error).__name__
            raise TryAgain(f"Installations cannot be read now: {said}.", sent=False) from error

    # Changes

    async def async_save(self, installation: Installation) -> None:
        """Keep an installation; Bolt calls it when somebody has installed the app."""
        await self._store.async_save(installation)
        grant = Grant(installation.to_bot(), self._renew, self._ctx.clock)
        enterprise, team = grant.key
        if enterprise and team:
            await self._ctx.kv.put(f"enterprise/{team}", enterprise)
        self._grants[grant.key] = grant
        self._serving.clear()
        self._ctx.log.info("slack.installed", team=team, enterprise=enterprise)

    async def revoked(self, where: Where) -> None:
        """Forget an installation, when Slack does not take its token any more.

        Slack is asked, since its word may be late: the app may be installed again by now.
        """
        async with self._revoking:
            grant = await self.find(where)
            why = None if grant is None else await self._refused(grant)
            if grant is None or self._grants.get(grant.key) is not grant:
                return
            enterprise, team = grant.key
            if why is None:
                self._ctx.log.info("slack.installation_kept", team=team, enterprise=enterprise)
                return
            await self._store.async_delete_all(enterprise_id=enterprise, team_id=team)
            self._grants.pop(grant.key, None)
            self._serving.clear()
        self._ctx.log.warning("slack.uninstalled", team=team, enterprise=enterprise, error=why)

    async def _refused(self, grant: Grant) -> str | None:
        """Return why Slack does not take a token; None when it does, or could not be asked."""
        try:
            await self.app.auth_test(token=await grant.token())
        except Exception as error:
            return said if (said := error_of(error)) in _DEAD else None
        return None

    async def _renew(self, bot: Bot) -> Bot:
        """Return a bot with a new token, from Slack or as another host has kept it by now."""
        from slack_sdk.errors import SlackTokenRotationError
        from slack_sdk.oauth.token_rotation.async_rotator import AsyncTokenRotator

        key = key_of(bot)
        kept = await self._stored(key)
        if kept is not None and kept.bot_token != bot.bot_token:
            return kept
        rotator = AsyncTokenRotator(
            client_id=self.oauth.client_id,
            client_secret=self.oauth.client_secret,
            client=self.app,
        )
        try:
            made = await rotator.perform_bot_token_rotation(
                bot=bot, minutes_before_expiration=_WHENEVER
            )
        except SlackTokenRotationError as error:
            raise error.api_error from None
        if made is None:
            return bot
        grant = self._grants.get(key)
        if grant is not None and grant.bot is bot:  # else it was installed again, or removed
            await self._store.async_save_bot(made)
            self._ctx.log.info("slack.token_refreshed", enterprise=key[0], team=key[1])
        return made


async def _check(ctx: Context, seal: Seal) -> None:
    """See at the start whether the keys are those that were used before; raises WrongKey."""
    kept = await ctx.kv.get("sealed")
    if isinstance(kept, str):
        seal.open(kept)
        if seal.is_current(kept):
            return
    await ctx.kv.put("sealed", seal.close("threadline"))


_WHENEVER = 1_000_000_000  # minutes; when to refresh is decided by the host's clock
_DEAD = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "invalid_refresh_token",
        "token_expired",
        "token_revoked",
    }
)
