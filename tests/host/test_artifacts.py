"""Artifacts over HTTP: who sees them, filters, downloads that cannot run, and the model's tool."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.host.serving import Served, agent, serve, until

from threadline import (
    Accepted,
    Agent,
    Artifacts,
    ArtifactTagged,
    Channel,
    Context,
    Event,
    EventContext,
    Kind,
    MessageCompleted,
    Principal,
    RouteContext,
    ToolContext,
    tool,
)
from threadline.auth import AuthRequest
from threadline.harness.base import ToolCall, Turn
from threadline.harness.scripted import Scripted
from threadline.session.access import Action
from threadline.store.base import SessionRecord


class Report(BaseModel):
    severity: int
    status: str = "open"


class Note(BaseModel):
    author: Report | None = None


@tool(effect="write")
async def keep(key: str, ctx: ToolContext, content: str = "", kind: str = "report") -> Any:
    """Keep a text."""
    return (await ctx.artifacts.tag(kind=kind, key=key, content=content)).to_wire()


@tool
async def mine(ctx: ToolContext) -> list[str]:
    """List what there is."""
    return [artifact.key for artifact in await ctx.artifacts.list()]


async def script(turn: Turn) -> str:
    """``tag K`` calls the model's tool; ``keep K`` the agent's own; else echo."""
    words = turn.prompt.text.split()
    if words[0] == "tag":
        data = {"severity": "3"}
        call = ToolCall(
            f"{turn.id}.c", "tag_artifact", {"kind": "report", "key": words[1], "data": data}
        )
        (result,) = await turn.call_tools([call])
        return f"{result.code} {result.output}" if result.is_error else "tagged"
    if words[0] == "keep":
        given = {"key": words[1], "content": turn.prompt.text}
        (result,) = await turn.call_tools([ToolCall(f"{turn.id}.c", "keep", given)])
        assert not result.is_error, result
    return turn.prompt.text


def shared(request: AuthRequest) -> Principal | None:
    """Admit whoever knows the room's word, each as somebody of the room."""
    if request.headers.get("x-room") is None:
        return None
    return Principal("member", request.headers.get("x-user", "?"))


def room() -> Channel:
    """Return a channel whose sessions are everybody's that it admits."""
    channel = Channel(auth=[shared], owner="channel")
    channel_started: list[str] = []

    @channel.post("/say")
    async def say(ctx: RouteContext, body: dict[str, str]) -> Accepted:
        return Accepted(await ctx.send(body["text"], continuation_token=body["to"]))

    @channel.post("/upload")
    async def upload(ctx: RouteContext, body: dict[str, str]) -> dict[str, Any]:
        made = await ctx.artifacts.tag(
            kind="report", key=body["key"], content=body["text"], session_id=body.get("sessionId")
        )
        listed = await ctx.artifacts.list(session_id=body.get("sessionId"))
        return {"made": made.to_wire(), "keys": [artifact.key for artifact in listed]}

    @channel.on("message.completed")
    async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
        if event.data.text == "summarise":
            await ctx.artifacts.tag(key="summary", kind="report", content=event.data.text)

    @channel.on("artifact.tagged")
    async def tagged(event: Event[ArtifactTagged], ctx: EventContext) -> None:
        found = await ctx.artifacts.get(event.data.artifact_id)
        channel_started.append(found.key if found is not None else "?")

    class Room(Channel):
        pass

    async def on_start(ctx: Context) -> None:
        await ctx.artifacts.tag(kind="report", key="welcome", content="hello")

    channel.on_start = on_start  # type: ignore[method-assign]
    channel.seen = channel_started  # type: ignore[attr-defined]
    return channel


def subject(**options: Any) -> Agent:
    made = agent(
        harness=Scripted(script, model="scripted"),
        artifacts=Artifacts(
            kinds={
                "report": Kind("What happened.", schema=None),
                "note": Kind("A note.", schema=Note),
            },
            agent_tool=True,
            max=50,
        ),
        **options,
    )
    return Agent(**{**vars(made), "tools": [*made.tools, keep, mine]})


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, subject()) as running:
        yield running


