"""For each check a desk that breaks just what the check proves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.desk import Desk, DeskKit, Room, Service, Spoken, signature

from threadline import (
    Accepted,
    Event,
    EventContext,
    MessageCompleted,
    Principal,
    Reply,
    RouteContext,
    TurnFailed,
)
from threadline.auth import anonymous
from threadline.channel.auth import AuthRequest
from threadline.channel.context import Delivery
from threadline.channel.outbox import Post, TryAgain
from threadline.ids import new_id

__all__ = ["BROKEN"]


class RandomToken(Desk):
    """Names every message's conversation anew."""

    def token(self, body: Spoken) -> str:
        return new_id("room")


class TokenInMemory(Desk):
    """Forgets the names with the process."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(service, **options)
        self.names: dict[str, str] = {}

    def token(self, body: Spoken) -> str:
        return self.names.setdefault(body.room, new_id("room"))


class LooksFirst(TokenInMemory):
    """Looks whether there is a name, and makes one a moment later."""

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        known = f"late:{body.room}"
        if known not in self.names:
            # As long as asking a database would take.
            await ctx.kv.put(known, True)
            self.names[known] = new_id("room")
        return await super().take(ctx, body, delivery_id, self.names[known])


class IgnoresIds(Desk):
    """Lets the core make an id for each message."""

    def delivery_id(self, ctx: RouteContext) -> str | None:
        return None


class SeenInMemory(IgnoresIds):
    """Remembers ids by itself, and forgets them with the process."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(service, **options)
        self.seen: set[str] = set()

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        given = ctx.headers["x-delivery-id"]
        if given in self.seen:
            return Accepted()
        self.seen.add(given)
        return await super().take(ctx, body, delivery_id, token)


class SeenTooLate(SeenInMemory):
    """Remembers an id when its message is sent."""

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        given = ctx.headers["x-delivery-id"]
        if given in self.seen:
            return Accepted()
        answer = await Desk.take(self, ctx, body, delivery_id, token)
        self.seen.add(given)
        return answer


class OtherAdmission(Desk):
    """Sends otherwise than it declares."""

    def options(self) -> dict[str, Any]:
        return {"admission": "preempt" if self.admission == "coalesce" else "coalesce"}


class StopsFirst(Desk):
    """Stops the turn before it sends."""

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        await ctx.stop(token)
        return await super().take(ctx, body, delivery_id, token)


class DropsEverySecond(Desk):
    """Acknowledges what it does not send."""

    count = 0

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        self.count += 1
        if self.count % 2 == 0:
            return Accepted()
        return await super().take(ctx, body, delivery_id, token)


class SendsLater(Desk):
    """Acknowledges before the message is stored."""

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        ctx.defer(super().take(ctx, body, delivery_id, token))
        return Accepted()


class SwallowsErrors(Desk):
    """Answers 200 whatever happens."""

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        try:
            return await super().take(ctx, body, delivery_id, token)
        except Exception:
            return Reply({"ok": True})


def any_signature(request: AuthRequest) -> Principal | None:
    """Admit whatever looks signed."""
    signed = "x-hub-signature-256" in request.headers
    return Principal("service", "desk") if signed else None


class SpeaksAsItself(Desk):
    """Sends everything in its own name."""

    def speaker(self, body: Spoken) -> Principal | None:
        return Principal("channel", self.id)


class OneSpeaker(Desk):
    """Takes everybody for one person."""

    def speaker(self, body: Spoken) -> Principal | None:
        return None


class SaysTwice(Desk):
    """Posts every answer twice."""

    async def say(self, ctx: EventContext, text: str) -> None:
        for key in ("first", "second"):
            assert ctx.event is not None
            room = Room(self.service, self.room(ctx))
            await ctx.post(room, text, key=f"{key}/{ctx.event.index}")


