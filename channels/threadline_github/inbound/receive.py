"""What GitHub delivers to what the core does; durable before it returns, and without a call."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from threadline import Context, Delivery, Principal
from threadline.errors import DeliveryConflict, Unavailable
from threadline_github.hub import Hub
from threadline_github.inbound.decide import Ask, Closed, Decision, Ignore, Moved, Rules, decide
from threadline_github.inbound.names import Thread
from threadline_github.inbound.seen import Seen
from threadline_github.inbound.stops import asks_to_stop
from threadline_github.inbound.trust import Trust

__all__ = ["Receiver", "Taken"]

CODE = frozenset(
    {"check_failed", "opened", "ready_for_review", "reopened", "rerequested", "synchronize"}
)
"""What wakes the agent by itself: it waits for a turn of its own, on the newest commit."""

_SPOKEN = frozenset({"command", "comment", "mention", "review"})


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a delivery: messages that were accepted, and why other things were not."""

    deliveries: list[Delivery] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


class Receiver:
    """Takes deliveries, from the webhook or from the list of those that were missed.

    ``folder`` gives the working folder of a pull request, or None. ``closed`` is told of pull
    requests that are closed, and ``opened`` of those that are open again.
    """

    def __init__(
        self,
        hub: Hub,
        rules: Rules,
        trust: Trust,
        *,
        folder: Callable[[Thread], Path | None],
        closed: Callable[[Context, Thread], Awaitable[None]],
        opened: Callable[[Context, Thread], Awaitable[None]],
    ) -> None:
        self._hub = hub
        self._rules = rules
        self._trust = trust
        self._folder = folder
        self._closed = closed
        self._opened = opened
        self._seen = Seen()

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
        for decision in decide(event, payload, self._hub.me, self._rules):
            name = next(names) if isinstance(decision, Ask) else delivery_id
            found = await self._do(ctx, decision, installation, name)
            if isinstance(found, Delivery):
                taken.deliveries.append(found)
            elif isinstance(found, Ignore):
                ctx.log.info("github.ignored", reason=found.reason, delivery=delivery_id)
                taken.ignored.append(found.reason)
        return taken

    async def _do(
        self, ctx: Context, decision: Decision, installation: int | None, delivery_id: str
    ) -> Delivery | Ignore | None:
        match decision:
            case Moved():
                await self._hub.names.moved(ctx, decision.repository, decision.name)
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
        if ask.trigger in _SPOKEN and asks_to_stop(ask.text, self._hub.me.login):
            await self._stop(ctx, thread, ask, delivery_id)
            return None
        first = await self._seen.first(ctx, thread.token, ask.key, delivery_id)
        await self._trust.heard(ctx, thread, ask)
        if ask.trigger == "reopened":
            await self._opened(ctx, thread)
        return await self._send(ctx, ask, thread, first)

    async def _stop(self, ctx: Context, thread: Thread, ask: Ask, delivery_id: str) -> None:
        """Stop what runs and drop what waits; a copy of the same comment changes nothing more."""
        if not await self._seen.has(ctx, thread.token, ask.key):
            await ctx.stop(thread.token, clear_pending=True)
            await self._seen.first(ctx, thread.token, ask.key, delivery_id)

    async def _send(
        self, ctx: Context, ask: Ask, thread: Thread, delivery_id: str
    ) -> Delivery | Ignore:
        about = _about(ask)
        person = ask.person
        try:
            return await ctx.send(
                ask.text,
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