async def kept(served: Served, key: str = "k", user: str = "ann", **body: Any) -> dict[str, Any]:
    """Keep a text by a direct call; return the record."""
    status, answer = await served.ask(
        "POST", "/v1/tools/keep", {"input": {"key": key, "content": "text"}, **body}, user=user
    )
    assert (status, answer["ok"]) == (200, True), answer
    return dict(answer["result"])


async def keys(served: Served, query: str = "", user: str = "ann", **headers: str) -> list[str]:
    status, answer = await served.ask("GET", f"/v1/artifacts{query}", user=user, headers=headers)
    assert status == 200, answer
    return [artifact["key"] for artifact in answer["artifacts"]]


# Records


async def test_a_record(served: Served) -> None:
    first = await served.start("keep INC-1")
    await served.rest(first["sessionId"])
    status, answer = await served.ask("GET", "/v1/artifacts")
    assert status == 200
    (record,) = answer["artifacts"]
    assert record == {
        "id": record["id"],
        "kind": "report",
        "key": "INC-1",
        "sessionId": first["sessionId"],
        "createdAt": record["createdAt"],
        "updatedAt": record["updatedAt"],
        "size": 10,
        "contentType": "text/plain",
        "contentUrl": f"{served.host.base_url}/bot/v1/artifacts/{record['id']}/content",
    }
    assert await served.ask("GET", f"/v1/artifacts/{record['id']}") == (200, record)
    assert await served.ask("GET", f"/v1/artifacts/{record['id']}/content") == (200, "keep INC-1")
    tagged = [e for e in await served.events(first["sessionId"]) if e["type"] == "artifact.tagged"]
    assert [e["data"]["artifactId"] for e in tagged] == [record["id"]]
    types = [e["type"] for e in await served.events(first["sessionId"])]
    assert types.index("artifact.tagged") < types.index("action.result")


async def test_filters(served: Served) -> None:
    first, second = await served.start(), await served.start()
    for session in (first, second):
        await served.rest(session["sessionId"])
    await kept(served, "a", sessionId=first["sessionId"])
    await kept(served, "b", sessionId=second["sessionId"])
    await kept(served, "c")
    assert await keys(served) == ["c", "b", "a"]
    await kept(served, "a", sessionId=first["sessionId"])
    assert await keys(served) == ["a", "c", "b"]
    assert await keys(served, "?limit=2") == ["a", "c"]
    assert await keys(served, f"?sessionId={second['sessionId']}") == ["b"]
    assert await keys(served, "?kind=note") == []
    assert await keys(served, f"?kind=report&limit=1&sessionId={first['sessionId']}") == ["a"]
    for limit in ("0", "-1", "x", "1.5", ""):
        status, answer = await served.ask("GET", f"/v1/artifacts?limit={limit}")
        assert (status, answer["error"]) == (400, "invalid_request"), limit


