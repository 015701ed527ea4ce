"""Which failures of a read may pass by themselves, and when to try again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from threadline.errors import ToolFailed

__all__ = ["TransientToolError", "is_transient", "retry_after"]

# By name, so that no client is imported that the tool does not use.
_CLIENTS = frozenset({"aiohttp", "httpx", "httpx2", "requests"})
_UNREACHABLE = frozenset(
    {"ClientConnectionError", "ConnectionError", "Timeout", "TimeoutException", "TransportError"}
)
_HOPELESS = frozenset({"LocalProtocolError", "UnsupportedProtocol"})
_ANSWERED = frozenset({"ClientResponseError", "HTTPError", "HTTPStatusError"})
_STATUSES = frozenset({429, 502, 503, 504})


class TransientToolError(ToolFailed):
    """The tool failed, and trying again may help; ``retry_after`` seconds, when it is known."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def is_transient(error: BaseException) -> bool:
    """Tell whether trying again may help.

    So it is for TransientToolError, ConnectionError, TimeoutError, the transport errors of the
    well-known HTTP clients, their errors for the statuses 429, 502, 503 and 504, and a group of
    nothing else.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(is_transient(part) for part in error.exceptions)
    if isinstance(error, (TransientToolError, ConnectionError, TimeoutError)):
        return True
    names = _client_names(error)
    if names & _UNREACHABLE:
        return not names & _HOPELESS
    return bool(names & _ANSWERED) and _status(error) in _STATUSES


def _client_names(error: BaseException) -> set[str]:
    return {
        kind.__name__ for kind in type(error).__mro__ if kind.__module__.split(".")[0] in _CLIENTS
    }


def _status(error: BaseException) -> Any:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return getattr(error, "status", None) if status is None else status


def retry_after(error: BaseException, now: datetime) -> float | None:
    """Return for how many seconds the failure asks to wait; None when it does not say."""
    if isinstance(error, BaseExceptionGroup):
        waits = [retry_after(part, now) for part in error.exceptions]
        return max((wait for wait in waits if wait is not None), default=None)
    if isinstance(error, TransientToolError):
        return error.retry_after
    if not _client_names(error) & _ANSWERED:
        return None
    headers = getattr(getattr(error, "response", error), "headers", None)
    said = _header(headers) if isinstance(headers, Mapping) else None
    return None if said is None else _seconds(said.strip(), now)


def _header(headers: Mapping[Any, Any]) -> str | None:
    return next((str(v) for k, v in headers.items() if str(k).lower() == "retry-after"), None)


def _seconds(said: str, now: datetime) -> float | None:
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        moment = parsedate_to_datetime(said)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
