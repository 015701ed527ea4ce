"""Calls that wait for a person, over HTTP: who may decide, what counts, and what the others get."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from threadline import (
    Accepted,
    Agent,
    Approval,
    ApprovalRequest,
    ApprovalRequested,
    Channel,
    Event,
    EventContext,
    Principal,
    RouteContext,
    tool,
)
from threadline.auth import AuthRequest
from threadline.harness.scripted import Call, Calls, Say, Scripted
from threadline.testing import Answer, HostSession, ManualClock, TestHost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOUR = 3600
RESTART = Scripted([Call("restart", {"service": "checkout"}), Say("Done.")])
GROUPS = {"x-user": "sam", "x-groups": "support, sre"}


def by_header(request: AuthRequest) -> Principal | None:
    """Admit whoever says a name; ``root`` is an operator."""
    name = request.headers.get("x-user")
    if not name:
        return None
    groups = [group.strip() for group in request.headers.get("x-groups", "").split(",") if group]
    attributes = {"groups": groups} if groups else {}
    return Principal("user", name, name.title(), attributes, operator=name == "root")


class Desk:
    """A host whose one write waits for a person, and what of it ran."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.approval: bool | Approval = True
        self.harness = RESTART
        self.channels: dict[str, Channel] = {}
        self.clock: ManualClock | None = None
        self._host: TestHost | None = None

    def agent(self) -> Agent:
        """Make the agent anew, as a new process would."""

        @tool(effect="write", approval=self.approval)
        async def restart(service: str, hard: bool = False) -> str:
            """Restart a service."""
            self.runs[service] += 1
            return f"restarted {service}"

        @tool
        async def look() -> str:
            """Look."""
            return "fine"

        return Agent(
            name="Desk",
            instructions="Be brief.",
            harness=self.harness,
            auth=[by_header],
            tools=[restart, look],
            channels=self.channels,
        )

    @property
    def host(self) -> TestHost:
        assert self._host is not None
        return self._host

    async def serve(self) -> None:
        """Start the host."""
        self._host = TestHost(self.agent, clock=self.clock)
        await self._host.start()

    async def start(self, **fields: Any) -> HostSession:
        """Serve, and start a session of ann's."""
        await self.serve()
        return await self.host.start_session("go", headers={"x-user": "ann"}, **fields)

    async def parked(self) -> tuple[HostSession, str]:
        """Serve, and start a session whose first call waits; return it with the call's id."""
        session = await self.start()
        return session, await self.asked(session)

    async def asked(self, session: HostSession, number: int = 1) -> str:
        """Return the id of a call when it waits, and would after a power cut."""
        event = await session.event("action.approval_requested", number)
        await self.host.until(lambda: session.status == "parked")
        await self.host.agent().core.synced(session.id)
        return str(event["data"]["callId"])

    async def decide(
        self,
        session: HostSession,
        call_id: str,
        decision: Any = "approved",
        *,
        user: str | None = "ann",
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> Answer:
        """Decide as somebody."""
        headers = headers or ({"x-user": user} if user else {})
        return await self.host.post(
            f"{session.path}/approvals/{call_id}",
            json={"decision": decision, **fields},
            headers=headers,
        )

    async def close(self) -> None:
        if self._host is not None:
            await self._host.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    await desk.close()


def decisions(session: HostSession) -> list[str]:
    """Return how calls were decided, as the log has it."""
    return [e["data"]["decision"] for e in session.events("action.approval_resolved")]


def refused(answer: Answer, status: int, code: str) -> dict[str, Any]:
    """Check an error's status and code; return its body."""
    assert (answer.status, answer.json()["error"]) == (status, code), answer.text
    body: dict[str, Any] = answer.json()
    return body


async def at_rest(desk: Desk, session: HostSession) -> None:
    """Wait until all is done, and check the log."""
    await session.rest()
    desk.host.check_laws()


# One decision


async def test_an_approved_call_runs(desk: Desk) -> None:
    session, call_id = await desk.parked()
    assert not desk.runs
    answer = await desk.decide(session, call_id)
    by = {"kind": "user", "id": "ann", "name": "Ann"}
    assert (answer.status, answer.json()) == (
        200,
        {
            "ok": True,
            "sessionId": session.id,
            "callId": call_id,
            "decision": "approved",
            "by": by,
        },
    )
    await at_rest(desk, session)
    assert desk.runs == {"checkout": 1}
    [resolved] = session.events("action.approval_resolved")
    assert resolved["data"] == {"callId": call_id, "decision": "approved", "by": by}
    assert session.replies == ["Done."]


async def test_a_denied_call_does_not_run_and_the_model_reads_why(desk: Desk) -> None:
    session, call_id = await desk.parked()
    assert (await desk.decide(session, call_id, "denied", reason="not on a Friday")).ok
    await at_rest(desk, session)
    assert not desk.runs
    [resolved] = session.events("action.approval_resolved")
    assert resolved["data"]["reason"] == "not on a Friday"
    [result] = session.events("action.result")
    assert result["data"]["isError"] is True
    assert result["data"]["error"] == {
        "code": "approval_denied",
        "message": "Ann denied this call: not on a Friday. It did not run.",
    }
    assert session.replies == ["Done."]


@pytest.mark.parametrize(("said", "meant"), [("approve", "approved"), ("deny", "denied")])
async def test_the_short_words_mean_the_same(desk: Desk, said: str, meant: str) -> None:
    session, call_id = await desk.parked()
    assert (await desk.decide(session, call_id, said)).json()["decision"] == meant
    await at_rest(desk, session)
    assert decisions(session) == [meant]


async def test_of_many_decisions_at_once_one_counts(desk: Desk) -> None:
    session, call_id = await desk.parked()
    said = ["approved", "denied"] * 8
    answers = await asyncio.gather(*(desk.decide(session, call_id, one) for one in said))
    assert Counter(answer.status for answer in answers) == {200: 1, 409: 15}
    [won] = [answer.json()["decision"] for answer in answers if answer.ok]
    for answer in answers:
        if not answer.ok:
            assert refused(answer, 409, "approval_closed")["decision"] == won
    await at_rest(desk, session)
    assert decisions(session) == [won]
    assert sum(desk.runs.values()) == (won == "approved")


@pytest.mark.parametrize("second", ["approved", "denied"])
async def test_the_second_decision_is_told_of_the_first(desk: Desk, second: str) -> None:
    desk.approval = Approval(approvers=["user:ann", "user:bob"])
    session, call_id = await desk.parked()
    assert (await desk.decide(session, call_id, user="bob")).ok
    for _ in range(2):
        body = refused(await desk.decide(session, call_id, second), 409, "approval_closed")
        assert body["decision"] == "approved"
        assert body["message"].endswith("it was approved by Bob.")
        await at_rest(desk, session)
    assert desk.runs == {"checkout": 1}


async def test_two_calls_of_a_step_are_decided_one_by_one(desk: Desk) -> None:
    calls = [Call("restart", {"service": "a"}), Call("look"), Call("restart", {"service": "b"})]
    desk.harness = Scripted([Calls(calls), Say("Done.")])
    session = await desk.start()
    await desk.asked(session, 2)
    first, second = (e["data"]["callId"] for e in session.events("action.approval_requested"))
    [looked] = session.events("action.result")
    refused(await desk.decide(session, looked["data"]["callId"]), 404, "not_found")
    assert (await desk.decide(session, second)).ok
    await session.event("action.result", 2)
    assert await listed(desk, session) == [first]
    assert desk.runs == {"b": 1}
    assert (await desk.decide(session, first, "denied")).ok
    await at_rest(desk, session)
    assert desk.runs == {"b": 1}


# Who may


async def test_a_stranger_learns_and_changes_nothing(desk: Desk) -> None:
    session, call_id = await desk.parked()
    before = session.log()
    for user in ("bob", "root"):
        known = refused(await desk.decide(session, call_id, user=user), 403, "forbidden")
        unknown = refused(await desk.decide(session, "call_none", user=user), 403, "forbidden")
        assert known == unknown
    assert (await desk.decide(session, call_id, user=None)).status == 401
    assert (await desk.host.get(f"{session.path}/approvals")).status == 401
    path = f"{session.path}/approvals"
    assert (await desk.host.get(path, headers={"x-user": "bob"})).status == 403
    assert (await desk.host.get(path, headers={"x-user": "root"})).status == 200
    assert session.log() == before
    assert (await desk.decide(session, call_id)).ok


async def test_a_named_approver_decides_what_is_not_theirs_to_read(desk: Desk) -> None:
    desk.approval = Approval(approvers=[Principal("user", "bob")])
    session, call_id = await desk.parked()
    refused(await desk.decide(session, call_id, user="ann"), 403, "forbidden")
    for path in ("/events", "/approvals"):
        read = await desk.host.get(session.path + path, headers={"x-user": "bob"})
        refused(read, 403, "forbidden")
    assert (await desk.decide(session, call_id, user="bob")).ok
    # The owner may read how it was decided, but still has no say.
    refused(await desk.decide(session, call_id, user="ann"), 403, "forbidden")
    refused(await desk.decide(session, call_id, user="bob"), 409, "approval_closed")
    await at_rest(desk, session)
    [asked] = session.events("action.approval_requested")
    assert asked["data"]["approvers"] == ["user:bob"]
    assert desk.runs == {"checkout": 1}


async def test_members_of_a_group_decide(desk: Desk) -> None:
    desk.approval = Approval(approvers=["group:sre"])
    session, call_id = await desk.parked()
    outside = {"x-user": "sre", "x-groups": "support"}
    for headers in ({"x-user": "ann"}, outside, {"x-user": "group:sre"}):
        refused(await desk.decide(session, call_id, headers=headers), 403, "forbidden")
    answer = await desk.decide(session, call_id, headers=GROUPS)
    assert answer.json()["by"]["id"] == "sam"
    await at_rest(desk, session)
    assert desk.runs == {"checkout": 1}


async def test_a_function_decides_who(desk: Desk) -> None:
    seen: list[ApprovalRequest] = []

    async def not_the_owner(principal: Principal, request: ApprovalRequest) -> bool:
        seen.append(request)
        return principal.key != request.owner.key

    desk.approval = Approval(approvers=not_the_owner)
    session, call_id = await desk.parked()
    refused(await desk.decide(session, call_id, user="ann"), 403, "forbidden")
    assert (await desk.decide(session, call_id, user="bob")).ok
    await at_rest(desk, session)
    assert (seen[0].call_id, seen[0].tool_name, seen[0].session_id) == (
        call_id,
        "restart",
        session.id,
    )
    assert seen[0].input == {"service": "checkout", "hard": False}
    assert desk.runs == {"checkout": 1}


@pytest.mark.parametrize("answer", [None, 1, ValueError("no directory")])
async def test_a_function_that_does_not_say_yes_says_no(desk: Desk, answer: Any) -> None:
    def broken(principal: Principal, request: ApprovalRequest) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    desk.approval = Approval(approvers=broken)
    session, call_id = await desk.parked()
    refused(await desk.decide(session, call_id), 403, "forbidden")
    assert session.status == "parked"


# Too late


async def test_a_decision_after_the_time_is_over(desk: Desk) -> None:
    desk.clock, desk.approval = ManualClock(), Approval(expires=timedelta(hours=1))
    session, call_id = await desk.parked()
    await desk.host.elapse(HOUR, step=HOUR)
    body = refused(await desk.decide(session, call_id), 409, "approval_closed")
    assert body["decision"] == "expired"
    await at_rest(desk, session)
    assert decisions(session) == ["expired"]
    [result] = session.events("action.result")
    assert result["data"]["error"]["code"] == "approval_expired"
    assert not desk.runs
    assert session.replies == ["Done."]


async def test_time_passes_while_the_host_is_down(desk: Desk) -> None:
    desk.clock, desk.approval = ManualClock(), Approval(expires=timedelta(hours=1))
    session, call_id = await desk.parked()
    await desk.host.kill()
    desk.clock.advance(HOUR)
    await desk.host.start()
    body = refused(await desk.decide(session, call_id), 409, "approval_closed")
    assert body["decision"] == "expired"
    await at_rest(desk, session)
    assert not desk.runs


@pytest.mark.parametrize("how", ["stop", "preempt"])
async def test_a_decision_after_the_turn_was_ended(desk: Desk, how: str) -> None:
    session, call_id = await desk.parked()
    ann = {"x-user": "ann"}
    if how == "stop":
        assert (await session.stop(headers=ann)).json()["stopped"] is True
    else:
        await session.follow_up("something else", headers=ann)
        assert session.admitted == "preempted"
    await session.event("action.approval_resolved")
    body = refused(await desk.decide(session, call_id), 409, "approval_closed")
    assert body["decision"] == "superseded"
    if how == "preempt":
        assert (await desk.decide(session, await desk.asked(session, 2), "denied")).ok
    await at_rest(desk, session)
    assert not desk.runs


@pytest.mark.parametrize("how", ["stop", "preempt", "delete"])
async def test_a_decision_and_the_turns_end_at_once(desk: Desk, how: str) -> None:
    session, call_id = await desk.parked()
    ann = {"x-user": "ann"}
    if how == "stop":
        ending = session.stop(headers=ann)
    elif how == "preempt":
        ending = session.follow_up("something else", headers=ann)
    else:
        ending = desk.host.delete(session.path, headers=ann)
    decided, ended = await asyncio.gather(desk.decide(session, call_id), ending)
    assert ended.ok
    assert decided.status in (200, 404, 409)
    if how == "delete":
        await desk.host.rest()
        return
    if how == "preempt":
        assert (await desk.decide(session, await desk.asked(session, 2), "denied")).ok
    await at_rest(desk, session)
    assert decisions(session)[0] == ("approved" if decided.ok else "superseded")
    assert sum(desk.runs.values()) <= decided.ok


# Mistakes


async def test_unknown_calls_and_sessions(desk: Desk) -> None:
    session, _ = await desk.parked()
    refused(await desk.decide(session, "call_none"), 404, "not_found")
    refused(await desk.decide(session, "%2e%2e%2fx%00"), 404, "not_found")
    gone = desk.host.session("ses_none")
    refused(await desk.decide(gone, "call_none"), 404, "not_found")
    headers = {"x-user": "ann"}
    refused(await desk.host.get(f"{gone.path}/approvals", headers=headers), 404, "not_found")


MALFORMED = [
    b"",
    b"approved",
    b"null",
    b"[]",
    b"{}",
    b'{"decision": null}',
    b'{"decision": true}',
    b'{"decision": "yes"}',
    b'{"decision": "approved\\n"}',
    b'{"decision": "APPROVED"}',
    b'{"decision": "expired"}',
    b'{"decision": "approved", "reason": 5}',
    b'{"decision": "approved", "by": {"kind": "user", "id": "bob"}}',
    b'{"decision": "denied", "reason": "' + b"x" * 2001 + b'"}',
    b'{"decision": "denied", "reason": "\\ud800"}',
]


@pytest.mark.parametrize("body", MALFORMED)
async def test_malformed_bodies_decide_nothing(desk: Desk, body: bytes) -> None:
    session, call_id = await desk.parked()
    path = f"{session.path}/approvals/{call_id}"
    headers = {"x-user": "ann", "content-type": "application/json"}
    answer = await desk.host.post(path, body=body, headers=headers)
    refused(answer, 400, "invalid_request")
    assert (decisions(session), session.status) == ([], "parked")


async def test_other_methods_are_not_there(desk: Desk) -> None:
    session, call_id = await desk.parked()
    path, headers = f"{session.path}/approvals/{call_id}", {"x-user": "ann"}
    assert (await desk.host.get(path, headers=headers)).status == 405
    assert (await desk.host.delete(path, headers=headers)).status == 405


# What is shown


async def listed(desk: Desk, session: HostSession) -> list[str]:
    """Return the ids of the calls that wait, as the owner is told."""
    answer = await desk.host.get(f"{session.path}/approvals", headers={"x-user": "ann"})
    assert answer.ok
    return [call["callId"] for call in answer.json()["approvals"]]


async def test_the_calls_that_wait_are_listed(desk: Desk) -> None:
    desk.clock = ManualClock()
    desk.approval = Approval(approvers=["user:ann", "group:sre"], expires=timedelta(minutes=5))
    session, call_id = await desk.parked()
    path, headers = f"{session.path}/approvals", {"x-user": "ann"}
    [asked] = session.events("action.approval_requested")
    answer = (await desk.host.get(path, headers=headers)).json()
    assert answer == {
        "sessionId": session.id,
        "approvals": [
            {
                "callId": call_id,
                "toolName": "restart",
                "input": {"service": "checkout", "hard": False},
                "turnId": asked["turnId"],
                "requestedAt": asked["at"],
                "expiresAt": "2025-01-01T00:05:00.000Z",
                "approvers": ["user:ann", "group:sre"],
            }
        ],
    }
    sessions = await desk.host.get("/v1/sessions", headers=headers)
    assert [one["status"] for one in sessions.json()["sessions"]] == ["parked"]
    await desk.host.crash()
    assert (await desk.host.get(path, headers=headers)).json() == answer
    assert (await desk.decide(session, call_id)).ok
    await at_rest(desk, session)
    assert (await desk.host.get(path, headers=headers)).json()["approvals"] == []
    sessions = await desk.host.get("/v1/sessions", headers=headers)
    assert [one["status"] for one in sessions.json()["sessions"]] == ["waiting"]


# Restarts


@pytest.mark.parametrize("how", ["crash", "power cut", "restart"])
async def test_a_call_outlives_its_host(desk: Desk, how: str) -> None:
    session, call_id = await desk.parked()
    for _ in range(3):
        if how == "restart":
            await desk.host.restart()
        else:
            await desk.host.crash(power_cut=how == "power cut")
        assert await listed(desk, session) == [call_id]
        assert session.status == "parked"
    assert (await desk.decide(session, call_id)).ok
    await at_rest(desk, session)
    assert desk.runs == {"checkout": 1}
    assert session.replies == ["Done."]
    assert len(session.events("turn.started")) == 1


@pytest.mark.parametrize("decision", ["approved", "denied"])
async def test_what_was_answered_200_counts_after_a_crash(desk: Desk, decision: str) -> None:
    session, call_id = await desk.parked()
    assert (await desk.decide(session, call_id, decision)).ok
    await desk.host.crash(power_cut=True)
    refused(await desk.decide(session, call_id), 409, "approval_closed")
    await at_rest(desk, session)
    assert decisions(session) == [decision]
    assert desk.runs["checkout"] <= (decision == "approved")


async def test_a_decision_that_meets_the_shutdown_is_not_called_decided(desk: Desk) -> None:
    session, call_id = await desk.parked()
    core = desk.host.agent().core
    journal = core.store.decide

    async def drained_first(*args: Any, **kwargs: Any) -> Any:
        await core.drain(0.0)
        return await journal(*args, **kwargs)

    core.store.decide = drained_first  # type: ignore[method-assign]
    refused(await desk.decide(session, call_id), 503, "draining")
    await desk.host.restart()
    # It is durable, so it counts.
    await at_rest(desk, session)
    assert decisions(session) == ["approved"]
    body = refused(await desk.decide(session, call_id), 409, "approval_closed")
    assert body["message"].endswith("it was approved by Ann.")


# What does not wait


async def test_a_direct_call_is_a_persons_own_and_waits_for_nobody(desk: Desk) -> None:
    session, call_id = await desk.parked()
    ann = {"x-user": "ann"}
    body = {"input": {"service": "search"}}
    answer = await desk.host.post("/v1/tools/restart", json=body, headers=ann)
    assert answer.json()["result"] == "restarted search"
    bound = await desk.host.post(
        "/v1/tools/restart", json={**body, "sessionId": session.id}, headers=ann
    )
    refused(bound, 409, "session_busy")
    assert desk.runs == {"search": 1}
    assert await listed(desk, session) == [call_id]


async def test_a_dry_run_asks_nobody(desk: Desk) -> None:
    session = await desk.start(dryRun=True)
    await at_rest(desk, session)
    assert not desk.runs
    assert session.events("action.approval_requested") == []
    [result] = session.events("action.result")
    assert result["data"]["dryRun"] is True


async def test_a_call_that_cannot_run_asks_nobody(desk: Desk) -> None:
    desk.harness = Scripted([Call("restart", {"srevice": "checkout"}), Say("Done.")])
    session = await desk.start()
    await at_rest(desk, session)
    assert session.events("action.approval_requested") == []
    [result] = session.events("action.result")
    assert result["data"]["error"]["code"] == "invalid_input"


async def test_only_some_calls_may_need_an_approval(desk: Desk) -> None:
    desk.approval = Approval(when=lambda given: given["hard"])
    hard = {"service": "b", "hard": True}
    desk.harness = Scripted([Call("restart", {"service": "a"}), Call("restart", hard)])
    session, call_id = await desk.parked()
    assert desk.runs == {"a": 1}
    assert (await desk.decide(session, call_id)).ok
    await at_rest(desk, session)
    assert desk.runs == {"a": 1, "b": 1}


# Sessions that a channel owns


class Room:
    """Many speak here; who clicks a button is who decides."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.channel = Channel(auth=[by_key], admission="coalesce", owner="channel")
        self.channel.post("/say")(self.say)
        self.channel.post("/click")(self.click)
        self.channel.on("action.approval_requested")(self.ask)

    async def say(self, ctx: RouteContext, body: str) -> Accepted:
        """Say something."""
        return Accepted(await ctx.send(body, continuation_token="room 1"))

    async def ask(self, event: Event[ApprovalRequested], ctx: EventContext) -> None:
        """Show a button."""
        self.asked.append({"callId": event.data.call_id, "approvers": event.data.approvers})

    async def click(self, ctx: RouteContext, body: dict[str, str]) -> dict[str, Any]:
        """Decide as whoever clicked, who is not the one that posts here."""
        record = await ctx.resolve_approval(
            "room 1",
            body["callId"],
            "approved" if body["button"] == "yes" else "denied",
            principal=Principal("member", body["user"], body["user"].title()),
        )
        return {"ok": True, "by": dict(record.by)}


def by_key(request: AuthRequest) -> Principal | None:
    """Admit the service that holds the key."""
    return Principal("service", "chat") if request.headers.get("x-key") == "k" else None


KEY = {"x-key": "k"}


@pytest.mark.parametrize("approvers", [None, ["member:mia"]])
async def test_a_channel_decides_for_whoever_clicked(
    desk: Desk, approvers: list[str] | None
) -> None:
    room = Room()
    desk.channels, desk.approval = {"room": room.channel}, Approval(approvers=approvers)
    await desk.serve()
    path = "/v1/channels/room"
    said = await desk.host.post(f"{path}/say", json="restart it", headers=KEY)
    session = desk.host.session(said.json()["sessionId"])
    call_id = await desk.asked(session)
    await desk.host.until(lambda: room.asked)
    assert room.asked == [{"callId": call_id, "approvers": approvers}]
    # Over HTTP it is not for those whom the channel does not admit.
    refused(await desk.decide(session, call_id, user="ann"), 403, "forbidden")

    async def click(button: str, user: str = "mia") -> Answer:
        body = {"callId": call_id, "button": button, "user": user}
        return await desk.host.post(f"{path}/click", json=body, headers=KEY)

    if approvers is not None:
        refused(await click("yes", "max"), 403, "forbidden")
    answer = await click("yes")
    assert answer.json()["by"] == {"kind": "member", "id": "mia", "name": "Mia"}
    refused(await click("no"), 409, "approval_closed")
    await at_rest(desk, session)
    assert desk.runs == {"checkout": 1}
    [resolved] = session.events("action.approval_resolved")
    assert resolved["data"]["by"]["id"] == "mia"


async def test_whom_the_channel_admits_may_decide_over_http_too(desk: Desk) -> None:
    room = Room()
    desk.channels = {"room": room.channel}
    await desk.serve()
    said = await desk.host.post("/v1/channels/room/say", json="restart it", headers=KEY)
    session = desk.host.session(said.json()["sessionId"])
    call_id = await desk.asked(session)
    answer = await desk.decide(session, call_id, headers={**KEY, "x-user": "ann"})
    assert answer.json()["by"]["id"] == "ann"
    await at_rest(desk, session)
    assert desk.runs == {"checkout": 1}


async def test_a_channel_says_what_it_cannot_decide(desk: Desk) -> None:
    room = Room()
    desk.channels = {"room": room.channel}
    await desk.serve()
    body = {"callId": "call_none", "button": "yes", "user": "mia"}
    answer = await desk.host.post("/v1/channels/room/click", json=body, headers=KEY)
    refused(answer, 404, "not_found")
