"""The example's channel keeps the promises of every channel."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from threadline import Channel
from threadline.project import load_project
from threadline.testing import ChannelKit, Inbound, channel_conformance

if TYPE_CHECKING:
    import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "incidents"


class IncidentsKit(ChannelKit):
    """An incident tracker that proves itself by a bearer token."""

    channel_id = "incidents"

    def channel(self) -> Channel:
        channel = load_project(EXAMPLE).channels["incidents"]
        assert isinstance(channel, Channel)
        return channel

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        headers = {"authorization": "Bearer tracker", "x-delivery-id": delivery_id}
        return Inbound("POST", "/incidents", headers, _body(conversation, text))

    def forged(self, inbound: Inbound) -> Inbound:
        # Not local, or the token would not be looked at.
        headers = {"authorization": "Bearer wrong", "x-forwarded-for": "203.0.113.9"}
        return replace(inbound, headers=headers)

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        # Without the token it is the developer on this machine who sends.
        inbound = self.inbound(conversation, text, delivery_id)
        return replace(inbound, headers={"x-delivery-id": delivery_id})


def _body(incident: str, status: str) -> bytes:
    return json.dumps({"id": incident, "status": status}).encode()


async def test_it_keeps_its_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INCIDENTS_TOKEN", "tracker")
    report = await channel_conformance(IncidentsKit())
    assert report.passed, report
    proved = [result.id for result in report.results if result.verdict == "passed"]
    assert len(proved) >= 18, report
