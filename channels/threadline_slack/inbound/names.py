"""The names of people, bots and channels, as Slack says them; remembered for an hour."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from threadline.clock import Clock
from threadline_slack.inbound.waits import Limited, Waits
from threadline_slack.words.tokens import clean

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Names", "tidy"]

_REMEMBERED = 5_000
_FRESH, _FRESH_FAILURE = 3_600.0, 300.0  # seconds
_AT_ONCE = 4
_LONGEST = 80


def tidy(name: str) -> str:
    """Return a name on one line, and no longer than names are."""
    return " ".join(clean(name).split())[:_LONGEST]


class Names:
    """Asks Slack who somebody is; what cannot be learned keeps its old name, or has none."""

    def __init__(self, client: AsyncWebClient, waits: Waits) -> None:
        self._client = client
        self._waits = waits
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def of(self, ids: Iterable[str], clock: Clock) -> dict[str, str]:
        """Return the names of users, bots and channels, of those that have one."""
        wanted = [one for one in dict.fromkeys(ids) if one[:1] in tuple("UWBCG")]
        await asyncio.gather(*(self._learn(one, clock) for one in wanted))
        names = {one: self._known.get(one, ("", 0.0))[0] for one in wanted}
        return {one: name for one, name in names.items() if name}

    async def _learn(self, identity: str, clock: Clock) -> None:
        if self._is_fresh(identity, clock):
            return
        async with self._turns:
            if self._is_fresh(identity, clock):
                return
            fresh = _FRESH
            try:
                name = tidy(await self._asked(identity, clock))
            except Exception as error:
                # A name is a nicety: whatever is wrong, the message goes on without it.
                name = self._known.get(identity, ("", 0.0))[0]
                fresh = 0.0 if isinstance(error, Limited) else _FRESH_FAILURE
            self._known[identity] = name, clock.monotonic() + fresh
            self._known.move_to_end(identity)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _is_fresh(self, identity: str, clock: Clock) -> bool:
        return identity in self._known and clock.monotonic() < self._known[identity][1]

    async def _asked(self, identity: str, clock: Clock) -> str:
        call, client = self._waits.call, self._client
        if identity[0] in "UW":
            answer = await call("users.info", clock, lambda: client.users_info(user=identity))
            user = answer["user"]
            profile = user.get("profile") or {}
            names = profile.get("display_name"), user.get("real_name"), user.get("name")
            return next((str(name) for name in names if name), "")
        if identity[0] == "B":
            answer = await call("bots.info", clock, lambda: client.bots_info(bot=identity))
            return str(answer["bot"].get("name") or "")
        answer = await call(
            "conversations.info", clock, lambda: client.conversations_info(channel=identity)
        )
        return str(answer["channel"].get("name") or "")
