"""What people think of an answer is an event of its session."""

from __future__ import annotations

from typing import Any

import pytest

from threadline import (
    Accepted,
    Channel,
    Event,
    EventContext,
    FeedbackGiven,
    Principal,
    RouteContext,
)
from threadline.channel.auth import AuthRequest
from threadline.testing import TestHost

ANN, BOB = Principal("user", "ann", "Ann"), Principal("user", "bob")


def by_name(request: AuthRequest) -> Principal | None:
    return {"ann": ANN, "bob": BOB}.get(request.headers.get("x-user", ""))


def desk(heard: list[FeedbackGiven]) -> Channel:
    channel = Channel(auth=[by_name])

    @channel.post("/say")
    async def say(ctx: RouteContext, body: str) -> Accepted:
        return Accepted(await ctx.send(body, continuation_token="t"))

    @channel.post("/rate/{session}")
    async def rate(ctx: RouteContext, body: dict[str, Any]) -> None:
        await ctx.feedback(ctx.params["session"], **body)

    @channel.on("feedback.given")
    async def given(event: Event[FeedbackGiven], ctx: EventContext) -> None:
        heard.append(event.data)

    return channel


async def ask(host: TestHost, path: str, body: Any, user: str = "ann") -> Any:
    return await host.post(f"/v1/channels/channel{path}", json=body, headers={"x-user": user})


async def test_feedback_is_an_event_that_is_there_when_it_is_answered() -> None:
    heard: list[FeedbackGiven] = []
    async with TestHost(lambda: desk(heard)) as host:
        session = host.session((await ask(host, "/say", "hi")).json()["sessionId"])
        await session.rest()
        turn = session.events("turn.completed")[0]["turnId"]
        said = {"rating": "negative", "turn_id": turn, "message_ref": "1.2", "comment": "Too long."}
        assert (await ask(host, f"/rate/{session.id}", said)).status == 200
        await host.kill()
        await host.start()
        (event,) = session.events("feedback.given")
        assert event["data"] == {
            "rating": "negative",
            "by": {"kind": "user", "id": "ann", "name": "Ann"},
            "turnId": turn,
            "messageRef": "1.2",
            "comment": "Too long.",
        }
        assert (await ask(host, "/say", "and now")).status == 202
        await session.rest()
        assert {one.rating for one in heard} == {"negative"}
        host.check_laws()


@pytest.mark.parametrize(
    ("body", "user", "status"),
    [
        ({"rating": "fine"}, "ann", 400),
        ({"rating": "positive", "comment": " "}, "ann", 400),
        ({"rating": "positive", "comment": "x" * 10_001}, "ann", 400),
        ({"rating": "positive"}, "bob", 403),
    ],
)
async def test_what_is_no_feedback_is_refused(body: dict[str, Any], user: str, status: int) -> None:
    async with TestHost(desk([])) as host:
        session = host.session((await ask(host, "/say", "hi")).json()["sessionId"])
        await session.rest()
        assert (await ask(host, f"/rate/{session.id}", body, user)).status == status
        assert not session.events("feedback.given")


async def test_there_is_no_feedback_on_what_is_not_there() -> None:
    async with TestHost(desk([])) as host:
        assert (await ask(host, "/rate/ses_none", {"rating": "positive"})).status == 404
