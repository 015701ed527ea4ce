"""A client that follows one session's stream, across every loss of its connection."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp

__all__ = ["Reader"]

RETRY_SECONDS = 0.03


class Reader:
    """Keeps every line, and resumes by the last index + 1; ``sse`` reads server-sent events."""

    def __init__(self, http: aiohttp.ClientSession, session_id: str, *, sse: bool = False) -> None:
        self.session_id = session_id
        self.lines: list[bytes] = []
        self.last = -1
        self.opened = 0
        self.problems: list[str] = []
        self._http = http
        self._sse = sse
        self._ended = False
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._follow(), name=f"reader {session_id}")

    @property
    def stored(self) -> bytes:
        """Everything read so far, as stored."""
        return b"".join(self.lines)

    async def until(self, next_index: int) -> None:
        """Return when everything below an index was read, or the reader gave up."""
        while self.last + 1 < next_index and not self._task.done():
            self._changed.clear()
            wait = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([wait, self._task], return_when=asyncio.FIRST_COMPLETED)
            wait.cancel()

    async def close(self) -> None:
        """Stop reading."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        path = f"/v1/session/{self.session_id}/stream"
        while not self.problems and not self._ended:
            headers = {"Accept": "text/event-stream"} if self._sse else {}
            query = {"startIndex": str(self.last + 1)}
            if self._sse and self.last >= 0:
                headers["Last-Event-ID"] = str(self.last)
                query = {}
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with self._http.get(path, params=query, headers=headers) as answer:
                    if answer.status == 503:
                        pass
                    elif answer.status != 200:
                        body = await answer.text()
                        self._wrong(f"{answer.status} from index {self.last + 1}: {body}")
                    else:
                        self.opened += 1
                        await self._lines(answer)
            if not self._ended:
                await asyncio.sleep(RETRY_SECONDS)

    async def _lines(self, answer: aiohttp.ClientResponse) -> None:
        """Take whole lines; what the connection's end cut short comes again."""
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if self._sse:
                    if not line.startswith(b"data: "):
                        continue
                    line = line[len(b"data: ") :]
                if line:
                    self._take(line + b"\n")
            self._changed.set()

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self._wrong(f"not JSON behind index {self.last}: {line[:200]!r}")
            return
        if event["index"] != self.last + 1:
            self._wrong(f"index {event['index']} follows {self.last}")
        self.last = event["index"]
        self._ended = event["type"] in ("session.completed", "session.failed")
        self.lines.append(line)

    def _wrong(self, problem: str) -> None:
        self.problems.append(f"reader of {self.session_id}: {problem}")
        self._changed.set()
