"""A client of one agent on a running host.

Sends carry a delivery id and are repeated under it when the network fails, so that a message is
never accepted twice. Streams go on from the last index plus one when the connection breaks, also
over a restart of the host.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote

import aiohttp

from threadline.cli.exits import HostUnreachableError, UsageError
from threadline.errors import ThreadlineError
from threadline.ids import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from pathlib import Path
    from types import TracebackType

__all__ = ["ApiError", "Client", "Line", "Sent"]

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
# The host writes a blank line every 15 s, so that a silent connection is a dead one.
SILENCE_SECONDS = 45.0
TOOL_SECONDS = 900.0
_FIRST_PATIENCE = 2.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
# A stream that held for this long was a real one.
_LASTING = CONNECT_SECONDS + 5.0
_BEYOND = 2**53
_ENDS = ("session.completed", "session.failed")

Admission = Literal["preempt", "coalesce"]


class ApiError(ThreadlineError):
    """The host answered with an error; ``code`` and ``message`` are its own."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        message = body.get("message") or f"The host answered with status {status}."
        super().__init__(str(message))
        self.http_status = status
        self.body = body
        self.error = str(body.get("error") or "unknown")


@dataclass(frozen=True, slots=True)
class Sent:
    """An accepted message; ``token`` is the one that the next message needs."""

    session_id: str
    token: str
    delivery_id: str
    admitted: str
    playground_url: str


@dataclass(frozen=True, slots=True)
class Line:
    """One stored event: its bytes with the newline, and what they say."""

    raw: bytes
    event: dict[str, Any]


