"""``call_tool`` and the tools-only endpoint: an agent's tools without a model."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest
from tests.channels.mcp.talking import connected, cut, raw, said
from tests.host.serving import Gate, Served, agent, by_header, serve, until

from threadline import Agent, RouteContext, ToolContext, tool
from threadline.auth import anonymous
from threadline.harness.base import Attachment, Capabilities, ToolResult
from threadline.harness.scripted import Scripted

if TYPE_CHECKING:
    from pathlib import Path

TOOLS = "/v1/mcp/tools"
ERAS = ("auto", "legacy")


async def call(client: Any, name: str, **more: Any) -> Any:
    """Run a tool through ``call_tool``."""
    return await client.call_tool("call_tool", {"name": name, **more})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_is_called(served: Served, mode: str) -> None:
    async with connected(served, mode=mode) as client:
        result = await call(client, "double", input={"number": 21})
    assert not result.is_error
    called = result.structured_content
    assert called.pop("callId").startswith("call_")
    assert called == {"toolName": "double", "result": {"doubled": 42}, "dryRun": False}
    assert '"doubled": 42' in said(result)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ({"name": "broken"}, "tool_failed", 'Tool "broken" failed: no luck'),
        ({"name": "double", "input": {"number": "x"}}, "invalid_input", "number: "),
        ({"name": "double"}, "invalid_input", "number: is required"),
        ({"name": "nope"}, "not_found", "Available: "),
        ({"name": "double", "input": [1]}, "invalid_request", "input: "),
        ({}, "invalid_request", "name: Field required"),
        ({"name": "double", "sessionId": "ses_nothing"}, "not_found", "no session"),
        ({"name": "double", "asOf": "yesterday"}, None, "asOf"),
    ],
)
async def test_an_error_is_a_sentence(
    served: Served, arguments: dict[str, Any], code: str | None, sentence: str
) -> None:
    async with connected(served) as client:
        result = await client.call_tool("call_tool", arguments)
    assert result.is_error
    assert sentence in said(result)
    assert result.structured_content is None
    assert code is None or result.meta["threadline/error"] == code


async def test_a_call_in_a_session_has_its_workspace(served: Served, gate: Gate) -> None:
    async with connected(served) as client:
        asked = (await client.call_tool("ask", {"message": "hello"})).structured_content
        session_id = asked["sessionId"]
        noted = await call(client, "note", input={"text": "kept"}, sessionId=session_id)
        assert not noted.is_error, said(noted)
        path = served.runtime.core.folder(session_id) / "note.txt"
        assert path.read_text() == "kept"
        work = {"message": "work", "continuationToken": asked["continuationToken"]}
        await client.call_tool("ask", {**work, "waitSeconds": 0})
        await gate.held()
        busy = await call(client, "note", input={"text": "late"}, sessionId=session_id)
        assert busy.is_error
        assert busy.meta["threadline/error"] == "session_busy"
        gate.release()
        await served.rest(session_id, 2)
    assert path.read_text() == "kept"


async def test_a_dry_run_writes_nothing(served: Served) -> None:
    async with connected(served) as client:
        asked = (await client.call_tool("ask", {"message": "hello"})).structured_content
        bound = {"sessionId": asked["sessionId"], "dryRun": True}
        tried = await call(client, "note", input={"text": "kept"}, **bound)
        assert not tried.is_error, said(tried)
        assert tried.structured_content["dryRun"] is True
        assert not (served.runtime.core.folder(asked["sessionId"]) / "note.txt").exists()
        read = await call(client, "double", input={"number": 2}, dryRun=True)
        assert read.structured_content["result"] == {"doubled": 4}


async def test_a_call_may_be_as_of_a_time(tmp_path: Path) -> None:
    @tool
    async def when(ctx: ToolContext) -> str:
        return ctx.now().isoformat()

    one = Agent(name="When", instructions="-", harness=Scripted(), tools=[when])
    async with serve(tmp_path, one) as served, connected(served) as client:
        result = await call(client, "when", asOf="2026-01-31T12:00:00+01:00")
        assert result.structured_content["result"].startswith("2026-01-31T11:00:00")
        future = await call(client, "when", asOf="2999-01-31T12:00:00Z")
        assert future.is_error
        assert "later than now" in said(future)


@pytest.mark.parametrize("mode", ERAS)
async def test_each_tool_is_a_tool_of_its_own(served: Served, mode: str) -> None:
    async with connected(served, TOOLS, mode=mode) as client:
        tools = {t.name: t for t in (await client.list_tools()).tools}
        assert list(tools) == ["broken", "double", "note", "work"]
        double, note = tools["double"], tools["note"]
        assert double.description == "Double a number."
        assert double.input_schema["properties"] == {"number": {"type": "integer"}}
        assert double.output_schema["type"] == "object"
        hints = double.annotations
        assert (hints.read_only_hint, hints.idempotent_hint, hints.destructive_hint) == (
            True,
            True,
            False,
        )
        hints = note.annotations
        assert (hints.read_only_hint, hints.idempotent_hint, hints.destructive_hint) == (
            False,
            False,
            True,
        )
        assert note.output_schema["properties"] == {"result": {"type": "string"}}
        # The client checks each result against the schema of its tool.
        result = await client.call_tool("double", {"number": 4})
        assert result.structured_content == {"doubled": 8}
        assert said(result) == '{"doubled": 8}'
        result = await client.call_tool("note", {"text": "x"})
        assert result.structured_content == {"result": said(result)}


async def test_results_of_every_kind_have_their_schema(tmp_path: Path) -> None:
    @tool
    async def numbers() -> list[int]:
        return [1, 2]

    @tool
    async def maybe(there: bool) -> dict[str, str] | None:
        return {"a": "b"} if there else None

    @tool
    async def nothing() -> None:
        return None

    @tool
    async def untyped():  # type: ignore[no-untyped-def]
        return 2**80

    @tool(effect="write", idempotent=True)
    async def again() -> str:
        return "done"

    tools = [numbers, maybe, nothing, untyped, again]
    one = Agent(name="Kinds", instructions="-", harness=Scripted(), tools=tools)
    async with serve(tmp_path, one) as served, connected(served, TOOLS) as client:
        listed = {t.name: t for t in (await client.list_tools()).tools}
        assert listed["again"].annotations.idempotent_hint is True
        for name, arguments, value in (
            ("numbers", {}, {"result": [1, 2]}),
            ("maybe", {"there": True}, {"result": {"a": "b"}}),
            ("maybe", {"there": False}, {"result": None}),
            ("nothing", {}, {"result": None}),
            ("untyped", {}, {"result": 2**80}),
        ):
            result = await client.call_tool(name, arguments)
            assert result.structured_content == value
        async with connected(served) as asking:
            big = await call(asking, "untyped")
            assert big.structured_content["result"] == 2**80


async def test_errors_of_tools_are_results(served: Served) -> None:
    async with connected(served, TOOLS) as client:
        broken = await client.call_tool("broken", {})
        assert broken.is_error
        assert said(broken) == 'Tool "broken" failed: no luck'
        invalid = await client.call_tool("double", {"number": "x"})
        assert invalid.is_error
        assert "number: " in said(invalid)
    unknown = await raw(served, "tools/call", {"name": "ask", "arguments": {}}, path=TOOLS)
    assert (unknown.status, unknown.last["error"]["code"]) == (400, -32602)
    assert "Available: broken, double, note, work." in unknown.last["error"]["message"]


async def test_what_every_agent_has_is_not_offered(tmp_path: Path) -> None:
    # A harness that cannot look into the workspace by itself gets built-in tools for it.
    harness = Scripted()
    harness.capabilities = Capabilities(workspace=False)
    one = Agent(name="Bare", instructions="-", harness=harness)
    async with serve(tmp_path, one) as served, connected(served, TOOLS) as client:
        assert [t.name for t in served.runtime.tools.infos()] != []
        assert (await client.list_tools()).tools == []


def pictured(*attachments: Attachment) -> Any:
    """Return a stand-in for the tool ``work`` whose result has attachments."""

    async def run(call: Any, context: Any) -> ToolResult:
        return ToolResult(call.call_id, call.tool_name, "a picture", attachments=attachments)

    return run


async def test_pictures_sounds_and_files_come_along(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    png, wav, pdf = b"\x89PNG", b"RIFF", b"%PDF-"
    run = pictured(
        Attachment(png, "image/png"),
        Attachment(wav, "audio/wav"),
        Attachment(pdf, "application/pdf", "a report.pdf"),
    )
    monkeypatch.setattr(served.runtime.tools, "run", run)
    for path, name, arguments in (
        (TOOLS, "work", {}),
        ("/v1/mcp", "call_tool", {"name": "work"}),
    ):
        async with connected(served, path) as client:
            text, image, audio, file = (await client.call_tool(name, arguments)).content
        assert "a picture" in text.text
        assert (image.type, image.mime_type) == ("image", "image/png")
        assert base64.b64decode(image.data) == png
        assert (audio.type, audio.mime_type) == ("audio", "audio/wav")
        assert (file.type, file.resource.mime_type) == ("resource", "application/pdf")
        assert file.resource.uri == "attachment:///a%20report.pdf"
        assert base64.b64decode(file.resource.blob) == pdf


async def test_an_envelope_is_shown_in_its_order(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [
        {"type": "text", "text": "Before"},
        {"type": "image", "mediaType": "image/png", "size": 4},
        {"type": "resource", "uri": "test://a", "mediaType": "text/plain", "text": "quoted"},
        {"type": "resource_link", "uri": "https://example.com/b", "name": "b"},
        {"type": "file", "mediaType": "application/pdf", "size": 5},
        {"type": "text", "text": "after"},
    ]
    output: dict[str, Any] = {"content": shown}
    files = [Attachment(b"\x89PNG", "image/png"), Attachment(b"%PDF-", "application/pdf")]

    async def run(call: Any, context: Any) -> ToolResult:
        return ToolResult(call.call_id, call.tool_name, output, attachments=files)

    monkeypatch.setattr(served.runtime.tools, "run", run)
    async with connected(served, TOOLS) as client:
        result = await client.call_tool("broken", {})
        kinds = [part.type for part in result.content]
        assert kinds == ["text", "image", "resource", "resource_link", "resource", "text"]
        _, image, quoted, link, file, _ = result.content
        assert base64.b64decode(image.data) == b"\x89PNG"
        assert (quoted.resource.uri, quoted.resource.text) == ("test://a", "quoted")
        assert (link.uri, link.name) == ("https://example.com/b", "b")
        assert base64.b64decode(file.resource.blob) == b"%PDF-"
        assert result.structured_content is None
        output["structuredContent"] = {"found": 1}
        assert (await client.call_tool("broken", {})).structured_content == {"found": 1}
        output["content"] = [{"type": "other"}]
        result = await client.call_tool("broken", {})
        assert result.structured_content == output


# Who may


async def test_the_tools_stand_behind_the_command_lines_chain(tmp_path: Path) -> None:
    """The agent's own auth has no say: here it would admit whoever says a name."""
    away = {"x-forwarded-for": "203.0.113.9"}
    async with serve(tmp_path, agent()) as served:
        listed = await raw(served, "tools/list", path=TOOLS, user=None)
        assert listed.status == 200
        refused = await raw(served, "tools/list", path=TOOLS, user="ann", headers=away)
        assert refused.status == 401
        assert (await raw(served, "tools/list", user="ann", headers=away)).status == 200
        assert (await raw(served, "tools/list", user=None)).status == 401


