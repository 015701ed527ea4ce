"""Who calls: an app by its JWT, an installation or a person by a token.

https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app
"""

from __future__ import annotations

import base64
import binascii
import functools
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from threadline_github.testing.model import Account, App, Installation, Repository, Token
from threadline_github.testing.refusal import (
    Refusal,
    forbidden,
    not_found,
    unauthorised,
    unprocessable,
)
from threadline_github.testing.state import State

__all__ = ["Caller", "Doors", "issue"]

_LONGEST = 600  # seconds that a JWT may live
_SKEW = 60  # seconds that the caller's clock may be ahead
_LEVELS = ("none", "read", "write", "admin")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever calls; all None for nobody."""

    app: App | None = None
    token: Token | None = None

    @property
    def name(self) -> str | None:
        """``app``, or the login that acts."""
        if self.token is not None:
            return self.token.account.login
        return "app" if self.app is not None else None

    @property
    def installation(self) -> Installation | None:
        """The installation, of a caller that is one."""
        return None if self.token is None else self.token.installation

    @property
    def acting(self) -> Account:
        """The account that is seen to act; raises Refusal for nobody and for an app itself."""
        if self.token is None:
            raise Refusal(401, "Requires authentication") if self.app is None else forbidden()
        return self.token.account

    @property
    def via(self) -> App | None:
        """The app that acts for ``performed_via_github_app``."""
        return None if self.installation is None else self.installation.app

    @property
    def budget(self) -> str:
        """Whose rate limit the call counts against."""
        if self.installation is not None:
            return f"installation ID {self.installation.id}"
        if self.token is not None:
            return f"user ID {self.token.account.id}"
        return "app" if self.app is not None else "127.0.0.1"


class Doors:
    """Reads credentials, and says what they are good for."""

    def __init__(self, state: State) -> None:
        self._state = state

    def caller(self, header: str) -> Caller:
        """Return who sends ``Authorization``; raises Refusal."""
        scheme, _, value = header.strip().partition(" ")
        value = value.strip()
        if not header:
            return Caller()
        if scheme.lower() == "basic":
            value = _password(value)
        elif scheme.lower() not in ("token", "bearer"):
            raise unauthorised()
        if value.count(".") == 2:
            return Caller(app=self._app(value))
        return Caller(token=self._token(value))

    def require(
        self, caller: Caller, repository: Repository, needs: Iterable[str], *, write: bool
    ) -> None:
        """Raise Refusal unless a caller has one of the permissions, such as ``issues:write``."""
        if caller.app is not None:
            raise forbidden()
        token = caller.token
        if token is None:
            if repository.private:
                raise not_found()
            if write:
                raise Refusal(401, "Requires authentication")
            return
        if token.installation is not None:
            self._installation(token.installation, token, repository, needs, write=write)
        else:
            self._person(token, repository, needs, write=write)

    def _installation(
        self,
        installation: Installation,
        token: Token,
        repository: Repository,
        needs: Iterable[str],
        *,
        write: bool,
    ) -> None:
        if not installation.covers(repository):
            if repository.private:
                raise not_found()
            if write:
                raise forbidden()
            return
        if not _has(token.permissions, needs):
            raise forbidden()

    def _person(
        self, token: Token, repository: Repository, needs: Iterable[str], *, write: bool
    ) -> None:
        permission = self._state.permission(repository, token.account)
        if permission == "none":
            raise not_found() if repository.private else forbidden("Must have access")
        if token.permissions and not _has(token.permissions, needs):
            raise forbidden("Resource not accessible by personal access token")
        if write and permission == "read" and "contents:write" in needs:
            raise forbidden("Must have push access to repository.")

    def _token(self, value: str) -> Token:
        found = self._state.tokens.get(value)
        if found is None or found.revoked:
            raise unauthorised()
        if found.expires_at is not None and self._state.clock.now() >= found.expires_at:
            raise unauthorised()
        installation = found.installation
        if installation is not None and installation.deleted:
            raise unauthorised()
        if installation is not None and installation.suspended:
            raise forbidden("This installation has been suspended")
        return found

    def _app(self, value: str) -> App:
        import jwt

        try:
            claims = jwt.decode(value, options={"verify_signature": False})
            app = self._state.apps.get(int(claims["iss"]))
        except (jwt.PyJWTError, KeyError, TypeError, ValueError):
            raise unauthorised("A JSON web token could not be decoded") from None
        if app is None:
            raise not_found("Integration not found")
        try:
            jwt.decode(value, _public(app.private_key), algorithms=["RS256"], options=_UNTIMED)
        except jwt.PyJWTError:
            raise unauthorised("A JSON web token could not be decoded") from None
        self._timely(claims)
        return app

    def _timely(self, claims: Mapping[str, Any]) -> None:
        now = self._state.clock.now().timestamp()
        issued, end = claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int) or issued > now + _SKEW:
            raise unauthorised(
                "'Issued at' claim ('iat') must be an Integer representing the time that the "
                "assertion was issued"
            )
        if not isinstance(end, int) or end <= now:
            raise unauthorised(
                "'Expiration time' claim ('exp') must be a numeric value representing the future "
                "time at which the assertion expires"
            )
        if end > now + _LONGEST:
            raise unauthorised("'Expiration time' claim ('exp') is too far in the future")


def issue(
    state: State,
    installation: Installation,
    repositories: Iterable[str] | None,
    permissions: Mapping[str, str] | None,
) -> Token:
    """Make a token of an installation, of all its permissions or of some."""
    for name, level in (permissions or {}).items():
        if _LEVELS.index(installation.permissions.get(name, "none")) < _LEVELS.index(level):
            raise unprocessable(
                message="The permissions requested are not granted to this installation."
            )
    for name in repositories or ():
        owner = installation.account.login
        known = state.names.get(f"{owner}/{name}".lower())
        if known is None or not installation.covers(state.repositories[known]):
            raise unprocessable(
                message="There is at least one repository that does not exist or is not accessible "
                "to the parent installation."
            )
    now = state.clock.now()
    made = Token(
        f"ghs_{secrets.token_hex(18)}",
        installation.app.bot,
        now,
        installation,
        state.now() + timedelta(seconds=state.options.token_seconds),
        dict(installation.permissions if permissions is None else permissions),
    )
    state.tokens[made.value] = made
    return made


_UNTIMED: Any = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_aud": False}


@functools.cache
def _public(private_key: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(private_key.encode(), None).public_key()


def _has(permissions: Mapping[str, str], needs: Iterable[str]) -> bool:
    """Whether one of the needs is met; what needs nothing is open to every token."""
    wanted = [need.partition(":") for need in needs]
    return not wanted or any(
        _LEVELS.index(permissions.get(name, "none")) >= _LEVELS.index(level)
        for name, _, level in wanted
    )


def _password(value: str) -> str:
    """Return the token in basic credentials, as git sends them."""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise unauthorised() from None
