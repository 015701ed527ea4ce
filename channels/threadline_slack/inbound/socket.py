"""One connection of Socket Mode: what comes over it, and what is acknowledged on it.

https://docs.slack.dev/apis/events-api/using-socket-mode
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

__all__ = ["Disconnect", "Envelope", "Frame", "Hello", "Lost", "Socket", "Take", "parse"]

Take: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]

_TAKEN = frozenset({"events_api", "interactive", "slash_commands"})
_LINGER_SECONDS = 60.0  # Slack closes some ten seconds after its notice


@dataclass(frozen=True, slots=True)
class Hello:
    """The greeting; ``connections`` are those of the app as Slack counts them."""

    connections: int | None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The connection is about to end; another one has to be opened."""

    reason: str


@dataclass(frozen=True, slots=True)
class Envelope:
    """What has to be acknowledged; ``payload`` is None when there is nothing in it for us."""

    id: str
    type: str
    payload: Mapping[str, Any] | None
    wants_answer: bool = False


Frame: TypeAlias = Hello | Disconnect | Envelope


def parse(text: str) -> Frame | str:
    """Read a frame; returns a sentence about one that means nothing."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return "It is not JSON."
    if not isinstance(frame, dict):
        return "It is not an object."
    kind, identity = str(frame.get("type"))[:80], frame.get("envelope_id")
    if kind == "hello":
        count = frame.get("num_connections")
        return Hello(count if isinstance(count, int) else None)
    if kind == "disconnect":
        return Disconnect(str(frame.get("reason"))[:80])
    if not isinstance(identity, str) or not identity:
        return f"Its type is {kind!r}, and it cannot be acknowledged."
    payload = frame.get("payload")
    known = kind in _TAKEN and isinstance(payload, dict)
    return Envelope(
        identity, kind, payload if known else None, bool(frame.get("accepts_response_payload"))
    )


class Lost(Exception):
    """The connection ended before its greeting; ``reason`` is Slack's, or nothing."""

    def __init__(self, reason: str | None, error: str | None) -> None:
        super().__init__(reason or error or "The connection ended before its greeting.")
        self.reason = reason or ""


class Socket:
    """A connection; every envelope is given to ``received``, which must not wait.

    ``leaving`` is set when it has ended or is about to; ``reason`` is what Slack said of that, and
    ``error`` what else is known.
    """

    def __init__(
        self,
        ws: ClientWebSocketResponse,
        received: Callable[[Socket, Envelope], None],
        log: Any,
    ) -> None:
        self.hello: Hello | None = None
        self.leaving = asyncio.Event()
        self.reason: str | None = None
        self.error: str | None = None
        self._ws = ws
        self._received = received
        self._log = log
        self._first = asyncio.Event()
        self._limit = asyncio.timeout(None)

    async def greeted(self) -> None:
        """Return when Slack has said hello; raises Lost when it did not."""
        await self._first.wait()
        if self.hello is None:
            raise Lost(self.reason, self.error)

    async def run(self) -> None:
        """Take frames until the connection ends, or has long been about to."""
        try:
            async with self._limit:
                async for message in self._ws:
                    self._frame(message)
        except Exception as error:
            self.error = repr(error)
        finally:
            if self.error is None and not self.reason:
                self.error = repr(self._ws.exception() or f"closed with {self._ws.close_code}")
            self.leaving.set()
            self._first.set()
            await self._ws.close()

    async def acknowledge(self, identity: str, payload: Mapping[str, Any] | None = None) -> None:
        """Acknowledge an envelope; raises ConnectionError when the connection is gone."""
        said = {"envelope_id": identity} | ({} if payload is None else {"payload": payload})
        await self._ws.send_str(json.dumps(said))

    async def close(self) -> None:
        """Say goodbye."""
        await self._ws.close()

    def _frame(self, message: Any) -> None:
        from aiohttp import WSMsgType

        if message.type is WSMsgType.ERROR:
            self.error = repr(message.data)
            return
        frame = parse(message.data) if message.type is WSMsgType.TEXT else "It is not text."
        match frame:
            case Hello():
                self.hello = frame
                self._first.set()
            case Disconnect():
                self._leave(frame.reason)
            case Envelope():
                if frame.payload is None:
                    self._log.warning("slack.unknown_envelope", type=frame.type)
                self._received(self, frame)
            case _:
                self._log.warning("slack.unknown_frame", problem=frame)

    def _leave(self, reason: str) -> None:
        """Have a successor opened; what still comes here is taken all the same."""
        self.reason = self.reason or reason
        self._limit.reschedule(asyncio.get_running_loop().time() + _LINGER_SECONDS)
        self.leaving.set()
        self._first.set()
