"""What was said in a thread that the agent did not get, since it was last asked there.

Reading a thread is what Slack limits most: some apps may do it once a minute, 15 posts at a time.
So a thread is read once, then only from the newest known post on, and not at all where every post
comes as an event. What is known is a cache: after a restart the session's log says where to go on,
and what came meanwhile is read.
https://docs.slack.dev/reference/methods/conversations.replies
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from threadline import Session
from threadline.clock import Clock
from threadline_slack.inbound.decide import Me, Place
from threadline_slack.inbound.names import Names, tidy
from threadline_slack.inbound.waits import Waits, why
from threadline_slack.words.text import is_stop, read

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Backfill", "Said", "order", "unseen"]

_THREADS, _HEARD, _TOLD = 1_000, 40, 500
_PAGE, _PAGES = 200, 5
_LONGEST = 2_000  # characters of one post
_TOLD_BY = "message.received", "nudge.delivered", "deliveries.cleared"


@dataclass(frozen=True, slots=True)
class Said:
    """One post: its words, its author's id or name, and the ids that it mentions."""

    ts: str
    author: str
    text: str
    ids: tuple[str, ...] = ()
    own: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any], me: Me) -> Said:
        """Read a message."""
        user, bot = str(message.get("user") or ""), str(message.get("bot_id") or "")
        said = read(message)
        files = ", ".join(file.name for file in said.files)
        text = f"{said.text} [files: {files}]" if files else said.text
        if len(text) > _LONGEST:
            text = text[:_LONGEST] + " …"
        named = tidy(str(message.get("username") or ""))
        return cls(
            str(message.get("ts", "")),
            user or named or bot,
            "" if is_stop(str(message.get("text") or ""), bot=me.user) else text.strip(),
            (user or bot, *said.users, *said.channels),
            me.wrote(message),
        )


