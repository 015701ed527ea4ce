"""What one installation grants the app: a bot, whose token is refreshed before it expires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import structlog

from threadline.clock import Clock
from threadline_slack.inbound.decide import Me
from threadline_slack.outbound.thread import error_of

if TYPE_CHECKING:
    from slack_sdk.oauth.installation_store import Bot

__all__ = ["Grant", "Key", "Renew", "key_of"]

log = structlog.get_logger("threadline.channel")

Renew = Callable[["Bot"], Awaitable["Bot"]]

Key: TypeAlias = tuple[str | None, str | None]
"""An organisation and a workspace; None for the latter when all of the organisation installed."""

_AHEAD_SECONDS = 7_200.0
_AGAIN_SECONDS = 60.0


def key_of(bot: Bot) -> Key:
    """Return under what a store of installations has a bot."""
    team = None if bot.is_enterprise_install else bot.team_id
    return bot.enterprise_id or None, team or None


class Grant:
    """One installation; ``renew`` returns it with a token that lives longer, and keeps that."""

    def __init__(self, bot: Bot, renew: Renew, clock: Clock) -> None:
        self.bot = bot
        self._renew = renew
        self._clock = clock
        self._renewing: asyncio.Task[None] | None = None
        self._not_before = 0.0

    @property
    def me(self) -> Me:
        """The app's ids there."""
        return Me(self.bot.bot_user_id, self.bot.bot_id, self.bot.app_id)

    @property
    def key(self) -> Key:
        """Which installation it is."""
        return key_of(self.bot)

    async def token(self) -> str:
        """Return the token; it is refreshed once, however many ask, two hours before its end.

        While that fails an old one is good to its end; then what failed is raised.
        """
        left = self._left()
        if left < _AHEAD_SECONDS and (left <= 0 or self._clock.monotonic() >= self._not_before):
            await self._refreshed(left > 0)
        return self.bot.bot_token

    def _left(self) -> float:
        ends = self.bot.bot_token_expires_at
        return float("inf") if ends is None else ends - self._clock.now().timestamp()

    async def _refreshed(self, still_good: bool) -> None:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._refresh())
            self._renewing.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            # A caller who gives up must not lose the only copy of a new token.
            await asyncio.shield(self._renewing)
        except Exception as error:
            if not still_good:
                raise
            self._not_before = self._clock.monotonic() + _AGAIN_SECONDS
            said = error_of(error) or repr(error)
            log.warning("slack.token_not_refreshed", team=self.bot.team_id, error=said)

    async def _refresh(self) -> None:
        try:
            self.bot = await self._renew(self.bot)
        finally:
            self._renewing = None

    async def close(self) -> None:
        """Wait for a refresh that is under way."""
        if self._renewing is not None:
            await asyncio.wait([self._renewing])
