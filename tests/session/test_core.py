"""What deliveries and stops do to a live session: the admission table, stops, steering."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.session.host import Host, until

from threadline.errors import Draining, Forbidden, NotFound, SessionBusy, TaskSession
from threadline.harness.base import Capabilities, Turn, TurnResult
from threadline.harness.scripted import Call, Say, Scripted
from threadline.principal import LOCAL, Principal
from threadline.store import writer

if TYPE_CHECKING:
    from tests.session.conftest import MakeHost

WAITING = "session.waiting"


async def finish(host: Host) -> None:
    """Let all work end and come to rest."""
    host.tools.held = False
    host.tools.release()
    await host.rest()
    host.check()


# Admission


@pytest.mark.parametrize("admission", ["preempt", "coalesce"])
async def test_an_absent_session_starts(host: Host, admission: str) -> None:
    _, admitted = await host.send("a1", admission=admission)
    assert admitted == "started"
    await finish(host)
    assert host.types() == [
        "session.started",
        "message.received",
        "turn.started",
        *["actions.requested", "action.result", "actions.completed"] * 2,
        "message.completed",
        "turn.completed",
        WAITING,
    ]


@pytest.mark.parametrize("admission", ["preempt", "coalesce"])
async def test_an_idle_session_starts(host: Host, admission: str) -> None:
    await host.send("a1")
    await finish(host)
    _, admitted = await host.send("a2", admission=admission)
    assert admitted == "started"
    await finish(host)
    assert host.prompts() == [["a1"], ["a2"]]


@pytest.mark.parametrize("admission", ["preempt", "coalesce"])
async def test_a_queued_session_joins_the_prompt(make_host: MakeHost, admission: str) -> None:
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("b1", "b")
    await host.working()
    assert (await host.send("a1"))[1] == "queued"
    assert (await host.send("a2", admission=admission))[1] == "queued"
    await finish(host)
    assert host.prompts() == [["a1", "a2"]]
    assert host.types()[:4] == [
        "session.started",
        "turn.queued",
        "message.received",
        "turn.started",
    ]


async def test_running_preempt_interrupts_and_takes_all_pending_in_order(host: Host) -> None:
    await host.send("a1")
    await host.working()
    assert (await host.send("a2"))[1] == "queued"
    assert (await host.send("a3", admission="preempt"))[1] == "preempted"
    await finish(host)
    assert host.prompts() == [["a1"], ["a2", "a3"]]
    assert host.ends() == ["preempted", "completed"]
    failed = host.events(type_="turn.failed")[0]["data"]
    assert failed.pop("usage")["requests"] == 1
    assert failed == {"status": "cancelled", "code": "preempted", "message": "turn interrupted"}


async def test_running_coalesce_is_steered_at_the_next_boundary(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2", sender={"id": "u2"})
    await host.send("a3")
    await finish(host)
    assert host.prompts() == [["a1"]]
    assert host.steered() == ["a2", "a3"]
    types = host.types(leave_out="")
    first = types.index("nudge.delivered")
    assert types[first - 1 : first + 3] == [
        "actions.completed",
        "nudge.delivered",
        "nudge.delivered",
        "step.started",
    ]
    nudge = host.events(type_="nudge.delivered")[0]
    calls = host.events(type_="actions.completed")[0]["data"]["callIds"]
    assert nudge["data"] == {
        "text": "say a2",
        "deliveryId": "a2",
        "afterCallIds": calls,
        "sender": {"id": "u2"},
    }
    assert nudge["turnId"] == host.events(type_="turn.started")[0]["turnId"]


async def test_coalesce_behind_the_last_boundary_falls_to_one_next_turn(
    make_host: MakeHost,
) -> None:
    gate = asyncio.Event()

    async def model(turn: Turn) -> str:
        turn.step_started()
        turn.message_delta("m", "thinking")
        await gate.wait()
        return "ok"

    host = await make_host(Scripted(model))
    await host.send("a1")
    await until(lambda: host.owner().phase == "running")
    for name in ("a2", "a3"):
        assert (await host.send(name))[1] == "queued"
    gate.set()
    await host.rest()
    host.check()
    assert host.prompts() == [["a1"], ["a2", "a3"]]
    assert host.steered() == []


async def test_a_harness_that_cannot_steer_is_offered_nothing(make_host: MakeHost) -> None:
    script = Scripted([Call("work"), Say("ok")], capabilities=Capabilities(steers=False))
    host = await make_host(script)
    host.tools.held = True
    await host.send("a1")
    await host.working()
    await host.send("a2")
    await finish(host)
    assert host.prompts() == [["a1"], ["a2"]]


@pytest.mark.parametrize("admission", ["preempt", "coalesce"])
async def test_settling_takes_all_in_one_turn_and_no_longer(
    make_host: MakeHost, admission: str
) -> None:
    released = asyncio.Event()

    async def slow(turn: Turn) -> str:
        if turn.prompt.text == "say a1":
            try:
                await asyncio.Event().wait()
            finally:
                await released.wait()
        return "ok"

    host = await make_host(Scripted(slow), settle_seconds=10)
    await host.send("a1")
    await until(lambda: host.owner().phase == "running")
    await host.send("a2", admission="preempt")
    assert host.owner().phase == "settling"
    assert host.core.status(host.session_id()) == "running"
    await host.clock.sleeping(2)
    host.clock.advance(9.9)
    assert (await host.send("a3", admission=admission))[1] == "queued"
    assert host.ends() == []
    host.clock.advance(0.2)
    await until(lambda: len(host.prompts()) == 2)
    assert host.prompts() == [["a1"], ["a2", "a3"]]
    released.set()
    await host.rest()
    host.check()


async def test_a_task_takes_no_follow_up_while_it_runs_or_after(host: Host) -> None:
    await host.send("t1", "t", mode="task")
    await host.working()
    with pytest.raises(TaskSession):
        await host.send("t2", "t")
    await finish(host)
    with pytest.raises(TaskSession):
        await host.send("t3", "t")
    assert host.types("t")[-2:] == ["turn.completed", "session.completed"]
    assert host.events("t")[-1]["data"] == {"result": "Done."}
    assert host.core.status(host.session_id("t")) == "completed"


async def test_a_failed_task_fails_its_session(make_host: MakeHost) -> None:
    host = await make_host(None)
    await host.send("t1", "t", mode="task")
    await host.rest()
    host.check()
    failed, rest = host.events("t")[-2:]
    assert failed["data"]["code"] == "model_not_configured"
    assert rest["type"] == "session.failed"
    assert rest["data"]["error"]["code"] == "model_not_configured"


async def test_every_end_of_a_chat_turn_is_followed_by_waiting(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2", admission="preempt")
    await host.working()
    await host.send("a3")
    await host.stop()
    await finish(host)
    types = host.types()
    ends = [n for n, kind in enumerate(types) if kind in ("turn.completed", "turn.failed")]
    assert len(ends) == 3
    assert all(types[n + 1] == WAITING for n in ends)


async def test_twenty_at_once_make_one_turn_at_a_time(host: Host) -> None:
    await asyncio.gather(*(host.send(f"a{n}") for n in range(20)))
    await finish(host)
    assert sum(len(p) for p in host.prompts()) + len(host.steered()) == 20


async def test_a_duplicate_changes_nothing(host: Host) -> None:
    first, _ = await host.send("a1")
    await host.working()
    again, admitted = await host.send("a1")
    assert admitted == "duplicate"
    assert again.delivery.seq == first.delivery.seq
    await finish(host)
    assert (await host.send("a1"))[1] == "duplicate"
    await host.rest()
    assert host.prompts() == [["a1"]]


async def test_a_strangers_message_leaves_no_trace(host: Host) -> None:
    await host.send("a1")
    await host.working()
    before = host.log()
    with pytest.raises(Forbidden):
        await host.core.send(
            host.request("x", by=Principal("user", "bob"), session_id=host.session_id())
        )
    assert host.log() == before


async def test_a_message_that_was_committed_while_its_session_opened_counts_once(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner finds it in the ledger before the store has told of it."""
    host = await make_host()
    store: Any = host.core.store
    held: list[Any] = []
    answer = store._writer._answer
    monkeypatch.setattr(store._writer, "_answer", held.append)
    sends = [asyncio.create_task(host.send(name)) for name in ("a1", "a2")]
    await until(lambda: sum(len(batch) for batch in held) >= 2)
    session_id = held[0][0].result.session.id
    store._heads[session_id] = store._new_head(session_id)
    await host.core.owner(session_id)
    for batch in held:
        answer(batch)
    monkeypatch.undo()
    await asyncio.gather(*sends)
    await host.rest()
    host.check()
    assert host.prompts() == [["a1", "a2"]]


