"""Auth policies, and how a chain of them is walked; no network, no disk.

A policy is any callable from :class:`AuthRequest` to a principal (admits), None (passes to the
next policy) or an awaitable of either. Raising :class:`~threadline.errors.Unauthorized` ends the
chain. A request that no policy admits gets 401, and so does one whose check could not be made.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import ipaddress
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog

from threadline.errors import ThreadlineError, Unauthorized
from threadline.principal import LOCAL, Principal

__all__ = [
    "AuthRequest",
    "Policy",
    "admit",
    "anonymous",
    "bearer",
    "documented",
    "local_dev_strict",
    "scheme_of",
]

log = structlog.get_logger("threadline.channel")


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """What a policy may look at; header names are lower case, ``body`` is the raw bytes."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str | None = None
    body: bytes = b""


Policy = Callable[[AuthRequest], "Principal | Awaitable[Principal | None] | None"]
_P = TypeVar("_P", bound=Policy)

_FORWARDING = frozenset(
    {
        "cf-connecting-ip",
        "fastly-client-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-real-ip",
    }
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_ORIGIN = re.compile(r"https?://([^/?#@]+)")


async def admit(chain: Sequence[Policy], request: AuthRequest) -> Principal:
    """Return the first principal that a policy gives, in order.

    Raises Unauthorized when a policy refuses or fails, or none admits.
    """
    for policy in chain:
        principal = await _ask(policy, request)
        if principal is not None:
            return principal
    raise Unauthorized(
        "No auth policy admitted this request. Call from the same machine, or send "
        "'Authorization: Bearer <token>'."
    )


async def _ask(policy: Policy, request: AuthRequest) -> Principal | None:
    """Return a policy's verdict; a check that cannot be made is a failed check."""
    try:
        verdict = policy(request)
        principal = await verdict if inspect.isawaitable(verdict) else verdict
        if principal is not None and not isinstance(principal, Principal):
            raise TypeError(f"it returned {type(principal).__name__}, not a Principal or None")
        if principal is not None:
            # A name that is no text, as a header may hold, could never be stored or compared.
            f"{principal.key}{principal.name}".encode()
    except ThreadlineError:
        raise
    except Exception as error:
        name = getattr(policy, "__qualname__", type(policy).__name__)
        log.error("auth.policy_failed", policy=name, error=repr(error), exc_info=error)
        raise Unauthorized("An auth policy could not check this request.") from None
    return principal


def documented(scheme: Mapping[str, Any]) -> Callable[[_P], _P]:
    """Decorate a policy with what it wants, as an OpenAPI security scheme; ``{}`` is nothing.

    For example ``{"type": "apiKey", "in": "header", "name": "X-Signature"}``.
    """

    def note(policy: _P) -> _P:
        policy.__dict__["security_scheme"] = dict(scheme)
        return policy

    return note


def scheme_of(policy: Policy) -> Mapping[str, Any] | None:
    """Return what a policy was decorated with; None when nobody said."""
    scheme: Mapping[str, Any] | None = getattr(policy, "security_scheme", None)
    return scheme


def local_dev_strict(principal: Principal = LOCAL) -> Policy:
    """Admit a direct caller on this machine: loopback peer and ``Host``, no proxy, no other site.

    A browser's request from a page of another origin is not admitted.
    """

    @documented({})
    def policy(request: AuthRequest) -> Principal | None:
        direct = not any(map(_is_forwarding, request.headers))
        local = is_loopback(request.peer) and is_loopback(host_name(request.headers.get("host")))
        return principal if direct and local and _same_origin(request) else None

    return policy


def bearer(
    *, env: str | None = None, token: str | None = None, principal: Principal | None = None
) -> Policy:
    """Admit whoever sends the token, compared in constant time.

    ``env`` names a variable that is read at each request; while it is unset or empty nobody is
    admitted. Without ``principal`` the variable's name, or a digest of the token, is the identity.

    Raises ValueError unless exactly one of ``env`` and ``token`` is given.
    """
    if (env is None) == (token is None):
        raise ValueError("bearer() takes exactly one of env= and token=.")

    @documented({"type": "http", "scheme": "bearer"})
    def policy(request: AuthRequest) -> Principal | None:
        expected = (token if token is not None else os.environ.get(env or "", "")).strip()
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not expected or scheme.lower() != "bearer":
            return None
        if not hmac.compare_digest(_raw(given.strip()), _raw(expected)):
            return None
        return principal or Principal("bearer", env or _digest(expected))

    return policy


def anonymous(principal: Principal | None = None) -> Policy:
    """Admit everybody, all as the same principal."""
    everybody = principal or Principal("anonymous", "anonymous")

    @documented({})
    def policy(_: AuthRequest) -> Principal:
        return everybody

    return policy


def _digest(token: str) -> str:
    return hashlib.sha256(_raw(token)).hexdigest()[:12]


def _raw(text: str) -> bytes:
    """Return bytes to compare; headers and variables hold what is not UTF-8 as surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _is_forwarding(name: str) -> bool:
    return name in _FORWARDING or name.startswith("x-forwarded")


def host_name(host: str | None) -> str | None:
    """Return the name in a ``Host`` header, without its port; None when it is anything else."""
    found = _HOST.fullmatch(host or "")
    return found[1].strip("[]").lower() if found else None


def is_loopback(name: str | None) -> bool:
    """Tell whether an address or host name means this machine."""
    if name is None:
        return False
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _same_origin(request: AuthRequest) -> bool:
    origin = request.headers.get("origin")
    if origin is not None:
        found = _ORIGIN.fullmatch(origin.lower())
        return found is not None and found[1] == request.headers.get("host", "").lower()
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
