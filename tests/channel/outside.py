"""An outside API in memory: it keeps every post that arrived, whoever heard of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from threadline.errors import NotFound
from threadline.store.base import OutboundRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from threadline import Post

__all__ = ["Fault", "Full", "MemoryStore", "Room", "Searchable"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a call; ``arrives`` says that it has its effect nevertheless."""

    error: BaseException | None = None
    arrives: bool = False
    hangs: bool = False


class Room:
    """Where posts are sent; it cannot be searched.

    ``faults`` are those of the next calls, by ``send``, ``find``, ``edit`` and ``remove``;
    ``always`` of all others.
    """

    method = "post"

    def __init__(self, credential: str = "token") -> None:
        self.credential = credential
        self.posts: dict[str, Post] = {}
        self.arrived = 0
        self.calls: list[str] = []
        self.faults: defaultdict[str, list[Fault | None]] = defaultdict(list)
        self.always: dict[str, Fault] = {}
        self.on_call: Callable[[str], None] = lambda _: None

    def texts(self, name: str = "") -> list[str]:
        """Return what is visible, in all posts whose id ends so."""
        return [post.text for post in self.posts.values() if post.id.endswith(name)]

    async def send(self, post: Post) -> str:
        """Show a post."""
        ref = f"ref-{self.arrived + 1}"
        await self._call("send", lambda: self._show(ref, post))
        return ref

    def _show(self, ref: str, post: Post) -> None:
        self.arrived += 1
        self.posts[ref] = post

    async def _call(self, name: str, act: Callable[[], object]) -> None:
        self.calls.append(name)
        self.on_call(f"before {name}")
        planned = self.faults[name].pop(0) if self.faults[name] else self.always.get(name)
        fault = planned or Fault(arrives=True)
        await asyncio.sleep(0)
        if fault.arrives:
            act()
            self.on_call(f"after {name}")
        await asyncio.sleep(0)
        if fault.hangs:
            await asyncio.Event().wait()
        if fault.error is not None:
            raise fault.error


class Searchable(Room):
    """It can say what it has."""

    async def find(self, post: Post) -> str | None:
        """Look for a post."""
        await self._call("find", lambda: None)
        return next((ref for ref, known in self.posts.items() if known.id == post.id), None)


class Full(Searchable):
    """Its posts can be changed and taken back, too."""

    async def edit(self, ref: str, post: Post) -> str | None:
        """Change a post."""
        await self._call("edit", lambda: self.posts.update({ref: post}))
        return None

    async def remove(self, ref: str) -> None:
        """Take a post back."""
        await self._call("remove", lambda: self.posts.pop(ref, None))


class MemoryStore:
    """The part of a store that an outbox uses, without threads; ``broken`` fails so many writes."""

    def __init__(self) -> None:
        self.sessions = {"s"}
        self.records: dict[str, OutboundRecord] = {}
        self.failures: list[Exception] = []

    def session(self, session_id: str) -> object | None:
        """Return a session."""
        return session_id if session_id in self.sessions else None

    async def intent(self, record: OutboundRecord) -> tuple[OutboundRecord, bool]:
        """Keep an intent."""
        await self._write()
        if record.session_id not in self.sessions:
            raise NotFound("gone")
        fresh = record.post_id not in self.records
        kept = self.records.setdefault(record.post_id, record)
        if not kept.settled and kept.digest != record.digest:
            kept = self.records[record.post_id] = replace(kept, digest=None)
        return kept, fresh

    async def receipt(self, record: OutboundRecord) -> None:
        """Keep a receipt."""
        await self._write()
        self.records[record.post_id] = record

    async def _write(self) -> None:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.sleep(0)
