"""What belongs to a message, fetched after it is accepted: names, what was said before, files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from threadline import Prepared, Session
from threadline.clock import Clock
from threadline_slack.inbound.backfill import Backfill
from threadline_slack.inbound.decide import Ask, Me, Place
from threadline_slack.inbound.downloads import Downloads, Limits
from threadline_slack.inbound.names import Names
from threadline_slack.inbound.waits import Waits
from threadline_slack.words.text import File

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Gatherer", "Limits", "metadata"]

_SECONDS = 17.0  # of the 20 that a message may wait; what is there by then goes along


def metadata(ask: Ask) -> dict[str, Any]:
    """Return what ``Gatherer`` needs to know of a message, as a delivery keeps it."""
    more = {
        "name": ask.person.name,
        "watch": ask.watch is not None,
        "change": bool(ask.change),
        "digest": ask.digest,
    }
    return {
        "token": ask.place.token,
        "ts": ask.ts,
        "user": ask.person.user,
        "users": list(ask.said.users),
        "channels": list(ask.said.channels),
        "files": [
            {
                "id": file.id,
                "name": file.name,
                "mimetype": file.mimetype,
                "size": file.size,
                "url": file.url,
                "access": file.access,
                "kind": file.kind,
            }
            for file in ask.files
        ],
    } | {key: value for key, value in more.items() if value}


class Gatherer:
    """Reads Slack for one bot."""

    def __init__(
        self, client: AsyncWebClient, http: aiohttp.ClientSession, limits: Limits | None = None
    ) -> None:
        limits, waits = limits or Limits(), Waits()
        self.names = Names(client, waits)
        self.backfill = Backfill(client, waits, self.names, limits.earlier)
        self._downloads = Downloads(client, http, waits, limits)

    async def gather(
        self,
        known: Mapping[str, Any],
        me: Me,
        clock: Clock,
        session: Session | None,
        *,
        heard: bool,
    ) -> Prepared:
        """Return the context and files of a message, by what ``metadata`` kept of it.

        ``heard`` tells that every post of its thread comes as an event. What cannot be had in time
        is left out, and the context says so.
        """
        place, ts = Place.of(str(known["token"])), str(known["ts"])
        files = [File(**file) for file in known.get("files", ())]
        who = asyncio.ensure_future(self._who(place, known, clock))
        before = asyncio.ensure_future(self._before(known, place, ts, me, clock, session, heard))
        fetched = asyncio.ensure_future(self._downloads.fetch(files, clock))
        await _until(clock, who, before, fetched)
        said = who.result() if who.done() else _from(known, {}, place)
        earlier = before.result() if before.done() else "(What was said earlier came too late.)"
        got, listing = fetched.result() if fetched.done() else ({}, _late(files))
        return Prepared(context=[part for part in (said, earlier, listing) if part], files=got)

    async def _before(
        self,
        known: Mapping[str, Any],
        place: Place,
        ts: str,
        me: Me,
        clock: Clock,
        session: Session | None,
        heard: bool,
    ) -> str:
        if known.get("digest"):
            return ""
        return await self.backfill.before(place, ts, me, clock, session, heard=heard)

    async def _who(self, place: Place, known: Mapping[str, Any], clock: Clock) -> str:
        if known.get("digest"):
            return ""
        ids = [str(known["user"]), *known.get("users", ()), *known.get("channels", ())]
        return _from(known, await self.names.of([*ids, place.channel], clock), place)


async def _until(clock: Clock, *work: asyncio.Future[Any]) -> None:
    """Wait for all, but no longer than there is time; what is late is cancelled."""
    late = asyncio.ensure_future(clock.sleep(_SECONDS))
    everything = asyncio.ensure_future(asyncio.wait(work))
    try:
        await asyncio.wait([everything, late], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (*work, everything, late):
            one.cancel()


def _late(files: Sequence[File]) -> str:
    names = ", ".join(file.name for file in files)
    return f"(The files of this message came too late: {names}.)" if files else ""


def _from(known: Mapping[str, Any], names: Mapping[str, str], place: Place) -> str:
    """Return who says it, where, and why the agent hears of it."""
    user = str(known["user"])
    named = names.get(user) or known.get("name") or ""
    said = f"From {named} ({user})" if named else f"From {user}"
    if place.channel in names and not place.channel.startswith("D"):
        said += f" in #{names[place.channel]}"
    parts = [said]
    if known.get("watch"):
        parts.append("a channel that you watch; nobody mentioned you")
    if known.get("change"):
        parts.append("this post was changed, and now says what follows")
    ids = [*known.get("users", ()), *known.get("channels", ())]
    mentioned = [
        f"#{one} is #{names[one]}" if one[0] in "CG" else f"@{one} is {names[one]}"
        for one in ids
        if one in names
    ]
    return f"[{'; '.join([*parts, *mentioned])}]"