async def test_nothing_new_is_taken_while_the_host_drains(host: Host) -> None:
    await host.send("a1")
    await host.working()
    host.core.services.draining = True
    with pytest.raises(Draining):
        await host.send("a2")
    with pytest.raises(Draining):
        await host.core.call_tool("work", {}, LOCAL)


# Stop


async def test_stop_ends_the_running_turn_and_pending_runs(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    assert await host.stop()
    await host.working()
    assert host.ends() == ["stopped"]
    await finish(host)
    assert host.prompts() == [["a1"], ["a2"]]
    failed = host.events(type_="turn.failed")[0]["data"]
    assert failed.pop("usage")["requests"] == 1
    assert failed == {"status": "cancelled", "code": "stopped", "message": "turn interrupted"}


async def test_stop_closes_open_calls_first(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.stop()
    await host.rest()
    host.check()
    assert host.types()[-5:] == [
        "actions.requested",
        "action.result",
        "actions.completed",
        "turn.failed",
        WAITING,
    ]
    result = host.events(type_="action.result")[0]["data"]
    assert result["isError"]
    assert result["error"]["code"] == "interrupted"


async def test_stop_of_an_idle_or_unknown_session_says_no(host: Host) -> None:
    await host.send("a1")
    await finish(host)
    before = host.log()
    assert not await host.stop()
    assert not await host.core.stop("ses_none")
    await host.rest()
    assert host.log() == before
    await host.restart()
    assert not await host.stop()
    await host.rest()
    assert host.log() == before


async def test_stop_clears_pending_when_asked(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    await host.send("a3")
    assert await host.stop(clear_pending=True)
    await host.rest()
    host.check()
    assert host.prompts() == [["a1"]]
    (cleared,) = host.events(type_="deliveries.cleared")
    assert cleared["data"] == {"deliveryIds": ["a2", "a3"], "reason": "stopped"}
    assert host.core.store.delivery("a2")[0].state == "cleared"


async def test_stop_spares_what_is_newer_than_it(host: Host) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    host.clock.advance(1)
    before = host.core.services.stamp()
    await host.send("a3")
    assert await host.stop(clear_pending=True, before=before)
    await finish(host)
    assert host.prompts() == [["a1"], ["a3"]]
    assert host.ends() == ["stopped", "completed"]


async def test_stop_spares_a_turn_that_is_newer_than_it(host: Host) -> None:
    before = host.core.services.stamp()
    host.clock.advance(1)
    await host.send("a1")
    await host.working()
    assert not await host.stop(before=before)
    await finish(host)
    assert host.ends() == ["completed"]


async def test_stop_of_a_queued_turn_records_prompt_and_end_together(make_host: MakeHost) -> None:
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("b1", "b")
    await host.working()
    await host.send("a1")
    await host.send("a2")
    assert await host.stop()
    await host.flushed()
    assert host.types() == [
        "session.started",
        "turn.queued",
        "message.received",
        "turn.failed",
        WAITING,
    ]
    assert host.prompts() == [["a1", "a2"]]
    await host.send("a3")
    await finish(host)
    assert host.prompts() == [["a1", "a2"], ["a3"]]
    queued = {event["turnId"] for event in host.events(type_="turn.queued")}
    assert len(queued) == 2


async def test_stop_and_a_slot_at_once_share_no_turn(make_host: MakeHost) -> None:
    """The slot comes in the same moment as the stop, and something is pending behind it."""
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("b1", "b")
    await host.working()
    await host.send("a1")
    stop = asyncio.create_task(host.stop())
    later = asyncio.create_task(host.send("a2"))
    host.tools.held = False
    host.tools.release()
    await asyncio.gather(stop, later)
    await host.rest()
    host.check()


async def test_stop_of_a_task_fails_it(host: Host) -> None:
    await host.send("t1", "t", mode="task")
    await host.working()
    assert await host.stop("t")
    await host.rest()
    host.check()
    assert host.types("t")[-2:] == ["turn.failed", "session.failed"]
    assert host.events("t")[-1]["data"]["error"]["code"] == "stopped"


async def test_stop_while_settling_clears_and_changes_no_reason(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LAZY_SECONDS", 0.0)
    settled = asyncio.Event()

    async def slow(turn: Turn) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await settled.wait()
        return "ok"

    host = await make_host(Scripted(slow))
    await host.send("a1")
    await until(lambda: host.owner().phase == "running")
    await host.send("a2", admission="preempt")
    assert await host.stop(clear_pending=True)
    settled.set()
    await host.rest()
    host.check()
    assert host.ends() == ["preempted"]
    assert host.types()[-3:] == ["deliveries.cleared", "turn.failed", WAITING]
    await until(lambda: not host.core.store.stops(host.session_id()))


async def test_a_stop_is_never_applied_to_a_later_turn(host: Host) -> None:
    """What was pending at a stop runs afterwards; a crash then must not stop it."""
    await host.send("a1")
    await host.working()
    await host.send("a2")
    host.clock.advance(1)
    await host.stop()
    host.clock.advance(1)
    await host.working()
    assert host.prompts() == [["a1"], ["a2"]]
    await host.restart()
    await finish(host)
    assert host.ends() == ["stopped", "host_restarted", "completed"]


# Steering


async def test_the_checkpoint_holds_a_nudge_before_the_log_says_so(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.send("a1")
    await host.working()
    await host.send("a2")
    order: list[str] = []
    store: Any = host.core.store
    save, append = store.save_checkpoint, store.append

    def saving(lease: Any, checkpoint: Any) -> None:
        order.extend(f"history {nudge['deliveryId']}" for nudge in checkpoint.nudges)
        save(lease, checkpoint)

    async def appending(lease: Any, lines: Any, outcomes: Any = ()) -> int:
        order.extend("log" for line in lines if b"nudge.delivered" in line)
        return int(await append(lease, lines, outcomes))

    monkeypatch.setattr(store, "save_checkpoint", saving)
    monkeypatch.setattr(store, "append", appending)
    await finish(host)
    assert order == ["history a2", "log"]


async def test_a_nudge_that_is_not_confirmed_stays_pending(make_host: MakeHost) -> None:
    async def forgetful(turn: Turn) -> str:
        turn.step_started()
        await turn.call_tools([])
        await turn.boundary([])
        return "ok"

    host = await make_host(Scripted(forgetful))
    session = (await host.send("a1"))[0].session.id
    await host.send("a2")
    await host.rest()
    host.check()
    assert host.steered() == []
    assert sorted(name for prompt in host.prompts() for name in prompt) == ["a1", "a2"]
    assert session == host.session_id()


async def test_a_turn_that_fails_at_the_boundary_loses_no_nudge(make_host: MakeHost) -> None:
    failed = False

    async def broken(turn: Turn) -> str:
        nonlocal failed
        if not failed:
            turn.step_started()
            await until(lambda: host.owner().pending)
            assert [n.delivery_id for n in await turn.boundary([])] == ["a2"]
            failed = True
            raise ConnectionError("gone")
        return "ok"

    host = await make_host(Scripted(broken))
    await host.send("a1")
    await host.send("a2")
    await host.rest()
    host.check()
    assert host.prompts() == [["a1"], ["a2"]]
    assert host.ends() == ["harness_failed", "completed"]


async def test_a_nudge_cleared_meanwhile_is_not_steered_too(make_host: MakeHost) -> None:
    async def slow(turn: Turn) -> str:
        turn.step_started()
        await turn.call_tools([])
        await until(lambda: host.owner().pending)
        nudges = await turn.boundary([])
        cleared = await host.stop(clear_pending=True)
        assert cleared
        await turn.confirm(nudges, [])
        return "ok"

    host = await make_host(Scripted(slow))
    await host.send("a1")
    await host.send("a2")
    await host.rest()
    host.check()
    assert host.steered() == []


async def test_what_arrives_as_the_turn_ends_starts_the_next(make_host: MakeHost) -> None:
    """Whatever the tick in which it arrives, between the last step and waiting."""
    host = await make_host(Scripted([Say("ok", ())]))
    for ticks in range(40):
        await host.send(f"a{ticks}")
        for _ in range(ticks):
            await asyncio.sleep(0)
        await host.send(f"b{ticks}")
        await host.rest()
    host.check()


# Events


async def test_prompt_text_is_the_parts_joined_and_context_is_kept_apart(host: Host) -> None:
    await host.send("a0")
    await host.working()
    await host.send("a1", text="one\u2028line", sender={"id": "u1"}, context=["before"])
    await host.send("a2", text="two\r\n", attachments=[{"name": "f"}], admission="preempt")
    await finish(host)
    data = host.events(type_="message.received")[1]["data"]
    parts = [{k: v for k, v in part.items() if k != "at"} for part in data["parts"]]
    assert data["text"] == "one\u2028line\n\ntwo\r\n"
    assert data["deliveryIds"] == ["a1", "a2"]
    assert parts == [
        {"deliveryId": "a1", "text": "one\u2028line", "sender": {"id": "u1"}},
        {"deliveryId": "a2", "text": "two\r\n"},
    ]
    assert data["context"] == ["before"]
    assert data["attachments"] == [{"name": "f"}]


async def test_deltas_that_are_ready_are_merged(make_host: MakeHost) -> None:
    async def chatty(turn: Turn) -> str:
        turn.step_started()
        for word in ("a", "b", "", "c"):
            turn.message_delta("m1", word)
        turn.reasoning_delta("r1", "x")
        turn.message_delta("m1", "d")
        turn.message_delta("m2", "e")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turn.message_delta("m2", "f")
        turn.message_completed("m2", "ef")
        turn.step_completed()
        return "ok"

    host = await make_host(Scripted(chatty))
    await host.send("a1")
    await host.rest()
    deltas = [e["data"]["delta"] for e in host.events() if e["type"].endswith(".appended")]
    assert deltas[:5] == ["abc", "x", "d", "e", "f"]


async def test_time_never_runs_backwards_in_a_log(make_host: MakeHost) -> None:
    from datetime import timedelta

    host = await make_host()
    await host.send("a1")
    await host.rest()
    host.clock._start -= timedelta(days=1)
    await host.send("a2")
    await host.rest()
    host.check()
    assert len({event["at"] for event in host.events()}) == 1


async def test_a_burst_beyond_the_sync_limit_goes_through(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threadline.session import recorder

    monkeypatch.setattr(recorder, "SYNC_BEHIND", 5)
    monkeypatch.setattr(recorder, "MAX_BEHIND", 10)

    async def torrent(turn: Turn) -> str:
        for tick in range(20):
            for number in range(15):
                turn.message_completed(f"m{tick}.{number}", "x", "tool_calls")
            await asyncio.sleep(0)
        return "ok"

    host = await make_host(Scripted(torrent))
    await host.send("a1")
    await host.rest()
    host.check()
    assert len(host.events(type_="message.completed")) == 301


async def test_a_follower_reads_along(host: Host) -> None:
    result, _ = await host.send("a1")
    seen: list[int] = []

    async def follow() -> None:
        async for event in host.core.follow(result.session.id):
            seen.append(event["index"])
            if event["type"] == WAITING:
                return

    reader = asyncio.create_task(follow())
    await host.working()
    host.tools.held = False
    host.tools.release()
    await reader
    assert seen == list(range(len(host.events())))


# Fate


async def test_fate_is_told(host: Host) -> None:
    first, _ = await host.send("a1")
    await host.working()
    second, _ = await host.send("a2")
    fate = await host.core.fate(first.delivery, settled=False)
    assert (fate.outcome, fate.status) == ("prompted", None)
    await finish(host)
    steered = await host.core.fate(second.delivery, settled=True)
    assert (steered.outcome, steered.status, steered.result) == ("steered", "completed", "Done.")
    assert steered.turn_id == fate.turn_id


async def test_fate_of_what_was_stopped_cleared_or_deleted(host: Host) -> None:
    first, _ = await host.send("a1")
    await host.working()
    second, _ = await host.send("a2")
    await host.stop(clear_pending=True)
    stopped = await host.core.fate(first.delivery, settled=True)
    assert (stopped.status, dict(stopped.error or {})["code"]) == ("cancelled", "stopped")
    assert (await host.core.fate(second.delivery, settled=True)).outcome == "cleared"
    await host.rest()
    third, _ = await host.send("a3")
    await host.working()
    fourth, _ = await host.send("a4")
    waiting = asyncio.create_task(host.core.fate(fourth.delivery, settled=True))
    await asyncio.sleep(0)
    await host.core.delete(third.session.id)
    assert dict((await waiting).error or {}) == {"code": "session_deleted"}


async def test_fate_of_what_is_pending_is_not_decided_by_a_shutdown(host: Host) -> None:
    await host.send("a1")
    await host.working()
    second, _ = await host.send("a2")
    waiting = asyncio.create_task(host.core.fate(second.delivery, settled=True))
    await asyncio.sleep(0)
    await host.close()
    with pytest.raises(Draining):
        await waiting


# Slots


async def test_slots_go_round_the_channels(make_host: MakeHost) -> None:
    from threadline.session.slots import Slots

    order: list[str] = []

    async def model(turn: Turn) -> str:
        order.append(turn.prompt.text)
        if turn.prompt.text == "first":
            await gate.wait()
        return "ok"

    gate = asyncio.Event()
    host = await make_host(Scripted(model), slots=Slots(1))
    await host.send("f", "f", text="first")
    await until(lambda: order)
    storm = [await host.send(f"s{n}", f"s{n}", channel="alerts", text=f"s{n}") for n in range(5)]
    await host.send("p", "p", channel="slack", text="p")
    assert {admitted for _, admitted in storm} == {"queued"}
    await host.flushed()
    positions = [
        event["data"]["position"]
        for n in range(5)
        for event in host.core.store.replay(host.session_id(f"s{n}", "alerts"), 0)
        if event["type"] == "turn.queued"
    ]
    assert positions == [1, 2, 3, 4, 5]
    gate.set()
    await host.rest()
    host.check()
    assert order == ["first", "s0", "p", "s1", "s2", "s3", "s4"]


async def test_a_preempting_follow_up_keeps_the_slot(make_host: MakeHost) -> None:
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("a1")
    await host.working()
    await host.send("b1", "b")
    await host.send("a2", admission="preempt")
    await host.working()
    assert host.prompts("a") == [["a1"], ["a2"]]
    assert host.prompts("b") == []
    assert "turn.queued" not in host.types("a")
    await finish(host)


async def test_a_slot_that_nobody_wants_any_more_goes_on(make_host: MakeHost) -> None:
    from threadline.session.slots import Slots

    host = await make_host(slots=Slots(1))
    host.tools.held = True
    await host.send("a1", "a")
    await host.working()
    await host.send("b1", "b")
    await host.send("c1", "c")
    await host.core.delete(host.session_id("b"))
    await finish(host)
    assert host.prompts("c") == [["c1"]]
    assert host.core.services.slots.running == 0
    assert host.core.services.slots.waiting == 0


# Direct calls


async def test_a_bound_direct_call_takes_the_sessions_lock(host: Host) -> None:
    await host.send("a1")
    await host.working()
    session_id = host.session_id()
    with pytest.raises(SessionBusy):
        await host.core.call_tool("work", {}, LOCAL, session_id)
    await finish(host)
    before = host.log()
    host.tools.held = True
    call = asyncio.create_task(host.core.call_tool("work", {}, LOCAL, session_id))
    await host.working()
    assert host.core.status(session_id) == "running"
    with pytest.raises(SessionBusy):
        await host.core.call_tool("work", {}, LOCAL, session_id)
    assert (await host.send("a2", admission="preempt"))[1] == "queued"
    assert host.log() == before
    host.tools.held = False
    host.tools.release()
    assert (await call).output == "worked"
    await host.rest()
    host.check()
    assert host.prompts() == [["a1"], ["a2"]]


async def test_an_unbound_direct_call_waits_for_nobody(host: Host) -> None:
    await host.send("a1")
    await host.working()
    host.tools.held = False
    host.tools.writes = {"work"}
    result = await host.core.call_tool("work", {}, LOCAL)
    assert result.output == "worked"
    assert not any((host.root / "tool-calls").glob("*"))
    with pytest.raises(NotFound):
        await host.core.call_tool("work", {}, LOCAL, "ses_none")


# Deleting


async def test_deleting_cancels_the_turn_and_nothing_comes_back(host: Host) -> None:
    result, _ = await host.send("a1")
    session_id = result.session.id
    await host.working()
    await host.send("a2")
    assert await host.core.delete(session_id)
    await until(lambda: host.tools.working == 0)
    await host.rest()
    assert not (host.root / "sessions" / session_id).exists()
    assert host.core.store.delivery("a2")[0].state == "cleared"
    assert not await host.core.stop(session_id)
    again, admitted = await host.send("a3")
    assert (again.created, admitted) == (True, "started")
    await finish(host)


async def test_a_folder_removed_by_hand_cancels_the_turn(host: Host) -> None:
    import shutil

    result, _ = await host.send("a1")
    folder = host.root / "sessions" / result.session.id
    await host.working()
    shutil.rmtree(folder)
    host.tools.held = False
    host.tools.release()
    await host.rest()
    assert not folder.exists()
    assert not (host.root / "runner" / f"{result.session.id}.ndjson").exists()
    assert (await host.send("a2"))[0].created
    await finish(host)


async def test_retention_removes_what_is_old(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    monkeypatch.setattr(writer, "LAZY_SECONDS", 0.0)
    host = await make_host(retention=timedelta(hours=10))
    result, _ = await host.send("a1")
    await host.rest()
    await until(lambda: not host.core.store.unrested())
    await host.clock.elapse(9 * 3600)
    assert host.core.store.session(result.session.id) is not None
    await host.clock.elapse(2 * 3600)
    await until(lambda: not (host.root / "sessions" / result.session.id).exists())
    assert host.core.store.session(result.session.id) is None


async def test_sessions_at_rest_are_unloaded(host: Host) -> None:
    await host.send("a1")
    await finish(host)
    host.tools.held = True
    await host.send("b1", "b")
    await host.working()
    await host.clock.elapse(60)
    await until(lambda: host.core.load["sessions"] == 1)
    await finish(host)
    await host.send("a2")
    await host.rest()
    host.check()


async def test_outputs_that_are_big_are_kept_as_blobs(make_host: MakeHost) -> None:
    import orjson

    big = {"rows": ["é" * 100] * 100}

    async def rows(_: Any) -> Any:
        return big

    host = await make_host(Scripted([Call("rows"), Say("ok")]), blob_threshold=1000)
    host.tools.functions["rows"] = rows
    await host.send("a1")
    await host.rest()
    (result,) = host.events(type_="action.result")
    truncated = result["data"]["truncated"]
    assert len(result["data"]["output"]) < 5000
    path = host.core.store.blob(host.session_id(), truncated["blobId"])
    assert path is not None
    assert orjson.loads(path.read_bytes()) == big
    assert truncated["size"] == path.stat().st_size
    host.check()


async def test_the_result_of_a_turn_is_recorded(make_host: MakeHost) -> None:
    async def model(turn: Turn) -> TurnResult:
        return TurnResult({"a": 1}, usage={"inputTokens": 3, "requests": 1}, cost_usd=0.5)

    host = await make_host(Scripted(model, model="test:model"))
    await host.send("a1")
    await host.rest()
    started, completed = host.events(type_="turn.started")[0], host.events()[-2]
    assert started["data"] == {"attempt": 1, "model": "test:model"}
    assert completed["data"] == {
        "result": {"a": 1},
        "usage": {
            "inputTokens": 3,
            "outputTokens": 0,
            "cacheReadTokens": 0,
            "cacheWriteTokens": 0,
            "requests": 1,
        },
        "costUsd": 0.5,
        "durationMs": 0,
    }
