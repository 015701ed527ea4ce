"""What GitHub delivers to what the core does; durable before it returns, and without a call."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from threadline import Context, Delivery, Principal
from threadline.errors import DeliveryConflict, Unavailable
from threadline_github.hub import Hub
from threadline_github.inbound.decide import Ask, Closed, Decision, Ignore, Moved, Rules, decide
from threadline_github.inbound.names import Thread
from threadline_github.inbound.seen import Seen
from threadline_github.inbound.trust import Trust

__all__ = ["Receiver", "Taken"]

CODE = frozenset(
    {"check_failed", "opened", "ready_for_review", "reopened", "rerequested", "synchronize"}
)
"""What wakes the agent by itself: it waits for a turn of its own, on the newest commit."""

_LONG = 2_000
"""Of so many characters of somebody's text it takes a moment to tell what it asks for."""

_LATEST, _CONVERSATIONS = 50, 1_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a delivery: messages that were accepted, and why other things were not."""

    deliveries: list[Delivery] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


class Receiver:
    """Takes deliveries, from the webhook or from the list of those that were missed.

    ``folder`` gives the working folder of a pull request, or None. ``closed`` is told of pull
    requests that are closed, ``unused`` of those whose folder no turn was started for.
    """

    def __init__(
        self,
        hub: Hub,
        rules: Rules,
        trust: Trust,
        *,
        folder: Callable[[Thread], Path | None],
        closed: Callable[[Context, Thread], Awaitable[None]],
        unused: Callable[[Context, Thread], Awaitable[None]],
    ) -> None:
        self._hub = hub
        self._rules = rules
        self._trust = trust
        self._folder = folder
        self._closed = closed
        self._unused = unused
        self._seen = Seen()
        self._latest = _Latest()

    async def take(
        self, ctx: Context, event: str, payload: Mapping[str, Any], delivery_id: str
    ) -> Taken:
        """Do what a delivery asks for, until it is durable.

        ``event`` is ``X-GitHub-Event``, ``delivery_id`` is ``X-GitHub-Delivery``. Raises what
        :meth:`threadline.Context.send` does; then the same delivery may come again.
        """
        if self._hub.me.login is None:
            raise Unavailable("Who the bot is at GitHub is not known yet. Redeliver this later.")
        installation = _installation(payload)
        taken = Taken()
        names = itertools.chain([delivery_id], (f"{delivery_id}/{n}" for n in itertools.count(1)))
        for decision in await self._decided(event, payload):
            name = next(names) if isinstance(decision, Ask) else delivery_id
            found = await self._do(ctx, decision, installation, name)
            if isinstance(found, Delivery):
                taken.deliveries.append(found)
            elif isinstance(found, Ignore):
                log = ctx.log.debug if found.usual else ctx.log.info
                log("github.ignored", reason=found.reason, delivery=delivery_id)
                taken.ignored.append(found.reason)
        return taken

    async def _decided(self, event: str, payload: Mapping[str, Any]) -> list[Decision]:
        """Read a delivery; others go on while a long text is read."""
        reading = functools.partial(decide, event, payload, self._hub.me, self._rules)
        return await asyncio.to_thread(reading) if _is_long(payload) else reading()

    async def _do(
        self, ctx: Context, decision: Decision, installation: int | None, delivery_id: str
    ) -> Delivery | Ignore | None:
        match decision:
            case Moved():
                await self._hub.names.moved(
                    ctx, decision.repository, decision.name, as_of=decision.as_of
                )
            case Closed():
                thread = await self._hub.names.thread_of(ctx, decision.place, installation)
                await self._closed(ctx, thread)
            case Ask():
                return await self._ask(ctx, decision, installation, delivery_id)
            case Ignore():
                return decision
        return None

    async def _ask(
        self, ctx: Context, ask: Ask, installation: int | None, delivery_id: str
    ) -> Delivery | Ignore | None:
        thread = await self._hub.names.thread_of(ctx, ask.place, installation)
        session = ctx.session(thread.token)
        if thread.repository.left and self._hub.client.config.app_id is not None:
            return Ignore(f"the App is not installed in {thread.repository.name}")
        if ask.joins and session is None:
            return Ignore(f"{ask.trigger}: the agent does not take part in this conversation")
        if ask.stops:
            await self._stop(ctx, thread, ask, delivery_id)
            return None
        first = await self._seen.first(ctx, thread.token, ask.key, delivery_id)
        await self._trust.heard(ctx, thread, ask)
        self._latest.came(thread.token, ask.at, ctx.clock.now())
        sent = await self._send(ctx, ask, thread, first)
        if isinstance(sent, Ignore) or sent.admitted == "duplicate":
            await self._unused(ctx, thread)
        return sent

    async def _stop(self, ctx: Context, thread: Thread, ask: Ask, delivery_id: str) -> None:
        """Stop what runs and drop what waits; a copy of the same comment changes nothing more.

        What was asked behind it, and came before it since this was missed at first, goes on.
        """
        before = self._latest.behind(thread.token, ask.at)
        stop = functools.partial(ctx.stop, thread.token, clear_pending=True, before=before)
        await self._seen.once(ctx, thread.token, ask.key, delivery_id, stop)

    async def _send(
        self, ctx: Context, ask: Ask, thread: Thread, delivery_id: str
    ) -> Delivery | Ignore:
        about = _about(ask)
        person = ask.person
        try:
            return await ctx.send(
                ask.text.replace("\0", "\ufffd"),
                continuation_token=thread.token,
                delivery_id=delivery_id,
                principal=Principal("github", str(person.id), person.login or None, about),
                title=f"{thread.repository.name}#{thread.number}",
                context=ask.context,
                cwd=self._folder(thread),
                metadata=about,
                steer=ask.trigger not in CODE,
            )
        except DeliveryConflict:
            return Ignore("the same thing in other words, which was accepted before")


class _Latest:
    """When the latest messages of conversations were written, by GitHub's clock, and came."""

    def __init__(self) -> None:
        self._came: OrderedDict[str, list[tuple[str, datetime]]] = OrderedDict()

    def came(self, token: str, at: str, now: datetime) -> None:
        """Take note of a message."""
        latest = self._came.setdefault(token, [])
        latest.append((at, now))
        del latest[:-_LATEST]
        self._came.move_to_end(token)
        if len(self._came) > _CONVERSATIONS:
            self._came.popitem(last=False)

    def behind(self, token: str, at: str) -> datetime | None:
        """Return since when messages came that were written later; None when none did."""
        if not at:
            return None
        came = (now for other, now in self._came.get(token, ()) if other > at)
        return min(came, default=None)


def _is_long(payload: Mapping[str, Any]) -> bool:
    names = ("comment", "review", "issue", "pull_request", "changes")
    parts = [part for name in names if isinstance(part := payload.get(name), dict)]
    bodies = [part.get("body") for part in parts]
    bodies += [body.get("from") for body in bodies if isinstance(body, dict)]
    return any(isinstance(body, str) and len(body) > _LONG for body in bodies)


def _about(ask: Ask) -> dict[str, Any]:
    """Return what stays known of a message: who said it, where, and about which commit."""
    person = ask.person
    about = {
        "login": person.login,
        "association": person.association or None,
        "bot": person.bot or None,
        "trigger": ask.trigger,
        "key": ask.key,
        "head": ask.head,
        "fork": ask.fork,
        **ask.about,
    }
    return {name: value for name, value in about.items() if value is not None}


def _installation(payload: Mapping[str, Any]) -> int | None:
    found = payload.get("installation")
    number = found.get("id") if isinstance(found, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None
