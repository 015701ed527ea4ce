"""A channel that keeps every promise, its outside service, and its kit: what the mutants break."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from threadline import (
    Accepted,
    Channel,
    Event,
    EventContext,
    MessageCompleted,
    Principal,
    RouteContext,
    TurnFailed,
)
from threadline.channel.auth import AuthRequest
from threadline.channel.outbox import Post, TryAgain
from threadline.errors import Unauthorized
from threadline.testing import ChannelKit, Inbound, Posted, github_signature, signed_request

__all__ = ["SECRET", "Desk", "DeskKit", "Service", "Spoken", "signature"]

SECRET = "desk-secret"


@dataclass(eq=False)
class Service:
    """The outside service: what it shows, and how it refuses."""

    shown: list[tuple[str, str, str]] = field(default_factory=list)
    refusals: list[tuple[int, float | None]] = field(default_factory=list)

    def take(self, conversation: str, text: str, key: str) -> str:
        """Show a post, or raise as an HTTP client would find it refused."""
        if self.refusals:
            status, after = self.refusals.pop(0)
            TryAgain.when(status, {} if after is None else {"Retry-After": str(after)})
            raise PermissionError(f"the service answered {status}")
        self.shown.append((conversation, text, key))
        return str(len(self.shown) - 1)

    def posted(self) -> list[Posted]:
        """Return what is visible."""
        return [Posted(conversation, text) for conversation, text, _ in self.shown]


@dataclass
class Room:
    """One conversation as a target."""

    service: Service
    conversation: str
    credential: str = "desk"
    method: str = "post"

    async def send(self, post: Post) -> str:
        """Post it."""
        return self.service.take(self.conversation, post.text, post.id)

    async def find(self, post: Post) -> str | None:
        """Look it up by its id."""
        found = [n for n, (_, _, key) in enumerate(self.service.shown) if key == post.id]
        return str(found[0]) if found else None

    async def edit(self, ref: str, post: Post) -> None:
        """Change it."""
        self.service.shown[int(ref)] = (self.conversation, post.text, post.id)


class Spoken(BaseModel):
    """What the service sends when somebody speaks."""

    room: str
    text: str
    speaker: str = "ann"


def signature(request: AuthRequest) -> Principal | None:
    """Admit what is signed with the secret."""
    given = request.headers.get("x-hub-signature-256")
    if given is None:
        return None
    if not hmac.compare_digest(given.encode(), github_signature(SECRET, request.body).encode()):
        raise Unauthorized("The signature does not match.")
    return Principal("service", "desk")


class Desk(Channel):
    """Rooms of a service; mutants override one of its methods."""

    def __init__(self, service: Service, **options: Any) -> None:
        defaults = {"auth": [signature], "admission": "coalesce", "owner": "channel"}
        super().__init__(**{**defaults, **options})
        self.service = service
        self.post("/spoken")(self.spoken)
        self.on("message.completed")(self.completed)
        self.on("turn.failed")(self.failed)

    async def spoken(self, ctx: RouteContext, body: Spoken) -> Any:
        """Take what somebody said."""
        return await self.take(ctx, body, self.delivery_id(ctx), self.token(body))

    async def take(
        self, ctx: RouteContext, body: Spoken, delivery_id: str | None, token: str
    ) -> Any:
        """Send it on."""
        delivery = await ctx.send(
            self.text(body),
            continuation_token=token,
            delivery_id=delivery_id,
            principal=self.speaker(body),
            **self.options(),
        )
        return Accepted(delivery)

    def token(self, body: Spoken) -> str:
        """Name the conversation."""
        return f"desk/v1:{body.room}"

    def text(self, body: Spoken) -> str:
        """Carry the text as it is."""
        return body.text

    def speaker(self, body: Spoken) -> Principal | None:
        """Name who spoke."""
        return Principal("desk-user", body.speaker)

    def delivery_id(self, ctx: RouteContext) -> str | None:
        """Take the service's id."""
        return ctx.headers.get("x-delivery-id")

    def options(self) -> dict[str, Any]:
        """Leave the rest as it is."""
        return {}

    async def completed(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        """Post the answer."""
        if event.data.finish_reason == "stop":
            await self.say(ctx, event.data.text)

    async def failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Say what went wrong."""
        if event.data.code not in ("preempted", "host_restarted", "host_shutdown"):
            await self.say(ctx, f"Sorry: {event.data.message}")

    async def say(self, ctx: EventContext, text: str) -> None:
        """Post a text in the event's room."""
        await ctx.post(Room(self.service, self.room(ctx)), self.outside(text))

    def room(self, ctx: EventContext) -> str:
        """Return the room of an event."""
        session = ctx.session()
        assert session is not None
        return (session.continuation_token or "").removeprefix("desk/v1:")

    def outside(self, text: str) -> str:
        """Make a text harmless at the service."""
        return text.replace("@", "@\u200b")


class DeskKit(ChannelKit):
    """The kit of a desk; ``make`` is the channel's class, its options are ``options``."""

    signed = True
    live_mentions: Sequence[str] = ("@everyone",)

    def __init__(self, make: type[Desk] = Desk, **options: Any) -> None:
        self.make = make
        self.options = options
        self.service = Service()

    def channel(self) -> Channel:
        """Return a fresh desk."""
        return self.make(self.service, **self.options)

    def inbound(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        """Return what the service sends."""
        return self._spoken(conversation, text, delivery_id, "ann")

    def other(self, conversation: str, text: str, delivery_id: str) -> Inbound:
        """Return what it sends when Bob speaks."""
        return self._spoken(conversation, text, delivery_id, "bob")

    def _spoken(self, room: str, text: str, delivery_id: str, speaker: str) -> Inbound:
        body = {"room": room, "text": text, "speaker": speaker}
        headers = {"x-delivery-id": delivery_id}
        return signed_request(SECRET, body, scheme="github", path="/spoken", headers=headers)

    def forged(self, inbound: Inbound) -> Inbound:
        """Sign with another secret."""
        wrong = {"x-hub-signature-256": github_signature("wrong", inbound.body)}
        return replace(inbound, headers={**inbound.headers, **wrong})

    def raw(self, body: bytes) -> Inbound:
        """Sign any bytes."""
        headers = {"x-delivery-id": "d0"}
        return signed_request(SECRET, body, scheme="github", path="/spoken", headers=headers)

    async def posted(self) -> Sequence[Posted]:
        """Return what the service shows."""
        return self.service.posted()

    def fail_next(self, status: int, retry_after: float | None) -> None:
        """Let the service refuse the next post."""
        self.service.refusals.append((status, retry_after))
