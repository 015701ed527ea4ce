"""docs/delivery-ledger.md shows what a host really answers."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from threadline import (
    Accepted,
    Channel,
    Event,
    EventContext,
    MessageCompleted,
    Post,
    RouteContext,
)
from threadline.testing import Gated, TestHost

PAGE = Path(__file__).parents[2] / "docs" / "delivery-ledger.md"
SHOWN = [
    json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", PAGE.read_text(), re.M | re.S)
]
SAY = "/v1/channels/tickets/comments"


class Tracker:
    """Where answers are posted; it may be slow, or refuse."""

    credential = "tracker"
    method = "comment"

    def __init__(self) -> None:
        self.locked = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def send(self, post: Post) -> str:
        """Take the comment."""
        await self.answers.wait()
        if self.locked:
            raise PermissionError("the ticket is locked")
        return "comment-501"


def tickets(tracker: Tracker) -> Channel:
    """Return the page's channel."""
    channel = Channel(admission="coalesce", owner="channel")

    @channel.post("/comments")
    async def commented(ctx: RouteContext, body: dict[str, str]) -> Accepted:
        """Take a comment."""
        token = "ticket/v1:42"
        return Accepted(
            await ctx.send(body["text"], continuation_token=token, delivery_id=body["id"])
        )

    @channel.on("message.completed")
    async def answered(event: Event[MessageCompleted], ctx: EventContext) -> None:
        await ctx.post(tracker, event.data.text)

    return channel


class Morning:
    """The page's story, step by step; ``seen`` is what the ledger said."""

    def __init__(self, host: TestHost, harness: Gated, tracker: Tracker) -> None:
        self.host = host
        self.harness = harness
        self.tracker = tracker
        self.seen: list[Any] = []

    async def comment(self, delivery_id: str) -> str:
        """Write a comment; return its session."""
        answer = await self.host.post(
            SAY, json={"id": delivery_id, "text": f"This is {delivery_id}"}
        )
        assert answer.status == 202, answer.text
        return str(answer.json()["sessionId"])

    async def look(self, delivery_id: str) -> None:
        """Ask the ledger."""
        self.seen.append((await self.host.get(f"/v1/deliveries/{delivery_id}")).json())

    async def posting(self) -> bool:
        """Tell whether the answer to c-6 is on its way."""
        return bool((await self.host.get("/v1/deliveries/c-6")).json()["outbound"])

    async def tell(self) -> None:
        """Tell the story."""
        boundary = self.harness.hold("boundary")
        session = self.host.session(await self.comment("c-1"))
        await boundary.reached(1)
        await self.comment("c-2")
        await self.look("c-2")
        boundary.release()
        await session.rest()
        await self.look("c-2")
        await self.look("c-1")

        boundary.hold()
        await self.comment("c-3")
        await boundary.reached(2)
        await self.comment("c-4")
        await self.host.post(f"{session.path}/stop", json={"clearPending": True})
        await session.rest()
        await self.look("c-4")

        boundary.release()
        self.tracker.locked = True
        await self.comment("c-5")
        await session.rest()
        await self.look("c-5")

        self.tracker.locked = False
        self.tracker.answers.clear()
        await self.comment("c-6")
        await session.event("session.waiting", 4)
        await self.host.until(self.posting)
        await self.look("c-6")
        self.tracker.answers.set()
        await session.rest()


def plain(value: Any) -> Any:
    """Return an answer with its ids and times made equal."""
    text = json.dumps(value)
    text = re.sub(r'"(ses|turn)_\w+"', r'"\1"', text)
    return json.loads(re.sub(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"', '"at"', text))


async def test_the_answers_are_real() -> None:
    """Each JSON block is what the host says at that point of the story."""
    tracker, harness = Tracker(), Gated(calls=1)
    async with TestHost(tickets(tracker), harness=harness, channel_id="tickets") as host:
        morning = Morning(host, harness, tracker)
        await morning.tell()
        host.check_laws()
    assert [plain(answer) for answer in SHOWN] == [plain(answer) for answer in morning.seen]
    assert [list(answer) for answer in SHOWN] == [list(answer) for answer in morning.seen]


async def test_the_route_is_scoped_and_ids_conflict() -> None:
    """What the page says of other callers and of the same id again."""
    tracker = Tracker()
    async with TestHost(tickets(tracker), channel_id="tickets") as host:
        for text, status in (("one", 202), ("one", 202), ("two", 409)):
            answer = await host.post(SAY, json={"id": "c-1", "text": text})
            assert answer.status == status
        assert (await host.get("/v1/deliveries/c-9")).status == 404
        away = {"x-forwarded-for": "10.0.0.9"}
        assert (await host.get("/v1/deliveries/c-1", headers=away)).status == 401
        await host.rest()
