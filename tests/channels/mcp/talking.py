"""The two ways in which a test speaks the protocol: the real client, and raw requests."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import aiohttp
    from tests.host.serving import Served

__all__ = ["MODERN", "VERSIONS", "Raw", "connected", "raw", "said"]

MODERN = "2026-07-28"
VERSIONS = ("2025-06-18", "2025-11-25", MODERN)


@asynccontextmanager
async def connected(
    served: Served,
    path: str = "/v1/mcp",
    *,
    user: str | None = "ann",
    mode: str = "auto",
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Client]:
    """Yield the real client of an endpoint; ``mode`` is ``auto`` (2026) or ``legacy`` (2025)."""
    sent = {**({"x-user": user} if user else {}), **(headers or {})}
    url = served.host.local_url + served.prefix + path
    async with (
        httpx2.AsyncClient(headers=sent, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def said(result: Any) -> str:
    """Return the text of a result."""
    return "".join(part.text for part in result.content if part.type == "text")


@dataclass(frozen=True)
class Raw:
    """An answer as it came: its status, its content type, its JSON-RPC messages."""

    status: int
    kind: str
    text: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, whichever way they came."""
        if self.kind != "text/event-stream":
            return [json.loads(self.text)] if self.text else []
        lines = self.text.splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]

    @property
    def last(self) -> dict[str, Any]:
        """The last message, which is the answer."""
        return self.messages[-1]


def request(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    version: str = MODERN,
    id: int | str | None = 1,  # noqa: A002
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a message and its headers, as clients of that version send them."""
    sent = dict(params or {})
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
    }
    if version == MODERN:
        meta = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        sent["_meta"] = {**meta, **sent.get("_meta", {})}
        headers["mcp-method"] = method
        if "name" in sent:
            headers["mcp-name"] = sent["name"]
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": sent}
    return message if id is None else {**message, "id": id}, headers


async def raw(
    served: Served,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    path: str = "/v1/mcp",
    user: str | None = "ann",
    version: str = MODERN,
    id: int | str | None = 1,  # noqa: A002
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    client: aiohttp.ClientSession | None = None,
) -> Raw:
    """Send one message and read the whole answer."""
    message, sent = request(method, params, version=version, id=id)
    sent.update({"x-user": user} if user else {})
    sent.update(headers or {})
    url = served.host.local_url + served.prefix + path
    data = json.dumps(message).encode() if body is None else body
    async with (client or served.client).post(url, data=io.BytesIO(data), headers=sent) as answer:
        return Raw(answer.status, answer.content_type, await answer.text())


async def cut(task: asyncio.Task[Any]) -> None:
    """Cancel a client's request, which closes its connection."""
    task.cancel()
    await asyncio.wait({task})
