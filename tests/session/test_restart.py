"""Restarts: what is resumed, what is not, and that nothing is done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from tests.session.host import WORK, Host, until

from threadline.errors import Draining
from threadline.harness.base import Capabilities
from threadline.harness.scripted import Call, Say, Scripted
from threadline.store import writer

if TYPE_CHECKING:
    from tests.session.conftest import MakeHost


async def finish(host: Host) -> None:
    host.tools.held = False
    host.tools.release()
    await host.rest()
    host.check()


async def test_an_interrupted_turn_is_resumed_from_its_checkpoint(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    host.tools.release()
    await host.working()
    await host.restart()
    await finish(host)
    assert host.ends() == ["host_restarted", "completed"]
    assert host.prompts() == [["a1"]]
    assert host.steered() == ["a2"]
    first, second = host.events(type_="turn.started")
    assert second["data"]["attempt"] == 2
    assert second["data"]["resumes"] == first["turnId"]
    failed = host.events(type_="turn.failed")[0]["data"]
    assert failed["status"] == "interrupted"
    assert "session.waiting" not in host.types()[:-1]
    assert host.tools.runs == ["work"] * 3


async def test_a_turn_without_a_checkpoint_gets_its_prompt_again(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.restart()
    await finish(host)
    history = [m for c in host.core.store.checkpoints(host.session_id()) for m in c.messages]
    assert [m["content"] for m in history if m["role"] == "user"] == ["say a1"]


async def test_fail_on_restart_does_not_resume(make_host: MakeHost) -> None:
    host = await make_host(on_restart="fail")
    host.tools.held = True
    await host.send("a1")
    await host.working()
    await host.restart()
    await host.rest()
    host.check()
    assert host.ends() == ["host_restarted"]
    assert host.types()[-1] == "session.waiting"
    await host.send("a2")
    await finish(host)


async def test_a_harness_that_cannot_resume_is_not_asked_to(make_host: MakeHost) -> None:
    script = Scripted([Call("work"), Say("ok")], capabilities=Capabilities(resumes=False))
    host = await make_host(script)
    host.tools.held = True
    await host.send("a1")
    await host.working()
    await host.restart()
    await host.rest()
    host.check()
    assert host.ends() == ["host_restarted"]


async def test_an_interrupted_task_fails_when_it_may_not_resume(make_host: MakeHost) -> None:
    host = await make_host(on_restart="fail")
    host.tools.held = True
    await host.send("t1", "t", mode="task")
    await host.working()
    await host.restart()
    await host.rest()
    host.check()
    assert host.types("t")[-2:] == ["turn.failed", "session.failed"]


async def test_an_interrupted_task_is_resumed_to_its_end(host: Host) -> None:
    await host.send("t1", "t", mode="task")
    await host.working()
    await host.restart()
    await finish(host)
    assert host.types("t")[-1] == "session.completed"


async def test_the_third_restart_within_one_prompt_ends_it(host: Host) -> None:
    await host.send("a1")
    for _ in range(3):
        await host.working()
        await host.restart()
    await host.rest()
    host.check()
    assert host.ends() == ["host_restarted", "host_restarted", "resume_limit"]
    assert host.types()[-1] == "session.waiting"
    await host.send("a2")
    await finish(host)


async def test_drains_are_resumed_and_do_not_count(make_host: MakeHost) -> None:
    host = await make_host(Scripted([Call("work")] * 6))
    host.tools.held = True
    await host.send("a1")
    for _ in range(5):
        await host.working()
        await host.close()
        await host.start()
    await finish(host)
    assert host.ends() == ["host_shutdown"] * 5 + ["completed"]
    assert host.events(type_="turn.started")[-1]["data"]["attempt"] == 6


async def test_a_drain_lets_a_turn_end_by_itself(host: Host) -> None:
    await host.send("a1")
    await host.working()
    draining = asyncio.create_task(host.core.drain(10))
    await host.clock.sleeping(2)
    host.tools.held = False
    host.tools.release()
    while not draining.done():
        await host.clock.elapse(0.02)
    assert host.ends() == ["completed"]
    await host.close()
    await host.start()
    await finish(host)


async def test_what_waits_for_a_slot_survives_a_drain(make_host: MakeHost) -> None:
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("a1", "a")
    await host.working()
    await host.send("b1", "b")
    await host.close()
    assert host.core.services.slots.running == 0
    await host.start()
    await finish(host)
    assert host.prompts("b") == [["b1"]]


async def test_a_preempting_delivery_journaled_before_the_crash_is_obeyed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed, but the process died before it interrupted anything."""
    await host.send("a1")
    await host.working()
    sending = await committed_unheard(host, monkeypatch, host.send("a2", admission="preempt"))
    await host.kill()
    await asyncio.wait([sending])
    await host.start()
    await finish(host)
    assert host.ends() == ["preempted", "completed"]
    assert host.prompts() == [["a1"], ["a2"]]


