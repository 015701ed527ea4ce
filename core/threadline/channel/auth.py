"""Auth policies, and how a chain of them is walked; no network, no disk.

A policy is any callable from :class:`AuthRequest` to a principal (admits), None (passes to the next
policy) or an awaitable of either. Raising :class:`~threadline.errors.Unauthorized` ends the chain. A
request that no policy admits gets 401.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import ipaddress
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from threadline.errors import Unauthorized
from threadline.principal import LOCAL, Principal

__all__ = ["AuthRequest", "Policy", "admit", "anonymous", "bearer", "local_dev_strict"]


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """What a policy may look at; header names are lower case, ``body`` is the raw bytes."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str | None = None
    body: bytes = b""


Policy = Callable[[AuthRequest], "Principal | None | Awaitable[Principal | None]"]

_FORWARDING = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
)


async def admit(chain: Sequence[Policy], request: AuthRequest) -> Principal:
    """Return the first principal that a policy gives, in order.

    Raises Unauthorized when a policy refuses, or none admits.
    """
    for policy in chain:
        verdict = policy(request)
        principal = await verdict if inspect.isawaitable(verdict) else verdict
        if principal is not None:
            return principal
    raise Unauthorized(
        "No auth policy admitted this request. Call from the same machine, or send "
        "'Authorization: Bearer <token>'."
    )


def local_dev_strict(principal: Principal = LOCAL) -> Policy:
    """Admit a direct caller on this machine: loopback peer and ``Host``, no proxy, no other site.

    A browser's request from a page of another origin is not admitted.
    """

    def policy(request: AuthRequest) -> Principal | None:
        direct = not any(name in request.headers for name in _FORWARDING)
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

    def policy(request: AuthRequest) -> Principal | None:
        expected = token if token is not None else os.environ.get(env or "", "")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if not expected or scheme.lower() != "bearer":
            return None
        if not hmac.compare_digest(given.strip().encode(), expected.encode()):
            return None
        return principal or Principal("bearer", env or _digest(expected))

    return policy


def anonymous(principal: Principal | None = None) -> Policy:
    """Admit everybody, all as the same principal."""
    everybody = principal or Principal("anonymous", "anonymous")

    def policy(_: AuthRequest) -> Principal:
        return everybody

    return policy


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:12]


def host_name(host: str | None) -> str | None:
    """Return the name in a ``Host`` header, without its port."""
    if not host:
        return None
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


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
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
