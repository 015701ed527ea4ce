"""What is true after a crash: decisions, and that doing all twice changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadline.principal import LOCAL
from threadline.session.fold import State, fold
from threadline.session.recovery import Facts, Plan, recover
from threadline.store.base import Checkpoint, DeliveryRecord, SessionRecord, StopRecord
from threadline.testing.laws import check_laws, violations


def stamp(number: int) -> str:
    return f"2025-01-01T00:{number // 60:02}:{number % 60:02}.000Z"


def session(mode: Any = "chat") -> SessionRecord:
    return SessionRecord("ses_a", "chat", mode, LOCAL, stamp(0))


def delivery(seq: int, admission: Any = "coalesce") -> DeliveryRecord:
    return DeliveryRecord(
        seq, f"d{seq}", "ses_a", "chat", f"say {seq}", admission, stamp(0), {"id": "u"}
    )


class Log:
    """Writes events as an owner does: indices count, and each second has one."""

    def __init__(self, mode: str = "chat") -> None:
        self.events: list[dict[str, Any]] = []
        self.mode = mode
        self.now = 0
        self.turn = ""

    def emit(self, kind: str, turn: str | None = None, **data: Any) -> None:
        self.now += 1
        event: dict[str, Any] = {"type": kind, "index": len(self.events), "sessionId": "ses_a"}
        if turn:
            event["turnId"] = turn
        self.events.append(event | {"at": stamp(self.now), "data": data})

    def start(self) -> None:
        self.emit("session.started", mode=self.mode)

    def prompt(self, turn: str, *seqs: int) -> None:
        parts = [{"deliveryId": f"d{n}", "text": f"say {n}", "at": stamp(0)} for n in seqs]
        text = "\n\n".join(part["text"] for part in parts)
        ids = [part["deliveryId"] for part in parts]
        self.turn = turn
        self.emit("message.received", turn, text=text, deliveryIds=ids, parts=parts)
        self.emit("turn.started", turn, attempt=1)

    def step(self, number: int, *effects: str, results: int = 9) -> None:
        calls = [
            {"callId": f"{self.turn}.{number}.{n}", "toolName": f"tool{n}", "effect": effect}
            for n, effect in enumerate(effects)
        ]
        self.emit("step.started", self.turn, step=number)
        self.emit("actions.requested", self.turn, step=number, calls=calls)
        for call in calls[:results]:
            self.emit("action.result", self.turn, callId=call["callId"])
        if results >= len(calls):
            ids = [call["callId"] for call in calls]
            self.emit("actions.completed", self.turn, step=number, callIds=ids)

    def nudge(self, seq: int) -> None:
        self.emit("nudge.delivered", self.turn, deliveryId=f"d{seq}", text=f"say {seq}")

    def fail(self, code: str, status: str = "interrupted") -> None:
        self.emit("turn.failed", self.turn, status=status, code=code, message="m")

    def state(self) -> State:
        return fold(self.events)

    def apply(self, plan: Plan) -> None:
        """Append what a plan says, as the owner does before anything is started."""
        for event in plan.events:
            self.emit(event.type, event.turn_id, **event.data)
        if plan.stopped:
            self.prompt("stopped", *(d.seq for d in plan.stopped))
            self.fail("stopped", "cancelled")
            self.emit("session.waiting" if self.mode == "chat" else "session.failed")


def facts(log: Log, **given: Any) -> Facts:
    mode = given.pop("mode", log.mode)
    seqs = {f"d{n}": n for n in range(1, 50)}
    return Facts(session=session(mode), agent="a", **({"prompt_seqs": seqs} | given))


def types(plan: Plan) -> list[str]:
    return [event.type for event in plan.events]


def open_turn(*effects: str, results: int = 0) -> Log:
    log = Log()
    log.start()
    log.prompt("t1", 1)
    if effects:
        log.step(1, *effects, results=results)
    return log


# Beginnings


def test_an_empty_log_starts_what_is_pending() -> None:
    plan = recover(State(), facts(Log(), pending=[delivery(1)]))
    assert types(plan) == ["session.started"]
    assert plan.events[0].data == {
        "agent": "a",
        "channel": "chat",
        "mode": "chat",
        "principal": LOCAL.to_wire(),
    }
    assert plan.start


def test_an_empty_log_without_pending_comes_to_rest() -> None:
    assert types(recover(State(), facts(Log()))) == ["session.started", "session.waiting"]


def test_a_session_at_rest_needs_nothing() -> None:
    log = open_turn()
    log.emit("turn.completed", "t1")
    log.emit("session.waiting")
    assert recover(log.state(), facts(log)) == Plan()


@pytest.mark.parametrize(
    ("mode", "end", "expected"),
    [
        ("chat", "turn.completed", ["session.waiting"]),
        ("chat", "turn.failed", ["session.waiting"]),
        ("task", "turn.completed", ["session.completed"]),
        ("task", "turn.failed", ["session.failed"]),
    ],
)
def test_an_end_without_its_rest_gets_it(mode: str, end: str, expected: list[str]) -> None:
    log = Log(mode)
    log.start()
    log.prompt("t1", 1)
    log.emit(end, "t1", status="failed", code="x", message="m", result={"r": 1})
    plan = recover(log.state(), facts(log))
    assert types(plan) == expected
    if mode == "task":
        data = plan.events[0].data
        assert data in ({"result": {"r": 1}}, {"error": {"code": "x", "message": "m"}})


def test_a_pending_delivery_that_the_log_names_is_not() -> None:
    log = open_turn()
    log.emit("turn.completed", "t1")
    log.emit("session.waiting")
    assert recover(log.state(), facts(log, pending=[delivery(1)])) == Plan()


# Open turns


def test_an_open_turn_is_closed_and_resumed() -> None:
    log = open_turn("read", "write", results=1)
    plan = recover(log.state(), facts(log, idempotent=["tool1"], pending=[delivery(2)]))
    assert types(plan) == ["action.result", "actions.completed", "turn.failed"]
    assert plan.events[0].data["callId"] == "t1.1.1"
    assert plan.events[0].data["error"]["code"] == "interrupted"
    assert plan.events[1].data["callIds"] == ["t1.1.0", "t1.1.1"]
    assert plan.events[2].data["code"] == "host_restarted"
    assert plan.resume is not None
    assert (plan.resume.turn.id, plan.resume.attempt, plan.resume.restarts) == ("t1", 2, 1)
    assert not plan.start


@pytest.mark.parametrize("why", ["fail", "cannot resume", "no prompt"])
def test_what_is_not_resumed_comes_to_rest(why: str) -> None:
    log = Log()
    log.start()
    if why == "no prompt":
        log.emit("turn.started", "t1")
    else:
        log.prompt("t1", 1)
    given: dict[str, Any] = {"on_restart": "fail"} if why == "fail" else {}
    plan = recover(log.state(), facts(log, **given, resumes=why != "cannot resume"))
    assert types(plan) == ["turn.failed", "session.waiting"]
    assert plan.resume is None
    pending = recover(log.state(), facts(log, **given, resumes=False, pending=[delivery(2)]))
    assert types(pending) == ["turn.failed"]
    assert pending.start


def test_a_turn_that_a_drain_closed_is_resumed_without_counting() -> None:
    log = open_turn()
    log.fail("host_shutdown")
    plan = recover(log.state(), facts(log))
    assert plan.events == []
    assert plan.resume is not None
    assert (plan.resume.attempt, plan.resume.restarts) == (2, 0)


def test_the_third_restart_is_the_last() -> None:
    log = open_turn()
    for attempt in (2, 3):
        log.fail("host_restarted")
        log.emit("turn.started", f"t{attempt}", attempt=attempt, resumes=log.turn)
        log.turn = f"t{attempt}"
    plan = recover(log.state(), facts(log))
    assert plan.events[0].data["code"] == "resume_limit"
    assert types(plan) == ["turn.failed", "session.waiting"]


def test_an_unknown_write_is_asked_about() -> None:
    log = open_turn("write", "read", "write", results=2)
    plan = recover(log.state(), facts(log))
    assert types(plan) == [
        "action.result",
        "actions.completed",
        "message.completed",
        "turn.failed",
        "session.waiting",
    ]
    assert "tool2" in plan.events[2].data["text"]
    assert "tool0" not in plan.events[2].data["text"]
    assert plan.events[3].data["asks"] is True
    assert plan.resume is None
    again = recover(log.state(), facts(log, pending=[delivery(2)]))
    assert again.start


def test_an_unknown_write_is_not_asked_about_when_nothing_resumes() -> None:
    log = open_turn("write")
    plan = recover(log.state(), facts(log, on_restart="fail"))
    assert plan.events[2].data["code"] == "host_restarted"


def test_an_open_task_with_an_unknown_write_fails() -> None:
    log = Log("task")
    log.start()
    log.prompt("t1", 1)
    log.step(1, "write", results=0)
    plan = recover(log.state(), facts(log))
    assert types(plan)[-2:] == ["turn.failed", "session.failed"]
    assert plan.events[-1].data["error"]["code"] == "host_restarted"


# Nudges that the history holds


def test_a_nudge_that_the_history_holds_is_recorded() -> None:
    log = open_turn("read", results=1)
    held = Checkpoint("t1", [], [{"deliveryId": "d2", "afterCallIds": ["t1.1.0"]}])
    plan = recover(log.state(), facts(log, pending=[delivery(2), delivery(3)], checkpoints=[held]))
    assert types(plan) == ["nudge.delivered", "turn.failed"]
    assert plan.events[0].turn_id == "t1"
    assert plan.events[0].data == {
        "text": "say 2",
        "deliveryId": "d2",
        "afterCallIds": ["t1.1.0"],
        "sender": {"id": "u"},
    }
    assert plan.settled == {"d2"}


def test_a_nudge_that_the_log_has_is_not_recorded_again() -> None:
    log = open_turn("read", results=1)
    log.nudge(2)
    held = Checkpoint("t1", [], [{"deliveryId": "d2"}])
    plan = recover(log.state(), facts(log, pending=[delivery(2)], checkpoints=[held]))
    assert types(plan) == ["turn.failed"]


# Stops and preempting deliveries


def stop(after: int, at: int, **given: Any) -> StopRecord:
    return StopRecord(1, "ses_a", after, stamp(at), **given)


def test_a_stop_ends_the_open_turn_for_good() -> None:
    log = open_turn()
    plan = recover(log.state(), facts(log, stops=[stop(1, log.now)], pending=[delivery(2)]))
    assert plan.events[0].data == {
        "status": "cancelled",
        "code": "stopped",
        "message": "turn interrupted",
    }
    assert plan.resume is None
    assert plan.start
    assert len(plan.stops_done) == 1


def test_a_stop_of_an_earlier_turn_leaves_this_one_alone() -> None:
    log = open_turn()
    at = log.now
    log.fail("stopped", "cancelled")
    log.emit("session.waiting")
    log.prompt("t2", 2)
    plan = recover(log.state(), facts(log, stops=[stop(2, at)]))
    assert plan.events[0].data["code"] == "host_restarted"
    assert plan.resume is not None


def test_a_stop_spares_a_turn_that_is_newer_than_its_limit() -> None:
    log = open_turn()
    plan = recover(log.state(), facts(log, stops=[stop(1, log.now, before=stamp(0))]))
    assert plan.resume is not None


def test_a_stop_keeps_a_drained_turn_from_being_resumed() -> None:
    log = open_turn()
    log.fail("host_shutdown")
    plan = recover(log.state(), facts(log, stops=[stop(1, log.now)], pending=[delivery(2)]))
    assert plan.resume is None
    assert plan.start


def test_a_clearing_stop_clears_what_is_not_newer() -> None:
    log = open_turn()
    pending = [delivery(2), delivery(3), delivery(4)]
    plan = recover(
        log.state(), facts(log, stops=[stop(3, log.now, clear_pending=True)], pending=pending)
    )
    assert types(plan) == ["turn.failed", "deliveries.cleared"]
    assert plan.events[1].data == {"deliveryIds": ["d2", "d3"], "reason": "stopped"}
    assert plan.settled == {"d2", "d3"}
    assert plan.start


def test_a_stop_of_a_waiting_turn_is_recorded_with_its_prompt() -> None:
    log = Log()
    log.start()
    log.emit("turn.queued", "t1", position=1)
    plan = recover(
        log.state(), facts(log, stops=[stop(1, log.now)], pending=[delivery(1), delivery(2)])
    )
    assert [d.delivery_id for d in plan.stopped] == ["d1"]
    assert plan.start
    alone = recover(log.state(), facts(log, stops=[stop(1, log.now)], pending=[delivery(1)]))
    assert not alone.start
    assert types(alone) == []


def test_a_stop_that_ended_a_turn_stops_nothing_that_waited_behind_it() -> None:
    log = open_turn()
    at = log.now
    log.fail("stopped", "cancelled")
    log.emit("session.waiting")
    plan = recover(log.state(), facts(log, stops=[stop(2, at)], pending=[delivery(2)]))
    assert plan.stopped == []
    assert plan.start


def test_a_preempting_delivery_ends_the_open_turn() -> None:
    log = open_turn()
    plan = recover(log.state(), facts(log, pending=[delivery(2), delivery(3, "preempt")]))
    assert plan.events[0].data["code"] == "preempted"
    assert plan.resume is None
    assert plan.start


# Any log, cut anywhere


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Log, Facts]:
    """Return a log cut at any event, and the facts that may go with it."""
    mode = draw(st.sampled_from(["chat", "chat", "task"]))
    log = Log(mode)
    log.start()
    seq = 0
    for number in range(1 if mode == "task" else draw(st.integers(0, 3))):
        seq += 1
        log.prompt(f"t{number}", seq)
        for step in range(1, draw(st.integers(0, 2)) + 1):
            effects = draw(st.lists(st.sampled_from(["read", "write"]), max_size=2))
            log.step(step, *effects)
            if mode == "chat" and draw(st.booleans()):
                seq += 1
                log.nudge(seq)
        code = draw(st.sampled_from(["", "stopped", "host_shutdown", "host_restarted"]))
        if code:
            log.fail(code, "cancelled" if code == "stopped" else "interrupted")
        else:
            log.emit("turn.completed", log.turn, result="r")
        if not code.startswith("host"):
            log.emit("session.waiting" if mode == "chat" else "session.completed")
    return _cut(draw, log, seq)


def _cut(draw: st.DrawFn, log: Log, seq: int) -> tuple[Log, Facts]:
    nudged = [e["data"]["deliveryId"] for e in log.events if e["type"] == "nudge.delivered"]
    del log.events[draw(st.integers(0, len(log.events))) :]
    state = log.state()
    if log.mode == "chat":
        seq += draw(st.integers(0, 3))
    pending = [
        delivery(n, draw(st.sampled_from(["coalesce", "preempt"])))
        for n in range(1, seq + 1)
        if f"d{n}" not in state.outcomes
    ]
    checkpoints = []
    if state.turn is not None and log.events[-1]["type"] == "actions.completed":
        waiting = {d.delivery_id for d in pending}
        held = [{"deliveryId": i} for i in nudged if i in waiting][:1]
        checkpoints = [Checkpoint(state.turn.id, [], held)]
    stops = [
        StopRecord(n, "ses_a", draw(st.integers(0, seq)), stamp(at), draw(st.booleans()))
        for n, at in enumerate(draw(st.lists(st.integers(0, log.now), max_size=2)))
    ]
    return log, facts(
        log,
        pending=pending,
        stops=stops,
        checkpoints=checkpoints,
        on_restart=draw(st.sampled_from(["resume", "fail"])),
        resumes=draw(st.booleans()),
        idempotent=draw(st.sampled_from([(), ("tool0",)])),
    )


@given(cuts())
def test_a_plan_obeys_the_laws_and_doing_it_twice_changes_nothing(given: tuple[Log, Facts]) -> None:
    log, known = given
    before = len(log.events)
    if known.stops and log.events:
        log.now = max(log.now, *(int(s.at[14:16]) * 60 + int(s.at[17:19]) for s in known.stops))
    plan = recover(log.state(), known)
    log.apply(plan)
    at_rest = plan.resume is None and not plan.start
    accepted = [d.delivery_id for d in known.pending] if at_rest else []
    check_laws(log.events, accepted, at_rest=at_rest)
    assert log.state().turn is None

    left = [d for d in known.pending if d.delivery_id not in plan.settled]
    for stops in (known.stops, []):
        again = recover(
            log.state(),
            facts(
                log,
                pending=left,
                stops=stops,
                checkpoints=known.checkpoints,
                on_restart=known.on_restart,
                resumes=known.resumes,
                idempotent=known.idempotent,
            ),
        )
        assert again.events == []
        assert again.stopped == []
        assert again.start == plan.start
        assert (again.resume and again.resume.turn.id) == (plan.resume and plan.resume.turn.id)
        if again.resume and plan.resume:
            assert again.resume.restarts == plan.resume.restarts
    assert before <= len(log.events)


def test_the_checker_sees_what_breaks_a_law() -> None:
    log = open_turn("read", results=1)
    assert list(violations(log.events, at_rest=False)) == []
    assert any("never ended" in problem for problem in violations(log.events))
    log.nudge(1)
    assert any("2 outcomes" in problem for problem in violations(log.events, at_rest=False))
