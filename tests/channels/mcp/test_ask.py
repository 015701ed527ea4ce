"""``ask`` and ``check``: the conversation, with the real client, over a socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.channels.mcp.talking import MODERN, VERSIONS, connected, raw, said
from tests.host.serving import Gate, Served, agent, by_header, serve, until

from threadline import Agent, Approval, tool
from threadline.harness.base import ToolCall, TurnResult
from threadline.harness.scripted import Scripted
from threadline.testing.laws import check_laws

if TYPE_CHECKING:
    from pathlib import Path

ERAS = ("auto", "legacy")


async def ask(client: Any, message: str, **more: Any) -> dict[str, Any]:
    """Ask, and return what the answer says."""
    result = await client.call_tool("ask", {"message": message, **more})
    assert not result.is_error, said(result)
    answer: dict[str, Any] = result.structured_content
    return answer


async def check(client: Any, session_id: str) -> dict[str, Any]:
    """Check, and return what the answer says."""
    result = await client.call_tool("check", {"sessionId": session_id})
    assert not result.is_error, said(result)
    answer: dict[str, Any] = result.structured_content
    return answer


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_is_asked_and_answers(served: Served, mode: str) -> None:
    async with connected(served, mode=mode) as client:
        first = await ask(client, "hello")
        assert first == {
            "sessionId": first["sessionId"],
            "continuationToken": first["continuationToken"],
            "status": "finished",
            "reply": "hello",
        }
        second = await ask(client, "again", continuationToken=first["continuationToken"])
        assert second == {**first, "reply": "again"}
        assert await check(client, first["sessionId"]) == second
        other = await ask(client, "hello")
        assert other["sessionId"] != first["sessionId"]
    events = await served.events(first["sessionId"])
    assert events[0]["data"]["channel"] == "mcp"
    assert events[0]["data"]["principal"] == {"kind": "user", "id": "ann"}
    log = (served.state / "sessions" / first["sessionId"] / "events.ndjson").read_bytes()
    ids = [i for e in events for i in e["data"].get("deliveryIds", ())]
    check_laws(log, ids)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_protocol_version_is_spoken(served: Served, version: str) -> None:
    params: dict[str, Any] = {"name": "ask", "arguments": {"message": "hello"}}
    if version != MODERN:
        hello = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        started = await raw(served, "initialize", hello, version=version)
        assert started.last["result"]["protocolVersion"] == version
        assert started.last["result"]["serverInfo"]["name"] == "Tester"
        ready = await raw(served, "notifications/initialized", version=version, id=None)
        assert (ready.status, ready.text) == (202, "")
        assert (await raw(served, "ping", version=version)).last["result"] == {}
    answer = await raw(served, "tools/call", params, version=version)
    assert (answer.status, answer.kind) == (200, "application/json")
    assert answer.last["result"]["structuredContent"]["reply"] == "hello"


@pytest.mark.parametrize("mode", ERAS)
async def test_a_long_turn_is_polled(served: Served, gate: Gate, mode: str) -> None:
    async with connected(served, mode=mode) as client:
        first = await ask(client, "work", waitSeconds=0.01)
        assert first["status"] == "running"
        assert "reply" not in first
        await gate.held()
        assert await check(client, first["sessionId"]) == first
        gate.release()
        await served.rest(first["sessionId"])
        finished = {**first, "status": "finished", "reply": "work"}
        assert await check(client, first["sessionId"]) == finished


async def test_no_wait_is_no_wait(served: Served, gate: Gate) -> None:
    async with connected(served) as client:
        assert (await ask(client, "work", waitSeconds=0))["status"] == "running"
        await gate.held()
        gate.release()


async def test_a_message_to_a_busy_agent_interrupts_it(served: Served, gate: Gate) -> None:
    async with connected(served) as client, connected(served) as second:
        first = await ask(client, "hello")
        token = first["continuationToken"]
        waiting = asyncio.create_task(ask(client, "work", continuationToken=token))
        await gate.held()
        after = await ask(second, "rather this", continuationToken=token)
        assert after == {**first, "reply": "rather this"}
        interrupted = await waiting
        assert interrupted["status"] == "cancelled"
        assert interrupted["error"] == {"code": "preempted", "message": "turn interrupted"}


async def test_a_turn_that_fails_says_why(served: Served) -> None:
    async with connected(served) as client:
        answer = await ask(client, "fail")
        assert answer["status"] == "failed"
        assert "the model broke" in answer["error"]["message"]
        assert "reply" not in answer
        assert await check(client, answer["sessionId"]) == answer
        after = await ask(client, "better?", continuationToken=answer["continuationToken"])
        assert (after["status"], after["reply"]) == ("finished", "better?")


async def test_a_reply_that_is_no_text_is_json(tmp_path: Path) -> None:
    async def script(turn: Any) -> Any:
        return TurnResult({"findings": [1, "é"], "done": True})

    async with (
        serve(tmp_path, agent(harness=Scripted(script))) as served,
        connected(served) as client,
    ):
        answer = await ask(client, "look")
        assert answer["reply"] == '{"findings": [1, "é"], "done": true}'
        assert (await check(client, answer["sessionId"]))["reply"] == answer["reply"]


async def test_a_message_sent_again_counts_once(served: Served) -> None:
    async with connected(served) as client:
        first = await ask(client, "once", deliveryId="wh 1/2")
        again = await ask(client, "once", deliveryId="wh 1/2")
        assert again == first
        more = {"continuationToken": first["continuationToken"], "deliveryId": "wh 2"}
        second = await ask(client, "and", **more)
        assert await ask(client, "and", **more) == second
        conflict = await client.call_tool("ask", {"message": "other", "deliveryId": "wh 1/2"})
        assert conflict.is_error
        assert conflict.meta["threadline/error"] == "delivery_conflict"
    prompts = [e for e in await served.events(first["sessionId"]) if e["type"] == "turn.completed"]
    assert len(prompts) == 2


async def test_an_id_belongs_to_its_sender(served: Served) -> None:
    async with connected(served) as ann, connected(served, user="bob") as bob:
        first = await ask(ann, "mine", deliveryId="d-1")
        second = await ask(bob, "mine too", deliveryId="d-1")
        assert first["sessionId"] != second["sessionId"]


@pytest.mark.parametrize("user", ["bob", "root"])
async def test_a_session_belongs_to_who_began_it(served: Served, user: str) -> None:
    async with connected(served) as ann, connected(served, user=user) as other:
        first = await ask(ann, "a secret")
        token, session_id = first["continuationToken"], first["sessionId"]
        calls = [
            ("ask", {"message": "tell me", "continuationToken": token}),
            ("call_tool", {"name": "note", "input": {"text": "x"}, "sessionId": session_id}),
        ]
        if user != "root":  # An operator reads, and speaks in none.
            calls.append(("check", {"sessionId": session_id}))
        for name, arguments in calls:
            refused = await other.call_tool(name, arguments)
            assert refused.is_error
            assert refused.meta["threadline/error"] == "forbidden"
            assert said(refused) == "This session belongs to another principal."
            assert refused.structured_content is None
    assert len([e for e in await served.events(session_id) if e["type"] == "turn.started"]) == 1


async def test_a_session_of_http_can_be_checked(served: Served) -> None:
    started = await served.start("over http")
    await served.rest(started["sessionId"])
    async with connected(served) as client:
        answer = await check(client, started["sessionId"])
        assert answer == {
            "sessionId": started["sessionId"],
            "status": "finished",
            "reply": "over http",
        }


async def test_a_session_goes_on_over_http(served: Served) -> None:
    async with connected(served) as client:
        first = await ask(client, "over mcp")
        status, _ = await served.follow_up(first, "over http")
        assert status == 200
        await served.rest(first["sessionId"], 2)
        assert (await check(client, first["sessionId"]))["reply"] == "over http"
        third = await ask(client, "back", continuationToken=first["continuationToken"])
        assert third == {**first, "reply": "back"}


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ({}, "invalid_request", "message: Field required"),
        ({"message": 1}, "invalid_request", "message: Input should be a valid string"),
        ({"message": " "}, "invalid_request", "message must not be empty or blank"),
        ({"message": "x\0"}, "invalid_request", "must not hold NUL"),
        ({"message": "x", "waitSeconds": -1}, "invalid_request", "waitSeconds: "),
        ({"message": "x", "waitSeconds": 301}, "invalid_request", "less than or equal to 300"),
        ({"message": "x", "mode": "task"}, "invalid_request", "mode: Extra inputs"),
        ({"message": "x", "deliveryId": ""}, "invalid_request", "1 to 200 printable"),
        ({"message": "x", "continuationToken": "http:abc"}, "invalid_request", "not a token of"),
        ({"message": "x", "continuationToken": "ses_1"}, "invalid_request", "not a token of"),
        (
            {"message": "x", "continuationToken": "mcp:0123456789012345678901"},
            "stale_token",
            "names no conversation",
        ),
    ],
)
async def test_a_bad_argument_is_said_so(
    served: Served, arguments: dict[str, Any], code: str, sentence: str
) -> None:
    async with connected(served) as client:
        refused = await client.call_tool("ask", arguments)
    assert refused.is_error
    assert refused.meta["threadline/error"] == code
    assert sentence in said(refused)
    assert (await served.ask("GET", "/v1/sessions"))[1]["sessions"] == []


@pytest.mark.parametrize("session_id", ["ses_nothing", "", "x" * 5000, "../../etc"])
async def test_an_unknown_session_is_not_found(served: Served, session_id: str) -> None:
    async with connected(served) as client:
        refused = await client.call_tool("check", {"sessionId": session_id})
    assert refused.is_error
    assert refused.meta["threadline/error"] == "not_found"


@pytest.mark.parametrize("mode", ERAS)
async def test_what_there_is(served: Served, mode: str) -> None:
    async with connected(served, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["ask", "check", "call_tool"]
    asked = tools["ask"]
    assert "the agent Tester" in asked.description
    assert "Knows the on-call rota." in asked.description
    assert asked.input_schema["required"] == ["message"]
    assert asked.input_schema["properties"]["continuationToken"]["type"] == "string"
    wait = asked.input_schema["properties"]["waitSeconds"]
    assert (wait["default"], wait["minimum"], wait["maximum"]) == (30, 0, 300)
    assert set(asked.output_schema["required"]) == {"sessionId", "status"}
    assert tools["check"].annotations.read_only_hint is True
    assert asked.annotations.read_only_hint is False
    assert "broken, double, note, work" in tools["call_tool"].description


async def test_without_tools_there_is_nothing_to_call(tmp_path: Path) -> None:
    bare = Agent(name="Bare", instructions="Answer.", harness=Scripted())
    async with serve(tmp_path, bare) as served, connected(served) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask", "check"]
        answer = await raw(served, "tools/call", {"name": "call_tool", "arguments": {}})
        assert (answer.status, answer.last["error"]["code"]) == (400, -32602)


async def test_a_shutdown_ends_the_wait_and_not_the_turn(tmp_path: Path, gate: Gate) -> None:
    async with serve(tmp_path, agent(gate)) as served, connected(served) as client:
        waiting = asyncio.create_task(ask(client, "work"))
        await gate.held()
        await served.host.drain(0.0)
        answer = await waiting
        assert answer["status"] == "running"
    gate = Gate()
    async with serve(tmp_path, agent(gate)) as served, connected(served) as client:
        await gate.held()
        assert (await check(client, answer["sessionId"]))["status"] == "running"
        gate.release()
        await served.rest(answer["sessionId"], 2)
        assert (await check(client, answer["sessionId"]))["status"] == "finished"


async def test_a_shutdown_that_waits_for_turns_does_not_wait_for_askers(
    tmp_path: Path, gate: Gate
) -> None:
    async with (
        serve(tmp_path, agent(gate, max_running_turns=1)) as served,
        connected(served) as client,
    ):
        first = asyncio.create_task(ask(client, "work"))
        await gate.held()
        second = asyncio.create_task(ask(client, "hello"))
        await until(lambda: served.runtime.core.load["queued"] == 1)
        draining = asyncio.create_task(served.host.drain(20.0))
        assert [(await one)["status"] for one in (first, second)] == ["running", "running"]
        assert not draining.done()
        gate.release()
        await draining
    async with serve(tmp_path, agent(gate)) as served, connected(served) as client:
        for asked, reply in ((first, "work"), (second, "hello")):
            session_id = asked.result()["sessionId"]
            await served.rest(session_id)
            assert (await check(client, session_id))["reply"] == reply


async def test_what_waits_for_a_person_is_parked(tmp_path: Path) -> None:
    @tool(effect="write", approval=Approval())
    async def restart() -> str:
        return "restarted"

    async def script(turn: Any) -> str:
        turn.step_started("scripted")
        turn.step_completed({}, "tool_calls")
        (result,) = await turn.call_tools([ToolCall(f"{turn.id}.c", "restart", {})])
        return str(result.output)

    one = Agent(
        name="Careful",
        instructions="-",
        harness=Scripted(script),
        tools=[restart],
        auth=[by_header],
    )
    async with serve(tmp_path, one) as served, connected(served) as client:
        heard: list[Any] = []

        async def hear(progress: float, total: float | None, said: str | None) -> None:
            heard.append(said)

        asking = client.call_tool("ask", {"message": "go"}, progress_callback=hear)
        task = asyncio.create_task(asking)
        await until(lambda: "restart waits for a person to approve it." in heard)
        (session,) = (await served.ask("GET", "/v1/sessions"))[1]["sessions"]
        session_id = session["sessionId"]
        parked = await check(client, session_id)
        assert parked["status"] == "parked"
        path = f"/v1/session/{session_id}"
        asked = next(
            e for e in await served.events(session_id) if e["type"] == "action.approval_requested"
        )
        call_id = asked["data"]["callId"]
        approve = {"decision": "approve"}
        status, _ = await served.ask("POST", f"{path}/approvals/{call_id}", approve)
        assert status == 200
        assert (await task).structured_content == {
            **parked,
            "status": "finished",
            "reply": "restarted",
        }