@pytest.mark.parametrize("path", ["/v1/mcp", TOOLS])
async def test_a_bearer_token_of_the_command_line_guards_both(tmp_path: Path, path: str) -> None:
    async with serve(tmp_path, agent(auth=[anonymous()]), bearer_token="s3cret") as served:
        assert (await raw(served, "tools/list", path=path)).status == 401
        wrong = {"authorization": "Bearer wrong"}
        assert (await raw(served, "tools/list", path=path, headers=wrong)).status == 401
        right = {"authorization": "Bearer s3cret"}
        assert (await raw(served, "tools/list", path=path, headers=right)).status == 200
        async with connected(served, path, user=None, headers=right) as client:
            assert (await client.list_tools()).tools


async def test_anonymous_access_opens_both(tmp_path: Path) -> None:
    away = {"x-forwarded-for": "203.0.113.9"}
    async with serve(tmp_path, agent(), allow_anonymous=True) as served:
        for path in ("/v1/mcp", TOOLS):
            listed = await raw(served, "tools/list", path=path, user=None, headers=away)
            assert listed.status == 200


async def test_a_tool_sees_who_calls(tmp_path: Path) -> None:
    @tool
    async def who(ctx: ToolContext) -> str:
        return f"{ctx.principal.key} {ctx.direct}"

    one = Agent(name="Who", instructions="-", harness=Scripted(), tools=[who], auth=[by_header])
    async with serve(tmp_path, one) as served:
        async with connected(served) as client:
            result = await call(client, "who")
            assert result.structured_content["result"] == "user:ann True"
        async with connected(served, TOOLS) as client:
            assert said(await client.call_tool("who", {})) == "local:local True"


