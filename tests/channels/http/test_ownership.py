"""Another's session: 403 on every route before the first byte; an unknown one is 404 for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.host.serving import Gate, Served, agent, by_header, serve, until

from threadline import Accepted, Channel, Event, EventContext, MessageReceived, Principal
from threadline.auth import AuthRequest, bearer
from threadline.channel.context import RouteContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from threadline.session.access import Action
    from threadline.store.base import SessionRecord

# method, path, body, and what the session's owner gets
ROUTES: list[tuple[str, str, Any, int]] = [
    ("POST", "/v1/session/{id}", {"message": "x", "continuationToken": "{token}"}, 200),
    ("GET", "/v1/session/{id}/stream?startIndex=0", None, 200),
    ("GET", "/v1/session/{id}/stream?startIndex=3", None, 200),
    ("GET", "/v1/session/{id}/stream?startIndex=99999", None, 409),
    ("GET", "/v1/session/{id}/events", None, 200),
    ("GET", "/v1/session/{id}/events?format=json", None, 200),
    ("POST", "/v1/session/{id}/stop", None, 200),
    ("GET", "/v1/session/{id}/cost", None, 200),
    ("GET", "/v1/session/{id}/blobs/blob_1", None, 404),
    ("POST", "/v1/session/{id}/approvals/c", {"decision": "approved"}, 404),
    ("GET", "/v1/sessions?sessionId={id}", None, 200),
    ("GET", "/v1/tools?session={id}", None, 200),
    ("POST", "/v1/tools/double", {"input": {"number": 1}, "sessionId": "{id}"}, 200),
    ("DELETE", "/v1/session/{id}", None, 200),
]
READS = {"GET"}


@pytest.fixture(params=["multi", "single"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, agent(), mode=request.param) as running:
        yield running


def filled(value: Any, **names: str) -> Any:
    if isinstance(value, dict):
        return {key: filled(item, **names) for key, item in value.items()}
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
    return value


async def status_of(served: Served, method: str, path: str, body: Any, user: str) -> int:
    """Return the status alone; a stream is not read."""
    url = served.host.local_url + served.prefix + path
    headers = {"x-user": user}
    async with served.client.request(method, url, json=body, headers=headers) as response:
        if response.status >= 400:
            assert response.content_type == "application/json"
            assert (await response.json())["ok"] is False
        return response.status


@pytest.mark.parametrize(("method", "path", "body", "own"), ROUTES)
async def test_every_route(served: Served, method: str, path: str, body: Any, own: int) -> None:
    first = await served.start("a secret", user="ann")
    await served.rest(first["sessionId"])
    log = await served.events(first["sessionId"])
    names = {"id": first["sessionId"], "token": first["continuationToken"]}
    path_, body_ = filled(path, **names), filled(body, **names)
    unknown = filled(path, id="ses_unknown"), filled(body, id="ses_unknown", token="http:x")

    for user in ("ann", "bob"):
        assert await status_of(served, method, unknown[0], unknown[1], user) == 404
    assert await status_of(served, method, path_, body_, "bob") == 403
    if "/tools/" in path or method not in READS:
        assert await status_of(served, method, path_, body_, "root") == 403
    else:
        assert await status_of(served, method, path_, body_, "root") == own
    assert await served.events(first["sessionId"]) == log
    assert await status_of(served, method, path_, body_, "ann") == own


async def test_a_token_alone_opens_nothing_to_others(served: Served) -> None:
    first = await served.start()
    token = first["continuationToken"]
    for method, path, body in (
        ("GET", f"/v1/tools?continuationToken={token}", None),
        ("POST", "/v1/tools/double", {"input": {"number": 1}, "continuationToken": token}),
    ):
        assert await status_of(served, method, path, body, "bob") == 403
        assert await status_of(served, method, path, body, "ann") in (200, 409)
        wrong = None if body is None else {**body, "continuationToken": "http:gone"}
        path = path.replace(token, "http:gone")
        assert await status_of(served, method, path, wrong, "ann") == 409


async def test_lists_and_deliveries_are_scoped(served: Served) -> None:
    first = await served.start(user="ann", deliveryId="d")
    assert (await served.ask("GET", "/v1/sessions", user="bob"))[1] == {"sessions": []}
    assert (await served.ask("GET", "/v1/deliveries/d", user="bob"))[0] == 404
    assert (await served.ask("GET", "/v1/deliveries/none"))[0] == 404
    for user in ("ann", "root"):
        status, body = await served.ask("GET", "/v1/deliveries/d", user=user)
        assert (status, body["sessionId"]) == (200, first["sessionId"])
        (shown,) = (await served.ask("GET", "/v1/sessions", user=user))[1]["sessions"]
        assert shown["sessionId"] == first["sessionId"]
    mine = await served.start(user="bob", deliveryId="d")
    status, body = await served.ask("GET", "/v1/deliveries/d", user="bob")
    assert (status, body["sessionId"]) == (200, mine["sessionId"])


# Sessions of other channels


class Heard:
    """A channel in which many speak, and what its handlers heard."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.channel = Channel(auth=[by_key], admission="coalesce", owner="channel")
        self.channel.post("/say/{topic}")(self.say)
        self.channel.on("message.received")(self.received)

    async def say(self, ctx: RouteContext, body: str) -> Accepted:
        """Say something about a topic."""
        return Accepted(await ctx.send(body, continuation_token=ctx.params["topic"]))

    async def received(self, event: Event[MessageReceived], ctx: EventContext) -> None:
        """Remember what was said."""
        self.texts.append(event.data.text)


