"""The bot at GitHub: who it is, what it may call, and where its conversations are."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from threadline import Context, EventContext, TryAgain
from threadline_github.client import JSON, Client, GitHubRefused, NotInstalled
from threadline_github.config import Config
from threadline_github.inbound.decide import Me
from threadline_github.inbound.names import Names, Repository, Thread

__all__ = ["Hub"]

_ME = "me"
T = TypeVar("T")


class Hub:
    """Shared by all parts of one channel; open between its start and stop."""

    def __init__(self) -> None:
        self.names = Names()
        self.me = Me()
        self._client: Client | None = None

    async def open(self, ctx: Context, config: Config) -> None:
        """Find out who the bot is; while GitHub is away, who it was the last time counts."""
        self._client = Client(config, ctx.clock)
        kept: dict[str, Any] = await ctx.kv.get(_ME) or {}
        self.me = Me(kept.get("login"), kept.get("id"), kept.get("app_id"))
        if kept.get("for") != _identity(config):
            self.me = Me()
        try:
            await self.recognise(ctx)
        except (TryAgain, GitHubRefused) as error:
            ctx.log.warning("github.away", error=str(error))

    async def recognise(self, ctx: Context) -> None:
        """Ask GitHub who the bot is; raises TryAgain or GitHubRefused."""
        config = self.client.config
        if config.app_id is None:
            user = await self.client.request("GET", "/user")
            me = Me(str(user["login"]), int(user["id"]))
        else:
            app = await self.client.request("GET", "/app", as_app=True)
            me = Me(f"{app['slug']}[bot]", self.me.id, int(app["id"]))
        if me != self.me:
            kept = {"login": me.login, "id": me.id, "app_id": me.app_id, "for": _identity(config)}
            await ctx.kv.put(_ME, kept)
        self.me = me

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def client(self) -> Client:
        """The client; there is none before the channel has started."""
        if self._client is None:
            raise RuntimeError("The channel has not started.")
        return self._client

    async def thread(self, ctx: EventContext) -> Thread | None:
        """Return the conversation that an event's session is."""
        token = ctx.session_record.continuation_token
        return await self.names.thread(ctx, token) if token is not None else None

    async def installation(self, ctx: Context, repository: Repository) -> int | None:
        """Return the installation that acts in a repository; None for a bot with a token.

        Raises GitHubRefused when the App is not installed there.
        """
        if self.client.config.app_id is None:
            return None
        repository = await self.names.now(ctx, repository)
        if repository.installation is not None:
            return repository.installation
        return await self._looked_up(ctx, repository)

    async def _looked_up(self, ctx: Context, repository: Repository) -> int:
        """Ask GitHub for the installation in a repository, and keep it."""
        path = f"/repos/{repository.name}/installation"
        found = await self.client.request("GET", path, as_app=True)
        number = int(found["id"])
        await self.names.installed(ctx, repository.id, number)
        return number

    async def _found_again(self, ctx: Context, repository: Repository) -> Repository:
        """Ask where a repository is whose name another one has now; raises GitHubRefused.

        GitHub itself leads there from old names: https://docs.github.com/en/rest/using-the-rest-api
        """
        path = f"/repositories/{repository.id}"
        found = await self.client.request("GET", path, installation=repository.installation)
        name = str(found["full_name"]).lower()
        await self.names.moved(ctx, repository.id, name, as_of=repository.as_of)
        return await self.names.now(ctx, repository)

    async def _acting(
        self,
        ctx: Context,
        repository: Repository,
        call: Callable[[Repository, int | None], Awaitable[T]],
    ) -> T:
        """Call as who acts in a repository now; once more where the App was installed anew."""
        repository = await self.names.now(ctx, repository)
        if not repository.name:
            repository = await self._found_again(ctx, repository)
        known = await self.installation(ctx, repository)
        try:
            return await call(repository, known)
        except NotInstalled:
            found = await self._looked_up(ctx, repository)
            if found == known:
                raise
        return await call(repository, found)

    async def request(
        self,
        ctx: Context,
        repository: Repository,
        method: str,
        path: str,
        data: Any = None,
        *,
        accept: str = JSON,
    ) -> Any:
        """Call ``/repos/<name><path>``; raises TryAgain or GitHubRefused."""

        async def call(now: Repository, installation: int | None) -> Any:
            return await self.client.request(
                method,
                f"/repos/{now.name}{path}",
                data,
                installation=installation,
                accept=accept,
            )

        return await self._acting(ctx, repository, call)

    async def pages(
        self, ctx: Context, repository: Repository, path: str, *, most: int = 1000
    ) -> list[Any]:
        """Return the items of a list below ``/repos/<name>``, at most so many."""

        async def call(now: Repository, installation: int | None) -> list[Any]:
            whole = f"/repos/{now.name}{path}"
            return await self.client.pages(whole, installation=installation, most=most)

        return await self._acting(ctx, repository, call)

    async def git_token(self, ctx: Context, repository: Repository) -> str:
        """Return a token for git over HTTP, that lives for another five minutes at least."""

        async def call(_: Repository, installation: int | None) -> str:
            return await self.client.token(installation)

        return await self._acting(ctx, repository, call)

    def credential(self, repository: Repository) -> str:
        """Return whose rate limit a call in a repository counts against."""
        config = self.client.config
        return f"github:{repository.installation}" if config.app_id else _identity(config)


def _identity(config: Config) -> str:
    if config.app_id is not None:
        return f"app:{config.app_id}@{config.api_url}"
    digest = hashlib.sha256((config.token or "").encode()).hexdigest()[:12]
    return f"token:{digest}@{config.api_url}"