@dataclass(slots=True)
class _Thread:
    """What is known of one; the model has, or needs not, all up to ``read``, and ``told``."""

    read: str = ""
    whole: bool = False
    begun: bool = False
    told: OrderedDict[str, None] = field(default_factory=OrderedDict)
    heard: OrderedDict[str, Said] = field(default_factory=OrderedDict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tell(self, ts: str) -> None:
        """Keep that the model has a post."""
        self.told[ts] = None
        self.heard.pop(ts, None)
        while len(self.told) > _TOLD:
            self.told.popitem(last=False)

    def read_to(self, ts: str) -> None:
        """Keep that nothing is missing up to a post."""
        self.read = max(self.read, ts, key=order)
        for old in [one for one in self.told if order(one) <= order(self.read)]:
            del self.told[old]
        for old in [one for one in self.heard if order(one) <= order(self.read)]:
            del self.heard[old]


class Backfill:
    """Reads threads for one bot."""

    def __init__(self, client: AsyncWebClient, waits: Waits, names: Names, most: int) -> None:
        self._client = client
        self._waits = waits
        self._names = names
        self._most = most
        self._threads: OrderedDict[str, _Thread] = OrderedDict()

    def hear(self, place: Place, message: Mapping[str, Any], me: Me) -> None:
        """Keep a post of a conversation that came as an event and is not for the agent."""
        thread, said = self._thread(place.token), Said.of(message, me)
        if said.ts and said.text and order(said.ts) > order(thread.read):
            thread.heard.setdefault(said.ts, said)
        while len(thread.heard) > _HEARD:
            thread.heard.popitem(last=False)

    def unhear(self, place: Place, ts: str) -> None:
        """Drop a post that was deleted."""
        if place.token in self._threads:
            self._threads[place.token].heard.pop(ts, None)

    def forget(self, token: str) -> None:
        """Go by the log again: what the model was to be told it may not have got."""
        self._threads.pop(token, None)

    async def before(
        self, place: Place, ts: str, me: Me, clock: Clock, session: Session | None, *, heard: bool
    ) -> str:
        """Return what to tell the model before the post at ``ts``, or nothing.

        ``heard``: every post of the thread comes as an event or is no matter.
        """
        thread = self._thread(place.token)
        async with thread.turn:
            if place.root in (None, ts):
                thread.tell(ts)
                if session is not None and await session.next_index() <= 1:
                    # It begins here, so nothing of it can have been missed.
                    thread.begun = thread.whole = True
                return ""
            if not thread.begun:
                await self._begin(thread, session)
            fetched: list[Said] = []
            missing = ""
            if not (thread.whole and heard):
                fetched, missing = await self._read(place, thread.read, ts, me, clock)
            found = {said.ts: said for said in [*thread.heard.values(), *fetched]}
            news = unseen(found.values(), thread.read, ts, thread.told)
            for one in [*(said.ts for said in news), ts]:
                thread.tell(one)
            thread.whole = thread.whole or not missing
            newest = max((said.ts for said in fetched), key=order, default="")
            thread.read_to(newest if missing else ts)
        return await self._told(place, news, missing, clock)

    async def _read(
        self, place: Place, since: str, before: str, me: Me, clock: Clock
    ) -> tuple[list[Said], str]:
        """Return what Slack has, the oldest first, and what to say if that is not all."""
        found: list[Said] = []
        cursor: str | None = None
        try:
            for _ in range(_PAGES):
                page, cursor = await self._page(place, since, before, cursor, clock)
                found += [Said.of(one, me) for one in page if one.get("subtype") != "tombstone"]
                if cursor is None:
                    return found, ""
            reason = f"there are more than {_PAGE * _PAGES} posts"
        except Exception as error:
            # Whatever is wrong, the question goes on; it says what it lacks.
            reason = why(error)
        return found, f"Not all that was said here could be read: {reason}."

    async def _page(
        self, place: Place, since: str, before: str, cursor: str | None, clock: Clock
    ) -> tuple[list[Mapping[str, Any]], str | None]:
        answer = await self._waits.call(
            "conversations.replies",
            clock,
            lambda: self._client.conversations_replies(
                channel=place.channel,
                ts=str(place.root),
                oldest=since or None,
                latest=before,
                inclusive=False,
                limit=_PAGE,
                cursor=cursor,
            ),
        )
        following = (answer.get("response_metadata") or {}).get("next_cursor") or None
        return answer.get("messages") or [], following

    async def _begin(self, thread: _Thread, session: Session | None) -> None:
        """Learn from the log which posts the model has."""
        thread.begun = True
        has, cleared = await _posts(session) if session is not None else ([], [])
        thread.read_to(max(has, key=order, default=""))
        for ts in cleared:
            thread.tell(ts)

    async def _told(self, place: Place, news: Sequence[Said], missing: str, clock: Clock) -> str:
        kept = _shortened(news, self._most)
        names = await self._names.of((one for said in kept for one in said.ids), clock)
        lines = [f"- {names.get(said.author, said.author)}: {said.text}" for said in kept]
        if len(kept) < len(news):
            first = 1 if kept and kept[0].ts == place.root else 0
            lines.insert(first, f"({len(news) - len(kept)} posts are left out here.)")
        people = {one: names[one] for said in kept for one in said.ids[1:] if one in names}
        if people:
            who = ", ".join(f"{identity} is {name}" for identity, name in people.items())
            lines.append(f"({who}.)")
        lines += [f"({missing})"] if missing else []
        return "\n".join(["Said earlier in this thread:", *lines]) if lines else ""

    def _thread(self, token: str) -> _Thread:
        thread = self._threads.setdefault(token, _Thread())
        self._threads.move_to_end(token)
        while len(self._threads) > _THREADS:
            self._threads.popitem(last=False)
        return thread


def unseen(posts: Iterable[Said], read: str, before: str, told: Collection[str] = ()) -> list[Said]:
    """Return the posts after ``read`` and before another that the model has not, in order.

    Of a thread that it has nothing of, those after the agent's own last one.
    """
    found = sorted(
        (
            said
            for said in posts
            if order(read) < order(said.ts) < order(before) and said.ts not in told
        ),
        key=lambda said: order(said.ts),
    )
    if not read:
        own = [number for number, said in enumerate(found) if said.own]
        found = found[own[-1] + 1 if own else 0 :]
    return [said for said in found if said.text and not said.own]


def _shortened(news: Sequence[Said], most: int) -> list[Said]:
    """Return the first post, which says what it is about, and the newest."""
    if len(news) <= most:
        return list(news)
    return [news[0], *news[len(news) - most + 1 :]] if most > 1 else list(news[-most:])


def order(ts: str) -> tuple[int, int]:
    """Return what to compare of a ``ts``; nothing is before everything."""
    seconds, _, rest = ts.partition(".")
    return (
        (int(seconds), int(rest or 0)) if seconds.isdigit() and (rest or "0").isdigit() else (0, 0)
    )


async def _posts(session: Session) -> tuple[list[str], list[str]]:
    """Return the ``ts`` of the posts that the log says the model has, and of those cleared."""
    has: list[str] = []
    cleared: list[str] = []
    async for event in session.recorded(*_TOLD_BY):
        (cleared if event["type"] == "deliveries.cleared" else has).extend(_named(event))
    return has, cleared


def _named(event: Mapping[str, Any]) -> list[str]:
    """Return the ``ts`` of the posts whose deliveries an event names."""
    data = event["data"]
    if event["type"] == "nudge.delivered":
        ids = [str(data.get("deliveryId"))]
    elif event["type"] in ("message.received", "deliveries.cleared"):
        ids = [str(one) for one in data.get("deliveryIds") or ()]
    else:
        return []
    stamps = [one.split(":")[2] for one in ids if one.count(":") >= 2]
    return [ts for ts in stamps if order(ts) > (0, 0)]
