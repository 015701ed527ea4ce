"""Start, follow up, stop, list, cost, delete: the wire contract over a real socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.host.serving import Gate, Served, agent, serve, until

from threadline.testing.laws import check_laws

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture(params=["multi", "single"])
async def served(
    request: pytest.FixtureRequest, tmp_path: Path, gate: Gate
) -> AsyncIterator[Served]:
    async with serve(tmp_path, agent(gate), mode=request.param) as running:
        yield running


async def test_a_start_answers_with_everything_to_go_on(served: Served) -> None:
    status, answer = await served.ask("POST", "/v1/session", {"message": "hi", "title": "A title"})
    session = answer["sessionId"]
    base = served.host.base_url + served.prefix
    assert status == 200
    assert answer == {
        "ok": True,
        "sessionId": session,
        "continuationToken": answer["continuationToken"],
        "deliveryId": answer["deliveryId"],
        "admitted": "started",
        "playgroundUrl": f"{base}/playground?sessionId={session}",
        "traceUrl": f"{base}/v1/session/{session}/events",
    }
    assert session.startswith("ses_")
    assert answer["continuationToken"].startswith("http:")
    assert answer["deliveryId"].startswith("dlv_")
    events = await served.rest(session)
    assert events[0]["data"]["title"] == "A title"
    assert events[0]["data"]["principal"] == {"kind": "user", "id": "ann"}
    log = (served.state / "sessions" / session / "events.ndjson").read_bytes()
    check_laws(log, [answer["deliveryId"]])


async def test_the_state_lies_where_the_layout_says(served: Served, tmp_path: Path) -> None:
    await served.start()
    assert served.state == (tmp_path / "bot" if served.prefix else tmp_path)


async def test_a_follow_up_rotates_the_token(served: Served) -> None:
    first = await served.start()
    await served.rest(first["sessionId"])
    status, second = await served.follow_up(first, "again")
    assert (status, second["admitted"]) == (200, "started")
    assert second["sessionId"] == first["sessionId"]
    assert second["continuationToken"] != first["continuationToken"]
    assert second["playgroundUrl"] == first["playgroundUrl"]
    status, stale = await served.follow_up(first, "too late")
    assert (status, stale["error"]) == (409, "stale_token")
    assert not stale["ok"]
    assert stale["message"]
    await served.rest(first["sessionId"], 2)


async def test_of_two_follow_ups_with_one_token_one_is_taken(served: Served) -> None:
    for _ in range(5):
        first = await served.start()
        answers = await asyncio.gather(*(served.follow_up(first, f"n{n}") for n in range(2)))
        assert sorted(status for status, _ in answers) == [200, 409]
        assert [a["error"] for s, a in answers if s == 409] == ["stale_token"]


async def test_a_busy_session_is_preempted_by_default(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    status, second = await served.follow_up(first, "rather this")
    assert (status, second["admitted"]) == (200, "preempted")
    events = await served.rest(first["sessionId"], 2)
    failed = next(e["data"] for e in events if e["type"] == "turn.failed")
    assert (failed["status"], failed["code"]) == ("cancelled", "preempted")
    assert failed["message"] == "turn interrupted"


async def test_a_follow_up_may_coalesce(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    status, second = await served.follow_up(first, "this too", admission="coalesce")
    assert (status, second["admitted"]) == (200, "queued")
    gate.release()
    events = await served.rest(first["sessionId"])
    nudge = next(e["data"] for e in events if e["type"] == "nudge.delivered")
    assert (nudge["deliveryId"], nudge["text"]) == (second["deliveryId"], "this too")


@pytest.mark.parametrize("way", ["body", "header", "both"])
async def test_a_repeated_delivery_gets_the_first_answer(served: Served, way: str) -> None:
    body: dict[str, Any] = {"message": "once"}
    headers = {"idempotency-key": "wh 1/2"} if way != "body" else {}
    if way != "header":
        body["deliveryId"] = "wh 1/2"
    answers = [await served.ask("POST", "/v1/session", body, headers=headers) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 200, 200]
    first, *others = (answer for _, answer in answers)
    assert first["deliveryId"] == "wh 1/2"
    assert others == [{**first, "admitted": "duplicate"}] * 2
    await served.rest(first["sessionId"])
    assert len((await served.ask("GET", "/v1/sessions"))[1]["sessions"]) == 1

    follow = {"message": "two", "continuationToken": first["continuationToken"], "deliveryId": "f"}
    path = f"/v1/session/{first['sessionId']}"
    once = (await served.ask("POST", path, follow))[1]
    status, again = await served.ask("POST", path, follow)
    assert (status, again) == (200, {**once, "admitted": "duplicate"})
    events = await served.rest(first["sessionId"], 2)
    received = [e["data"]["deliveryIds"] for e in events if e["type"] == "message.received"]
    assert received == [["wh 1/2"], ["f"]]


async def test_a_delivery_id_belongs_to_one_message(served: Served) -> None:
    first = await served.start("one", deliveryId="d")
    status, other = await served.ask("POST", "/v1/session", {"message": "two", "deliveryId": "d"})
    assert (status, other["error"]) == (409, "delivery_conflict")
    # The same text to the same session is the same delivery, by whichever route it comes.
    status, other = await served.follow_up(first, "one", deliveryId="d")
    assert (status, other["admitted"]) == (200, "duplicate")
    bob = await served.start("two", user="bob", deliveryId="d")
    assert bob["admitted"] == "started"


async def test_two_names_for_one_delivery_are_refused(served: Served) -> None:
    body = {"message": "hi", "deliveryId": "a"}
    headers = {"idempotency-key": "b"}
    status, answer = await served.ask("POST", "/v1/session", body, headers=headers)
    assert (status, answer["error"]) == (400, "invalid_request")
    assert (await served.ask("GET", "/v1/sessions"))[1] == {"sessions": []}


async def test_stop_interrupts_and_the_session_goes_on(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    path = f"/v1/session/{first['sessionId']}/stop"
    status, answer = await served.ask("POST", path)
    assert (status, answer["stopped"]) == (200, True)
    events = await served.rest(first["sessionId"])
    assert events[-2]["data"]["code"] == "stopped"
    assert (await served.ask("POST", path, {}))[1]["stopped"] is False
    assert (await served.ask("POST", path, {"clearPending": False}))[0] == 200
    assert len(await served.events(first["sessionId"])) == len(events)
    assert (await served.follow_up(first, "go on"))[0] == 200
    await served.rest(first["sessionId"], 2)


async def test_stop_can_clear_what_waits(served: Served, gate: Gate) -> None:
    first = await served.start("work")
    await gate.held()
    _, waiting = await served.follow_up(first, "wait", admission="coalesce", deliveryId="w")
    path = f"/v1/session/{first['sessionId']}/stop"
    await served.ask("POST", path, {"clearPending": True})
    events = await served.rest(first["sessionId"])
    cleared = next(e["data"] for e in events if e["type"] == "deliveries.cleared")
    assert cleared["deliveryIds"] == ["w"]
    assert (await served.ask("GET", "/v1/deliveries/w"))[1]["state"] == "cleared"
    assert waiting["admitted"] == "queued"


async def test_the_list_is_the_callers_own_newest_first(served: Served) -> None:
    mine = [await served.start(f"n{n}", title=f"t{n}") for n in range(3)]
    theirs = await served.start(user="bob")
    status, body = await served.ask("GET", "/v1/sessions")
    assert status == 200
    assert {s["sessionId"] for s in body["sessions"]} == {a["sessionId"] for a in mine}
    await served.rest(mine[0]["sessionId"])
    one = (await served.ask("GET", f"/v1/sessions?sessionId={mine[0]['sessionId']}"))[1]
    (shown,) = one["sessions"]
    assert shown == {
        "sessionId": mine[0]["sessionId"],
        "channel": "http",
        "mode": "chat",
        "status": "waiting",
        "createdAt": shown["createdAt"],
        "principal": {"kind": "user", "id": "ann"},
        "title": "t0",
    }
    assert len((await served.ask("GET", "/v1/sessions?limit=2"))[1]["sessions"]) == 2
    other = f"/v1/sessions?sessionId={theirs['sessionId']}"
    assert (await served.ask("GET", other))[0] == 403
    assert (await served.ask("GET", "/v1/sessions?sessionId=ses_none"))[0] == 404
    assert (await served.ask("GET", "/v1/sessions", user="cat"))[1] == {"sessions": []}


async def test_the_lists_limit_is_checked(served: Served) -> None:
    for limit in ("0", "-1", "x", "1001", ""):
        assert (await served.ask("GET", f"/v1/sessions?limit={limit}"))[0] == 400


async def test_cost_lists_the_turns(served: Served) -> None:
    first = await served.start("one two")
    await served.rest(first["sessionId"])
    await served.follow_up(first, "three")
    await served.rest(first["sessionId"], 2)
    status, cost = await served.ask("GET", f"/v1/session/{first['sessionId']}/cost")
    events = await served.events(first["sessionId"])
    ended = [e for e in events if e["type"] == "turn.completed"]
    assert status == 200
    assert cost["sessionId"] == first["sessionId"]
    assert [t["turnId"] for t in cost["turns"]] == [e["turnId"] for e in ended]
    assert all(turn["costUsd"] is None for turn in cost["turns"])
    counted = sum(turn["usage"]["outputTokens"] for turn in cost["turns"])
    assert cost["total"] == {
        "usage": {**cost["turns"][0]["usage"], "outputTokens": counted, "requests": 2},
        "costUsd": None,
    }


async def test_no_call_waits_for_an_approval(served: Served) -> None:
    first = await served.start()
    path = f"/v1/session/{first['sessionId']}/approvals/call_1"
    status, answer = await served.ask("POST", path, {"decision": "approved"})
    assert (status, answer["error"]) == (404, "not_found")
    assert (await served.ask("POST", path, {"decision": "maybe"}))[0] == 400


async def test_a_deleted_session_is_gone(served: Served) -> None:
    first = await served.start(deliveryId="d")
    path = f"/v1/session/{first['sessionId']}"
    await served.rest(first["sessionId"])
    assert (await served.ask("DELETE", path))[1]["deleted"] is True
    assert (await served.ask("DELETE", path))[0] == 404
    assert (await served.follow_up(first, "hello?"))[0] == 404
    for tail in ("/events", "/stream", "/cost"):
        assert (await served.ask("GET", path + tail))[0] == 404
    assert (await served.ask("POST", path + "/stop"))[0] == 404
    assert (await served.ask("GET", "/v1/sessions"))[1] == {"sessions": []}
    assert (await served.ask("GET", "/v1/deliveries/d"))[1]["state"] == "prompted"


async def test_what_the_log_said_outlives_a_deleted_session(tmp_path: Path, gate: Gate) -> None:
    async with serve(tmp_path, agent(gate)) as served:
        for number in range(3):
            first = await served.start("work", deliveryId=f"prompted {number}")
            await gate.held()
            body = {"admission": "coalesce", "deliveryId": f"waiting {number}"}
            await served.follow_up(first, "x", **body)
            await served.ask("DELETE", f"/v1/session/{first['sessionId']}")
            await until(lambda: not gate.waiting)
    async with serve(tmp_path, agent(gate)) as served:
        for number in range(3):
            for state in ("prompted", "waiting"):
                path = f"/v1/deliveries/{state}%20{number}"
                expected = "cleared" if state == "waiting" else state
                assert (await served.ask("GET", path))[1]["state"] == expected


async def test_a_folder_removed_by_hand_ends_everything(served: Served, gate: Gate) -> None:
    import shutil

    other = await served.start("other")
    idle = await served.start("idle")
    busy = await served.start("work")
    await gate.held()
    await served.rest(idle["sessionId"])
    ended = []

    async def follow(session: str) -> None:
        url = served.host.local_url + served.prefix + f"/v1/session/{session}/stream"
        async with served.client.get(url, headers={"x-user": "ann"}) as response:
            await response.content.readline()
            while await response.content.readline():
                pass
            ended.append(session)

    readers = [asyncio.create_task(follow(a["sessionId"])) for a in (idle, busy)]
    await until(lambda: len(served.runtime.store._heads) >= 3)
    for answer in (idle, busy):
        shutil.rmtree(served.state / "sessions" / answer["sessionId"])
    gate.release()
    await asyncio.wait_for(asyncio.gather(*readers), 10)
    for answer in (idle, busy):
        path = f"/v1/session/{answer['sessionId']}"
        assert (await served.ask("GET", path + "/events"))[0] == 404
        assert (await served.ask("POST", path + "/stop"))[0] == 404
        assert (await served.follow_up(answer, "hello?"))[0] == 404
        assert not (served.state / "sessions" / answer["sessionId"]).exists()
    (left,) = (await served.ask("GET", "/v1/sessions"))[1]["sessions"]
    assert left["sessionId"] == other["sessionId"]


async def test_the_local_developer_needs_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(auth=None)) as served:
        answer = await served.start(user="ignored")
        events = await served.rest(answer["sessionId"])
        assert events[0]["data"]["principal"]["kind"] == "local"
        proxied = {"x-forwarded-for": "127.0.0.1"}
        status, body = await served.ask("GET", "/v1/sessions", headers=proxied)
        assert (status, body["error"]) == (401, "unauthorized")


async def test_nobody_is_admitted_by_an_empty_chain(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(auth=[])) as served:
        for method, path in (("POST", "/v1/session"), ("GET", "/v1/info"), ("GET", "/v1/logs")):
            assert (await served.ask(method, path, {"message": "hi"}))[0] == 401


async def test_the_command_lines_token_replaces_the_chain(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(auth=None), bearer_token="t0p") as served:
        assert (await served.ask("GET", "/v1/sessions"))[0] == 401
        headers = {"authorization": "Bearer t0p"}
        assert (await served.ask("GET", "/v1/sessions", headers=headers))[0] == 200
    async with serve(tmp_path / "2", agent(auth=[]), allow_anonymous=True) as served:
        assert (await served.ask("GET", "/v1/sessions", headers={"via": "x"}))[0] == 200


async def test_under_dev_everything_can_be_read_on_this_machine(tmp_path: Path) -> None:
    async with serve(tmp_path, agent(), dev=True) as served:
        theirs = await served.start(user="bob", deliveryId="d")
        path = f"/v1/session/{theirs['sessionId']}"
        (shown,) = (await served.ask("GET", "/v1/sessions"))[1]["sessions"]
        assert shown["principal"]["id"] == "bob"
        assert (await served.ask("GET", path + "/events"))[0] == 200
        assert (await served.ask("GET", "/v1/deliveries/d"))[0] == 200
        assert (await served.follow_up(theirs, "me too"))[0] == 403
        assert (await served.ask("POST", path + "/stop"))[0] == 403
        proxied = {"x-forwarded-for": "192.0.2.1"}
        assert (await served.ask("GET", path + "/events", headers=proxied))[0] == 403


async def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    async with serve(tmp_path, agent()) as served:
        first = await served.start("one", deliveryId="d")
        before = await served.rest(first["sessionId"])
    async with serve(tmp_path, agent()) as served:
        assert await served.events(first["sessionId"]) == before
        status, again = await served.ask(
            "POST", "/v1/session", {"message": "one", "deliveryId": "d"}
        )
        assert (status, again["admitted"]) == (200, "duplicate")
        assert again["continuationToken"] == first["continuationToken"]
        assert (await served.follow_up(first, "two"))[0] == 200
        assert len(await served.rest(first["sessionId"], 2)) > len(before)
