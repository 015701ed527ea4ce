"""The MCP channel keeps the promises of every channel; it makes the tokens by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from threadline import Channel, Principal
from threadline.auth import bearer
from threadline.testing import (
    Answer,
    ChannelKit,
    Inbound,
    channel_checks,
    channel_conformance,
)
from threadline_mcp import McpChannel

HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}
STATUSES = {"forbidden": 403, "not_found": 404, "delivery_conflict": 409, "stale_token": 409}


class McpKit(ChannelKit):
    """Remembers each conversation's token, as a client does."""

    channel_id = "mcp"

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def channel(self) -> Channel:
        people = [bearer(token=f"{n}-token", principal=Principal("person", n)) for n in ("a", "b")]
        return McpChannel(auth=people)

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        arguments: dict[str, Any] = {"message": text, "deliveryId": delivery_id, "waitSeconds": 0}
        if conversation in self.known:
            arguments["continuationToken"] = self.known[conversation]
        params = {"name": "ask", "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {**HEADERS, "authorization": "Bearer a-token"}
        return Inbound("POST", "/mcp", headers, json.dumps(body).encode())

    def read(self, answer: Answer) -> Answer:
        """Return the status of what the protocol says in the body of a 200."""
        wire = answer.json() if answer.status == 200 else {}
        if "error" in wire:
            return replace(answer, status=400)
        if wire.get("result", {}).get("isError"):
            code = wire["result"]["_meta"]["threadline/error"]
            return replace(answer, status=STATUSES.get(code, 400))
        return answer

    def answered(self, conversation: str, answer: Answer) -> None:
        told = answer.json()["result"]["structuredContent"]
        self.known[conversation] = told["continuationToken"]

    def forged(self, inbound: Inbound) -> Inbound:
        return replace(inbound, headers={**HEADERS, "authorization": "Bearer c-token"})

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        inbound = self.inbound(conversation, text, delivery_id)
        return replace(inbound, headers={**HEADERS, "authorization": "Bearer b-token"})


async def test_it_keeps_its_promises() -> None:
    # Who has no token begins a conversation, so first messages at once are as many.
    report = await channel_conformance(
        McpKit(), only=channel_checks().keys() - {"tokens.concurrent"}
    )
    assert report.passed, report
    skipped = [r.id for r in report.results if r.verdict == "not applicable"]
    assert skipped[:2] == ["admission.coalesce", "auth.tampered"], report
    assert all(name.startswith(("replies.", "backoff.", "hostile.m")) for name in skipped[2:])
