"""The HTTP channel keeps the promises of every channel; its tokens rotate."""

from __future__ import annotations

import json
from dataclasses import replace

from threadline import Channel, Principal
from threadline.auth import bearer
from threadline.testing import Answer, ChannelKit, Inbound, channel_conformance
from threadline_http import HttpChannel

JSON = {"content-type": "application/json"}


class HttpKit(ChannelKit):
    """Remembers each conversation's session and newest token, as a client does."""

    channel_id = "http"

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, str]] = {}

    def channel(self) -> Channel:
        people = [bearer(token=f"{n}-token", principal=Principal("person", n)) for n in ("a", "b")]
        return HttpChannel(auth=people)

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        body = {"message": text, "deliveryId": delivery_id}
        path = "/session"
        if conversation in self.known:
            session_id, token = self.known[conversation]
            path, body = f"/session/{session_id}", {**body, "continuationToken": token}
        headers = {**JSON, "authorization": "Bearer a-token"}
        return Inbound("POST", path, headers, json.dumps(body).encode())

    def answered(self, conversation: str, answer: Answer) -> None:
        wire = answer.json()
        self.known[conversation] = (wire["sessionId"], wire["continuationToken"])

    def forged(self, inbound: Inbound) -> Inbound:
        return replace(inbound, headers={**JSON, "authorization": "Bearer c-token"})

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        inbound = self.inbound(conversation, text, delivery_id)
        return replace(inbound, headers={**JSON, "authorization": "Bearer b-token"})


async def test_it_keeps_its_promises() -> None:
    report = await channel_conformance(HttpKit())
    assert report.passed, report
    skipped = [r.id for r in report.results if r.verdict == "not applicable"]
    assert skipped[:3] == ["tokens.concurrent", "admission.coalesce", "auth.tampered"], report
    assert all(name.startswith(("replies.", "backoff.", "hostile.m")) for name in skipped[3:])
