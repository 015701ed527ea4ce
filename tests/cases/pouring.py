"""A request byte by byte over a socket of its own, such as HTTP clients would not send it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from yarl import URL

from threadline.testing.inbound import Answer

__all__ = ["Poured", "pour"]

SECONDS = 20


@dataclass(frozen=True, slots=True)
class Poured:
    """An answer, how many bytes of the body were sent by then, and what came behind the answer."""

    answer: Answer
    sent: int
    rest: bytes


async def pour(
    url: str,
    path: str,
    body: Iterable[bytes],
    *,
    length: int | None,
    headers: Mapping[str, str] | None = None,
) -> Poured:
    """Send a body piece by piece until there is an answer.

    ``length`` is what the headers say of it; None sends it in chunks. Raises AssertionError when no
    answer comes.
    """
    address = URL(url)
    assert address.host is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    told = {
        "Host": f"{address.host}:{address.port}",
        "Content-Type": "application/json",
        "X-GitHub-Event": "issue_comment",
        "X-GitHub-Delivery": "d0000000-0000-11f0-8000-000000000000",
        **(headers or {}),
    }
    told |= {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    answering = asyncio.ensure_future(_read(reader))
    sent = 0
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        with contextlib.suppress(ConnectionError):
            for piece in body:
                if answering.done():
                    break
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if length is None else piece)
                await writer.drain()
                sent += len(piece)
        async with asyncio.timeout(SECONDS):
            answer = await answering
        rest = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(0.2):
                rest = await reader.read()
        return Poured(answer, sent, rest)
    except (TimeoutError, asyncio.IncompleteReadError) as error:
        raise AssertionError(f"no answer behind {sent} bytes: {error!r}") from None
    finally:
        answering.cancel()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        if name:
            headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Answer(int(head[0].split()[1]), headers, body)