async def test_another_callers_are_not_there(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    record = await kept(served, sessionId=first["sessionId"])
    free = await kept(served, "free")
    assert await keys(served, user="bob") == []
    assert await keys(served, user="root") == ["free", "k"]
    by_session = f"/v1/artifacts?sessionId={first['sessionId']}"
    routes = [("GET", by_session)]
    for made in (record, free):
        path = f"/v1/artifacts/{made['id']}"
        routes += [("GET", path), ("DELETE", path), ("GET", f"{path}/content")]
    for method, path in routes:
        status, answer = await served.ask(method, path, user="bob")
        assert (status, answer["error"]) == (403, "forbidden"), path
        assert (await served.ask(method, path, user=None))[0] == 401
    for path in ("/v1/artifacts/art_x", "/v1/artifacts/art_x/content", "/v1/artifacts?sessionId=x"):
        assert (await served.ask("GET", path))[0] == 404
    assert (await served.ask("DELETE", f"/v1/artifacts/{free['id']}", user="root"))[0] == 403
    assert (await served.ask("DELETE", f"/v1/artifacts/{free['id']}"))[0] == 200
    assert (await served.ask("GET", f"/v1/artifacts/{free['id']}"))[0] == 404
    assert await keys(served) == ["k"]


async def test_they_outlive_their_session(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    record = await kept(served, sessionId=first["sessionId"])
    assert (await served.ask("DELETE", f"/v1/session/{first['sessionId']}"))[0] == 200
    query = f"?sessionId={first['sessionId']}"
    assert await keys(served, query) == ["k"]
    assert (await served.ask("GET", f"/v1/artifacts/{record['id']}/content")) == (200, "text")
    status, answer = await served.ask("GET", f"/v1/artifacts{query}", user="bob")
    assert (status, answer["error"]) == (403, "forbidden")


async def test_info_names_the_kinds(served: Served) -> None:
    _, answer = await served.ask("GET", "/v1/info")
    found = answer["artifacts"]
    assert [kind["name"] for kind in found["kinds"]] == ["report", "note"]
    assert (found["agentTool"], found["max"]) == (True, 50)


# Tools


async def test_a_tool_sees_its_owners(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    await kept(served, "free")
    await kept(served, "bobs", user="bob")
    bound = {"input": {}, "sessionId": first["sessionId"]}
    _, answer = await served.ask("POST", "/v1/tools/mine", bound)
    assert answer["result"] == ["free"]
    _, answer = await served.ask("POST", "/v1/tools/mine", {"input": {}}, user="bob")
    assert answer["result"] == ["bobs"]


async def test_a_kind_that_is_not_declared_is_the_calls_error(served: Served) -> None:
    body = {"input": {"key": "k", "kind": "other"}}
    status, answer = await served.ask("POST", "/v1/tools/keep", body)
    assert (status, answer["error"]) == (200, "tool_failed")
    assert 'no kind of artifact "other"' in answer["message"]


async def test_the_models_tool(served: Served) -> None:
    status, shown = await served.ask("GET", "/v1/tools/tag_artifact")
    assert status == 200
    assert "- report: What happened." in shown["description"]
    schema = shown["inputSchema"]
    assert schema["required"] == ["kind", "key"]
    assert schema["properties"]["kind"]["enum"] == ["report", "note"]
    referred = schema["properties"]["data"]["anyOf"][1]["properties"]["author"]["anyOf"][0]["$ref"]
    assert set(schema["$defs"]) == {referred.removeprefix("#/$defs/")}
    first = await served.start("tag INC-2")
    events = await served.rest(first["sessionId"])
    assert [e["data"]["text"] for e in events if e["type"] == "message.completed"] == ["tagged"]
    (call,) = [e["data"]["calls"][0] for e in events if e["type"] == "actions.requested"]
    assert (call["toolName"], call["effect"]) == ("tag_artifact", "write")
    assert await keys(served, f"?sessionId={first['sessionId']}") == ["INC-2"]


async def call(served: Served, session: dict[str, Any] | None, **given: Any) -> tuple[int, Any]:
    body: dict[str, Any] = {"input": {"kind": "report", "key": "k", **given}}
    if session is not None:
        body["sessionId"] = session["sessionId"]
    return await served.ask("POST", "/v1/tools/tag_artifact", body)


async def test_the_models_tool_takes_a_file_of_the_workspace(
    served: Served, tmp_path: Path
) -> None:
    files = {"out/report.csv": "a,b\n", "big": "x"}
    first = await served.start(workspaceFiles=files)
    await served.rest(first["sessionId"])
    folder = served.state / "sessions" / first["sessionId"] / "workspace"
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    status, answer = await call(served, first, workspacePath="out/report.csv")
    assert (status, answer["ok"]) == (200, True)
    assert answer["result"]["filename"] == "report.csv"
    path = f"/v1/artifacts/{answer['result']['id']}/content"
    assert await served.ask("GET", path) == (200, "a,b\n")
    for wrong in (
        {"workspacePath": "link"},
        {"workspacePath": "../session.json"},
        {"workspacePath": str(tmp_path / "secret")},
        {"workspacePath": str(folder / "big")},
        {"workspacePath": "missing"},
        {"workspacePath": "big", "content": "too"},
    ):
        status, answer = await call(served, first, **wrong)
        assert (status, answer["error"]) == (200, "tool_failed"), wrong
    assert await served.ask("GET", path) == (200, "a,b\n")


async def test_the_models_tool_checks_its_input(served: Served) -> None:
    for wrong, said in (
        ({"kind": "other"}, 'no kind of artifact "other"'),
        ({"kind": "note", "data": {"author": {}}}, "author.severity: Field required"),
        ({"more": 1}, "more"),
    ):
        status, answer = await call(served, None, **wrong)
        assert (status, answer["error"]) == (400, "invalid_input"), answer
        assert said in answer["message"]
    given = {"kind": "note", "data": {"author": {"severity": "3"}}, "content": "text"}
    status, answer = await call(served, None, **given)
    assert (status, answer["ok"]) == (200, True), answer
    assert "data" not in answer["result"]
    _, record = await served.ask("GET", f"/v1/artifacts/{answer['result']['id']}")
    assert record["data"] == {"author": {"severity": 3, "status": "open"}}


async def test_a_dry_run_says_what_it_would_be(served: Served) -> None:
    body = {"input": {"kind": "report", "key": "k", "content": "text"}, "dryRun": True}
    status, answer = await served.ask("POST", "/v1/tools/tag_artifact", body)
    assert (status, answer["ok"]) == (200, True), answer
    assert (answer["result"]["dryRun"], answer["result"]["size"]) == (True, 4)
    body["input"] |= {"kind": "other"}  # type: ignore[operator]
    assert (await served.ask("POST", "/v1/tools/tag_artifact", body))[0] == 400
    first = await served.start("tag INC-3", dryRun=True)
    events = await served.rest(first["sessionId"])
    assert "artifact.tagged" not in [e["type"] for e in events]
    assert await keys(served) == []


async def test_there_is_no_such_tool_unless_it_is_wanted(tmp_path: Path) -> None:
    kinds = {"report": Kind("What happened.")}
    async with serve(tmp_path, agent(artifacts=Artifacts(kinds=kinds))) as served:
        assert (await served.ask("GET", "/v1/tools/tag_artifact"))[0] == 404


# Downloads


async def download(served: Served, artifact_id: str, **headers: str) -> tuple[int, Any, bytes]:
    url = f"{served.host.local_url}{served.prefix}/v1/artifacts/{artifact_id}/content"
    sent = {"x-user": "ann", **headers}
    async with served.client.get(url, headers=sent) as response:
        return response.status, response.headers, await response.read()


async def tagged(served: Served, content: Any, **options: Any) -> str:
    """Tag as Ann; return the id."""
    from threadline.agent.shelf import Place

    place = Place(Principal("user", "ann"))
    made = served.runtime.shelf.at(place, lambda *_: place)
    artifact = await made.tag(key="k", kind="report", content=content, **options)
    return str(artifact.id)


PAGE = b"<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("options", "served_as"),
    [
        ({"filename": "a.html"}, "application/octet-stream"),
        ({"content_type": "text/html; charset=utf-8"}, "application/octet-stream"),
        ({"content_type": "TEXT/HTML"}, "application/octet-stream"),
        ({"filename": "a.svg"}, "application/octet-stream"),
        ({"content_type": "application/xhtml+xml"}, "application/octet-stream"),
        ({"content_type": "text/xml"}, "application/octet-stream"),
        ({"content_type": "text/javascript"}, "application/octet-stream"),
        ({"content_type": "multipart/x-mixed-replace"}, "application/octet-stream"),
        ({"content_type": "made/up"}, "application/octet-stream"),
        ({}, "application/octet-stream"),
        ({"filename": "a.csv"}, "text/csv; charset=utf-8"),
        ({"content_type": "text/plain; charset=latin-1"}, "text/plain; charset=latin-1"),
        ({"filename": "a.pdf"}, "application/pdf"),
        ({"filename": "a.PNG"}, "image/png"),
        (
            {"filename": "a.xlsx"},
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        ),
    ],
)
async def test_nothing_runs_in_this_origin(
    served: Served, options: dict[str, str], served_as: str
) -> None:
    status, headers, body = await download(served, await tagged(served, PAGE, **options))
    assert (status, body) == (200, PAGE)
    assert headers["Content-Type"] == served_as
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("sandbox")
    assert headers["Content-Disposition"].startswith("attachment; ")
    assert "no-cache" in headers["Cache-Control"]


@pytest.mark.parametrize(
    ("options", "disposition"),
    [
        ({"filename": "a b.csv"}, "attachment; filename=\"a b.csv\"; filename*=UTF-8''a%20b.csv"),
        (
            {"filename": 'ä"x.csv'},
            "attachment; filename=\"__x.csv\"; filename*=UTF-8''%C3%A4%22x.csv",
        ),
        (
            {"filename": "\u202etxt.exe"},
            "attachment; filename=\"_txt.exe\"; filename*=UTF-8''_txt.exe",
        ),
        ({"content_type": "text/csv"}, "attachment; filename=\"k.csv\"; filename*=UTF-8''k.csv"),
        ({}, "attachment; filename=\"k.bin\"; filename*=UTF-8''k.bin"),
    ],
)
async def test_a_downloads_name(served: Served, options: dict[str, str], disposition: str) -> None:
    _, headers, _ = await download(served, await tagged(served, b"x", **options))
    assert headers["Content-Disposition"] == disposition


async def test_ranges_and_repeated_requests(served: Served) -> None:
    content = bytes(range(256)) * 4096
    artifact_id = await tagged(served, content)
    status, headers, body = await download(served, artifact_id)
    assert (status, body == content) == (200, True)
    tag = headers["ETag"]
    status, headers, body = await download(served, artifact_id, Range="bytes=256-511")
    assert (status, body) == (206, bytes(range(256)))
    assert headers["Content-Range"] == f"bytes 256-511/{len(content)}"
    assert headers["Content-Disposition"].startswith("attachment")
    status, _, body = await download(served, artifact_id, **{"If-None-Match": tag})
    assert (status, body) == (304, b"")
    await tagged(served, b"other")
    status, _, body = await download(served, artifact_id, **{"If-None-Match": tag})
    assert (status, body) == (200, b"other")


async def test_there_is_nothing_to_download(served: Served) -> None:
    artifact_id = await tagged(served, None)
    status, answer = await served.ask("GET", f"/v1/artifacts/{artifact_id}/content")
    assert (status, answer["error"]) == (404, "not_found")
    artifact_id = await tagged(served, b"x")
    for path in (served.state / "artifacts").iterdir():
        path.unlink()
    assert (await served.ask("GET", f"/v1/artifacts/{artifact_id}/content"))[0] == 404


async def test_empty_content_is_content(served: Served) -> None:
    artifact_id = await tagged(served, b"")
    _, record = await served.ask("GET", f"/v1/artifacts/{artifact_id}")
    assert record["size"] == 0
    assert (await download(served, artifact_id))[0] == 200


# Channels


async def test_a_channels_artifacts_are_for_whom_it_admits(tmp_path: Path) -> None:
    channel = room()
    async with serve(tmp_path, subject(channels={"room": channel})) as served:
        assert await keys(served, user="bob") == []
        assert await keys(served, user="bob", **{"x-room": "1"}) == ["welcome"]
        inside = {"x-room": "1"}
        say = {"text": "summarise", "to": "t"}
        status, answer = await served.ask(
            "POST", "/v1/channels/room/say", say, headers=inside, user="ann"
        )
        assert status == 202
        session_id = answer["sessionId"]

        async def summarised() -> bool:
            return "summary" in await keys(served, user="root")

        await until(summarised)
        found = f"/v1/artifacts?sessionId={session_id}"
        assert await keys(served, found.removeprefix("/v1/artifacts"), user="bob", **inside) == [
            "summary"
        ]
        assert (await served.ask("GET", found, user="bob"))[0] == 403
        (record,) = (await served.ask("GET", found, user="bob", headers=inside))[1]["artifacts"]
        content = f"/v1/artifacts/{record['id']}/content"
        assert await served.ask("GET", content, user="bob", headers=inside) == (200, "summarise")
        assert (await served.ask("GET", content, user="bob"))[0] == 403
        await until(lambda: channel.seen == ["summary"])  # type: ignore[attr-defined]

        upload = {"key": "up", "text": "uploaded"}
        status, answer = await served.ask(
            "POST", "/v1/channels/room/upload", upload, headers=inside
        )
        assert (status, answer["keys"]) == (200, ["up", "summary", "welcome"])
        assert "sessionId" not in answer["made"]
        upload |= {"sessionId": session_id, "key": "in"}
        status, answer = await served.ask(
            "POST", "/v1/channels/room/upload", upload, headers=inside
        )
        assert (status, answer["keys"]) == (200, ["in", "summary"])
        own = await served.start()
        await served.rest(own["sessionId"])
        upload |= {"sessionId": own["sessionId"]}
        status, answer = await served.ask(
            "POST", "/v1/channels/room/upload", upload, headers=inside
        )
        assert (status, answer["error"]) == (403, "forbidden")


async def test_a_channel_may_widen_who_reads(tmp_path: Path) -> None:
    class Open(Channel):
        def may(self, principal: Principal, session: SessionRecord, action: Action) -> bool:
            return principal.id == "friend" or super().may(principal, session, action)

    channel = Open(auth=[shared])

    @channel.post("/say")
    async def say(ctx: RouteContext, body: dict[str, str]) -> Accepted:
        return Accepted(await ctx.send(body["text"], continuation_token=body["to"]))

    async with serve(tmp_path, subject(channels={"open": channel})) as served:
        inside = {"x-room": "1"}
        body = {"text": "keep k", "to": "t"}
        status, _ = await served.ask("POST", "/v1/channels/open/say", body, headers=inside)
        assert status == 202

        async def stored() -> bool:
            return await keys(served, user="root") == ["k"]

        await until(stored)
        assert await keys(served, user="friend", **inside) == ["k"]
        assert await keys(served, user="bob", **inside) == []


async def test_what_a_crash_kept_from_the_log_is_told_at_the_next_start(tmp_path: Path) -> None:
    async with serve(tmp_path, subject()) as served:
        first = await served.start("keep k")
        await served.rest(first["sessionId"])
        database = served.state / "threadline.db"
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE artifacts SET told = 0")
    async with serve(tmp_path, subject()) as served:
        events = await served.events(first["sessionId"])
        assert [e["type"] for e in events].count("artifact.tagged") == 2
        assert "turnId" not in events[-1]


async def test_they_are_there_after_a_restart(tmp_path: Path) -> None:
    async with serve(tmp_path, subject()) as served:
        record = await kept(served)
    async with serve(tmp_path, subject()) as served:
        assert await keys(served) == ["k"]
        assert await served.ask("GET", f"/v1/artifacts/{record['id']}/content") == (200, "text")
