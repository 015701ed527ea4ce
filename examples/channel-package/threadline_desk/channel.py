"""The channel of a help desk that signs its webhooks with a shared secret."""

from __future__ import annotations

import hashlib
import hmac
import os

from pydantic import BaseModel

from threadline import (
    Accepted,
    Channel,
    Event,
    EventContext,
    MessageCompleted,
    Principal,
    Reply,
    RouteContext,
    TurnFailed,
)
from threadline.auth import AuthRequest, Policy
from threadline.channel.tokens import matching
from threadline.errors import Unauthorized

__all__ = ["Comment", "DeskChannel", "signed"]


class Comment(BaseModel):
    """The desk's webhook: somebody wrote something on a ticket."""

    id: str
    ticket: int
    text: str


def signed(env: str) -> Policy:
    """Admit whoever signs the raw body with the secret in a variable; unset, it admits nobody."""

    def policy(request: AuthRequest) -> Principal | None:
        secret, given = os.environ.get(env, ""), request.headers.get("x-signature")
        if not secret or given is None:
            return None
        expected = hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode()):
            raise Unauthorized("The signature does not fit the body.")
        return Principal("desk", env)

    return policy


class DeskChannel(Channel):
    """Comments on a ticket become messages; the newest answer is at ``GET /tickets/{number}``."""

    def __init__(self, *, secret_env: str = "DESK_SECRET") -> None:
        super().__init__(
            auth=[signed(secret_env)],
            admission="coalesce",
            owner="channel",
            tokens=matching(r"desk/v1:[0-9]+", example="desk/v1:42"),
        )
        self.post("/comments")(self.commented)
        self.get("/tickets/{number}")(self.ticket)
        self.on("message.completed")(self.answered)
        self.on("turn.failed")(self.failed)

    async def commented(self, ctx: RouteContext, body: Comment) -> Accepted:
        """Hand a comment to the ticket's conversation."""
        delivery = await ctx.send(
            body.text,
            continuation_token=f"desk/v1:{body.ticket}",
            delivery_id=body.id,
            title=f"Ticket {body.ticket}",
        )
        return Accepted(delivery)

    async def ticket(self, ctx: RouteContext) -> Reply:
        """Return the newest answer on a ticket."""
        text = await ctx.kv.get(f"desk/v1:{ctx.params['number']}")
        return Reply({"ok": True, "answer": text}, status=200 if text is not None else 404)

    async def answered(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        """Keep the final answer, not the narration between tool calls."""
        if event.data.finish_reason == "stop":
            await self._keep(ctx, event.data.text)

    async def failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Whoever asked must see that there is no answer; these turns go on in another."""
        if event.data.code not in ("preempted", "host_restarted", "host_shutdown"):
            await self._keep(ctx, f"There is no answer: {event.data.message}")

    async def _keep(self, ctx: EventContext, text: str) -> None:
        token = ctx.session_record.continuation_token
        if token is not None:
            await ctx.kv.put(token, text)