# Giving up


async def test_closing_the_connection_cancels_the_tool(served: Served, gate: Gate) -> None:
    """From 2026-07-28 on."""
    for path, name, arguments in (
        (TOOLS, "work", {}),
        ("/v1/mcp", "call_tool", {"name": "work"}),
    ):
        params = {"name": name, "arguments": arguments}
        task = asyncio.create_task(raw(served, "tools/call", params, path=path))
        await gate.held()
        await cut(task)
        await until(lambda: gate.waiting == 0)


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("request_id", [7, "seven"])
async def test_a_notification_cancels_the_tool(
    served: Served, gate: Gate, version: str, request_id: Any
) -> None:
    """Until 2025-11-25."""
    params = {"name": "call_tool", "arguments": {"name": "work"}}
    calling = raw(served, "tools/call", params, version=version, id=request_id)
    task = asyncio.create_task(calling)
    await gate.held()
    cancelled = {"requestId": request_id, "reason": "changed my mind"}
    for user, id_, there in (("bob", request_id, 1), ("ann", 8, 1), ("ann", request_id, 0)):
        told = await raw(
            served,
            "notifications/cancelled",
            {**cancelled, "requestId": id_},
            version=version,
            id=None,
            user=user,
        )
        assert told.status == 202
        await until(lambda there=there: gate.waiting == there)
    answer = await task
    assert answer.status == 200
    assert answer.last["id"] == request_id
    assert answer.last["error"] == {"code": -32800, "message": "Request cancelled"}