class Client:
    """Talks to the agent at ``url``; an async context manager.

    ``patience``: for how many seconds a message or a stream waits for a host that does not answer.
    ``socket`` is a Unix socket to use in place of the URL's address.
    """

    def __init__(
        self,
        url: str,
        *,
        bearer_token: str | None = None,
        patience: float = 30.0,
        socket: Path | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f"{url!r} is no address of a host: it begins with http:// or https://."
            )
        self.url = url.rstrip("/")
        self.patience = patience
        self._token = bearer_token
        self._socket = socket
        self._http: aiohttp.ClientSession | None = None
        self._reached = False

    async def __aenter__(self) -> Self:
        """Make ready; connections are opened when they are needed."""
        connector = aiohttp.UnixConnector(str(self._socket)) if self._socket else None
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        self._http = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    # Messages

    async def start(
        self,
        message: str,
        *,
        delivery_id: str | None = None,
        title: str | None = None,
        workspace_files: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        as_of: str | None = None,
    ) -> Sent:
        """Open a conversation."""
        body = {
            "message": message,
            "title": title,
            "workspaceFiles": workspace_files,
            "dryRun": dry_run or None,
            "asOf": as_of,
        }
        return await self._send("/v1/session", body, delivery_id)

    async def follow_up(
        self,
        session_id: str,
        token: str,
        message: str,
        *,
        admission: Admission | None = None,
        delivery_id: str | None = None,
        workspace_files: Mapping[str, Any] | None = None,
    ) -> Sent:
        """Continue a conversation with its newest token."""
        body = {
            "message": message,
            "continuationToken": token,
            "admission": admission,
            "workspaceFiles": workspace_files,
        }
        return await self._send(f"/v1/session/{_part(session_id)}", body, delivery_id)

    async def _send(self, path: str, body: dict[str, Any], delivery_id: str | None) -> Sent:
        given = {key: value for key, value in body.items() if value is not None}
        given["deliveryId"] = delivery_id or new_id("dlv")
        answer = await self._patiently("POST", path, given)
        return Sent(
            answer["sessionId"],
            answer["continuationToken"],
            answer["deliveryId"],
            answer["admitted"],
            answer.get("playgroundUrl", ""),
        )

    async def stop(self, session_id: str, *, clear_pending: bool = False) -> bool:
        """Interrupt a session's turn; False when nothing ran."""
        body = {"clearPending": True} if clear_pending else {}
        answer = await self._once("POST", f"/v1/session/{_part(session_id)}/stop", body)
        return bool(answer["stopped"])

    async def decide(
        self,
        session_id: str,
        call_id: str,
        decision: Literal["approved", "denied"],
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Decide a tool call that waits for a person; raises ApiError when somebody else did."""
        path = f"/v1/session/{_part(session_id)}/approvals/{_part(call_id)}"
        body = {"decision": decision} | ({"reason": reason} if reason else {})
        return await self._once("POST", path, body)

    # Sessions

    async def sessions(self, *, limit: int = 100) -> list[dict[str, Any]]:
        """List the caller's sessions, newest first."""
        answer = await self._once("GET", f"/v1/sessions?limit={limit}")
        found: list[dict[str, Any]] = answer["sessions"]
        return found

    async def delete(self, session_id: str) -> None:
        """Remove a session with its log, history and workspace."""
        await self._once("DELETE", f"/v1/session/{_part(session_id)}")

    async def log(self, session_id: str) -> bytes:
        """Return a session's stored events, as they are."""
        path = f"/v1/session/{_part(session_id)}/events"
        try:
            async with self._open("GET", path) as response:
                return await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def next_index(self, session_id: str) -> int:
        """Return the index that a session's next event will have."""
        path = f"/v1/session/{_part(session_id)}/stream?startIndex={_BEYOND}"
        try:
            await self._once("GET", path)
        except ApiError as error:
            if error.error == "index_out_of_range":
                return int(error.body["nextIndex"])
            raise
        return 0

    # Discovery and tools

    async def info(self) -> dict[str, Any]:
        """Return what discovery found."""
        return await self._once("GET", "/v1/info")

    async def tools(self) -> list[dict[str, Any]]:
        """List the agent's tools."""
        answer = await self._once("GET", "/v1/tools")
        found: list[dict[str, Any]] = answer["tools"]
        return found

    async def call_tool(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Run a tool; the answer says ``isError`` when the call ended in one.

        ``body`` is that of ``POST /v1/tools/{name}``. It is not repeated when the network fails,
        since the call may have been made.
        """
        try:
            path = f"/v1/tools/{_part(name)}"
            return await self._once("POST", path, dict(body), seconds=TOOL_SECONDS)
        except ApiError as error:
            if error.body.get("isError"):
                return dict(error.body)
            raise

    # Streams

    async def stream(
        self,
        session_id: str,
        start: int = 0,
        *,
        on_break: Callable[[], None] = lambda: None,
        on_return: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Line]:
        """Yield a session's events from an index on, over breaks of the connection.

        Ends after a task's last event. Raises ApiError when the host refuses, for one because the
        session was deleted, and HostUnreachableError when it was gone for longer than the patience.
        """
        following = _Following(start)
        pause = _Pause(self.patience)
        broken = False
        while True:
            pause.begin()
            try:
                async with contextlib.aclosing(self._connection(session_id, following)) as lines:
                    async for line in lines:
                        if broken:
                            on_return()
                        broken = False
                        yield line
                        if line.event["type"] in _ENDS:
                            return
                why: BaseException | str = "the stream ends at once"
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                why = error
            except ApiError as error:
                if error.http_status != 503:
                    raise
                why = error.message
            if pause.over:
                raise self._unreachable(why)
            if not broken:
                on_break()
            broken = True
            await pause.wait()

    async def _connection(self, session_id: str, following: _Following) -> AsyncGenerator[Line]:
        path = f"/v1/session/{_part(session_id)}/stream?startIndex={following.next_index}"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        following.torn = b""
        async with self._open("GET", path, timeout=timeout) as response:
            async for chunk in response.content.iter_any():
                for line in following.lines(chunk):
                    yield line

    # Requests

    async def _patiently(self, method: str, path: str, body: Any) -> dict[str, Any]:
        """Repeat what may be repeated until the host answers, or the patience is over.

        A host that never answered yet is more likely not there than restarting.
        """
        pause = _Pause(self.patience if self._reached else min(self.patience, _FIRST_PATIENCE))
        while True:
            pause.begin()
            try:
                return await self._once(method, path, body)
            except HostUnreachableError:
                if pause.over:
                    raise
            except ApiError as error:
                if error.http_status != 503 or pause.over:
                    raise
            await pause.wait()

    async def _once(
        self, method: str, path: str, body: Any = None, *, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._open(method, path, json=body, timeout=timeout) as response:
                data = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error
        self._reached = True
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            message = f"What answers at {self.url} is no threadline host. Check --url."
            raise ApiError(response.status, {"error": "no_host", "message": message})
        return answer

    def _open(self, method: str, path: str, **options: Any) -> _Answer:
        assert self._http is not None, "use the client as a context manager"
        return _Answer(self._http.request(method, self.url + path, **options), self._token)

    def _unreachable(self, why: BaseException | str) -> HostUnreachableError:
        said = str(why) or type(why).__name__
        return HostUnreachableError(
            f"No host answers at {self.url}: {said}.\nStart one with 'threadline serve', or check "
            "--url."
        )


class _Answer:
    """A response whose error status is raised as an ApiError."""

    def __init__(self, request: Any, token: str | None) -> None:
        self._request = request
        self._token = token

    async def __aenter__(self) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._request.__aenter__()
        if response.status < 400:
            return response
        try:
            raise ApiError(response.status, self._body(response.status, await response.read()))
        finally:
            await self._request.__aexit__(None, None, None)

    async def __aexit__(self, *details: Any) -> None:
        await self._request.__aexit__(*details)

    def _body(self, status: int, data: bytes) -> dict[str, Any]:
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            body = {"error": "unknown"}
        if status == 401:
            given = "was not accepted" if self._token else "is missing"
            body["message"] = (
                f"The host does not admit this call: the bearer token {given}.\n"
                "Give --bearer-token, or set THREADLINE_BEARER_TOKEN."
            )
        return body


class _Following:
    """A place in a stream: cuts bytes into lines, and knows the next index."""

    def __init__(self, start: int) -> None:
        self.next_index = start
        self.torn = b""

    def lines(self, chunk: bytes) -> list[Line]:
        """Return the whole lines that the bytes complete; what was seen before is left out."""
        *whole, self.torn = (self.torn + chunk).split(b"\n")
        found = []
        for raw in whole:
            event = _event(raw)
            if event is not None and event["index"] >= self.next_index:
                self.next_index = event["index"] + 1
                found.append(Line(raw + b"\n", event))
        return found


def _event(raw: bytes) -> dict[str, Any] | None:
    """Return what a line says; None for a sign of life, and for a line that is damaged."""
    try:
        event = json.loads(raw)
    except ValueError:
        return None
    whole = isinstance(event, dict) and isinstance(event.get("index"), int) and "type" in event
    return event if whole else None


class _Pause:
    """Waits longer after each failed attempt, until they took longer than the patience."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._now = asyncio.get_running_loop().time
        self._since: float | None = None
        self._began = 0.0
        self._next = _FIRST_PAUSE

    def begin(self) -> None:
        """Note that an attempt begins."""
        self._began = self._now()

    @property
    def over(self) -> bool:
        """True when it failed for too long; an attempt that held for a while starts afresh."""
        now = self._now()
        if self._since is None or now - self._began >= _LASTING:
            self._since, self._next = now, _FIRST_PAUSE
        return now - self._since >= self._patience

    async def wait(self) -> None:
        """Wait once."""
        await asyncio.sleep(self._next)
        self._next = min(self._next * 2, _LONGEST_PAUSE)


def _part(text: str) -> str:
    return quote(text, safe="")
