"""Which ``Host`` and ``Origin`` a request may name, so that no website reaches the host by DNS.

A page can point its own name at this machine and call it from the visitor's browser. Its requests
then carry that name, so names that are not the host's own are refused; addresses are no names.
"""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["allowed_hosts", "allowed_origins"]

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def allowed_hosts(url: str, local: str | None) -> list[str]:
    """Return values of ``Host``, where ``:*`` is any port.

    ``url`` is the host's own address, ``local`` the address of this machine that was called.
    """
    names = [*_LOOPBACK, urlsplit(url).netloc, _name(url)]
    if local is not None:
        names.append(f"[{local}]" if ":" in local else local)
    return [value for name in dict.fromkeys(names) if name for value in (name, f"{name}:*")]


def allowed_origins(url: str) -> list[str]:
    """Return values of ``Origin``: pages of this machine, and of the host's own address."""
    own = urlsplit(url)
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in _LOOPBACK]
    origins = [value for origin in origins for value in (origin, f"{origin}:*")]
    return [*origins, f"{own.scheme}://{own.netloc}"]


def _name(url: str) -> str:
    """Return a URL's host without its port, in brackets where it is IPv6."""
    name = urlsplit(url).hostname or ""
    return f"[{name}]" if ":" in name else name