async def test_a_closed_connection_says_nothing(
    served: Served, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until 2025-11-25."""
    noticed: list[str] = []
    hung_up = RouteContext.hung_up

    async def watched(ctx: RouteContext) -> None:
        await hung_up(ctx)
        noticed.append(ctx.path)

    monkeypatch.setattr(RouteContext, "hung_up", watched)
    params = {"name": "call_tool", "arguments": {"name": "work"}}
    task = asyncio.create_task(raw(served, "tools/call", params, version="2025-11-25"))
    await gate.held()
    await cut(task)
    await until(lambda: noticed)
    await raw(served, "tools/list")
    assert gate.waiting == 1
    gate.release()


async def test_a_website_cancels_nothing(tmp_path: Path) -> None:
    gate = Gate()
    old = {"version": "2025-11-25"}
    async with serve(tmp_path, agent(gate), allow_anonymous=True) as served:
        params = {"name": "call_tool", "arguments": {"name": "work"}}
        task = asyncio.create_task(raw(served, "tools/call", params, **old))
        await gate.held()
        cancels = {"requestId": 1}
        evil = {"host": "evil.example"}
        told = await raw(served, "notifications/cancelled", cancels, id=None, headers=evil, **old)
        assert told.status == 421
        assert task.done() is False
        told = await raw(served, "notifications/cancelled", cancels, id=None, **old)
        assert told.status == 202
        assert (await task).last["error"]["code"] == -32800


async def test_of_two_calls_with_one_id_a_notification_cancels_neither(
    served: Served, gate: Gate
) -> None:
    params = {"name": "call_tool", "arguments": {"name": "work"}}
    old = {"version": "2025-11-25"}
    tasks = [asyncio.create_task(raw(served, "tools/call", params, **old)) for _ in range(2)]
    await gate.held(2)
    told = await raw(served, "notifications/cancelled", {"requestId": 1}, id=None, **old)
    assert told.status == 202
    assert gate.waiting == 2
    gate.release()
    answers = await asyncio.gather(*tasks)
    assert all("result" in answer.last for answer in answers)


@pytest.mark.parametrize("mode", ERAS)
async def test_the_client_gives_up_a_tool(served: Served, gate: Gate, mode: str) -> None:
    async with connected(served, mode=mode) as client:
        task = asyncio.create_task(call(client, "work"))
        await gate.held()
        await cut(task)
        await until(lambda: gate.waiting == 0)
        assert not (await call(client, "double", input={"number": 1})).is_error


@pytest.mark.parametrize("mode", ERAS)
async def test_who_gives_up_an_ask_leaves_the_turn_alone(
    served: Served, gate: Gate, mode: str
) -> None:
    async with connected(served, mode=mode) as client:
        asked = (await client.call_tool("ask", {"message": "hello"})).structured_content
        arguments = {"message": "work", "continuationToken": asked["continuationToken"]}
        task = asyncio.create_task(client.call_tool("ask", arguments))
        await gate.held()
        await cut(task)
    async with connected(served, mode=mode) as client:
        checked = await client.call_tool("check", {"sessionId": asked["sessionId"]})
        assert checked.structured_content["status"] == "running"
        assert gate.waiting == 1
        gate.release()
        await served.rest(asked["sessionId"], 2)
        checked = await client.call_tool("check", {"sessionId": asked["sessionId"]})
        assert checked.structured_content["reply"] == "work"
