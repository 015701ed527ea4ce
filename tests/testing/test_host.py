"""A host in a test: its life, its requests, its sessions, its crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from threadline import Accepted, Agent, Channel, RouteContext
from threadline.channel.context import Context
from threadline.project import load_project
from threadline.testing import Gated, LawBroken, ManualClock, Say, Scripted, TestHost

MakeHost = Callable[..., TestHost]


class Desk(Channel):
    """Takes a text for a token."""

    def __init__(self) -> None:
        super().__init__(admission="coalesce")
        self.stopped = 0
        self.post("/say/{token}")(self.say)

    async def say(self, ctx: RouteContext, body: str) -> Accepted:
        """Say it."""
        delivery = await ctx.send(
            body,
            continuation_token=ctx.params["token"],
            delivery_id=ctx.headers.get("x-delivery-id"),
        )
        return Accepted(delivery)

    async def on_stop(self, ctx: Context) -> None:
        self.stopped += 1


SAY = "/v1/channels/channel/say/t"


async def test_a_session_over_http(threadline_host: MakeHost) -> None:
    async with threadline_host(Channel()) as host:
        session = await host.start_session("one", deliveryId="d1", title="T")
        events = await session.rest()
        assert events[0]["data"]["title"] == "T"
        token = session.token
        answer = await session.follow_up("two", deliveryId="d2")
        assert answer.ok
        assert session.token != token
        assert session.delivery_id == "d2"
        await session.event("turn.completed", 2)
        await session.rest()
        assert session.replies == ["one", "two"]
        assert session.accepted == ["d1", "d2"]
        assert session.outcomes("d1") == ["prompted"]
        assert session.outcomes("d9") == []
        assert session.status == "waiting"
        assert (await session.stop()).json()["stopped"] is False
        assert [one.id for one in host.sessions()] == [session.id]
        assert (await host.get("/v1/sessions")).json()["sessions"][0]["sessionId"] == session.id
        assert (await host.delete(session.path)).ok
        assert host.sessions() == []


async def test_a_refused_session_says_why(threadline_host: MakeHost) -> None:
    async with threadline_host(Channel()) as host:
        with pytest.raises(AssertionError, match=r"refused with 400: .*blank"):
            await host.start_session(" ")


async def test_a_channel_by_its_route(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk(), harness=Scripted([Say("Done!")])) as host:
        answer = await host.post(SAY, json="one", headers={"x-delivery-id": "d1"})
        assert (answer.status, answer.json()["admitted"]) == (202, "started")
        session = host.session(answer.json()["sessionId"])
        await session.rest()
        assert session.replies == ["Done!"]
        raw = await host.post(SAY, body=b"{")
        assert (raw.status, raw.ok) == (400, False)
        assert "not JSON" in raw.text
        again = await host.post(SAY, json="one", headers={"x-delivery-id": "d1"})
        assert again.json()["admitted"] == "duplicate"
        assert [r.duplicate for r in host.witness.accepted] == [False, True]
        assert len(host.witness.fresh) == 1
        assert host.channel().admission == "coalesce"


async def test_a_restart_goes_on_with_what_was(threadline_host: MakeHost) -> None:
    harness = Gated(hold=["answer"])
    made: list[Desk] = []

    def make() -> Desk:
        made.append(Desk())
        return made[-1]

    async with threadline_host(make, harness=harness) as host:
        answer = await host.post(SAY, json="one")
        session = host.session(answer.json()["sessionId"])
        await harness.gates["answer"].held_up()
        await host.restart()
        harness.release()
        await session.rest()
        assert session.events("turn.failed")[0]["data"]["code"] == "host_shutdown"
        assert session.replies == ["one"]
        host.check_laws()
    assert [desk.stopped for desk in made] == [1, 1]


@pytest.mark.parametrize("power_cut", [False, True])
async def test_a_crash_leaves_what_was_stored(threadline_host: MakeHost, power_cut: bool) -> None:
    harness = Gated(hold=["answer"])
    async with threadline_host(Desk, harness=harness) as host:
        answer = await host.post(SAY, json="one")
        session = host.session(answer.json()["sessionId"])
        await harness.gates["answer"].held_up()
        await host.crash(power_cut=power_cut)
        harness.release()
        await session.rest()
        assert len(session.outcomes(answer.json()["deliveryId"])) == 1
        assert session.replies == ["one"]
        assert ("log.recovered" in session.types) == power_cut
        host.check_laws()


async def test_a_kill_leaves_it_down(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk) as host:
        await host.kill()
        assert not host.running
        with pytest.raises(RuntimeError, match="does not run"):
            await host.get("/healthz")
        await host.crash()
        assert (await host.get("/healthz")).json() == {"ok": True}
        with pytest.raises(RuntimeError, match="runs already"):
            await host.start()


async def test_it_dies_at_a_write(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk, harness=Gated()) as host:
        host.witness.die_at = "message.completed"
        answer = await host.post(SAY, json="one")
        await host.until(lambda: host.disk.dead)
        session = host.session(answer.json()["sessionId"])
        before = session.log()
        await host.crash()
        await session.rest()
        assert session.log().startswith(before)
        host.check_laws()


async def test_one_that_has_died_can_be_closed(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk, harness=Gated()) as host:
        host.witness.die_at = "turn.completed"
        await host.post(SAY, json="one")
        await host.until(lambda: host.disk.dead)
    assert not host.running
    async with host:
        await host.rest()
        assert host.sessions()[0].replies == ["one"]


async def test_a_disk_that_dies_under_a_request(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk, harness=Gated()) as host:
        host.disk.crash_next("commit")
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await host.post(SAY, json="one")
        await host.crash()
        assert host.sessions() == []


async def test_time_is_the_tests(threadline_host: MakeHost, manual_clock: ManualClock) -> None:
    async with threadline_host(Desk, clock=manual_clock) as host:
        answer = await host.post(SAY, json="one")
        session = host.session(answer.json()["sessionId"])
        await session.rest()
        assert session.events()[0]["at"].startswith("2025-01-01T00:00:00.000")
        await host.elapse(3600.0, step=100.0)
        await host.post(SAY, json="two")
        await session.rest()
        assert session.events()[-1]["at"] == "2025-01-01T01:00:00.000Z"


async def test_no_clock_no_elapse(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk) as host:
        with pytest.raises(RuntimeError, match="clock=ManualClock"):
            await host.elapse(1.0)


async def test_what_never_comes_is_named(threadline_host: MakeHost) -> None:
    async with threadline_host(Desk) as host:
        host.patience = 0.02
        with pytest.raises(AssertionError, match=r"a miracle did not come within 0\.02 s"):
            await host.until(lambda: None, "a miracle")
        session = await host.start_session("one")
        with pytest.raises(AssertionError, match=f"turn.failed number 1 of session {session.id}"):
            await session.event("turn.failed")


async def test_several_agents(threadline_host: MakeHost, tmp_path: Path) -> None:
    agents = [
        Agent(name=name, instructions="Go.", harness=Scripted([Say(name)])) for name in ("A", "B")
    ]
    async with threadline_host(*agents, root=tmp_path / "both") as host:
        second = await host.start_session("hi", slug="agent-2")
        await host.rest()
        assert second.replies == ["B"]
        assert second.path.startswith("/agent-2/v1/session/")
        assert host.sessions() == []
        assert (tmp_path / "both" / "agent-2" / "sessions" / second.id).is_dir()
        host.check_laws()


async def test_a_project_of_files(threadline_host: MakeHost, tmp_path: Path) -> None:
    folder = tmp_path / "bot" / "agent"
    folder.mkdir(parents=True)
    (folder / "instructions.md").write_text("Go.")
    async with threadline_host(load_project(tmp_path / "bot"), bearer_token="t") as host:
        headers = {"authorization": "Bearer t"}
        session = await host.start_session("hi", headers=headers)
        failed = await session.event("turn.failed")
        assert failed["data"]["code"] == "model_not_configured"
        assert (await session.follow_up("more")).status == 401


async def test_a_root_of_its_own_is_removed() -> None:
    async with TestHost(Channel()) as host:
        await (await host.start_session("hi")).rest()
        root = host.root
        assert (root / "threadline.db").exists()
    assert not root.exists()


async def test_laws_that_are_broken_are_found(threadline_host: MakeHost) -> None:
    async with threadline_host(Channel()) as host:
        session = await host.start_session("hi")
        await session.rest()
        session.check_laws()
        path: Any = host.root / "sessions" / session.id / "events.ndjson"
        path.write_bytes(session.log() + session.log().split(b"\n")[0] + b"\n")
        with pytest.raises(LawBroken, match="index 0 follows"):
            host.check_laws()


def test_it_needs_something_to_serve() -> None:
    with pytest.raises(ValueError, match="an Agent, a Project or a Channel"):
        TestHost()
