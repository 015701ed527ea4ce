"""A real Slack server on this machine, over both transports; ``make test-real`` installs it.

It has no statuses, no streams and no metadata in its history; what needs those is proved against
FakeSlack.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from threadline import Agent, ToolContext, tool
from threadline.harness.base import Capabilities, Harness, Turn, TurnResult
from threadline.harness.scripted import Call, Say, Scripted
from threadline.testing import Gated, TestHost
from threadline_slack import SlackChannel
from threadline_slack.config import Config

pytestmark = [pytest.mark.real]

HERE = Path(__file__).parent / "slack"
CHANNEL, PERSON, OTHER, BOT = "C0CHAN0001", "U0HUMAN001", "U0HUMAN002", "U0AGENT001"
SECONDS = 30
EVENTS = "/v1/channels/slack/events"


@pytest.fixture(scope="module")
def program() -> str:
    """The server's program."""
    done = subprocess.run(
        [HERE / "install.sh"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(params=["events", "socket"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both transports."""
    return str(request.param)


@dataclass
class Relay:
    """A fixed address that passes what Slack sends on to wherever the host is now."""

    target: str = ""
    url: str = ""
    _runner: web.AppRunner | None = field(default=None, repr=False)

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/events", self.forward)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/events"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def forward(self, request: web.Request) -> web.Response:
        body = await request.read()
        kept = ("content-type", "x-slack-signature", "x-slack-request-timestamp")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.target, data=body, headers=headers) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read())


@dataclass
class World:
    """The server, and a host that serves an agent in it."""

    slack: str
    http: aiohttp.ClientSession
    host: TestHost
    relay: Relay

    async def control(self, what: str, **body: Any) -> Any:
        async with self.http.post(f"{self.slack}/_control/{what}", json=body) as answer:
            found = await answer.json(content_type=None)
            assert answer.status == 200, found
            return found

    async def say(self, text: str, *, thread: str | None = None, channel: str = CHANNEL) -> str:
        """Post as a person; returns the message's ts."""
        more = {} if thread is None else {"thread_ts": thread}
        found = await self.control("message", channel=channel, user=PERSON, text=text, **more)
        return str(found.get("ts") or found["message"]["ts"])

    async def messages(self, channel: str = CHANNEL) -> list[dict[str, Any]]:
        async with self.http.get(f"{self.slack}/_control/messages/{channel}") as answer:
            found = await answer.json(content_type=None)
        return list(found if isinstance(found, list) else found["messages"])

    async def replies(self, thread: str, channel: str = CHANNEL) -> list[dict[str, Any]]:
        """Return the agent's messages in a thread."""
        found = await self.messages(channel)
        return [m for m in found if m.get("thread_ts") == thread and m.get("user") == BOT]

    async def shown(self, count: int, thread: str, channel: str = CHANNEL) -> list[str]:
        """Return what the agent said in a thread, once it has said so much and rests."""

        async def there() -> bool:
            return len(await self.replies(thread, channel)) >= count

        await self.host.until(there, "what the agent says")
        for session in self.sessions():
            await session.rest()
        return [message["text"] for message in await self.replies(thread, channel)]

    async def message(self, ts: str, channel: str = CHANNEL) -> dict[str, Any]:
        """Return a message."""
        (found,) = [one for one in await self.messages(channel) if one["ts"] == ts]
        return found

    async def marked(self, ts: str, *names: str, channel: str = CHANNEL) -> None:
        """Wait until these are the agent's reactions at a message."""

        async def there() -> bool:
            found = (await self.message(ts, channel)).get("reactions", [])
            return {one["name"] for one in found if BOT in one["users"]} == set(names)

        await self.host.until(there, f"the reactions {names}")

    async def upload(self, name: str, content: bytes, text: str, channel: str = CHANNEL) -> str:
        """Share a file as a person; returns the message's ts."""
        form = aiohttp.FormData(quote_fields=False)
        for field_, value in {"channel": channel, "user": PERSON, "text": text}.items():
            form.add_field(field_, value)
        form.add_field("file", content, filename=name, content_type="text/csv")
        async with self.http.post(f"{self.slack}/_control/upload", data=form) as answer:
            assert answer.status == 200, await answer.text()
        shared = [one for one in await self.messages(channel) if one.get("files")]
        return str(shared[-1]["ts"])

    async def accepted(self, count: int) -> None:
        """Wait until so many messages were accepted."""
        seen = self.host.witness.accepted
        await self.host.until(lambda: len({one.delivery.delivery_id for one in seen}) >= count)

    def sessions(self) -> list[Any]:
        records = self.host.agent().store.sessions(None, limit=50)
        return [self.host.session(record.id) for record in records]

    async def direct(self) -> str:
        """Return the direct conversation of the person and the bot."""
        async with self.http.post(
            f"{self.slack}/api/conversations.open",
            json={"users": PERSON},
            headers={"Authorization": "Bearer xoxb-test"},
        ) as answer:
            return str((await answer.json())["channel"]["id"])

    async def restart(self) -> None:
        await self.host.start()
        self.relay.target = self.host.url + EVENTS


@tool(effect="write")
async def report(ctx: ToolContext) -> str:
    """Write a report."""
    await ctx.artifacts.tag(
        key="report", title="The report", content=b"a,b\n1,2\n", filename="report.csv"
    )
    return "written"


@tool(effect="write", approval=True)
async def deploy(service: str) -> str:
    """Deploy a service."""
    return f"deployed {service}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serving(program: str, mode: str, request_url: str, folder: Path) -> Iterator[str]:
    """Run the server; yields its address."""
    app = {
        "appId": "A0AGENT001",
        "botUserId": BOT,
        "botName": "agent",
        "botToken": "xoxb-test",
        "appToken": "xapp-test",
        "signingSecret": "s3cret",
        "mode": mode,
    } | ({"requestUrl": request_url} if mode == "events" else {})
    members = [BOT, PERSON, OTHER]
    config = {
        "workspace": {"name": "acme"},
        "apps": [app],
        "users": [{"id": PERSON, "name": "dev1"}, {"id": OTHER, "name": "dev2"}],
        "channels": [{"id": CHANNEL, "name": "general", "members": members}],
    }
    path = folder / "slack.json"
    path.write_text(json.dumps(config))
    port = free_port()
    command = [program, "--config", str(path), "--port", str(port), "--base-host", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


Serve = Callable[..., Any]


@pytest.fixture
async def serve(program: str, mode: str, tmp_path: Path) -> AsyncIterator[Serve]:
    """Return what serves an agent with a harness in a fresh workspace."""
    relay = Relay()
    await relay.start()
    servers = serving(program, mode, relay.url, tmp_path)
    slack = next(servers)
    hosts: list[TestHost] = []
    async with aiohttp.ClientSession() as http:
        await up(http, slack)

        async def start(harness: Harness, **options: Any) -> World:
            config = Config(
                "xoxb-test",
                "xapp-test" if mode == "socket" else None,
                "s3cret" if mode == "events" else None,
                f"{slack}/api/",
            )

            def agent() -> Agent:
                return Agent(
                    name="Helper",
                    instructions="Answer.",
                    harness=harness,
                    tools=[deploy, report],
                    channels={"slack": SlackChannel(config=config, **options)},
                )

            host = TestHost(agent, channel_id="slack")
            hosts.append(host)
            world = World(slack, http, host, relay)
            await world.restart()
            return world

        yield start
        for host in hosts:
            await host.close()
    servers.close()  # type: ignore[attr-defined]
    await relay.stop()


async def up(http: aiohttp.ClientSession, slack: str) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                async with http.get(f"{slack}/_control/state"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def test_a_mention_has_one_answer_in_its_thread(serve: Serve) -> None:
    world = await serve(Scripted())
    ts = await world.say(f"<@{BOT}> why is checkout slow?")
    assert await world.shown(1, ts) == ["why is checkout slow?"]
    (session,) = world.sessions()
    (prompt,) = session.events("message.received")
    assert "dev1" in prompt["data"]["context"][0]
    world.host.check_laws()


async def test_follow_ups_while_busy_are_all_answered(serve: Serve) -> None:
    harness = Gated(hold=["answer"])
    world = await serve(harness)
    ts = await world.say(f"<@{BOT}> one")
    await harness.gates["answer"].reached()
    await world.say("two", thread=ts)
    await world.say("three", thread=ts)
    await world.accepted(3)
    harness.release()
    assert await world.shown(2, ts) == ["one", "two\n\nthree"]


async def test_a_direct_message_is_answered(serve: Serve) -> None:
    world = await serve(Scripted())
    channel = await world.direct()
    ts = await world.say("hello", channel=channel)
    assert await world.shown(1, ts, channel) == ["hello"]


async def test_a_stop_ends_the_turn(serve: Serve) -> None:
    harness = Gated(hold=["answer"])
    world = await serve(harness)
    ts = await world.say(f"<@{BOT}> long job")
    await harness.gates["answer"].reached()
    await world.say("stop", thread=ts)
    assert await world.shown(1, ts) == ["Stopped."]
    assert harness.cancelled == 1


async def test_a_stop_clears_what_waits_and_says_so(serve: Serve) -> None:
    harness = Gated(hold=["answer"])
    world = await serve(harness)
    ts = await world.say(f"<@{BOT}> long job")
    await harness.gates["answer"].reached()
    more = await world.say("and this", thread=ts)
    await world.marked(more, "hourglass_flowing_sand")
    await world.say("stop", thread=ts)
    assert await world.shown(1, ts) == ["Stopped."]
    await world.marked(more, "no_entry_sign")
    assert len(harness.prompts) == 1
    world.host.check_laws()


async def test_a_follow_up_is_marked_until_it_is_answered(serve: Serve) -> None:
    harness = Gated(calls=1, hold=["call", "answer"])
    world = await serve(harness)
    ts = await world.say(f"<@{BOT}> one")
    await harness.gates["call"].reached()
    more = await world.say("two", thread=ts)
    await world.marked(more, "hourglass_flowing_sand")
    harness.release("call")
    await world.marked(more, "eyes")
    harness.release()
    await world.marked(more, "white_check_mark")
    assert len(await world.shown(1, ts)) == 1
    await world.marked(ts)


async def test_a_file_comes_into_the_workspace(serve: Serve) -> None:
    world = await serve(Scripted())
    ts = await world.upload("a b.csv", b"1,2\n", f"<@{BOT}> read this")
    assert await world.shown(1, ts) == ["read this"]
    (path,) = world.host.root.glob("sessions/*/workspace/slack/*-a_b.csv")
    assert path.read_bytes() == b"1,2\n"


async def test_a_file_goes_into_the_thread_once(serve: Serve) -> None:
    world = await serve(Scripted([Call("report"), Say("Here it is.")]))
    ts = await world.say(f"<@{BOT}> report please")
    await world.shown(2, ts)
    said = await world.replies(ts)
    (file,) = [file for message in said for file in message.get("files", [])]
    headers = {"Authorization": "Bearer xoxb-test"}
    async with world.http.get(file["url_private_download"], headers=headers) as answer:
        assert await answer.read() == b"a,b\n1,2\n"
    assert [message["text"] for message in said if not message.get("files")] == ["Here it is."]


async def test_a_button_approves(serve: Serve) -> None:
    world = await serve(Scripted([Call("deploy", {"service": "shop"}), Say("It is out.")]))
    ts = await world.say(f"<@{BOT}> deploy the shop")
    (card,) = await world.host.until(lambda: world.replies(ts), "the card")
    (buttons,) = [b for b in card["blocks"] if b["type"] == "actions"]
    approve = buttons["elements"][0]
    await world.control(
        "interact",
        channel=CHANNEL,
        messageTs=card["ts"],
        user=OTHER,
        action={key: approve[key] for key in ("action_id", "value", "type")},
    )
    first, last = await world.shown(2, ts)
    assert last == "It is out."
    assert "Approved" in first
    assert f"<@{OTHER}>" in first


async def test_a_restart_in_the_middle_leaves_one_answer(serve: Serve) -> None:
    harness = Gated(hold=["answer"])
    world = await serve(harness)
    ts = await world.say(f"<@{BOT}> once")
    await harness.gates["answer"].reached()
    await world.host.kill()
    harness.release()
    await world.restart()
    assert await world.shown(1, ts) == ["once"]
    world.host.check_laws()


async def test_what_waits_at_a_restart_is_answered_once(serve: Serve) -> None:
    harness = Gated(hold=["answer"])
    world = await serve(harness)
    ts = await world.say(f"<@{BOT}> one")
    await harness.gates["answer"].reached()
    more = [await world.say(text, thread=ts) for text in ("two", "three")]
    await world.accepted(3)
    await world.marked(more[1], "hourglass_flowing_sand")
    await world.host.kill()
    harness.release()
    await world.restart()
    assert await world.shown(2, ts) == ["one", "two\n\nthree"]
    for one in more:
        await world.marked(one, "white_check_mark")
    world.host.check_laws()


async def test_where_nothing_streams_an_answer_grows_by_edits(serve: Serve) -> None:
    harness = Growing()
    world = await serve(harness, reply="stream")
    ts = await world.say(f"<@{BOT}> tell me")

    async def begun() -> Any:
        return [m for m in await world.replies(ts) if "The beginning" in m["text"]]

    (message,) = await world.host.until(begun, "the beginning of the answer")
    assert [block for block in message["blocks"] if block["type"] == "actions"]
    harness.gate.set()
    await world.host.until(lambda: ended(world, ts), "the end of the answer")
    (session,) = world.sessions()
    await session.rest()
    (message,) = await world.replies(ts)
    assert message["text"] == "The beginning, and the end."
    assert not [block for block in message["blocks"] if block["type"] == "actions"]


async def test_a_restart_while_it_grows_leaves_one_answer(serve: Serve) -> None:
    harness = Growing()
    world = await serve(harness, reply="stream")
    ts = await world.say(f"<@{BOT}> tell me")
    await world.host.until(lambda: world.replies(ts), "the beginning of the answer")
    await world.host.kill()
    harness.gate.set()
    await world.restart()
    await world.host.until(lambda: ended(world, ts), "the end of the answer")
    for session in world.sessions():
        await session.rest()
    assert await ended(world, ts)


async def ended(world: World, ts: str) -> bool:
    return [m["text"] for m in await world.replies(ts)] == ["The beginning, and the end."]


class Growing:
    """A harness that says the beginning of its answer, waits, and says the end."""

    name = "growing"
    model: str | None = None
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def run(self, turn: Turn) -> TurnResult:
        turn.step_started()
        turn.message_delta("m", "The beginning, ")
        await self.gate.wait()
        turn.message_completed("m", "The beginning, and the end.", "stop")
        turn.step_completed({}, "stop")
        return TurnResult("The beginning, and the end.", usage={}, messages=[])
