"""An agent's threads in Slack: what a new one offers, its title, and the status of its session.

Slack shows a stop button while the status is ``processing``, and does not change it by itself.
https://docs.slack.dev/ai/agent-sessions
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from threadline import (
    ActionsRequested,
    ApprovalRequested,
    ApprovalResolved,
    Channel,
    Context,
    Event,
    EventContext,
    MessageReceived,
    TryAgain,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from threadline.events import SessionCompleted, SessionFailed
from threadline_slack.assistant import Assistant, Opened, read, title_of
from threadline_slack.bots import Bot, Bots
from threadline_slack.inbound.decide import Place, Rules, Stop
from threadline_slack.outbound.thread import error_of
from threadline_slack.outbound.wishes import Wishes, understandable
from threadline_slack.people import place_of

__all__ = ["Agents"]

Status: TypeAlias = Literal["processing", "active", "suspended", "closed"]

_NEVER = frozenset({"missing_scope", "not_allowed_token_type", "unknown_method"})
_AGAIN = 1_800.0  # Slack ends a session's processing after an hour
_MANY = 2_000


@dataclass(frozen=True, slots=True)
class _Session:
    """What is wanted of a session; title and initiator count when it is made."""

    status: Status
    title: str | None = None
    initiator: str | None = None
    since: float = 0.0


class Agents:
    """Hears of what people do with the agent's threads, and shows there whether it works."""

    def __init__(
        self, channel: Channel, bots: Bots, rules: Rules, assistant: Assistant | None
    ) -> None:
        self._bots = bots
        self._rules = rules
        self._assistant = assistant or Assistant()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._lanes: dict[str, Wishes] = {}
        self._known: set[str] = set()
        self._off: set[str] = set()
        self._log: Any = None
        channel.on("message.received")(self._prompted)
        channel.on("turn.started")(self._started)
        channel.on("actions.requested")(self._using)
        channel.on("action.approval_requested")(self._asked)
        channel.on("action.approval_resolved")(self._decided)
        channel.on("turn.completed")(self._ended)
        channel.on("turn.failed")(self._ended)
        channel.on("session.completed")(self._closed)
        channel.on("session.failed")(self._closed)

    async def close(self) -> None:
        """Show nothing more."""
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        self._lanes.clear()
        self._sessions.clear()

    # What people do

    async def heard(
        self,
        ctx: Context,
        envelope: Mapping[str, Any],
        stop: Callable[[Context, Stop], Awaitable[None]],
    ) -> bool:
        """Take an event that is not a message; False when it is none of these.

        A stop is durable when this returns, and so is what a person looks at.
        """
        said = read(envelope)
        if isinstance(said, Stop):
            await self._stop(ctx, said, stop)
        elif isinstance(said, Opened):
            await self._opened(ctx, said)
        return said is not None

    async def _stop(
        self, ctx: Context, said: Stop, stop: Callable[[Context, Stop], Awaitable[None]]
    ) -> None:
        if not self._rules.admits(said.person.user):
            ctx.log.info("slack.ignored", reason="a stop by a person who may not ask")
            return
        await stop(ctx, said)
        session = ctx.session(said.place.token)
        if session is None or session.status not in ("running", "queued", "parked"):
            # No turn will end here that could say so.
            self._wish(ctx, said.place, "active")

    async def _opened(self, ctx: Context, said: Opened) -> None:
        if not self._rules.admits(said.user):
            return
        if said.thread is not None:
            place = Place(said.team, said.channel, said.thread)
            await ctx.kv.put(_looks(place.token), list(said.seen))
        if said.fresh and self._assistant.prompts:
            ctx.defer(self._offer(ctx, said))

    async def _offer(self, ctx: Context, said: Opened) -> None:
        """Offer what one could ask."""
        bot = await self._bots.of(said.team)
        try:
            await bot.client.assistant_threads_setSuggestedPrompts(
                channel_id=said.channel,
                thread_ts=said.thread,
                prompts=self._assistant.to_wire(),
                title=self._assistant.title,
            )
        except Exception as error:
            ctx.log.info("slack.no_prompts", error=error_of(error) or repr(error))

    async def looking(self, ctx: Context, known: Mapping[str, Any]) -> list[str]:
        """Return what the writer of a message looks at, in words, by its delivery's metadata."""
        place = Place.of(str(known["token"]))
        seen = known.get("looking")
        if not seen and place.channel.startswith("D") and place.root is not None:
            seen = await ctx.kv.get(_looks(place.token))
        ids = [str(one) for one in seen or () if str(one) != place.channel]
        if not ids:
            return []
        bot = await self._bots.of(place.team)
        names = await bot.gatherer.names.of([one.partition("/")[0] for one in ids], ctx.clock)
        return [f"[They are looking at {', '.join(_described(one, names) for one in ids)}]"]

    # What happens in turns

    async def _prompted(self, event: Event[MessageReceived], ctx: EventContext) -> None:
        """Begin to work; what was asked first names the session."""
        place, parts = place_of(ctx), event.data.parts
        if place is None or place.root is None or not parts:
            return
        title = title_of(parts[0].text)
        asker = _asker(place, parts[0].sender)
        self._wish(ctx, place, "processing", title=title or None, initiator=asker)
        if title and place.channel.startswith("D"):
            await self._entitle(ctx, place, title)

    async def _entitle(self, ctx: EventContext, place: Place, title: str) -> None:
        """Give an assistant thread its title; the session of an agent has its own."""
        if await ctx.kv.get(_looks(place.token)) is None:
            return
        if await ctx.kv.get(_titled(place.token)):
            return
        await ctx.kv.put(_titled(place.token), True)
        bot = await self._bots.of(place.team)
        target = bot.thread(place)
        target.method = "assistant.threads.setTitle"
        await ctx.progress(
            target,
            lambda: bot.client.assistant_threads_setTitle(
                channel_id=place.channel, thread_ts=str(place.root), title=title
            ),
        )

    async def _started(self, event: Event[TurnStarted], ctx: EventContext) -> None:
        """Go on; a turn that was asked for has begun with its message."""
        if event.data.resumes is not None:
            self._show(ctx, "processing")

    async def _using(self, event: Event[ActionsRequested], ctx: EventContext) -> None:
        """Say it again before Slack takes a long turn for one that hangs."""
        place = place_of(ctx)
        if place is not None and place.root is not None:
            said = self._sessions.get(place.token)
            if said is not None and ctx.clock.monotonic() - said.since > _AGAIN:
                self._show(ctx, "processing")

    async def _asked(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        self._show(ctx, "suspended")

    async def _decided(self, event: Event[ApprovalResolved], ctx: EventContext) -> None:
        self._show(ctx, "processing")

    async def _ended(self, event: Event[TurnCompleted | TurnFailed], ctx: EventContext) -> None:
        self._show(ctx, "active")

    async def _closed(
        self, event: Event[SessionCompleted | SessionFailed], ctx: EventContext
    ) -> None:
        self._show(ctx, "closed")

    # The status of a session

    def _show(self, ctx: EventContext, status: Status) -> None:
        place = place_of(ctx)
        if place is not None:
            self._wish(ctx, place, status)

    def _wish(self, ctx: Context, place: Place, status: Status, **more: str | None) -> None:
        """Have a status shown; while an older one is on its way, only the newest follows it."""
        if place.root is None or place.team in self._off:
            return
        since = ctx.clock.monotonic()
        known = self._sessions.get(place.token) or _Session(status)
        self._sessions[place.token] = replace(known, status=status, since=since, **more)
        self._sessions.move_to_end(place.token)
        while len(self._sessions) > _MANY:
            self._sessions.popitem(last=False)
        self._log = ctx.log
        if place.team not in self._lanes:
            self._lanes[place.team] = Wishes(self._set, ctx.clock, ctx.log)
        self._lanes[place.team].wish(place.token)

    async def _set(self, token: str) -> None:
        place, wanted = Place.of(token), self._sessions.get(token)
        if wanted is None or place.team in self._off:
            return
        bot = await self._bots.of(place.team)
        try:
            await self._call(bot, place, wanted)
        except Exception as error:
            if isinstance(understandable(error), TryAgain):
                raise
            self._refused(place, error_of(error) or type(error).__name__)
        else:
            self._known.add(place.team)

    async def _call(self, bot: Bot, place: Place, wanted: _Session) -> None:
        where: dict[str, Any] = {"channel_id": place.channel, "thread_ts": place.root}
        said: dict[str, Any] = {"status": wanted.status, "title": wanted.title}
        set_status = bot.client.agents_sessions_setStatus
        try:
            answer = await set_status(**where, **said, initiator_user_id=wanted.initiator)
        except Exception as error:
            if error_of(error) != "user_not_found":
                raise
            # Who asked is not a member here; the session is no worse without.
            answer = await set_status(**where, **said)
        if wanted.title and not answer.get("title", wanted.title):
            # The status line has made the session, which has no title by that.
            await bot.client.agents_sessions_rename(**where, title=wanted.title)

    def _refused(self, place: Place, told: str) -> None:
        """An app that is not declared an agent has no sessions, and is not asked again."""
        if told in _NEVER or (told == "not_authorized" and place.team not in self._known):
            self._off.add(place.team)
            hint = "Declare the app an agent to have a stop button."
            self._log.info("slack.no_agent_sessions", team=place.team, error=told, hint=hint)


def _asker(place: Place, sender: Mapping[str, Any] | None) -> str | None:
    """Return who asked, if they belong to the workspace of the session."""
    known = (sender or {}).get("attributes") or {}
    ours = known.get("team") == place.team and not known.get("bot")
    return str(known["user"]) if ours and known.get("user") else None


def _looks(token: str) -> str:
    return f"looking/{token}"


def _titled(token: str) -> str:
    return f"titled/{token}"


def _described(seen: str, names: Mapping[str, str]) -> str:
    identity, _, ts = seen.partition("/")
    name = f"#{names[identity]} ({identity})" if identity in names else identity
    return f"the message {ts} in {name}" if ts else name
