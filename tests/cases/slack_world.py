"""A Slack workspace and a host that serves its agent, with time in the test's hands."""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cases.told import Answer as Reply
from tests.cases.told import Delta, Told
from tests.cases.world import NotCoveredError, quoted
from yarl import URL

from threadline.agent.config import Agent
from threadline.agent.tools import tool
from threadline.auth import bearer, local_dev_strict
from threadline.principal import Principal
from threadline.testing import ManualClock, TestHost, slack_signature
from threadline.testing.faults import FaultyDisk
from threadline.testing.inbound import Answer
from threadline.testing.session import HostSession
from threadline_slack import SlackChannel
from threadline_slack.interaction.forms import Interaction
from threadline_slack.testing import DEFAULTS, Call, FakeSlack, Message, Socket

__all__ = ["BOT", "CHANNEL", "DM", "PERSON", "TEAM", "SlackWorld", "filled"]

BOT, TEAM, PERSON = DEFAULTS["bot_user"], DEFAULTS["team"], DEFAULTS["person"]
CHANNEL, DM = DEFAULTS["channel"], DEFAULTS["dm"]
SECRET = DEFAULTS["signing_secret"]
EPOCH = 1_760_000_000
EVENTS = "/v1/channels/slack/events"
ROUTES = {"slack.events": EVENTS, "slack.interactivity": EVENTS}
STEP, STRIDE, NEAR = 0.5, 5.0, 10.0
_CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "len(text) > 4000": lambda args: len(args.get("text") or "") > 4000,
    "has thread_ts": lambda args: bool(args.get("thread_ts")),
}


