"""Calls that wait for a person: asked once, decided once, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.session.conftest import MakeHost
from tests.session.host import ALICE, WORK, Host, until

from threadline.errors import ApprovalClosed, Draining, Forbidden, NotFound, SessionBusy
from threadline.harness.scripted import Call, Calls, Say, Scripted
from threadline.principal import Principal
from threadline.session.slots import Slots

BOB = Principal("user", "bob", "Bob")


@pytest.fixture
async def host(make_host: MakeHost) -> Host:
    host = await make_host()
    host.tools.gated = {"work"}
    host.tools.writes = {"work"}
    return host


def approvals(host: Host, conversation: str = "a") -> list[Any]:
    """Return what the log says of approvals: ``asked``, or the decision."""
    return [
        event["data"].get("decision", "asked")
        for event in host.events(conversation)
        if event["type"].startswith("action.approval_")
    ]


async def through(host: Host, conversation: str = "a") -> None:
    """Approve what waits until nothing does."""
    owner = host.owner(conversation)
    while not owner.at_rest:
        await until(lambda: owner.at_rest or owner.parking.calls)
        for call_id in list(owner.parking.calls):
            await host.decide(call_id, conversation=conversation)
    await host.rest()


async def test_a_call_waits_until_it_is_approved(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    assert host.tools.runs == []
    assert host.core.status(host.session_id()) == "parked"
    asked = host.events(type_="action.approval_requested")[0]
    assert asked["data"] == {
        "callId": call_id,
        "toolName": "work",
        "input": {},
        "expiresAt": asked["data"]["expiresAt"],
    }
    record = await host.decide(call_id, reason="looks fine")
    assert (record.decision, record.by["id"]) == ("approved", "alice")
    await through(host)
    host.check()
    assert host.tools.runs == ["work", "work"]
    assert approvals(host) == ["asked", "approved", "asked", "approved"]
    resolved = host.events(type_="action.approval_resolved")[0]["data"]
    assert resolved == {
        "callId": call_id,
        "decision": "approved",
        "by": ALICE.to_wire(),
        "reason": "looks fine",
    }
    assert host.ends() == ["completed"]


async def test_a_denied_call_never_runs_and_the_turn_goes_on(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await host.decide(call_id, "denied", reason="not now")
    await through(host)
    host.check()
    assert host.tools.runs == ["work"]
    (result, _) = host.events(type_="action.result")
    assert result["data"]["error"] == {
        "code": "approval_denied",
        "message": "alice denied this call: not now. It did not run.",
    }


async def test_a_call_that_nobody_decides_expires(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    host.clock.advance(3600)
    await until(lambda: approvals(host)[:2] == ["asked", "expired"])
    with pytest.raises(ApprovalClosed, match="expired"):
        await host.decide(call_id)
    await through(host)
    assert host.tools.runs == ["work"]
    assert approvals(host) == ["asked", "expired", "asked", "approved"]


async def test_a_decision_at_the_very_end_comes_too_late(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    # The wall clock has passed the end, and the timer has not run yet.
    host.clock._start += timedelta(hours=2)
    with pytest.raises(ApprovalClosed, match="expired"):
        await host.decide(call_id)
    assert host.tools.runs == []


@pytest.mark.parametrize("first", ["approved", "denied"])
async def test_one_decision_counts(host: Host, first: Any) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    second = "denied" if first == "approved" else "approved"
    answers = await asyncio.gather(
        host.decide(call_id, first), host.decide(call_id, second), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers] == ["DecisionRecord", "ApprovalClosed"]
    with pytest.raises(ApprovalClosed) as closed:
        await host.decide(call_id, first)
    assert closed.value.details == {"decision": first}
    await through(host)
    assert approvals(host)[:2] == ["asked", first]
    assert len(host.tools.runs) == (2 if first == "approved" else 1)


async def test_only_those_who_are_entitled_decide(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    with pytest.raises(Forbidden):
        await host.decide(call_id, by=BOB)
    with pytest.raises(Forbidden):
        await host.decide("call_none", by=BOB)
    with pytest.raises(NotFound):
        await host.decide("call_none")
    host.tools.approvers = {BOB.key}
    with pytest.raises(Forbidden):
        await host.decide(call_id)
    await host.decide(call_id, by=BOB)
    with pytest.raises(ApprovalClosed, match="approved by Bob"):
        await host.decide(call_id, by=BOB)
    with pytest.raises(Forbidden):
        await host.decide(call_id)


async def test_approvers_are_named_in_the_event(host: Host) -> None:
    host.tools.approvers = {"group:sre"}
    await host.send("a1")
    await host.parked()
    asked = host.events(type_="action.approval_requested")[0]
    assert asked["data"]["approvers"] == ["group:sre"]


async def test_a_stop_supersedes_what_waits(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    assert await host.stop()
    await host.rest()
    host.check()
    assert approvals(host) == ["asked", "superseded"]
    assert host.ends() == ["stopped"]
    with pytest.raises(ApprovalClosed, match="superseded"):
        await host.decide(call_id)
    assert host.tools.runs == []


async def test_a_preempting_message_supersedes_what_waits(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    assert (await host.send("a2"))[1] == "queued"
    assert (await host.send("a3", admission="preempt"))[1] == "preempted"
    await until(lambda: len(host.prompts()) == 2)
    with pytest.raises(ApprovalClosed):
        await host.decide(call_id)
    await through(host)
    host.check()
    assert host.prompts() == [["a1"], ["a2", "a3"]]
    assert approvals(host)[:2] == ["asked", "superseded"]
    assert host.ends() == ["preempted", "completed"]


async def test_what_came_while_a_call_waited_is_steered_after_it(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await host.send("a2")
    assert host.steered() == []
    await host.decide(call_id)
    await through(host)
    host.check()
    assert host.steered() == ["a2"]


async def test_direct_calls_do_not_wait_and_meet_a_busy_session(host: Host) -> None:
    result = await host.core.call_tool("work", {}, ALICE)
    assert result.output == "worked"
    await host.send("a1")
    await host.parked()
    with pytest.raises(SessionBusy):
        await host.core.call_tool("work", {}, ALICE, host.session_id())


async def test_a_turn_that_waits_gives_its_slot_away(make_host: MakeHost) -> None:
    host = await make_host(slots=Slots(1))
    host.tools.gated = {"work"}
    await host.send("a1")
    (call_id,) = await host.parked()
    host.tools.gated = set()
    host.tools.held = True
    await host.send("b1", "b")
    await host.working()
    await host.decide(call_id)
    await host.flushed()
    assert host.tools.runs == ["work"]
    assert host.core.status(host.session_id()) == "parked"
    host.tools.held = False
    host.tools.release()
    await host.rest()
    host.check()
    assert host.core.services.slots.running == 0
    assert host.ends() == host.ends("b") == ["completed"]


async def test_a_stop_reaches_a_call_that_waits_for_its_slot(make_host: MakeHost) -> None:
    host = await make_host(slots=Slots(1))
    host.tools.gated = {"work"}
    await host.send("a1")
    (call_id,) = await host.parked()
    host.tools.gated, host.tools.held = set(), True
    await host.send("b1", "b")
    await host.working()
    await host.decide(call_id)
    assert await host.stop()
    await until(lambda: host.ends() == ["stopped"])
    host.tools.held = False
    host.tools.release()
    await host.rest()
    host.check()
    assert host.core.services.slots.running == 0
    assert host.core.services.slots.waiting == 0


TWO = Scripted([Calls([Call("work"), Call("look")]), Say("Done.")])


async def test_other_calls_of_the_step_run_meanwhile(make_host: MakeHost) -> None:
    host = await make_host(TWO, slots=Slots(1))
    host.tools.gated = {"work"}
    seen = asyncio.Event()

    async def look(_: Any) -> str:
        await seen.wait()
        return "seen"

    host.tools.functions["look"] = look
    await host.send("a1")
    (call_id,) = await host.parked()
    # Something runs, so the turn keeps its slot until that is done.
    assert host.core.status(host.session_id()) == "running"
    assert host.core.services.slots.running == 1
    seen.set()
    await until(lambda: host.core.status(host.session_id()) == "parked")
    assert host.core.services.slots.running == 0
    await host.decide(call_id)
    await host.rest()
    host.check()
    assert host.tools.runs == ["look", "work"]


# Restarts


@pytest.mark.parametrize("power_cut", [False, True])
async def test_a_call_goes_on_waiting_after_a_crash(host: Host, power_cut: bool) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await host.core.synced(host.session_id())
    before = host.log()
    for _ in range(5):
        await host.restart(power_cut=power_cut)
        assert await host.parked() == [call_id]
    if not power_cut:
        assert host.log() == before
    assert host.core.status(host.session_id()) == "parked"
    await host.decide(call_id)
    await through(host)
    host.check()
    assert host.tools.runs == ["work", "work"]
    assert approvals(host) == ["asked", "approved", "asked", "approved"]
    assert host.ends() == ["completed"]
    assert [e["data"] for e in host.events(type_="turn.started")] == [{"attempt": 1}]
    assert host.events(type_="message.completed")[-1]["data"]["text"] == "Done."


async def test_a_call_goes_on_waiting_after_a_drain(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    before = host.log()
    host.core.services.draining = True
    with pytest.raises(Draining):
        await host.decide(call_id)
    await host.close()
    assert host.log_of_only_session() == before
    await host.start()
    assert await host.parked() == [call_id]
    await host.decide(call_id, "denied")
    await through(host)
    host.check()
    assert host.tools.runs == ["work"]


async def test_a_decision_that_was_journaled_is_applied_after_a_crash(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    host.core.store.listen(lambda _: None)
    await host.core.store.decide(
        host.session_id(), call_id, "approved", by=BOB.to_wire(), at=host.core.services.stamp()
    )
    await host.restart()
    await host.working()
    await through(host)
    host.check()
    assert approvals(host)[:2] == ["asked", "approved"]
    assert host.events(type_="action.approval_resolved")[0]["data"]["by"]["id"] == "bob"
    assert host.tools.runs == ["work", "work"]


async def test_time_passes_while_the_host_is_down(host: Host) -> None:
    await host.send("a1")
    await host.parked()
    await host.kill()
    host.clock.advance(3601)
    await host.start()
    await until(lambda: approvals(host)[:2] == ["asked", "expired"])
    await through(host)
    host.check()
    assert host.tools.runs == ["work"]


@pytest.mark.parametrize("how", ["stop", "preempt"])
async def test_what_waits_after_a_restart_can_be_superseded(host: Host, how: str) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await host.restart()
    await host.parked()
    if how == "stop":
        assert await host.stop()
    else:
        assert (await host.send("a2", admission="preempt"))[1] == "preempted"
        await until(lambda: len(host.prompts()) == 2)
    with pytest.raises(ApprovalClosed, match="superseded"):
        await host.decide(call_id)
    await through(host)
    host.check()
    assert host.ends() == (["stopped"] if how == "stop" else ["preempted", "completed"])


async def test_a_stop_that_was_journaled_supersedes_after_a_crash(host: Host) -> None:
    await host.send("a1")
    await host.parked()
    host.core.store.listen(lambda _: None)
    await host.core.store.stop(host.session_id(), at=host.core.services.stamp())
    await host.restart()
    await host.rest()
    host.check()
    assert approvals(host) == ["asked", "superseded"]
    assert host.ends() == ["stopped"]


async def test_a_coalescing_message_waits_with_it(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    await host.restart()
    await host.parked()
    await host.send("a2")
    assert host.core.status(host.session_id()) == "parked"
    await host.decide(call_id)
    await through(host)
    host.check()
    assert host.steered() == ["a2"]


async def test_an_approved_write_that_was_cut_off_is_not_run_again(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    host.tools.held = True
    await host.decide(call_id)
    await host.working()
    await host.restart()
    await host.rest()
    host.check()
    assert host.tools.runs == ["work"]
    assert host.events(type_="turn.failed")[-1]["data"]["asks"] is True


async def test_results_from_before_the_crash_are_given_again(make_host: MakeHost) -> None:
    host = await make_host(TWO)
    host.tools.gated = {"work"}
    host.tools.functions["look"] = _text("x" * 300_000)
    await host.send("a1")
    (call_id,) = await host.parked()
    await until(lambda: host.events(type_="action.result"))
    await host.restart()
    await host.parked()
    await host.decide(call_id)
    await host.rest()
    host.check()
    assert host.tools.runs == ["look", "work"]
    records = host.core.store.checkpoints(host.session_id())
    contents = [m["content"] for c in records for m in c.messages if m["role"] == "tool"]
    assert contents == ["worked", "x" * 300_000]


async def test_a_write_that_was_cut_off_beside_it_is_reported(make_host: MakeHost) -> None:
    host = await make_host(TWO)
    host.tools.gated, host.tools.writes = {"work"}, {"work", "look"}

    async def look(_: Any) -> str:
        await asyncio.Event().wait()
        return ""

    host.tools.functions["look"] = look
    await host.send("a1")
    await host.parked()
    await host.working()
    await host.restart()
    (call_id,) = await host.parked()
    await host.decide(call_id)
    await host.rest()
    host.check()
    assert host.tools.runs == ["look", "work"]
    errors = [e["data"].get("error", {}) for e in host.events(type_="action.result")]
    assert [error.get("code") for error in errors] == ["interrupted", None]
    assert "not known whether it took effect" in errors[0]["message"]


async def test_a_harness_that_cannot_go_on_asks_again(make_host: MakeHost) -> None:
    script = Scripted(WORK.script)
    script.capabilities = type(script.capabilities)(workspace=True)
    host = await make_host(script)
    host.tools.gated = {"work"}
    await host.send("a1")
    (first,) = await host.parked()
    await host.restart()
    await until(lambda: approvals(host) == ["asked", "superseded", "asked"])
    (second,) = await host.parked()
    assert first != second
    await through(host)
    host.check()
    assert host.ends() == ["host_restarted", "completed"]


async def test_a_deleted_session_waits_for_nobody(host: Host) -> None:
    await host.send("a1")
    (call_id,) = await host.parked()
    session = host.session_id()
    assert await host.core.delete(session)
    with pytest.raises(NotFound):
        await host.core.decide(session, call_id, "approved", ALICE, may=lambda _: True)
    await host.rest()


def _text(value: str) -> Any:
    async def say(_: Any) -> str:
        return value

    return say
