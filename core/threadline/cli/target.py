"""Which agent a command talks to: one at a URL, a running host's, or one in this process."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from threadline.cli.place import Place, place_of, running_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from threadline.cli.client import Client

__all__ = ["Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """What the command line says: a URL, or else a project."""

    project: Path
    url: str | None = None
    bearer_token: str | None = None
    state_root: Path | None = None

    def place(self) -> Place | None:
        """Return the project's place; None when a URL was given.

        Raises ProjectError and UsageError.
        """
        return None if self.url else place_of(self.project, self.state_root)

    async def address(self) -> str | None:
        """Return the address of a running host; None when there is none."""
        place = self.place()
        return self.url if place is None else await running_host(place.state)

    def client(self, url: str) -> Client:
        """Return a client of the agent at an address."""
        from threadline.cli.client import Client

        return Client(url, bearer_token=self.bearer_token)

    @contextlib.asynccontextmanager
    async def connect(self, *, announced: bool = False) -> AsyncIterator[Client]:
        """Yield a client of the agent; with no host running, one in this process."""
        url = await self.address()
        if url is not None:
            async with self.client(url) as client:
                yield client
            return
        from threadline.cli.inprocess import hosted

        place = place_of(self.project, self.state_root)
        async with hosted(place, announced=announced) as client:
            yield client
