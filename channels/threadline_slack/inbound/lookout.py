"""The watched channels at work: which they are, what becomes a digest, what waits for more."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from threadline import Context
from threadline.store.base import DeliveryRecord
from threadline_slack.inbound.decide import Ask, Place
from threadline_slack.inbound.storms import Storms
from threadline_slack.inbound.waits import why
from threadline_slack.inbound.watch import Watch

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Lookout"]

_NAMES, _STORMS = "watch/names", "watch/storms"
_PAGE, _PAGES = 200, 50
_LOOK_SECONDS = 10.0
_LOOK_AGAIN = 300.0  # seconds, while a channel is not found
_MINUTE = 60.0
_RECENT = 200
_WINDOWS = 1_000
_DIGEST_SECONDS = 5.0  # that a digest's prompts are apart at least
_LONGEST = 500  # characters of one post in a digest
_DIGEST = (
    "[Very many posts come to a channel that you watch. They are brought here together: "
    "give one short digest of all.]"
)


class Lookout:
    """Knows the channels by id; names are looked up, and kept for when Slack is away."""

    def __init__(self, watches: Sequence[Watch] = ()) -> None:
        self._watches = {name: one for one in watches for name in one.channels}
        if len(self._watches) < sum(len(one.channels) for one in watches):
            raise ValueError("A channel is watched twice.")
        self._wanted = frozenset(name[1:] for name in self._watches if name.startswith("#"))
        self._found: dict[str, Mapping[str, str]] = {}
        self._looked: dict[str, float] = {}
        self._named: dict[str, Watch] = {}
        self._storms = Storms()
        self._windows: OrderedDict[str, datetime] = OrderedDict()

    @property
    def channels(self) -> Collection[str]:
        """The channels that are watched, each by its id or as ``#name``."""
        return list(self._watches)

    def of(self, channel: str) -> Watch | None:
        """Return how a channel is watched, by its id."""
        return self._watches.get(channel) or self._named.get(channel)

    # Which they are

    async def open(self, ctx: Context) -> None:
        """Go on from what an earlier process knew."""
        if not self._watches:
            return
        self._keep(await ctx.kv.get(_NAMES) or {})
        self._storms.load(await ctx.kv.get(_STORMS))
        now = ctx.clock.now().timestamp()
        for session in ctx.sessions(limit=_RECENT):
            place = _place(session.continuation_token)
            watch = self.of(place.channel) if place is not None else None
            if place is None or watch is None or place.root is None:
                continue
            if now - float(place.root) < _MINUTE:
                self._storms.count(_key(place), place.root, float(place.root))

    def due(self, ctx: Context, team: str) -> bool:
        """Tell whether names are to be looked up in a workspace, and count that as done."""
        missing = self._wanted - self._found.get(team, {}).keys()
        looked, now = self._looked.get(team), ctx.clock.monotonic()
        if not self._wanted or (looked is not None and (not missing or now < looked + _LOOK_AGAIN)):
            return False
        self._looked[team] = now
        return True

    async def look_up(self, ctx: Context, team: str, client: AsyncWebClient) -> None:
        """Find the channels by name, among those that the bot is in."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                found = await self._read(client)
        except Exception as error:
            ctx.log.error(
                "slack.channels_not_read", error=why(error), hint="Names mean what they did."
            )
            return
        for name in sorted(self._wanted - found.keys()):
            hint = "Invite the bot to it, or name the channel by its id."
            ctx.log.error("slack.channel_not_found", name=f"#{name}", hint=hint)
        if found != self._found.get(team, {}):
            self._keep({**self._found, team: found})
            await ctx.kv.put(_NAMES, self._found)

    async def _read(self, client: AsyncWebClient) -> dict[str, str]:
        found: dict[str, str] = {}
        cursor: str | None = None
        for _ in range(_PAGES):
            answer = await client.users_conversations(
                types="public_channel,private_channel",
                exclude_archived=True,
                limit=_PAGE,
                cursor=cursor,
            )
            for channel in answer.get("channels") or []:
                if channel.get("name") in self._wanted:
                    found[str(channel["name"])] = str(channel["id"])
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return found

    def _keep(self, found: Mapping[str, Mapping[str, str]]) -> None:
        self._found = dict(found)
        self._named = {
            identity: self._watches[f"#{name}"]
            for channels in self._found.values()
            for name, identity in channels.items()
            if name in self._wanted
        }

    # What becomes a digest

    def settle(self, ctx: Context, ask: Ask) -> Ask:
        """Return a post for the session that takes it: its own thread's, or in a storm the digest.

        What has a session goes on there.
        """
        if ask.watch is None or ask.place.root is None or ctx.session(ask.place.token) is not None:
            return ask
        root = self._storms.take(_key(ask.place), ask.place.root, float(ask.at), ask.watch.storm)
        if self._storms.stale:
            ctx.defer(ctx.kv.put(_STORMS, self._storms.dump()))
        if root is None:
            return ask
        return replace(ask, text=_short(ask), digest=True, place=replace(ask.place, root=root))

    # What waits for more

    async def wait(self, ctx: Context, delivery: DeliveryRecord) -> list[str]:
        """Return when what follows a post closely is there, too: it is prompted together.

        The first post opens a window; what comes within it is ready when it closes. After a restart
        the window counts from the acceptance, so it may be over. What is returned tells the model
        of a digest, once a window.
        """
        place = _place(str(delivery.metadata.get("token")))
        watch = self.of(place.channel) if place is not None else None
        if watch is None or not delivery.metadata.get("watch"):
            return []
        opened, digest = False, bool(delivery.metadata.get("digest"))
        seconds = max(watch.debounce, _DIGEST_SECONDS) if digest else watch.debounce
        end, at = self._windows.get(delivery.session_id), datetime.fromisoformat(delivery.at)
        if end is None or end <= at:
            opened = True
            end = self._windows[delivery.session_id] = at + timedelta(seconds=seconds)
            self._windows.move_to_end(delivery.session_id)
        while len(self._windows) > _WINDOWS:
            self._windows.popitem(last=False)
        left = (end - ctx.clock.now()).total_seconds()
        await ctx.clock.sleep(min(left, seconds))
        return [_DIGEST] if opened and digest else []


def _short(ask: Ask) -> str:
    """Return a post as a digest has it: who says it, and how it begins."""
    text = ask.text if len(ask.text) <= _LONGEST else ask.text[:_LONGEST] + " …"
    return f"{ask.person.name}: {text}" if ask.person.name else text


def _key(place: Place) -> str:
    return f"{place.team}:{place.channel}"


def _place(token: str | None) -> Place | None:
    try:
        return Place.of(token or "")
    except ValueError:
        return None
