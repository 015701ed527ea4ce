"""Direct calls over HTTP: dry runs, times, purposes, problems and what a tool attaches."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.host.serving import Gate, Served, agent, serve

from threadline import Approval, Content, Image, ToolContext, tool

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
PAST, LATER = "2025-01-31T12:00:00Z", "2025-01-31T12:00:01Z"


class Item(BaseModel):
    count: int


class Written(list[str]):
    """What writes have written."""


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture(params=["multi", "single"])
async def served(
    request: pytest.FixtureRequest, tmp_path: Path, written: Written
) -> AsyncIterator[Served]:
    @tool(effect="write", dry_run=lambda item: {"would send": item})
    def send(item: str) -> dict[str, str]:
        """Send an item."""
        written.append(item)
        return {"sent": item}

    @tool
    async def orders(since: datetime, items: list[Item] | None = None) -> list[str]:
        """List orders."""
        return [since.isoformat()]

    @tool
    async def about(ctx: ToolContext) -> dict[str, Any]:
        """Tell of the call."""
        return {"now": ctx.now().isoformat(), "purpose": ctx.purpose, "dryRun": ctx.dry_run}

    @tool
    async def graph(bad: bool = False) -> Content:
        """Draw."""
        return Content("A graph:", Image(PNG, name="g.png"), is_error=bad)

    approval = Approval(approvers=["group:sre"])
    restart = tool(effect="write", approval=approval, max_calls=2, name="restart")(
        lambda: written.append("restarted")
    )
    made = agent(Gate())
    object.__setattr__(made, "tools", [*made.tools, send, orders, about, graph, restart])
    async with serve(tmp_path, made, mode=request.param) as running:
        yield running


async def called(served: Served, name: str, **body: Any) -> tuple[int, dict[str, Any]]:
    status, answer = await served.ask("POST", f"/v1/tools/{name}", body)
    return status, dict(answer)


async def test_a_dry_run_does_not_write(served: Served, written: Written) -> None:
    status, answer = await called(served, "send", input={"item": "a"}, dryRun=True)
    assert status == 200
    assert answer == {
        "ok": True,
        "isError": False,
        "result": {"would send": "a"},
        "callId": answer["callId"],
        "toolName": "send",
        "dryRun": True,
    }
    assert written == []
    status, answer = await called(served, "send", input={"item": "a"}, dryRun=False)
    assert answer["result"] == {"sent": "a"}
    assert "dryRun" not in answer
    assert written == ["a"]


async def test_a_dry_run_reads(served: Served) -> None:
    _, answer = await called(served, "about", dryRun=True)
    assert (answer["result"]["dryRun"], answer["dryRun"]) == (True, True)


async def test_a_dry_runs_input_is_checked(served: Served) -> None:
    status, answer = await called(served, "send", input={}, dryRun=True)
    assert (status, answer["error"], answer["dryRun"]) == (400, "invalid_input", True)


async def test_a_dry_session_makes_its_calls_dry(served: Served, written: Written) -> None:
    first = await served.start(dryRun=True)
    await served.rest(first["sessionId"])
    for dry in (None, False, True):
        body = {"input": {"item": "a"}, "sessionId": first["sessionId"], "dryRun": dry}
        _, answer = await called(served, "send", **body)
        assert (answer["result"], answer["dryRun"]) == ({"would send": "a"}, True)
    assert written == []


async def test_as_of_is_the_tools_now(served: Served) -> None:
    _, answer = await called(served, "about", asOf="2025-01-31T13:00:00+01:00", purpose="eval")
    assert answer["result"] == {
        "now": "2025-01-31T12:00:00+00:00",
        "purpose": "eval",
        "dryRun": False,
    }


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"since": PAST, "items": []}, None),
        ({"since": LATER}, [{"path": "since", "message": "must not be later"}]),
        ({"since": "2025-01-31"}, [{"path": "since", "message": "must name its timezone"}]),
    ],
)
async def test_as_of_holds_for_the_arguments(
    served: Served, value: Any, problems: list[dict[str, str]] | None
) -> None:
    status, answer = await called(served, "orders", input=value, asOf=PAST)
    if problems is None:
        assert (status, answer["ok"]) == (200, True)
        return
    assert (status, answer["ok"], answer["error"]) == (400, False, "time_not_allowed")
    for found, expected in zip(answer["problems"], problems, strict=True):
        assert found["path"] == expected["path"]
        assert found["message"].startswith(expected["message"])
        assert expected["message"] in answer["message"]
    assert "2025-01-31T12:00:00.000Z" in answer["message"]


async def test_a_sessions_as_of_holds_for_its_calls(served: Served) -> None:
    first = await served.start(asOf=PAST)
    await served.rest(first["sessionId"])
    bound = {"sessionId": first["sessionId"]}
    status, answer = await called(served, "orders", input={"since": LATER}, **bound)
    assert (status, answer["error"]) == (400, "time_not_allowed")
    assert answer["problems"] == [{"path": "since", "message": "must not be later"}]
    _, answer = await called(served, "about", **bound)
    assert answer["result"]["now"] == "2025-01-31T12:00:00+00:00"
    _, answer = await called(served, "about", asOf="2024-01-01T00:00:00Z", **bound)
    assert answer["result"]["now"] == "2024-01-01T00:00:00+00:00"
    status, answer = await called(served, "about", asOf=LATER, **bound)
    assert (status, answer["error"]) == (409, "conflict")


@pytest.mark.parametrize(
    "as_of",
    [
        *("now", "2025-01-31", "2025-01-31T12:00:00", "", "9999-12-31T23:59:59Z", "x" * 500),
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", 5, True),
    ],
)
async def test_an_as_of_that_cannot_be(served: Served, as_of: Any) -> None:
    status, answer = await called(served, "about", asOf=as_of)
    assert (status, answer["error"]) == (400, "invalid_request")
    assert "asOf" in answer["message"]


async def test_problems_are_listed_beside_the_sentence(served: Served) -> None:
    value = {"items": [{"count": "x"}], "more": 1}
    status, answer = await called(served, "orders", input=value)
    assert (status, answer["error"]) == (400, "invalid_input")
    paths = [problem["path"] for problem in answer["problems"]]
    assert paths == ["since", "items.0.count", "more"]
    assert all(problem["message"] in answer["message"] for problem in answer["problems"])
    status, answer = await called(served, "orders", input=[])
    assert answer["problems"] == [{"path": "input", "message": "should be an object"}]


async def test_what_a_tool_attaches_is_in_the_answer(served: Served) -> None:
    _, answer = await called(served, "graph")
    part = {"type": "image", "mediaType": "image/png", "size": 16, "name": "g.png"}
    assert answer["result"] == {"content": [{"type": "text", "text": "A graph:"}, part]}
    assert answer["content"] == [{**part, "data": base64.b64encode(PNG).decode()}]
    status, answer = await called(served, "graph", input={"bad": True})
    assert (status, answer["ok"], answer["isError"]) == (200, False, True)
    assert (answer["error"], answer["message"]) == ("tool_error", "A graph:")
    assert len(answer["content"]) == 1


async def test_a_direct_call_waits_for_no_approval(served: Served, written: Written) -> None:
    for _ in range(3):
        assert (await called(served, "restart"))[1]["ok"]
    assert written == ["restarted"] * 3


async def test_one_tool_tells_all_its_rules(served: Served) -> None:
    _, answer = await served.ask("GET", "/v1/tools/restart")
    assert answer["approval"] == {"approvers": ["group:sre"], "expiresSeconds": 86400.0}
    assert (answer["maxCalls"], answer["dryRun"], answer["effect"]) == (2, "stubbed", "write")
    _, answer = await served.ask("GET", "/v1/tools/orders")
    assert (answer["timeArguments"], answer["dryRun"]) == (["since"], "runs")
    assert answer["outputSchema"] == {"type": "array", "items": {"type": "string"}}
    assert answer["execution"] == "server"


async def test_another_callers_session_is_not_to_be_called_in(served: Served) -> None:
    first = await served.start(user="bob")
    status, answer = await called(served, "about", sessionId=first["sessionId"])
    assert (status, answer["error"]) == (403, "forbidden")
    status, answer = await called(served, "about", sessionId="ses_none")
    assert (status, answer["error"]) == (404, "not_found")
    status, answer = await called(served, "about", continuationToken="http:none")
    assert (status, answer["error"]) == (409, "stale_token")