class SaysBackwards(Desk):
    """Keeps answers back, and says them the newest first."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(service, **options)
        self.kept: list[tuple[EventContext, str]] = []

    async def say(self, ctx: EventContext, text: str) -> None:
        self.kept.insert(0, (ctx, text))
        if len(self.kept) == 3:
            while self.kept:
                await super().say(*self.kept.pop(0))


class SilentFailures(Desk):
    """Says nothing when a turn fails."""

    async def failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        pass


class AnswersFromTheRoute(Desk):
    """Waits for the answer in the process that took the message."""

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        accepted = await super().take(ctx, body, delivery_id, token)
        ctx.defer(self.later(accepted.delivery, body.room))
        return accepted

    async def later(self, delivery: Delivery, room: str) -> None:
        fate = await delivery.settled()
        self.service.take(room, str(fate.result), new_id("post"))

    async def completed(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        pass


class NoIntents(Desk):
    """Calls the service by itself."""

    async def say(self, ctx: EventContext, text: str) -> None:
        self.service.take(self.room(ctx), text, new_id("post"))


class KeyedByEvent(Desk):
    """Names a post by its event, though a resumed turn has another."""

    async def say(self, ctx: EventContext, text: str) -> None:
        assert ctx.event is not None
        await ctx.post(Room(self.service, self.room(ctx)), text, key=str(ctx.event.index))


@dataclass
class Impatient(Room):
    """Does not pass on how long the service wants to be left alone."""

    async def send(self, post: Post) -> str:
        try:
            return await super().send(post)
        except TryAgain as error:
            raise TryAgain("not now", sent=False) from error


@dataclass
class GivesUp(Room):
    """Takes an outage for a refusal."""

    async def send(self, post: Post) -> str:
        try:
            return await super().send(post)
        except TryAgain as error:
            raise PermissionError("no") from error


class ImpatientDesk(Desk):
    """Posts at an impatient target."""

    async def say(self, ctx: EventContext, text: str) -> None:
        await ctx.post(Impatient(self.service, self.room(ctx)), text)


class GivesUpDesk(Desk):
    """Posts at a target that gives up."""

    async def say(self, ctx: EventContext, text: str) -> None:
        await ctx.post(GivesUp(self.service, self.room(ctx)), text)


class HangsWhenRefused(Desk):
    """Never returns from a post that failed."""

    async def say(self, ctx: EventContext, text: str) -> None:
        record = await ctx.post(Room(self.service, self.room(ctx)), text)
        if record.failure is not None:
            await asyncio.Event().wait()


class Tidies(Desk):
    """Leaves out what it does not like."""

    def text(self, body: Spoken) -> str:
        return "".join(c for c in body.text if c.isprintable()) or "nothing"


class ReadsIds(Desk):
    """Trusts the form of a delivery id."""

    def delivery_id(self, ctx: RouteContext) -> str | None:
        return f"d{int(ctx.headers['x-delivery-id'].removeprefix('d'))}"


class TrustsBodies(Desk):
    """Reads the body by itself, and trusts it."""

    def __init__(self, service: Service, **options: Any) -> None:
        super().__init__(service, **options)
        self.routes.clear()
        self.post("/spoken")(self.said)

    async def said(self, ctx: RouteContext) -> Any:
        """Take what somebody said."""
        wire = json.loads(ctx.body)
        body = Spoken(room=wire["room"], text=wire["text"])
        return await self.take(ctx, body, self.delivery_id(ctx), self.token(body))


class Mentions(Desk):
    """Posts text from outside as it is."""

    def outside(self, text: str) -> str:
        return text


BROKEN: Mapping[str, tuple[DeskKit, str]] = {
    "tokens.same": (DeskKit(RandomToken), "started another session"),
    "tokens.restart": (DeskKit(TokenInMemory), "After a restart a conversation started another"),
    "tokens.concurrent": (DeskKit(LooksFirst), "one conversation made 6 sessions"),
    "dedupe.again": (DeskKit(IgnoresIds), "accepted 2 times"),
    "dedupe.concurrent": (DeskKit(SeenTooLate), "accepted 6 times"),
    "dedupe.restart": (DeskKit(SeenInMemory), "accepted 2 times"),
    "admission.declared": (DeskKit(OtherAdmission), "the channel declares 'coalesce'"),
    "admission.coalesce": (DeskKit(StopsFirst), "though the channel coalesces"),
    "admission.preempt": (DeskKit(OtherAdmission, admission="preempt"), "left its turn alone"),
    "outcome.each": (DeskKit(DropsEverySecond), "answered with 202 before it was stored"),
    "durable.power_cut": (DeskKit(SendsLater), "answered with 202 before it was stored"),
    "durable.full_disk": (DeskKit(SwallowsErrors), "could not be stored was answered with 200"),
    "auth.bare": (DeskKit(auth=[anonymous()]), "answered with 202, not 401"),
    "auth.forged": (DeskKit(auth=[any_signature]), "answered with 202, not 401"),
    "auth.tampered": (DeskKit(auth=[any_signature]), "A changed body was answered with 202"),
    "ownership.sender": (DeskKit(SpeaksAsItself), "recorded as the channel's own"),
    "ownership.stranger": (DeskKit(auth=[signature, anonymous()]), "could read the conversation"),
    "ownership.other": (DeskKit(OneSpeaker, owner="caller"), "belongs to its first speaker"),
    "replies.once": (DeskKit(SaysTwice), "visible 2 times"),
    "replies.order": (DeskKit(SaysBackwards), "visible in another order"),
    "replies.failure": (DeskKit(SilentFailures), "whoever asked saw nothing"),
    "replies.recorded": (DeskKit(AnswersFromTheRoute), "died between record and post"),
    "replies.receipt": (DeskKit(NoIntents), "visible 2 times"),
    "replies.resumed": (DeskKit(KeyedByEvent), "visible 2 times"),
    "backoff.retry_after": (DeskKit(ImpatientDesk), "asked for 30 s of peace"),
    "backoff.error": (DeskKit(GivesUpDesk), "The target answered 503 once"),
    "backoff.refused": (DeskKit(HangsWhenRefused), "The post before it was refused for good"),
    "hostile.text": (DeskKit(Tidies), "a NUL was changed on its way"),
    "hostile.ids": (DeskKit(ReadsIds), "The host logged request.failed: ValueError"),
    "hostile.bodies": (DeskKit(TrustsBodies), "The host logged request.failed: JSONDecodeError"),
    "hostile.mentions": (DeskKit(Mentions), "it holds ['@everyone'] as it is"),
}
"""By check: the kit of a desk that breaks it, and what the report says of it."""
