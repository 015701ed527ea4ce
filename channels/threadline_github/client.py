"""GitHub's REST API for one bot: gidgethub on httpx, with tokens that are renewed in time.

An App signs in as each of its installations; a token of one lives an hour.
https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from threadline import ThreadlineError, TryAgain
from threadline.clock import Clock
from threadline_github.config import Config
from threadline_github.limits import wait_for

if TYPE_CHECKING:
    import httpx2 as httpx
    from gidgethub import HTTPException
    from gidgethub.httpx import GitHubAPI

__all__ = ["DIFF", "JSON", "Client", "GitHubRefused", "NotInstalled"]

JSON = "application/vnd.github+json"
DIFF = "application/vnd.github.diff"
_CALL_SECONDS = 30.0  # without a sign of life
_WHOLE_SECONDS = 120.0
_MARGIN = timedelta(minutes=5)
_JWT_SECONDS = 9 * 60  # GitHub takes ten minutes
_BACKDATED = 60
_SKEW = 30.0  # seconds between two clocks that are worth a second try
_TRIES = 2
_SETTLES = 5.0  # seconds in which a new token becomes known everywhere at GitHub
_MOST = 900.0
_UNKNOWN = "Bad credentials"  # what GitHub says of a token that it does not know
_PAGE = 100

Call = Callable[["GitHubAPI", dict[str, Any]], Awaitable[Any]]


class GitHubRefused(ThreadlineError):
    """GitHub refused a call for good; ``github_status`` is the HTTP status."""

    code = "github_refused"
    status = 502

    def __init__(self, message: str, github_status: int) -> None:
        super().__init__(message)
        self.github_status = github_status


class NotInstalled(GitHubRefused):
    """There is no such installation, or not any more."""


@dataclass(frozen=True, slots=True)
class _Token:
    value: str = field(repr=False)
    expires_at: datetime


class Client:
    """Calls GitHub as a token's owner, as an App, or as one of its installations.

    A call that only reads is made once more at once when the connection or GitHub breaks: waiting
    is left to who called. One that was redirected is repeated as it was.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._tokens: dict[int, _Token] = {}
        self._renewing: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._strikes: Counter[tuple[int | None, bool]] = Counter()
        self._skew = 0.0
        self._key: Any = None
        self._closed = False
        self._http: httpx.AsyncClient | None = None
        self._api: GitHubAPI | None = None

    async def close(self) -> None:
        """Close the connections, and make no more calls."""
        self._closed = True
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
        TryAgain says ``sent=False`` when this very call surely had no effect.
        """

        async def call(api: GitHubAPI, auth: dict[str, Any]) -> Any:
            if method == "GET":
                found = await api.getitem(path, accept=accept, **auth)
            else:
                body = ({} if method == "POST" else b"") if data is None else data
                send: Callable[..., Awaitable[Any]] = getattr(api, method.lower())
                found = await send(path, data=body, accept=accept, **auth)
            if isinstance(found, str) and accept == JSON:
                raise ValueError("what is no JSON")
            return found

        return await self._called(call, installation, as_app=as_app, safe=method == "GET")

    async def pages(
        self,
        path: str,
        *,
        installation: int | None = None,
        as_app: bool = False,
        most: int = 1000,
        until: Callable[[Any], bool] | None = None,
    ) -> list[Any]:
        """Return the items of a list, over its pages, of at most so many.

        It stops before the first item for which ``until`` is true. A list that is in an object is
        found by the path's last name. Raises as ``request`` does.
        """
        whole = path if "per_page=" in path else f"{path}{_and(path)}per_page={_PAGE}"
        name = path.partition("?")[0].rpartition("/")[2].replace("-", "_")

        async def call(api: GitHubAPI, auth: dict[str, Any]) -> list[Any]:
            found: list[Any] = []
            listed = api.getiter(whole, accept=JSON, iterable_key=name, **auth)
            async with aclosing(listed) as items:
                async for item in items:
                    if isinstance(item, str):
                        raise ValueError("what is no list")
                    if len(found) >= most or (until is not None and until(item)):
                        break
                    found.append(item)
                    if len(found) >= most:
                        break
            return found

        found: list[Any] = await self._called(call, installation, as_app=as_app, safe=True)
        return found

    async def token(self, installation: int | None) -> str:
        """Return a token that lives for another five minutes at least; for git, too."""
        if self.config.token is not None:
            return self.config.token
        if installation is None:
            raise NotInstalled("The App is not installed in this repository.", 404)
        async with self._renewing[installation]:
            known = self._tokens.get(installation)
            if known is None or known.expires_at - self._now() < _MARGIN:
                known = self._tokens[installation] = await self._new(installation)
        return known.value

    def forget(self, installation: int) -> None:
        """Drop a token, as when the installation is gone."""
        self._tokens.pop(installation, None)

    # Calling

    async def _called(
        self, call: Call, installation: int | None, *, as_app: bool, safe: bool
    ) -> Any:
        """Call with the right credentials; what is safe to repeat once more when it breaks."""
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        attempts = AsyncRetrying(
            stop=stop_after_attempt(_TRIES if safe else 1),
            retry=retry_if_exception(_is_broken),
            reraise=True,
        )
        return await attempts(self._once, call, installation, as_app=as_app, safe=safe)

    async def _once(self, call: Call, installation: int | None, *, as_app: bool, safe: bool) -> Any:
        """Call, and again with other credentials when these are refused."""
        import httpx2 as httpx
        from gidgethub import HTTPException

        renewed = False
        while True:
            auth = await self._auth(installation, as_app=as_app)
            try:
                async with asyncio.timeout(_WHOLE_SECONDS):
                    answer = await call(self._opened(), auth)
            except HTTPException as error:
                if not renewed and self._has_better(error, auth, installation):
                    renewed = True
                    continue
                raise self._understood(error, (installation, safe), renewed=renewed) from error
            except (httpx.HTTPError, TimeoutError) as error:
                raise _broken(error) from error
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                # An answer that gidgethub cannot read: half a body, a page of a proxy.
                raise TryAgain(f"GitHub's answer cannot be read: {error}") from error
            self._strikes.pop((installation, safe), None)
            return answer

    async def _auth(self, installation: int | None, *, as_app: bool) -> dict[str, Any]:
        if as_app and self.config.app_id is not None:
            return {"jwt": self._jwt()}
        return {"oauth_token": await self.token(installation)}

    def _has_better(
        self, error: HTTPException, auth: dict[str, Any], installation: int | None
    ) -> bool:
        """Tell whether other credentials may do, where these are refused; drop what is stale."""
        if int(error.status_code) != 401:
            return False
        if "jwt" in auth:
            return self._set_right(error.headers.get("date"))
        if self.config.token is not None or installation is None:
            return False
        known = self._tokens.get(installation)
        if known is not None and known.value == auth["oauth_token"]:
            self.forget(installation)
        return True

    def _set_right(self, date: str | None) -> bool:
        """Take GitHub's clock for ours; False when they agree as it is."""
        try:
            theirs = parsedate_to_datetime(date or "")
            skew = (theirs - self._clock.now()).total_seconds()
        except (TypeError, ValueError):
            return False
        if abs(skew - self._skew) < _SKEW:
            return False
        self._skew = skew
        return True

    def by_github(self, moment: datetime) -> datetime:
        """Return a time of the host by GitHub's clock, as far as it is known to differ."""
        return moment + timedelta(seconds=self._skew)

    def _now(self) -> datetime:
        return self.by_github(self._clock.now())

    async def _new(self, installation: int) -> _Token:
        path = f"/app/installations/{installation}/access_tokens"

        async def call(api: GitHubAPI, auth: dict[str, Any]) -> _Token:
            answer = await api.post(path, data={}, accept=JSON, **auth)
            return _Token(str(answer["token"]), datetime.fromisoformat(answer["expires_at"]))

        try:
            made: _Token = await self._called(call, None, as_app=True, safe=True)
        except GitHubRefused as error:
            if error.github_status != 404:
                raise
            raise NotInstalled(str(error), error.github_status) from error
        return made

    def _jwt(self) -> str:
        import jwt

        now = int(self._now().timestamp())
        claims = {"iat": now - _BACKDATED, "exp": now + _JWT_SECONDS, "iss": self.config.app_id}
        try:
            return jwt.encode(claims, self._loaded(), algorithm="RS256")
        except jwt.PyJWTError:
            raise _unusable() from None

    def _loaded(self) -> Any:
        """Return the App's key, which takes a tenth of a second to read and is read once."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if self._key is None:
            assert self.config.private_key is not None
            try:
                self._key = load_pem_private_key(self.config.private_key.encode(), None)
            except (ValueError, TypeError, UnsupportedAlgorithm):
                raise _unusable() from None
        return self._key

    def _opened(self) -> GitHubAPI:
        if self._closed:
            raise TryAgain("The channel has stopped.", sent=False)
        if self._api is None:
            import httpx2 as httpx
            from gidgethub.httpx import GitHubAPI

            self._http = httpx.AsyncClient(
                timeout=_CALL_SECONDS,
                follow_redirects=True,
                event_hooks={"response": [_as_it_was]},
            )
            self._api = GitHubAPI(self._http, "threadline", base_url=self.config.api_url)
        return self._api

    def _understood(
        self, error: HTTPException, limit: tuple[int | None, bool], *, renewed: bool
    ) -> Exception:
        """Return what a refusal means; ``limit`` is what its rate limit is shared by.

        A token that was just made and is refused is not known everywhere yet.
        """
        status, headers = int(error.status_code), error.headers
        message = str(error)
        now = self._now().timestamp()
        strikes = self._strikes[limit]
        wait = wait_for(status, headers, message, now=now, strikes=strikes)
        if renewed and limit[0] is not None and message == _UNKNOWN:
            wait = min(_SETTLES * 2.0 ** min(strikes, 10), _MOST)
        if wait is not None:
            self._strikes[limit] += 1
            return TryAgain(f"GitHub answered {status}: {message}", retry_after=wait, sent=False)
        try:
            TryAgain.when(status, headers)
        except TryAgain as again:
            return again
        return GitHubRefused(f"GitHub answered {status}: {message}", status)


async def _as_it_was(response: httpx.Response) -> None:
    """Have a redirected call repeated with its method and body, as GitHub asks.

    A POST to a repository's old name is not meant to become a GET.
    https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api
    """
    if response.status_code in (301, 302):
        response.status_code = 308


def _broken(error: Exception) -> TryAgain:
    """Return what a connection that fails means: what never reached GitHub had no effect."""
    import httpx2 as httpx

    never = httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol
    why = str(error) or type(error).__name__
    return TryAgain(
        f"GitHub cannot be reached: {why}", sent=False if isinstance(error, never) else None
    )


def _unusable() -> GitHubRefused:
    return GitHubRefused("The App's private key cannot be used.", 401)


def _is_broken(error: BaseException) -> bool:
    """Tell whether a call failed for no reason that a wait is known for."""
    return isinstance(error, TryAgain) and error.retry_after is None


def _and(path: str) -> str:
    return "&" if "?" in path else "?"
