"""What a conversation is called: by its repository's id, whatever the repository is called now.

A repository keeps in tokens the name under which it was first seen, so that a rename or a transfer
splits no conversation. Another one that takes an old name gets ``owner/repo~<id>``.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from threadline import Context
from threadline_github.inbound.decide import Kind, Place

__all__ = ["TOKEN", "Names", "Repository", "Thread"]

TOKEN = r"(pr|issue):([\w.-]+/[\w.~-]+)#([1-9]\d*)"


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository: its name now, the name in tokens, and the installation that acts there.

    ``left``: it went to another owner, and no installation of the App there is known. ``former``
    is the installation that acted for the owner before. ``as_of`` is since when it has its name, as
    far as known; the name is empty when another repository has it now.
    """

    id: int
    name: str
    canonical: str
    installation: int | None = None
    left: bool = False
    former: int | None = None
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class Thread:
    """A pull request or an issue, and where it is now."""

    repository: Repository
    kind: Kind
    number: int

    @property
    def token(self) -> str:
        """The conversation's name."""
        return f"{self.kind}:{self.repository.canonical}#{self.number}"

    @property
    def is_pull(self) -> bool:
        """True for a pull request."""
        return self.kind == "pr"


class Names:
    """The repositories that were seen, durably."""

    def __init__(self) -> None:
        self._known: dict[int, Repository] = {}
        self._writing = asyncio.Lock()

    async def thread_of(self, ctx: Context, place: Place, installation: int | None) -> Thread:
        """Return the conversation of a place, as a delivery names it; durable on return."""
        repository = await self._seen(ctx, place, installation)
        return Thread(repository, place.kind, place.number)

    async def moved(
        self, ctx: Context, repository: int, name: str, *, as_of: str = ""
    ) -> Repository | None:
        """Take note of another name or owner; return the repository as it was, if it is known.

        With another owner, what was its installation has no say any more.
        """
        async with self._writing:
            before = await self._kept(ctx, repository)
            if before is None or _is_late(as_of, before):
                return before
            now = replace(before, name=name, as_of=as_of)
            if before.name and _owner(name) != _owner(before.name):
                now = replace(now, installation=None, left=True, former=before.installation)
            await self._keep(ctx, now)
        return before

    async def thread(self, ctx: Context, token: str) -> Thread | None:
        """Return the conversation that a token names; None when it is none that was seen."""
        found = re.fullmatch(TOKEN, token)
        if found is None:
            return None
        kind, canonical, number = found.groups()
        identity = await ctx.kv.get(_name(canonical))
        repository = await self._kept(ctx, int(identity)) if identity is not None else None
        if repository is None:
            return None
        return Thread(repository, "pr" if kind == "pr" else "issue", int(number))

    async def pull(self, ctx: Context, repository: int, number: int) -> Thread | None:
        """Return the conversation of a pull request; None when its repository was never seen."""
        known = await self._kept(ctx, repository)
        return None if known is None else Thread(known, "pr", number)

    async def now(self, ctx: Context, repository: Repository) -> Repository:
        """Return a repository as it is known now."""
        return await self._kept(ctx, repository.id) or repository

    async def installed(self, ctx: Context, repository: int, installation: int) -> Repository:
        """Take note of the installation that acts in a repository that was seen."""
        async with self._writing:
            before = await self._kept(ctx, repository)
            assert before is not None
            after = replace(before, installation=installation, left=False)
            await self._keep(ctx, after)
        return after

    async def _seen(self, ctx: Context, place: Place, installation: int | None) -> Repository:
        async with self._writing:
            identity, name = place.repository, place.name
            before = await self._kept(ctx, identity)
            if before is None:
                await self._lose(ctx, place)
                canonical = await self._free(ctx, identity, name)
                now = Repository(identity, name, canonical, installation, as_of=place.as_of)
            elif (installation is not None and installation == before.former) or (
                name != before.name and _is_late(place.as_of, before)
            ):
                # From before the transfer or the new name, and late.
                now = before
            else:
                known = before.installation if installation is None else installation
                left = before.left and installation is None
                now = replace(before, name=name, installation=known, left=left)
                if name != before.name:
                    await self._lose(ctx, place)
                    now = replace(now, as_of=place.as_of)
            if now != before:
                await self._keep(ctx, now)
        return now

    async def _lose(self, ctx: Context, place: Place) -> None:
        """Forget that other repositories have this name: the newest one has."""
        holder = await ctx.kv.get(_name(place.name))
        if holder is not None:
            await self._kept(ctx, holder)
        for other in list(self._known.values()):
            if (
                other.name == place.name
                and other.id != place.repository
                and not _is_late(place.as_of, other)
            ):
                await self._keep(ctx, replace(other, name="", as_of=place.as_of))

    async def _free(self, ctx: Context, identity: int, name: str) -> str:
        """Take the name for tokens, or one that says which repository it is."""
        holder = await ctx.kv.get(_name(name))
        canonical = name if holder in (None, identity) else f"{name}~{identity}"
        await ctx.kv.put(_name(canonical), identity)
        return canonical

    async def _kept(self, ctx: Context, identity: int) -> Repository | None:
        if identity not in self._known:
            kept: dict[str, Any] | None = await ctx.kv.get(f"repository/{identity}")
            if kept is None:
                return None
            self._known[identity] = Repository(**kept)
        return self._known[identity]

    async def _keep(self, ctx: Context, repository: Repository) -> None:
        await ctx.kv.put(f"repository/{repository.id}", asdict(repository))
        self._known[repository.id] = repository


def _is_late(as_of: str, known: Repository) -> bool:
    """Tell whether something is of a time before the name that is known."""
    return bool(as_of) and as_of < known.as_of


def _owner(name: str) -> str:
    return name.partition("/")[0]


def _name(canonical: str) -> str:
    return f"name/{canonical}"
