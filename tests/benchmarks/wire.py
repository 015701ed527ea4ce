"""A client that costs as little as it can: HTTP/1.1 over asyncio streams, for these servers."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

__all__ = ["Connection", "fetch"]

WAITING = b'"type":"session.waiting"'
_LIMIT = 4 * 1024 * 1024


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Connection:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=_LIMIT
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        self._writer.close()

    async def post(self, path: str, body: Any) -> bytes:
        """Post JSON and return the body of the answer."""
        data = orjson.dumps(body)
        self._writer.write(
            b"POST %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (path.encode(), self.port, len(data), data)
        )
        head = await self._head()
        return await self._reader.readexactly(_length(head))

    async def get(self, path: str) -> bytes:
        """Get a body of known length."""
        self.ask(path)
        return await self._reader.readexactly(_length(await self._head()))

    def ask(self, path: str) -> None:
        """Send a GET."""
        self._writer.write(
            b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (path.encode(), self.port)
        )

    async def until(self, path: str, marker: bytes = WAITING) -> int:
        """Get a body and read it until the marker; return how many bytes came, framing included."""
        self.ask(path)
        await self._head()
        total, tail = 0, b""
        while chunk := await self._reader.read(_LIMIT):
            total += len(chunk)
            if marker in tail + chunk:
                return total
            tail = chunk[-len(marker) :]
        raise ConnectionError(f"{path} ended before {marker!r}")

    async def first(self, path: str) -> None:
        """Get a body and return when its first bytes are here."""
        self.ask(path)
        await self._head()
        await self._reader.read(1)

    async def to_end(self, path: str) -> int:
        """Get a chunked body to its end; return how many bytes came, framing included."""
        self.ask(path)
        await self._head()
        total, tail = 0, b""
        while not tail.endswith(b"0\r\n\r\n"):
            chunk = await self._reader.read(_LIMIT)
            if not chunk:
                raise ConnectionError(f"{path} was cut short")
            total += len(chunk)
            tail = (tail + chunk)[-5:]
        return total

    async def _head(self) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(head.decode() + (await self._reader.read(1000)).decode())
        return head


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0])


async def fetch(port: int, path: str, body: Any = None) -> Any:
    """Get or post once and return the JSON."""
    async with Connection(port) as connection:
        data = await (connection.get(path) if body is None else connection.post(path, body))
        return orjson.loads(data)