async def committed_unheard(
    host: Host, monkeypatch: pytest.MonkeyPatch, doing: Any
) -> asyncio.Task[Any]:
    """Let something be committed, with the answer never reaching the event loop."""
    store: Any = host.core.store
    committed: list[Any] = []
    monkeypatch.setattr(store._writer, "_answer", committed.append)
    task = asyncio.create_task(doing)
    await until(lambda: committed)
    host.core.services.tasks.add(task)
    return task


async def test_a_stop_journaled_before_the_crash_is_obeyed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    stopping = await committed_unheard(host, monkeypatch, host.stop())
    await host.kill()
    await asyncio.wait([stopping])
    await host.start()
    await finish(host)
    assert host.ends() == ["stopped", "completed"]
    assert host.prompts() == [["a1"], ["a2"]]


async def test_a_clearing_stop_journaled_before_the_crash_is_obeyed(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    stopping = await committed_unheard(host, monkeypatch, host.stop(clear_pending=True))
    await host.kill()
    await asyncio.wait([stopping])
    await host.start()
    await finish(host)
    assert host.ends() == ["stopped"]
    assert host.events(type_="deliveries.cleared")[0]["data"]["deliveryIds"] == ["a2"]


async def test_a_stop_of_a_waiting_turn_journaled_before_the_crash_is_obeyed(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("b1", "b")
    await host.working()
    await host.send("a1")
    stopping = await committed_unheard(host, monkeypatch, host.stop())
    await host.kill()
    await asyncio.wait([stopping])
    host._given["slots"] = Slots(1)
    await host.start()
    await finish(host)
    assert host.prompts() == [["a1"]]
    assert host.ends() == ["stopped"]


async def test_an_open_write_is_asked_about(host: Host) -> None:
    host.tools.writes = {"work"}
    await host.send("a1")
    await host.working()
    await host.restart()
    await host.rest()
    host.check()
    assert host.ends() == ["host_restarted"]
    said = host.events(type_="message.completed")[-1]["data"]
    assert "work" in said["text"]
    assert said["finishReason"] == "stop"
    assert host.types()[-1] == "session.waiting"
    await host.send("a2")
    await finish(host)
    assert host.tools.runs.count("work") == 3


async def test_an_open_write_that_may_run_again_is_not(host: Host) -> None:
    host.tools.writes = host.tools.harmless = {"work"}
    await host.send("a1")
    await host.working()
    await host.restart()
    await finish(host)
    assert host.ends() == ["host_restarted", "completed"]


async def test_a_task_with_an_open_write_fails(host: Host) -> None:
    host.tools.writes = {"work"}
    await host.send("t1", "t", mode="task")
    await host.working()
    await host.restart()
    await host.rest()
    host.check()
    assert host.events("t")[-1]["data"]["error"]["code"] == "host_restarted"


async def test_a_write_starts_only_when_its_request_is_on_disk(host: Host) -> None:
    host.tools.writes = {"work"}
    await host.send("a1")
    await host.working()
    await host.kill(power_cut=True)
    assert b"actions.requested" in host.log_of_only_session()
    await host.start()
    await host.rest()
    host.check()


async def test_a_prompt_is_on_disk_before_the_first_boundary(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await until(lambda: not host.core.store._syncing)  # type: ignore[attr-defined]
    await host.kill(power_cut=True)
    assert b"message.received" in host.log_of_only_session()
    await host.start()
    await finish(host)
    assert "log.recovered" in host.types()


async def test_after_a_power_cut_no_index_is_used_again(host: Host) -> None:
    await host.send("a1")
    await host.working()
    seen = [e["index"] for e in host.events()]
    await host.restart(power_cut=True)
    await finish(host)
    (recovered,) = host.events(type_="log.recovered")
    assert recovered["index"] > max(seen) + 10_000
    assert recovered["data"]["to"] == recovered["index"] - 1


async def test_adopted_zombies_end(tmp_path: Path) -> None:
    """An open turn of another host's log: closed once, with its calls, and resumed."""
    host = Host(tmp_path / "state", WORK)
    folder = host.root / "sessions" / "ses_fixture1"
    folder.mkdir(parents=True)
    lines = [
        ("session.started", {}),
        ("message.received", {"text": "hi", "deliveryIds": ["dlv_1"]}),
        ("turn.started", {}),
        ("actions.requested", {"actions": [{"callId": "c1", "name": "shell"}]}),
    ]
    log = b""
    for index, (kind, data) in enumerate(lines):
        event: dict[str, Any] = {"type": kind, "index": index, "sessionId": "ses_fixture1"}
        if index:
            event["turnId"] = "t1"
        log += orjson.dumps(event | {"at": "2025-10-09T08:53:20.000Z", "data": data}) + b"\n"
    (folder / "events.ndjson").write_bytes(log)
    (folder / "session.json").write_bytes(
        orjson.dumps({"id": "ses_fixture1", "channel": "chat", "continuationToken": "z"})
    )
    await host.start()
    await host.rest()
    first = host.log("z")
    assert first.startswith(log)
    assert host.types("z")[4:8] == [
        "action.result",
        "actions.completed",
        "turn.failed",
        "turn.started",
    ]
    assert host.types("z")[-1] == "session.waiting"
    await host.restart()
    await host.rest()
    assert host.log("z") == first
    await host.close()


async def test_resting_sessions_are_not_opened_at_start(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LAZY_SECONDS", 0.0)
    await host.send("a1")
    await finish(host)
    await until(lambda: not host.core.store.unrested())
    await host.restart()
    assert host.core.load["sessions"] == 0
    assert host.core.status(host.session_id()) == "waiting"


async def test_a_session_that_cannot_be_opened_keeps_no_host_from_starting(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.send("a1", "a")
    await host.send("b1", "b")
    await host.working(2)
    broken = host.session_id("a")
    await host.kill()
    from threadline.store.embedded import EmbeddedStore

    lease = EmbeddedStore.lease

    async def refuse(self: EmbeddedStore, session_id: str) -> Any:
        if session_id == broken:
            raise OSError(5, "Input/output error")
        return await lease(self, session_id)

    monkeypatch.setattr(EmbeddedStore, "lease", refuse)
    host.tools.held = False
    await host.start()
    await until(lambda: host.ends("b") == ["host_restarted", "completed"])
    _, admitted = await host.send("a2", "a")
    assert admitted == "queued"
    monkeypatch.undo()
    await host.clock.sleeping(2)
    await host.clock.elapse(10)
    await host.rest()
    host.check()
    assert host.steered("a") == ["a2"] or host.prompts("a") == [["a1"], ["a2"]]


async def test_a_stop_behind_the_hosts_end_is_refused_and_not_lost(host: Host) -> None:
    """The next process takes the turn up again, so only that one can stop it."""
    await host.send("a1")
    await host.working()
    await host.core.drain(0.0)
    with pytest.raises(Draining):
        await host.core.stop(host.session_id())
    await host.restart()
    await host.working()
    assert await host.core.stop(host.session_id())
    await finish(host)
    assert host.ends() == ["host_shutdown", "stopped"]


async def test_a_stop_of_nothing_stays_one_while_the_host_ends(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await finish(host)
    await host.core.drain(0.0)
    assert not await host.core.stop(host.session_id())
