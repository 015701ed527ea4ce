"""How often bots spoke in a conversation since a person did, so that they do not go on for ever."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from threadline import Session
from threadline_slack.inbound.decide import Ask

__all__ = ["Streaks"]

_MANY = 10_000
_CHANGES = 20  # of one alert


class Streaks:
    """Counts in memory; for conversations of an earlier process their logs are read.

    ``most`` is how many posts of bots are heard in a row. The first post of an alert's thread does
    not count, and each post may be changed so and so often besides.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[str, Counter[str]] = OrderedDict()

    async def heeds(self, ask: Ask, session: Session | None) -> bool:
        """Tell whether a post is heard, and count it; a person's is, and ends the streak."""
        if not ask.person.bot:
            self._keep(ask.place.token, Counter())
            return True
        if ask.opens:
            return True
        if ask.place.token not in self._known:
            self._keep(ask.place.token, await _read(session) if session is not None else Counter())
        most, streak = _CHANGES if ask.change else self._most, self._known[ask.place.token]
        if streak[_name(ask)] >= most:
            return False
        streak[_name(ask)] += 1
        return True

    def take_back(self, ask: Ask) -> None:
        """Forget a post that was heard, as it was not accepted or was known."""
        streak = self._known.get(ask.place.token, Counter())
        if ask.person.bot and not ask.opens and streak[_name(ask)] > 0:
            streak[_name(ask)] -= 1

    def _keep(self, token: str, streak: Counter[str]) -> None:
        self._known[token] = streak
        self._known.move_to_end(token)
        while len(self._known) > _MANY:
            self._known.popitem(last=False)


def _name(ask: Ask) -> str:
    return ask.ts if ask.change else ""


async def _read(session: Session) -> Counter[str]:
    """Return what the log says; in a digest it counts every post, since all stand in one row."""
    streak: Counter[str] = Counter()
    token = session.continuation_token or ""
    async for event in session.recorded("message.received", "nudge.delivered"):
        for identity, sender in _spoken(event):
            # A post's name is team, channel and ts; that of a change has one more part.
            _, _, ts, *change = [*identity.split(":", 3), "", ""][:4]
            if not (sender.get("attributes") or {}).get("bot"):
                streak.clear()
            elif any(change) or not token.endswith(f":{ts}"):
                streak[ts if any(change) else ""] += 1
    return streak


def _spoken(event: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the deliveries that an event gave to the model, with who sent each."""
    data = event["data"]
    told = [data] if event["type"] == "nudge.delivered" else data.get("parts") or []
    for one in told:
        yield str(one.get("deliveryId")), one.get("sender") or {}
