"""Removes working folders and mirrors that nobody needs any more, once a day.

A pull request may be closed while the host is down for longer than GitHub keeps deliveries, and a
session may be deleted: nothing tells the channel of either.
"""

from __future__ import annotations

import asyncio

from threadline import Context, TryAgain
from threadline.cancelled import is_cancelled
from threadline_github.client import GitHubRefused
from threadline_github.hub import Hub
from threadline_github.workspace import disk
from threadline_github.workspace.worktrees import Worktrees

__all__ = ["Upkeep"]

_FIRST = 600.0  # seconds; what was missed while the host was away comes first
_AGAIN = 3600.0
_DAY = 86_400.0
_MONTH = 30 * _DAY
_BUSY = ("queued", "running", "parked")
_GONE = (404, 410)


class Upkeep:
    """Looks after the working folders of one channel."""

    def __init__(self, hub: Hub, worktrees: Worktrees) -> None:
        self._hub = hub
        self._worktrees = worktrees

    async def run(self, ctx: Context) -> None:
        """Go on, day by day, until it is cancelled."""
        wait = _FIRST
        while True:
            await ctx.clock.sleep(wait)
            wait = _DAY
            try:
                await self.run_once(ctx)
            except TryAgain as error:
                wait = _AGAIN
                ctx.log.info("github.upkeep_later", error=str(error))
            except Exception as error:
                if is_cancelled():
                    raise asyncio.CancelledError from error
                ctx.log.error("github.upkeep_failed", error=repr(error))

    async def run_once(self, ctx: Context) -> None:
        """Remove what nobody has touched since yesterday and is over; raises TryAgain."""
        now = ctx.clock.now().timestamp()
        for repository, number in await disk.to_the_end(self._worktrees.untouched, now - _DAY):
            if await self._is_over(ctx, repository, number):
                await self._remove(ctx, repository, number)
        for repository in await disk.to_the_end(self._worktrees.repositories):
            await self._worktrees.tidy(repository, now - _MONTH)

    async def _is_over(self, ctx: Context, repository: int, number: int) -> bool:
        """Tell whether a pull request has no session any more, or is closed, as GitHub says."""
        thread = await self._hub.names.pull(ctx, repository, number)
        session = ctx.session(thread.token) if thread is not None else None
        if thread is None or session is None:
            return True
        if session.status in _BUSY:
            return False
        try:
            found = await self._hub.request(ctx, thread.repository, "GET", f"/pulls/{number}")
        except GitHubRefused as error:
            return error.github_status in _GONE
        return isinstance(found, dict) and found.get("state") == "closed"

    async def _remove(self, ctx: Context, repository: int, number: int) -> None:
        thread = await self._hub.names.pull(ctx, repository, number)

        def is_busy() -> bool:
            session = ctx.session(thread.token) if thread is not None else None
            return session is not None and session.status in _BUSY

        try:
            await self._worktrees.remove(repository, number, unless=is_busy)
        except OSError as error:
            path = str(self._worktrees.path(repository, number))
            ctx.log.warning("github.folder_stays", path=path, error=repr(error))
