"""What a channel may declare, and what is refused when it is declared."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from threadline import Channel, ChannelEventHandlers, Event, EventContext, NudgeDelivered, Route
from threadline.auth import anonymous
from threadline.channel.channel import check_channel
from threadline.channel.context import RouteContext
from threadline.channel.tokens import any_string, matching, rotating
from threadline.errors import InvalidRequest


async def handler(ctx: RouteContext) -> None: ...


def test_defaults() -> None:
    channel = Channel()
    channel.id = "tickets"
    assert len(channel.auth) == 1
    assert channel.prefix == "/v1/channels/tickets"
    assert (channel.admission, channel.owner) == ("preempt", "caller")
    assert Channel(auth=[]).auth == []


def test_routes_are_declared_by_decorators_and_by_the_constructor() -> None:
    channel = Channel(auth=[anonymous()], routes=[Route("GET", "/given", handler, "Given.")])
    for method in ("get", "post", "put", "patch", "delete"):
        getattr(channel, method)("/x/:id")(handler)
    found = [(route.method, route.path) for route in channel.routes]
    assert found == [
        ("GET", "/given"),
        ("GET", "/x/{id}"),
        ("POST", "/x/{id}"),
        ("PUT", "/x/{id}"),
        ("PATCH", "/x/{id}"),
        ("DELETE", "/x/{id}"),
    ]
    assert check_channel(channel) == {}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"admission": "queue"}, "admission must be"),
        ({"owner": "team"}, "owner must be"),
        ({"mount": "v1"}, "mount must be a path"),
        ({"mount": "/v1/"}, "mount must be a path"),
        ({"mount": "/v1/{x}"}, "mount must be a path"),
        ({"events": {"message.recieved": handler}}, "There is no event"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Channel(**options)


def test_bad_routes_are_refused() -> None:
    channel = Channel()
    channel.get("/a/{x}")(handler)
    with pytest.raises(ValueError, match="declared twice"):
        channel.get("/a/:x")(handler)
    with pytest.raises(ValueError, match="begins with '/'"):
        channel.get("a")(handler)


def test_what_cannot_be_served_is_named() -> None:
    channel = Channel()

    def plain(ctx: RouteContext) -> None: ...

    async def no_context() -> None: ...

    async def more(ctx: RouteContext, id: str) -> None: ...  # noqa: A002

    async def bad_query(ctx: RouteContext, query: dict[str, str]) -> None: ...

    for number, wrong in enumerate((plain, no_context, more, bad_query)):
        channel.post(f"/{number}")(wrong)  # type: ignore[type-var]
    problems = check_channel(channel)
    assert "async def" in problems["POST /0"]
    assert "must take a context" in problems["POST /1"]
    assert "takes id" in problems["POST /2"]
    assert "query must be a pydantic model" in problems["POST /3"]


def test_event_handlers_are_typed_and_async() -> None:
    seen: list[str] = []

    async def nudged(event: Event[NudgeDelivered], ctx: EventContext) -> None:
        seen.append(event.data.text)

    events: ChannelEventHandlers = {"nudge.delivered": nudged}
    channel = Channel(events=events)
    assert set(channel.events) == {"nudge.delivered"}

    with pytest.raises(TypeError, match="must be 'async def'"):

        @channel.on("turn.failed")  # type: ignore[type-var]
        def plain(event: Event[Any]) -> None: ...


def test_token_formats() -> None:
    any_string().check("anything at all")
    tickets = matching(r"ticket/v1:\d+", example="ticket/v1:7")
    tickets.check("ticket/v1:12")
    for token in ("ticket/v1:", "x ticket/v1:1", "", "a\nb", "x" * 501, 5, None):
        with pytest.raises(InvalidRequest):
            tickets.check(token)  # type: ignore[arg-type]
    rotating().check(None)


class Body(BaseModel):
    n: int = 0


async def optional_body(ctx: RouteContext, body: Body | None = None) -> None: ...


def test_a_body_with_a_default_is_optional() -> None:
    route = Route("POST", "/", optional_body)
    assert route.body_optional
    assert route.body is not None
    assert not Route("POST", "/", handler).body_optional