def by_key(request: AuthRequest) -> Principal | None:
    """Admit holders of the shared channel's key, each as themselves."""
    if request.headers.get("x-key") != "k":
        return None
    return Principal("member", request.headers.get("x-user", "?"))


KEY = {"x-key": "k"}


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def shared(tmp_path: Path, heard: Heard) -> AsyncIterator[Served]:
    async with serve(tmp_path, agent(channels={"room": heard.channel})) as running:
        yield running


async def test_whoever_the_channel_admits_may(shared: Served) -> None:
    path = "/v1/channels/room/say/topic-1"
    status, one = await shared.ask("POST", path, "from ann", user="ann", headers=KEY)
    assert (status, one["continuationToken"]) == (202, "topic-1")
    status, two = await shared.ask("POST", path, "from bob", user="bob", headers=KEY)
    assert (status, two["sessionId"]) == (202, one["sessionId"])
    assert (await shared.ask("POST", path, "x", user="cat"))[0] == 401
    assert (await shared.ask("POST", path, {"text": "x"}, headers=KEY))[0] == 400

    events = f"/v1/session/{one['sessionId']}/events"
    assert (await shared.ask("GET", events, user="cat"))[0] == 403
    assert (await shared.ask("GET", events, user="ann"))[0] == 403
    assert (await shared.ask("GET", events, user="root"))[0] == 200
    assert (await shared.ask("GET", events, user="cat", headers=KEY))[0] == 200
    stream = f"/v1/session/{one['sessionId']}/stream"
    assert await status_of(shared, "GET", stream, None, "cat") == 403
    assert (await shared.ask("GET", f"/v1/deliveries/{one['deliveryId']}", user="cat"))[0] == 404
    delivery = await shared.ask("GET", f"/v1/deliveries/{one['deliveryId']}", headers=KEY)
    assert delivery[0] == 200
    sent = [e for e in await shared.events(one["sessionId"], user="root") if "parts" in e["data"]]
    assert sent[0]["data"]["parts"][0]["sender"] == {"kind": "member", "id": "ann"}
    assert sent[0]["type"] == "message.received"


async def test_an_http_follow_up_to_a_channels_session(shared: Served, heard: Heard) -> None:
    say = "/v1/channels/room/say/topic-2"
    _, first = await shared.ask("POST", say, "one", headers=KEY)
    path = f"/v1/session/{first['sessionId']}"
    body = {"message": "two", "continuationToken": "topic-2"}
    status, refused = await shared.ask("POST", path, body)
    assert (status, refused["error"]) == (403, "forbidden")
    assert (await shared.ask("POST", path, body, user="root"))[0] == 403
    wrong = {**body, "continuationToken": "topic-3"}
    assert (await shared.ask("POST", path, wrong, headers=KEY))[1]["error"] == "stale_token"

    status, second = await shared.ask("POST", path, body, headers=KEY)
    assert status == 200
    assert second["sessionId"] == first["sessionId"]
    assert second["continuationToken"].startswith("http:")
    status, third = await shared.ask(
        "POST",
        path,
        {"message": "three", "continuationToken": second["continuationToken"]},
        headers=KEY,
    )
    assert status == 200
    assert third["continuationToken"] not in ("topic-2", second["continuationToken"])
    stale = {"message": "x", "continuationToken": second["continuationToken"]}
    assert (await shared.ask("POST", path, stale, headers=KEY))[0] == 409
    _, fourth = await shared.ask("POST", say, "four", headers=KEY)
    assert (fourth["sessionId"], fourth["continuationToken"]) == (first["sessionId"], "topic-2")
    await until(lambda: "four" in "".join(heard.texts))
    assert "".join(heard.texts).index("two") < "".join(heard.texts).index("three")
    assert (await shared.ask("POST", path + "/stop", headers=KEY))[0] == 200