class FailingDisk(FaultyDisk):
    """Fails one operation with EIO: the ``fail_at``-th from when it was set, from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_at = 0

    def _perform(self, name: str, *rest: Any, **more: Any) -> None:
        if self.fail_at > 0:
            self.fail_at -= 1
            if self.fail_at == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super()._perform(name, *rest, **more)


def filled(value: Any, variant: Any) -> Any:
    """Return a value with ``{variant}`` replaced in its strings."""
    if isinstance(value, str):
        return value.replace("{variant}", str(variant)) if variant is not None else value
    if isinstance(value, dict):
        return {key: filled(item, variant) for key, item in value.items()}
    return [filled(item, variant) for item in value] if isinstance(value, list) else value


def encoded(body: Any) -> bytes:
    """Return a JSON body as the signatures of the cases are computed over it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class SlackWorld:
    """One workspace, one host; ``options`` are those of the channel, ``agent`` of the agent.

    The clock begins at the time of the cases' signatures. Whatever the host asks of another
    machine than this one fails; Slack's files are served from here.
    """

    def __init__(self, root: Path, *, begins: int = EPOCH) -> None:
        self.root = root
        self.clock = ManualClock(datetime.fromtimestamp(begins, UTC))
        self.slack = FakeSlack(clock=self.clock)
        self.harness = Told()
        self.disk = FailingDisk()
        self.socket = False
        self.options: dict[str, Any] = {}
        self.agent: dict[str, Any] = {}
        self.env: dict[str, str] = {}
        self.clicks: list[Interaction] = []
        self.saved: dict[str, str] = {}
        self.not_covered: list[str] = []
        self._given: TestHost | None = None
        self._patch = pytest.MonkeyPatch()
        self._worlds = 0
        self._listens = False
        self._unhandled: list[Mapping[str, Any]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # Life

    async def start(self, **options: Any) -> None:
        """Start the host on the state root as it is, and Slack with it the first time."""
        self.options |= options
        if not self._listens:
            self._tasks = asyncio.all_tasks()
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: self._unhandled.append(context))
            await self.slack.start()
            self._listens = True
            self._patch.setattr(aiohttp.ClientSession, "_request", self._within_reach())
        if self._given is None:
            self._given = TestHost(
                self._agent, root=self.root, clock=self.clock, disk=self.disk, channel_id="slack"
            )
        app = self.slack.app
        self.slack.app.socket_mode = self.socket
        self.env.setdefault("SLACK_BOT_TOKEN", app.bot_token)
        self.env["SLACK_API_URL"] = self.slack.api_url
        name, value = ("APP_TOKEN", app.app_token) if self.socket else ("SIGNING_SECRET", SECRET)
        self.env.setdefault(f"SLACK_{name}", value)
        with pytest.MonkeyPatch.context() as patch:
            for known in [key for key in os.environ if key.startswith("SLACK_")]:
                patch.delenv(known)
            for key, item in self.env.items():
                patch.setenv(key, item)
            await self.host.start()
        app.request_url = None if self.socket else self.host.url + EVENTS
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

    def _agent(self) -> Agent:
        channel = SlackChannel(**self.options)

        @channel.action("approve")
        async def approve(_: object, click: Interaction) -> None:
            self.clicks.append(click)

        return Agent(
            **{
                "name": "case",
                "instructions": "Answer.",
                "harness": self.harness,
                "auth": [
                    bearer(token="owner", principal=Principal("channel", "slack")),
                    bearer(token="local", principal=Principal("slack", f"{TEAM}:{PERSON}")),
                    local_dev_strict(),
                ],
                "tools": [self._idle()],
                "channels": {"slack": channel},
                **self.agent,
            }
        )

    def _idle(self) -> Any:
        @tool
        async def idle(seconds: float) -> str:
            """Do nothing for so many seconds."""
            await self.clock.sleep(seconds)
            return "done"

        return idle

    @property
    def host(self) -> TestHost:
        """The host, whether it runs or not."""
        if self._given is None:
            raise RuntimeError("The world has not been started.")
        return self._given

    async def restart(self) -> None:
        """Stop and start on the same state root."""
        await self.host.stop()
        await self.start()

    async def stop(self) -> None:
        """End all."""
        if self._given is not None:
            self.harness.free()
            await self._given.stop()
        if self._listens:
            await self.slack.close()
            self._patch.undo()
            self._listens = False

    @asynccontextmanager
    async def fresh(self, **more: Any) -> AsyncIterator[SlackWorld]:
        """Give another world, not started; what is true in every case is checked behind it."""
        self._worlds += 1
        root = self.root / f"world-{self._worlds}"
        root.mkdir()
        world = SlackWorld(root, **more)
        try:
            yield world
            await world.finish()
        finally:
            await world.stop()

    async def finish(self) -> None:
        """Let all come to rest, and check what is true in every case."""
        if self._given is None:
            return
        if self.host.running:
            self.harness.free()
            await self.rest()
            self.host.check_laws()
        await self.stop()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - self._tasks
        assert not left, f"tasks left: {left}"
        assert not self._unhandled, f"unhandled: {self._unhandled}"

    # Time

    @property
    def now_s(self) -> float:
        """The seconds since the start of the case."""
        return self.clock.monotonic()

    async def at(self, second: float) -> None:
        """Let the case's time reach a second."""
        while (left := second - self.now_s) > 1e-6:
            await self._step(min(left, STEP if left <= NEAR else STRIDE))

    async def pass_(self, seconds: float) -> None:
        """Let so many seconds pass."""
        await self.at(self.now_s + seconds)

    async def _step(self, seconds: float) -> None:
        """Move the time on, then let disk and sockets do what they have to."""
        await self.clock.elapse(seconds)
        if self._given is None or not self._given.running:
            return
        for _ in range(8 if seconds <= STEP else 4):
            await asyncio.sleep(0.001)
        if self._listens:
            await self.slack.settled()

    async def until(self, check: Callable[[], Any], what: str) -> Any:
        """Wait for a condition while the time stands still; return what it gave."""
        return await self.host.until(check, what)

    async def within(self, seconds: float, check: Callable[[], Any], what: str) -> Any:
        """Wait for a condition, so many seconds of the case's time at most."""
        end = self.now_s + seconds
        while not (found := check()):
            assert self.now_s < end - 1e-6, f"{what} did not come within {seconds:g} s"
            await self._step(min(STEP, end - self.now_s))
        return found

    async def throughout(
        self, second: float, check: Callable[[], Any], what: str, *, step: float = STEP
    ) -> None:
        """Let the time reach a second, and see to it that a condition holds all the while."""
        while True:
            assert check(), f"{what}, but not at {self.now_s:g} s"
            if (left := second - self.now_s) <= 1e-6:
                return
            await self._step(min(left, step))

    async def rest(self) -> None:
        """Let everything end, with time passing."""

        async def settled() -> None:
            await self.host.rest()
            await self.slack.settled()

        began = self.now_s
        resting = asyncio.ensure_future(settled())
        while not resting.done():
            await self._step(STEP if self.now_s - began < NEAR else STRIDE)
        await resting

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

    async def play(self, step: Mapping[str, Any], variant: Any = None) -> Answer | None:
        """Do one step when its time has come."""
        await self.at(float(step.get("at_s", self.now_s)))
        match step["do"]:
            case "post":
                return await self.post(step, variant)
            case "http":
                return await self.http(step)
            case "agent_reply":
                self.harness.tell(Reply(step["text"]))
            case "agent_delta_burst":
                self.harness.tell(*(Delta(f"d{number} ") for number in range(step["count"])))
            case "stub":
                self.stub(step, variant)
            case "start":
                await self.start()
            case "restart":
                self.env |= step.get("env", {})
                await self.restart()
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
            case verb:
                raise NotCoveredError(f"the verb {verb!r}")
        return None

    async def http(self, step: Mapping[str, Any]) -> Answer:
        """Send a request to the host's own API, in the name of who owns the channel's sessions."""
        path = step["path"]
        for name, value in self.saved.items():
            path = path.replace("{" + name + "}", value)
        headers = {"Authorization": "Bearer owner", **step.get("headers", {})}
        return await self.host.request(
            step["method"], quoted(path), json=step.get("body"), headers=headers
        )

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

    @property
    def accepted(self) -> list[str]:
        """The ids of what was accepted, each once."""
        return [one.delivery.delivery_id for one in self.host.witness.fresh]

    def session(self, thread: str, channel: str = CHANNEL, team: str = TEAM) -> HostSession | None:
        """Return the session of a thread."""
        token = f"slack:{team}:{channel}:{thread}"
        found = self.host.agent().store.session_by_token("slack", token)
        return None if found is None else self.host.session(found.id)

    def sessions(self) -> list[HostSession]:
        """Return every session."""
        return self.host.sessions()

    def events(self, type_: str) -> list[dict[str, Any]]:
        """Return the events of one type, of all sessions."""
        return [event for session in self.sessions() for event in session.events(type_)]

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
