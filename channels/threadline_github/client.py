"""GitHub's REST API for one bot: gidgethub on httpx, with tokens that are renewed in time.

An App signs in as each of its installations; a token of one lives an hour.
https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from threadline import ThreadlineError, TryAgain
from threadline.clock import Clock
from threadline_github.config import Config
from threadline_github.limits import wait_for

if TYPE_CHECKING:
    import httpx2 as httpx
    from gidgethub import HTTPException
    from gidgethub.httpx import GitHubAPI

__all__ = ["DIFF", "JSON", "Client", "GitHubRefused"]

JSON = "application/vnd.github+json"
DIFF = "application/vnd.github.diff"
_CALL_SECONDS = 30.0
_MARGIN = timedelta(minutes=5)


class GitHubRefused(ThreadlineError):
    """GitHub refused a call for good; ``github_status`` is the HTTP status."""

    code = "github_refused"
    status = 502

    def __init__(self, message: str, github_status: int) -> None:
        super().__init__(message)
        self.github_status = github_status


@dataclass(frozen=True, slots=True)
class _Token:
    value: str
    expires_at: datetime


class Client:
    """Calls GitHub as a token's owner, as an App, or as one of its installations."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._tokens: dict[int, _Token] = {}
        self._renewing: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._strikes = 0
        self._http: httpx.AsyncClient | None = None
        self._api: GitHubAPI | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
        self._http = self._api = None

    async def request(
        self,
        method: str,
        path: str,
        data: Any = None,
        *,
        installation: int | None = None,
        as_app: bool = False,
        accept: str = JSON,
    ) -> Any:
        """Make a call and return what the answer's body says; ``path`` may hold a query.

        ``installation`` is whose token an App uses; a bot with a token of its own needs none.
        Raises TryAgain for limits, a broken server and a broken connection, else GitHubRefused.
        """

        async def call(api: GitHubAPI, auth: dict[str, Any]) -> Any:
            if method == "GET":
                return await api.getitem(path, accept=accept, **auth)
            send: Callable[..., Awaitable[Any]] = getattr(api, method.lower())
            return await send(path, data={} if data is None else data, accept=accept, **auth)

        return await self._called(call, installation, as_app=as_app)

    async def pages(
        self, path: str, *, installation: int | None = None, as_app: bool = False, most: int = 1000
    ) -> list[Any]:
        """Return the items of a list, over its pages, of at most so many."""

        async def call(api: GitHubAPI, auth: dict[str, Any]) -> list[Any]:
            found: list[Any] = []
            async for item in api.getiter(path, accept=JSON, **auth):
                found.append(item)
                if len(found) >= most:
                    break
            return found

        items: list[Any] = await self._called(call, installation, as_app=as_app)
        return items

    async def token(self, installation: int | None) -> str:
        """Return a token that lives for another five minutes at least; for git, too."""
        if self.config.token is not None:
            return self.config.token
        if installation is None:
            raise GitHubRefused("The App is not installed in this repository.", 404)
        async with self._renewing[installation]:
            known = self._tokens.get(installation)
            if known is None or known.expires_at - self._clock.now() < _MARGIN:
                known = self._tokens[installation] = await self._new(installation)
        return known.value

    def forget(self, installation: int) -> None:
        """Drop a token, as when the installation is gone."""
        self._tokens.pop(installation, None)

    # Calling

    async def _called(
        self,
        call: Callable[[GitHubAPI, dict[str, Any]], Awaitable[Any]],
        installation: int | None,
        *,
        as_app: bool,
    ) -> Any:
        """Call with the right credentials; once more with a new token when one is refused."""
        from gidgethub import HTTPException

        renewed = False
        while True:
            auth = await self._auth(installation, as_app=as_app)
            try:
                answer = await call(self._opened(), auth)
            except HTTPException as error:
                fresh = self.config.token is None and not as_app and installation is not None
                if int(error.status_code) == 401 and fresh and not renewed:
                    assert installation is not None
                    self.forget(installation)
                    renewed = True
                    continue
                raise self._understood(error) from error
            self._strikes = 0
            return answer

    async def _auth(self, installation: int | None, *, as_app: bool) -> dict[str, Any]:
        if as_app and self.config.app_id is not None:
            return {"jwt": self._jwt()}
        return {"oauth_token": await self.token(installation)}

    async def _new(self, installation: int) -> _Token:
        path = f"/app/installations/{installation}/access_tokens"
        answer = await self.request("POST", path, as_app=True)
        return _Token(str(answer["token"]), datetime.fromisoformat(str(answer["expires_at"])))

    def _jwt(self) -> str:
        from gidgethub.apps import get_jwt

        assert self.config.app_id is not None
        assert self.config.private_key is not None
        return get_jwt(
            app_id=self.config.app_id, private_key=self.config.private_key, expiration=9 * 60
        )

    def _opened(self) -> GitHubAPI:
        if self._api is None:
            import httpx2 as httpx
            from gidgethub.httpx import GitHubAPI

            self._http = httpx.AsyncClient(timeout=_CALL_SECONDS, follow_redirects=True)
            self._api = GitHubAPI(self._http, "threadline", base_url=self.config.api_url)
        return self._api

    def _understood(self, error: HTTPException) -> Exception:
        status, headers = int(error.status_code), error.headers
        message = str(error)
        now = self._clock.now().timestamp()
        wait = wait_for(status, headers, message, now=now, strikes=self._strikes)
        if wait is not None:
            self._strikes += 1
            return TryAgain(f"GitHub answered {status}: {message}", retry_after=wait, sent=False)
        try:
            TryAgain.when(status, headers)
        except TryAgain as again:
            return again
        return GitHubRefused(f"GitHub answered {status}: {message}", status)