async def test_one_id_in_one_session_is_one_delivery(shared: Served) -> None:
    say = "/v1/channels/room/say/topic-5"
    _, first = await shared.ask("POST", say, "one", headers=KEY)
    path = f"/v1/session/{first['sessionId']}"
    body = {
        "message": "other words",
        "continuationToken": "topic-5",
        "deliveryId": first["deliveryId"],
    }
    status, answer = await shared.ask("POST", path, body, headers=KEY)
    assert (status, answer["error"]) == (409, "delivery_conflict")


async def test_a_callers_own_session_of_another_channel(tmp_path: Path) -> None:
    room = Heard()
    room.channel = Channel(auth=[by_header])
    room.channel.post("/say/{topic}")(room.say)
    async with serve(tmp_path, agent(channels={"desk": room.channel})) as served:
        _, first = await served.ask("POST", "/v1/channels/desk/say/t", "one", user="ann")
        assert (await served.ask("POST", "/v1/channels/desk/say/t", "x", user="bob"))[0] == 403
        assert (await served.follow_up(first, "two", user="bob"))[0] == 403
        status, second = await served.follow_up(first, "two", user="ann")
        assert status == 200
        assert second["continuationToken"].startswith("http:")
        assert (await served.ask("POST", "/v1/channels/desk/say/t", "three"))[0] == 202


class Team(Channel):
    """Everybody of one team may do everything in each other's sessions."""

    def may(self, principal: Principal, session: SessionRecord, action: Action) -> bool:
        """Widen what the default allows."""
        same = principal.attributes.get("team") == session.owner.attributes.get("team")
        return same or super().may(principal, session, action)


def by_team(request: AuthRequest) -> Principal | None:
    team = request.headers.get("x-team")
    return Principal("user", request.headers["x-user"], attributes={"team": team}) if team else None


async def test_may_can_be_widened(tmp_path: Path) -> None:
    team = Team(auth=[by_team])
    heard = Heard()
    team.post("/say/{topic}")(heard.say)
    async with serve(tmp_path, agent(channels={"team": team})) as served:
        say, red = "/v1/channels/team/say/t", {"x-team": "red"}
        _, first = await served.ask("POST", say, "one", user="ann", headers=red)
        assert (await served.ask("POST", say, "two", user="bob", headers=red))[0] == 202
        blue = {"x-team": "blue"}
        assert (await served.ask("POST", say, "two", user="bob", headers=blue))[0] == 403
        events = f"/v1/session/{first['sessionId']}/events"
        assert (await served.ask("GET", events, user="bob", headers=red))[0] == 200
        assert (await served.ask("GET", events, user="bob", headers=blue))[0] == 403


async def test_a_custom_channel_keeps_its_own_chain(tmp_path: Path) -> None:
    heard = Heard()
    heard.channel = Channel(auth=[bearer(token="own")])
    heard.channel.post("/say/{topic}")(heard.say)
    options: dict[str, Any] = {"bearer_token": "cli"}
    async with serve(tmp_path, agent(channels={"own": heard.channel}), **options) as served:
        path = "/v1/channels/own/say/t"
        for token, channel, http in (("own", 202, 401), ("cli", 401, 200), ("x", 401, 401)):
            headers = {"authorization": f"Bearer {token}"}
            assert (await served.ask("POST", path, "hi", headers=headers))[0] == channel
            assert (await served.ask("GET", "/v1/sessions", headers=headers))[0] == http


async def test_agents_share_no_sessions(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path, agent(gate), agent(gate)) as served:
        first = await served.start(user="ann")
        served.prefix = "/bot1"
        path = f"/v1/session/{first['sessionId']}/events"
        assert (await served.ask("GET", path))[0] == 404
        assert (await served.ask("GET", "/v1/sessions"))[1] == {"sessions": []}
