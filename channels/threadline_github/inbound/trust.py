"""Which tools a conversation may use: none that writes, where strangers or their code take part.

A fork's code, and what strangers write, may tell the model to do harm.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import asdict, dataclass, field, replace
from urllib.parse import quote
from weakref import WeakValueDictionary

from threadline import Context, Session, TryAgain
from threadline.harness.base import ToolInfo
from threadline_github.client import GitHubRefused
from threadline_github.hub import Hub
from threadline_github.inbound.decide import Ask, Person
from threadline_github.inbound.names import Thread

__all__ = ["Trust"]

_MEMBERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_WRITES = frozenset({"admin", "maintain", "write"})
_KNOWN_SECONDS = 600.0
_MANY = 1_000


@dataclass(frozen=True, slots=True)
class _Company:
    """Who takes part in a conversation: ``fork`` is None while nobody knows."""

    stranger: bool = False
    fork: bool | None = None
    askers: list[str] = field(default_factory=list)

    def with_person(self, person: Person) -> _Company:
        """Add somebody who asks: where GitHub does not say how they belong, their rights count."""
        if person.bot or person.association == "OWNER" or person.login in self.askers:
            return self
        if person.association and person.association not in _MEMBERS:
            return replace(self, stranger=True)
        if not person.association and not person.id:
            return self  # Nobody asks: a check of others has failed.
        return replace(self, askers=[*self.askers, person.login])


class Trust:
    """Knows, durably, whose words and code a conversation holds."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._rights: OrderedDict[tuple[str, str], tuple[float, bool]] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def heard(self, ctx: Context, thread: Thread, ask: Ask) -> None:
        """Take note of who asks, and of where the code is from, before the question is sent."""
        async with self._lock(thread):
            known = await self._known(ctx, thread.token)
            now = known.with_person(ask.person)
            if ask.words_of is not None:
                now = now.with_person(ask.words_of)
            if ask.fork is not None:
                now = replace(now, fork=ask.fork or bool(now.fork))
            if now != known:
                await ctx.kv.put(_key(thread.token), asdict(now))

    async def code(self, ctx: Context, thread: Thread, *, fork: bool) -> None:
        """Take note of where a pull request's code is from, as GitHub says; a fork stays one."""
        async with self._lock(thread):
            known = await self._known(ctx, thread.token)
            now = replace(known, fork=fork or bool(known.fork))
            if now != known:
                await ctx.kv.put(_key(thread.token), asdict(now))

    async def refuses(self, ctx: Context, session: Session, tool: ToolInfo) -> str | None:
        """Return why a tool may not be used in a conversation; None when it may."""
        if tool.effect != "write":
            return None
        token = session.continuation_token
        thread = await self._hub.names.thread(ctx, token) if token is not None else None
        if thread is None:
            return f"{tool.name} writes, and nobody knows which conversation this is."
        known = await self._known(ctx, thread.token)
        if known.stranger:
            return f"{tool.name} writes, and somebody from outside takes part in this conversation."
        if thread.is_pull and known.fork is not False:
            where = "is from a fork" if known.fork else "may be from a fork"
            return f"{tool.name} writes, and the code of this pull request {where}."
        for login in known.askers:
            if not await self._may_write(ctx, thread, login):
                return f"{tool.name} writes, and {login} has no right to write in the repository."
        return None

    async def _may_write(self, ctx: Context, thread: Thread, login: str) -> bool:
        """Ask GitHub what a person may do; who cannot be asked about may not."""
        key, now = (thread.repository.name, login), ctx.clock.monotonic()
        kept = self._rights.get(key)
        if kept is not None and now - kept[0] < _KNOWN_SECONDS:
            return kept[1]
        path = f"/collaborators/{quote(login, safe='')}/permission"
        try:
            answer = await self._hub.request(ctx, thread.repository, "GET", path)
        except (GitHubRefused, TryAgain) as error:
            ctx.log.warning("github.rights_unknown", login=login, error=str(error))
            return False
        may = answer.get("permission") in _WRITES or answer.get("role_name") in _WRITES
        self._rights[key] = now, may
        while len(self._rights) > _MANY:
            self._rights.popitem(last=False)
        return may

    def _lock(self, thread: Thread) -> asyncio.Lock:
        """Return what keeps two who come at once from forgetting one another."""
        return self._locks.setdefault(thread.token, asyncio.Lock())

    async def _known(self, ctx: Context, token: str) -> _Company:
        kept = await ctx.kv.get(_key(token))
        return _Company(**kept) if kept is not None else _Company()


def _key(token: str) -> str:
    return f"company/{token}"
