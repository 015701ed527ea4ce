"""The Slack channel keeps the promises of every channel."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from threadline import Channel
from threadline.testing import ChannelKit, Inbound, Posted, channel_conformance, signed_request
from threadline_slack import SlackChannel
from threadline_slack.config import Config
from threadline_slack.testing import DEFAULTS, FakeSlack
from threadline_slack.words.tokens import clean, escape

CHANNEL, BOT, TEAM = DEFAULTS["channel"], DEFAULTS["bot_user"], DEFAULTS["team"]
PERSON, OTHER, SECRET = DEFAULTS["person"], DEFAULTS["other"], DEFAULTS["signing_secret"]
EPOCH = 1_700_000_000


class SlackKit(ChannelKit):
    """A workspace in which each of the kit's conversations is a thread."""

    channel_id = "slack"
    signed = True
    live_mentions = ("<!channel>", "<!here>", f"<@{OTHER}>")

    def __init__(self) -> None:
        self.slack = FakeSlack(own_events=False)
        self.names: dict[str, str] = {}

    async def open(self) -> None:
        await self.slack.start()

    async def close(self) -> None:
        await self.slack.close()

    def channel(self) -> Channel:
        app = self.slack.app
        return SlackChannel(config=Config(app.bot_token, None, SECRET, self.slack.api_url))

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        return self._said(conversation, text, delivery_id, PERSON)

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        return self._said(conversation, text, delivery_id, OTHER)

    def forged(self, inbound: Inbound) -> Inbound:
        return replace(inbound, headers={**inbound.headers, "x-slack-signature": "v0=" + "0" * 64})

    def carried(self, text: str) -> str:
        # Slack shows no control characters, and takes blanks around a text away.
        return clean(text).strip()

    def raw(self, body: bytes) -> Inbound:
        return self._signed(body)

    async def posted(self) -> Sequence[Posted]:
        found = []
        for root, name in self.names.items():
            said = self.slack.messages(CHANNEL, root)
            texts = self.slack.visible(CHANNEL, root)
            found += [
                Posted(name, text)
                for message, text in zip(said, texts, strict=True)
                if message.user == BOT
            ]
        return found

    def fail_next(self, status: int, retry_after: float | None) -> None:
        after = None if retry_after is None else int(retry_after)
        self.slack.fail("chat.postMessage", "failed", status=status, retry_after=after)

    def _said(self, conversation: str, text: str, delivery_id: str, user: str) -> Inbound:
        root = _ts(conversation)
        if root not in self.names:
            self.names[root] = conversation
            self.slack.user(PERSON).post(CHANNEL, "the root", ts=root)
        event = {
            "type": "app_mention",
            "channel": CHANNEL,
            "user": user,
            "team": TEAM,
            "ts": _ts(f"{conversation}/{delivery_id}"),
            "thread_ts": root,
            "text": f"<@{BOT}> {escape(text)}",
        }
        body: dict[str, Any] = {"type": "event_callback", "team_id": TEAM, "event": event}
        return self._signed(body | {"api_app_id": DEFAULTS["app"]})

    def _signed(self, body: Any) -> Inbound:
        stamp = int(self.clock.now().timestamp())
        return signed_request(SECRET, body, scheme="slack", timestamp=stamp, path="/events")


def _ts(name: str) -> str:
    """Return a timestamp that only this name has."""
    number = int(hashlib.sha256(name.encode()).hexdigest()[:10], 16)
    return f"{EPOCH + number // 1_000_000}.{number % 1_000_000:06}"


async def test_it_keeps_its_promises() -> None:
    report = await channel_conformance(SlackKit())
    assert report.passed, str(report)
    proved = [result.id for result in report.results if result.verdict == "passed"]
    assert len(proved) >= 25, str(report)
