"""Reactions that say what becomes of a message that came while the agent was busy.

The session's log alone says what is true: the messages are named there by their delivery ids, which
are ``<team>:<channel>:<ts>``. What may stand at a message is kept before it is shown, so that a
process that was killed leaves nothing behind that is not true any more.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from threadline import Channel, Context, Delivery, Event, EventContext, TryAgain
from threadline.events import parse_event
from threadline_slack.bots import Bots
from threadline_slack.outbound.thread import error_of
from threadline_slack.outbound.wishes import Wishes, understandable

__all__ = ["Acknowledgements", "Board", "Mark", "Reactions"]

State: TypeAlias = Literal["queued", "prompted", "steered", "answered", "cleared", "ended"]

HEARD = (
    "message.received",
    "nudge.delivered",
    "turn.started",
    "turn.completed",
    "deliveries.cleared",
    "session.waiting",
    "session.completed",
    "session.failed",
)
_OPEN = frozenset({"queued", "prompted", "steered"})
_POST = re.compile(r"[TE][A-Z0-9]+:[CDG][A-Z0-9]+:[0-9]+\.[0-9]+")
_NEVER = frozenset({"missing_scope", "not_allowed_token_type", "unknown_method"})
_KEPT = "reactions"
_MARKED, _REMEMBERED, _SESSIONS = 500, 200, 1_000


@dataclass(frozen=True, slots=True)
class Reactions:
    """The emoji for each thing that is said of a message; an empty name says nothing.

    ``queued``: it waits for the running turn. ``steered``: the running turn has it. ``answered``:
    the turn that had it has ended with an answer. ``cleared``: it was stopped before any turn had
    it.
    """

    queued: str = "hourglass_flowing_sand"
    steered: str = "eyes"
    answered: str = "white_check_mark"
    cleared: str = "no_entry_sign"

    def of(self, state: State) -> str:
        """Return the emoji that is true in a state, or nothing."""
        shown = {
            "queued": self.queued,
            "steered": self.steered,
            "answered": self.answered,
            "cleared": self.cleared,
        }
        return shown.get(state, "").strip(":")


# What the log says


@dataclass(slots=True)
class Mark:
    """What has become of a message, and in which turn.

    ``shown`` are the emoji that may stand at it, ``sure`` the one that does; None for a message
    that gets none.
    """

    state: State = "queued"
    turn: str | None = None
    shown: set[str] | None = None
    sure: str = ""

    @property
    def settled(self) -> bool:
        """Whether nothing more will become of it."""
        return self.state not in _OPEN


class Board:
    """What has become of the messages of one session; ``apply`` takes its log in order."""

    def __init__(self) -> None:
        self.marks: dict[str, Mark] = {}
        self._upto = -1

    def mark(self, delivery_id: str) -> Mark:
        """Return what is known of a message; one that the log has not named yet is queued."""
        return self.marks.setdefault(delivery_id, Mark())

    def apply(self, event: Event[Any]) -> list[str]:
        """Take an event; return the messages that it says something new of."""
        if event.index <= self._upto:
            return []
        self._upto = event.index
        before = {name: (mark.state, mark.turn) for name, mark in self.marks.items()}
        self._take(event, event.data)
        found = [
            name for name, mark in self.marks.items() if before.get(name) != (mark.state, mark.turn)
        ]
        self._forget()
        return found

    def _take(self, event: Event[Any], data: Any) -> None:
        match event.type:
            case "message.received":
                self._is(data.delivery_ids, "prompted", event.turn_id)
            case "nudge.delivered" if data.delivery_id:
                self._is([data.delivery_id], "steered", event.turn_id)
            case "deliveries.cleared":
                self._is(data.delivery_ids, "cleared", None)
            case "turn.started" if data.resumes:
                for mark in self._in_turn(data.resumes):
                    mark.turn = event.turn_id
            case "turn.completed":
                for mark in self._in_turn(event.turn_id):
                    mark.state = "answered"
            case "session.waiting" | "session.completed" | "session.failed":
                # Nothing runs here, so what a turn had and did not answer stays without an answer.
                for mark in self.marks.values():
                    if mark.state in ("prompted", "steered"):
                        mark.state = "ended"

    def _is(self, names: Iterable[str], state: State, turn: str | None) -> None:
        for name in names:
            mark = self.mark(name)
            mark.state, mark.turn = state, turn

    def _in_turn(self, turn: str | None) -> list[Mark]:
        return [one for one in self.marks.values() if one.turn == turn and not one.settled]

    def _forget(self) -> None:
        """Drop the oldest that nothing will become of; the newest may be asked for yet."""
        many = max(len(self.marks) - _REMEMBERED, 0)
        done = [name for name, one in self.marks.items() if one.settled and one.shown is None]
        for name in done[:many]:
            del self.marks[name]


# What is shown


class Acknowledgements:
    """Shows at messages what has become of them, beside everything else that goes on."""

    def __init__(self, channel: Channel, bots: Bots, names: bool | Reactions = True) -> None:
        self.on = bool(names)
        self._bots = bots
        self._names = names if isinstance(names, Reactions) else Reactions()
        self._off: set[str] = set()
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._marked: dict[str, str] = {}
        self._lanes: dict[str, Wishes] = {}
        self._ctx: Context | None = None
        if self.on:
            for type_ in HEARD:
                channel.on(type_)(self._happened)

    # Life

    async def open(self, ctx: Context) -> None:
        """Begin with what an earlier process has left; what is true now is read from the logs."""
        self._ctx = ctx
        kept = await ctx.kv.get(_KEPT) if self.on else None
        for session_id in {str(one[0]) for one in (kept or {}).values()}:
            await self._read(ctx, session_id)
        for name, (session_id, shown) in (kept or {}).items():
            mark = self._board(session_id).mark(name)
            mark.shown = set(shown)
            if ctx.session(session_id) is None:
                mark.state = "ended"
            self._marked[name] = session_id
            self._wish(name)

    async def close(self) -> None:
        """Show nothing more; the next process goes on."""
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        self._ctx = None
        self._lanes.clear()
        self._boards.clear()
        self._marked.clear()

    async def _read(self, ctx: Context, session_id: str) -> None:
        session = ctx.session(session_id)
        if session is None:
            return
        board = self._board(session_id)
        async for event in session.recorded(*HEARD):
            board.apply(parse_event(event))

    # What happens

    def queued(self, delivery: Delivery) -> None:
        """Follow a message that was accepted behind what runs."""
        name = delivery.delivery_id
        wanted = self.on and self._ctx is not None and name.partition(":")[0] not in self._off
        if not wanted or len(self._marked) >= _MARKED or _POST.fullmatch(name) is None:
            return
        mark = self._board(delivery.session_id).mark(name)
        if mark.shown is None:
            mark.shown = set()
            self._marked[name] = delivery.session_id
            self._wish(name)

    async def _happened(self, event: Event[Any], ctx: EventContext) -> None:
        for name in self._board(event.session_id).apply(event):
            if name in self._marked:
                self._wish(name)

    def _board(self, session_id: str) -> Board:
        board = self._boards.setdefault(session_id, Board())
        self._boards.move_to_end(session_id)
        if len(self._boards) > _SESSIONS:
            busy = set(self._marked.values()) | {session_id}
            idle = next((one for one in self._boards if one not in busy), None)
            if idle is not None:
                del self._boards[idle]
        return board

    def _wish(self, name: str) -> None:
        assert self._ctx is not None
        team = name.partition(":")[0]
        if team not in self._lanes:
            self._lanes[team] = Wishes(self._show, self._ctx.clock, self._ctx.log)
        self._lanes[team].wish(name)

    # Slack

    async def _show(self, name: str) -> None:
        """Take away what is not true, then show what is."""
        mark = self._boards[self._marked[name]].marks[name] if name in self._marked else None
        if mark is None or mark.shown is None:
            return
        for emoji in sorted(mark.shown - {self._names.of(mark.state)}):
            mark.sure = ""
            await self._call("remove", name, emoji)
            mark.shown.discard(emoji)
        wanted = self._names.of(mark.state)
        if wanted and wanted != mark.sure:
            mark.shown.add(wanted)
            await self._keep()
            await self._call("add", name, wanted)
            mark.sure = wanted
        if mark.settled and mark.sure == self._names.of(mark.state):
            del self._marked[name]
            mark.shown = None
            await self._keep()

    async def _keep(self) -> None:
        """Have it durable which messages may show what."""
        assert self._ctx is not None
        kept: dict[str, Any] = {}
        for name, session_id in self._marked.items():
            shown = self._boards[session_id].marks[name].shown or ()
            kept[name] = [session_id, sorted(shown)]
        await self._ctx.kv.put(_KEPT, kept)

    async def _call(self, verb: Literal["add", "remove"], name: str, emoji: str) -> None:
        """Add or remove an emoji, unless Slack will not have it; what may pass is raised."""
        team, channel, ts = name.split(":")
        if team in self._off:
            return
        client = (await self._bots.of(team)).client
        call = client.reactions_add if verb == "add" else client.reactions_remove
        try:
            await call(channel=channel, timestamp=ts, name=emoji)
        except Exception as error:
            told = error_of(error)
            if told in ("already_reacted", "no_reaction"):
                return
            if isinstance(understandable(error), TryAgain):
                raise
            self._refused(team, told or type(error).__name__, emoji)

    def _refused(self, team: str, told: str, emoji: str) -> None:
        assert self._ctx is not None
        if told in _NEVER:
            self._off.add(team)
            hint = "Give the app the scope reactions:write, or set reactions=False."
            self._ctx.log.warning("slack.no_reactions", team=team, error=told, hint=hint)
        else:
            self._ctx.log.info("slack.reaction_refused", error=told, reaction=emoji)
