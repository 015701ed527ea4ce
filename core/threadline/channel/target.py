"""What a channel says of the place where it posts, and what the place's errors mean."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, runtime_checkable

from threadline.errors import ThreadlineError

__all__ = [
    "CanEdit",
    "CanFind",
    "CanRemove",
    "IsPatient",
    "Post",
    "Target",
    "TryAgain",
    "sentence",
    "understood",
]

_SENTENCE = 1000
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT = frozenset(
    {"aiohttp.ClientConnectionError", "aiohttp.ClientPayloadError", "httpx.TransportError"}
)
_HOPELESS = frozenset({"httpx.LocalProtocolError", "httpx.UnsupportedProtocol"})
_NEVER_SENT = frozenset(
    {
        "aiohttp.ClientConnectorError",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.PoolTimeout",
    }
)


class TryAgain(ThreadlineError):
    """The target could not take the post now; ``retry_after`` is in seconds, when it is known.

    ``sent=False`` says that it surely was not taken, so that nobody has to look for it.
    """

    code = "try_again"
    status = 503

    def __init__(
        self, message: str, *, retry_after: float | None = None, sent: bool | None = None
    ) -> None:
        super().__init__(message)
        usable = retry_after is not None and math.isfinite(retry_after)
        self.retry_after = max(retry_after or 0.0, 0.0) if usable else None
        self.sent = sent

    @classmethod
    def when(cls, status: int, headers: Mapping[str, str]) -> None:
        """Raise when an HTTP answer says that trying again may help: 408, 425, 429 and 5xx."""
        if status in _RETRIED_STATUS:
            after = _retry_after({name.lower(): value for name, value in headers.items()})
            sent = False if status == 429 else None
            raise cls(f"The target answered {status}.", retry_after=after, sent=sent)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read seconds or a date; a date counts from the answer's own, whatever our clock says."""
    given = headers.get("retry-after", "")
    try:
        return float(given)
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(given)
        now = parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
        return (moment - now).total_seconds()
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Post:
    """One thing to say at a target; ``id`` is the same however often it is tried."""

    id: str
    session_id: str
    turn_id: str | None
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Target(Protocol):
    """Where a channel posts; ``credential`` and ``method`` name the limit that calls share."""

    @property
    def credential(self) -> str:
        """Whose limit a call counts against, for example a digest of the token."""

    @property
    def method(self) -> str:
        """Which call it is, where the target limits each on its own."""

    async def send(self, post: Post) -> str:
        """Post it and return the target's own reference of it.

        Raise TryAgain when trying again may help. Connection errors, timeouts and the errors of
        ``raise_for_status()`` are understood as they are; after a minute a call is cut off.
        """


@runtime_checkable
class CanFind(Protocol):
    """A target that can say whether it has a post already."""

    async def find(self, post: Post) -> str | None:
        """Return the reference of the post if the target has it, by ``post.id``."""


@runtime_checkable
class CanEdit(Protocol):
    """A target whose posts can be changed."""

    async def edit(self, ref: str, post: Post) -> str | None:
        """Make the post say what ``post`` says; return its reference if that is another one now."""


@runtime_checkable
class IsPatient(Protocol):
    """A target whose posts may wait longer than the usual 15 minutes."""

    @property
    def patience(self) -> float:
        """For how many seconds a post is tried before it is given up."""


@runtime_checkable
class CanRemove(Protocol):
    """A target whose posts can be taken back."""

    async def remove(self, ref: str) -> None:
        """Take the post back; one that is gone already is no error."""


def understood(error: BaseException) -> Exception:
    """Return TryAgain when an error may pass by itself, else what there is to say of it."""
    if isinstance(error, TryAgain):
        return error
    if isinstance(error, BaseExceptionGroup):
        return _group(error)
    if isinstance(error, asyncio.CancelledError):
        return TryAgain("The call was cancelled, though nobody here asked for it.")
    if not isinstance(error, Exception):
        return RuntimeError(f"The target raised {type(error).__name__}.")
    try:
        TryAgain.when(*_answer(error))
    except TryAgain as again:
        return again
    names = _names(error)
    unsent = isinstance(error, ConnectionRefusedError | socket.gaierror) or names & _NEVER_SENT
    if unsent or _may_pass(error, names):
        return TryAgain(sentence(error), sent=False if unsent else None)
    return error


def sentence(error: BaseException) -> str:
    """Return an error's type and text, also of one that cannot say its text."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:_SENTENCE]
    except Exception:
        return name


def _group(error: BaseExceptionGroup[BaseException]) -> Exception:
    parts = [understood(part) for part in error.exceptions]
    lasting = [part for part in parts if not isinstance(part, TryAgain)]
    if lasting:
        return lasting[0]
    waits = [part.retry_after or 0.0 for part in parts if isinstance(part, TryAgain)]
    return TryAgain(str(parts[0]), retry_after=max(waits) or None)


def _may_pass(error: Exception, names: frozenset[str]) -> bool:
    if isinstance(error, PermissionError | FileNotFoundError) or names & _HOPELESS:
        return False
    return isinstance(error, OSError) or bool(names & _TRANSIENT)


def _answer(error: Exception) -> tuple[int, Mapping[str, str]]:
    """Return status and headers of the HTTP answer that an error stands for; 0 when there is none.

    aiohttp has them on the error, httpx, requests and the Slack SDK on its ``response``.
    """
    if "aiohttp.ClientResponseError" in _names(error):
        return int(getattr(error, "status", 0)), getattr(error, "headers", None) or {}
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    headers = getattr(response, "headers", None)
    if not isinstance(status, int):
        return 0, {}
    return status, headers if isinstance(headers, Mapping) else {}


def _names(error: BaseException) -> frozenset[str]:
    """Return ``package.Class`` of an error and its bases; no library is imported to know it."""
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
    return frozenset(f"{'httpx' if top == 'httpx2' else top}.{name}" for top, name in kinds)
