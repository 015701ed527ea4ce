"""A Slack workspace and a host that serves its agent, with time in the test's hands."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
from tests.cases.served import EPOCH, ServedWorld, encoded, filled
from tests.cases.world import NotCoveredError
from yarl import URL

from threadline.principal import Principal
from threadline.testing import slack_signature
from threadline.testing.inbound import Answer
from threadline.testing.session import HostSession
from threadline_slack import SlackChannel
from threadline_slack.interaction.forms import Interaction
from threadline_slack.testing import DEFAULTS, Call, FakeSlack, Message, Socket

__all__ = ["BOT", "CHANNEL", "DM", "EPOCH", "PERSON", "TEAM", "SlackWorld"]

BOT, TEAM, PERSON = DEFAULTS["bot_user"], DEFAULTS["team"], DEFAULTS["person"]
CHANNEL, DM = DEFAULTS["channel"], DEFAULTS["dm"]
SECRET = DEFAULTS["signing_secret"]
EVENTS = "/v1/channels/slack/events"
ROUTES = {"slack.events": EVENTS, "slack.interactivity": EVENTS}
_CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "len(text) > 4000": lambda args: len(args.get("text") or "") > 4000,
    "has thread_ts": lambda args: bool(args.get("thread_ts")),
}


class SlackWorld(ServedWorld):
    """One workspace, one host.

    Whatever the host asks of another machine than this one fails; Slack's files are served from
    here.
    """

    kind: ClassVar[str] = "slack"

    def __init__(self, root: Path, *, begins: int = EPOCH) -> None:
        super().__init__(root, begins=begins)
        self.slack = FakeSlack(clock=self.clock)
        self.socket = False
        self.clicks: list[Interaction] = []

    # Life

    @property
    def outside(self) -> FakeSlack:
        """Slack."""
        return self.slack

    async def _opened(self) -> None:
        self._patch.setattr(aiohttp.ClientSession, "_request", self._within_reach())

    def _configure(self) -> None:
        app = self.slack.app
        app.socket_mode = self.socket
        self.env.setdefault("SLACK_BOT_TOKEN", app.bot_token)
        self.env["SLACK_API_URL"] = self.slack.api_url
        name, value = ("APP_TOKEN", app.app_token) if self.socket else ("SIGNING_SECRET", SECRET)
        self.env.setdefault(f"SLACK_{name}", value)

    async def _served(self) -> None:
        self.slack.app.request_url = None if self.socket else self.host.url + EVENTS
        if self.socket:
            await self.until(self.slack.sockets, "a socket")

    def _within_reach(self) -> Callable[..., Any]:
        """Return what lets requests reach this machine only, and Slack's files from it."""
        plain = aiohttp.ClientSession._request

        async def request(http: aiohttp.ClientSession, method: str, url: Any, **more: Any) -> Any:
            url = URL(url)
            if url.host == "files.slack.com":
                url = URL(self.slack.url).with_path(url.path)
            elif url.host != "127.0.0.1":
                raise aiohttp.ClientConnectionError(f"{url.host} is out of reach.")
            return await plain(http, method, url, **more)

        return request

    def _channel(self) -> SlackChannel:
        channel = SlackChannel(**self.options)

        @channel.action("approve")
        async def approve(_: object, click: Interaction) -> None:
            self.clicks.append(click)

        return channel

    def _person(self) -> Principal:
        return Principal("slack", f"{TEAM}:{PERSON}")

    # In

    async def post(
        self,
        step: Mapping[str, Any],
        variant: Any = None,
        *,
        signed: bool = False,
        plant: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request byte by byte as the case has it, or with ``signed`` under a new signature.

        The message that it tells of stands in the channel from then on.
        """
        raw = step["raw_body"].encode() if "raw_body" in step else b""
        if not raw:
            body = step["body"] if "body" in step else step["payload"]
            raw, signed = encoded(filled(body, variant)), signed or filled(body, variant) != body
        sent = {**step["headers"], **(headers or {})}
        if signed:
            stamp = sent["X-Slack-Request-Timestamp"] = str(int(self.clock.now().timestamp()))
            sent["X-Slack-Signature"] = slack_signature(SECRET, raw, stamp)
        if plant and "json" in sent["Content-Type"]:
            self.plant(json.loads(raw)["event"])
        route = ROUTES.get(step.get("route", "slack.events"))
        if route is None:
            raise NotCoveredError(f"the route {step['route']!r}")
        return await self.host.post(route, body=raw, headers=sent)

    def plant(self, event: Mapping[str, Any]) -> None:
        """Let a message stand in its channel, or be gone, as an event tells of it."""
        if event.get("subtype") == "message_deleted":
            self.delete(event["channel"], event["deleted_ts"])
            return
        if event.get("subtype") == "message_changed":
            event = {**event["message"], "channel": event["channel"]}
        where = self.slack.state.channels.get(event["channel"])
        if where is None or event["ts"] not in where.posts:
            self.slack.plant(event)
        self._is_past(event["ts"])

    def _is_past(self, ts: str) -> None:
        """Let what Slack posts from now on be newer than this."""
        seconds, _, rest = ts.partition(".")
        state = self.slack.state
        state._last = max(state._last, int(seconds) * 1_000_000 + int(rest))

    def delete(self, channel: str, ts: str) -> None:
        """Take a message away, and tell nobody."""
        self.slack.state.channels[channel].posts.pop(ts, None)

    async def ask(
        self, like: Mapping[str, Any], text: str, ts: str, *, at: str | None = None, **event: Any
    ) -> Answer:
        """Post what a case does not have: like a step of it, with another text, ts and thread."""
        step = copy.deepcopy(dict(like))
        body = step.setdefault("body", step.pop("payload", None))
        body["event_id"] = f"Ev-{ts}"
        changes = {"text": text, "ts": ts, "event_ts": ts, "thread_ts": at, "blocks": None, **event}
        body["event"] = {k: v for k, v in {**body["event"], **changes}.items() if v is not None}
        return await self.post(step, signed=True)

    async def _do(self, step: Mapping[str, Any], variant: Any) -> Answer | None:
        match step["do"]:
            case "post":
                return await self.post(step, variant)
            case "stub":
                self.stub(step, variant)
            case "socket_recv":
                await self.receive(step["frame"])
            case "socket_expect":
                await self.within(
                    step["within_s"],
                    lambda: step["frame"] in self.frames(),
                    f"the frame {step['frame']}",
                )
            case "socket_close":
                await self.slack.sockets()[0].close()
            case "expect_call":
                self.expect_call(step)
            case _:
                return await super()._do(step, variant)
        return None

    def stub(self, step: Mapping[str, Any], variant: Any = None) -> None:
        """Let Slack answer a method as the case says; what succeeds has its effect as well."""
        condition = step.get("when")
        if condition is not None and condition not in _CONDITIONS:
            raise NotCoveredError(f"the condition {condition!r}")
        reply = filled(step["reply"], variant)
        if "ts" in reply:
            self._is_past(reply["ts"])
        self.slack.stub(
            step["method"],
            reply,
            times=step.get("times"),
            status=step.get("status", 200),
            headers=step.get("headers"),
            effect=bool(reply.get("ok")),
            when=_CONDITIONS[condition] if condition else None,
        )

    async def receive(self, frame: dict[str, Any], socket: Socket | None = None) -> None:
        """Send a frame on the oldest socket; the greeting is what Slack has sent there already."""
        socket = socket or self.slack.sockets()[0]
        if frame["type"] == "hello":
            assert socket.sent[0] == frame
            return
        if frame["type"] == "events_api":
            self.plant(frame["payload"]["event"])
        await socket.send(frame)

    def frames(self) -> list[dict[str, Any]]:
        """Return the frames that the host has sent, on all sockets."""
        return [frame for socket in self.slack.all_sockets for frame in socket.received]

    # What came of it

    def session(self, thread: str, channel: str = CHANNEL, team: str = TEAM) -> HostSession | None:
        """Return the session of a thread."""
        return self.named(f"slack:{team}:{channel}:{thread}")

    def said(self, thread: str | None, channel: str = CHANNEL) -> list[Message]:
        """Return what the agent shows in a thread, or without one in the channel itself."""
        shown = self.slack.messages(channel, thread)
        return [one for one in shown if one.app == DEFAULTS["app"] and one.ts != thread]

    def words(self, thread: str | None, channel: str = CHANNEL) -> list[str]:
        """Return what people read of it, message by message."""
        ours = {one.ts for one in self.said(thread, channel)}
        shown = self.slack.messages(channel, thread)
        texts = self.slack.visible(channel, thread)
        return [text for one, text in zip(shown, texts, strict=True) if one.ts in ours]

    def everywhere(self) -> list[Message]:
        """Return all that the agent shows anywhere, to anybody."""
        found = []
        for channel in self.slack.state.channels.values():
            shown = [*channel.posts.values(), *channel.ephemeral]
            found += [one for one in shown if one.app == DEFAULTS["app"] and not one.deleted]
        return found

    def calls(self, method: str, **args: Any) -> list[Call]:
        """Return the calls of a method with such arguments."""
        return [
            call
            for call in self.slack.calls(method)
            if all(call.args.get(name) == value for name, value in args.items())
        ]

    def expect_call(self, step: Mapping[str, Any]) -> None:
        """Check that a method was called as the case says."""
        found = self.calls(step["method"], **step.get("args", {}))
        done = [call for call in found if call.took_effect]
        if "count" in step:
            assert len(done) == step["count"], found
        else:
            assert done, self.slack.describe()
        for call in done:
            for name in step.get("args_have", []):
                assert name in call.args, call.args

    def untouched(self) -> None:
        """Check that nothing was started, said or asked for."""
        assert self.sessions() == []
        assert self.accepted == []
        assert self.harness.begun == 0
        assert self.everywhere() == []
