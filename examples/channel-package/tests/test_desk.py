"""The channel keeps what every channel promises, and its package offers it."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from threadline_desk import DeskChannel

from threadline.testing import ChannelKit, Inbound, TestHost, channel_conformance, signed_request

SECRET = "s3cret"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


class DeskKit(ChannelKit):
    """How the desk speaks to the channel."""

    channel_id = "desk"
    signed = True

    def channel(self) -> DeskChannel:
        """Return the channel as a new process would make it."""
        return DeskChannel(secret_env="DESK_SECRET")

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        """Return the webhook for a comment; conversations are c1, c2 and so on."""
        body = {"id": delivery_id, "ticket": int(conversation[1:]), "text": text}
        return signed_request(SECRET, body, path="/comments")

    def forged(self, inbound: Inbound) -> Inbound:
        """Return the webhook signed with another secret."""
        return signed_request("wrong", json.loads(inbound.body), path=inbound.path)


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_SECRET", SECRET)


async def test_it_passes_the_conformance_suite() -> None:
    report = await channel_conformance(DeskKit())
    print(report)
    assert report.passed, str(report)


async def test_the_newest_answer_can_be_read() -> None:
    asked = signed_request(SECRET, b"", method="GET")
    async with TestHost(DeskKit().channel(), channel_id="desk") as host:
        sent = DeskKit().inbound("c7", "The printer burns.", "1")
        await host.post("/v1/channels/desk/comments", body=sent.body, headers=sent.headers)
        await host.rest()
        answer = await host.get("/v1/channels/desk/tickets/7", headers=asked.headers)
        assert answer.json() == {"ok": True, "answer": "The printer burns."}
        none = await host.get("/v1/channels/desk/tickets/8", headers=asked.headers)
        assert none.status == 404


def test_the_entry_point_names_the_channel() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    ((name, value),) = project["entry-points"]["threadline.channels"].items()
    assert name == "desk"
    assert EntryPoint(name, value, "threadline.channels").load() is DeskChannel
