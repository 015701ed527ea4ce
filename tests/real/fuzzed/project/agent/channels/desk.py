"""A help desk's webhooks: something of everything that a channel's route can be."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from threadline import Accepted, Channel, Delivery, EventStream, Reply, RouteContext
from threadline.auth import bearer
from threadline.channel.answers import Media
from threadline.errors import Conflict, NotFound

channel = Channel(auth=[bearer(env="DESK_TOKEN")], admission="coalesce", owner="channel")

Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w .,:-]*\w[\w .,:-]*$")]


class Ticket(BaseModel):
    """A ticket."""

    id: str = Field(pattern=r"^[a-z0-9]{1,20}$", description="Its number at the desk.")
    text: Text
    priority: Literal["low", "high"] = "low"
    due: date | None = None
    tags: list[Text] = Field(default_factory=list, max_length=5)


class Closed(TypedDict):
    """How a ticket was closed."""

    id: str
    by: str


class Found(BaseModel):
    """Tickets that were found."""

    tickets: list[Ticket]
    more: bool = False


class Search(BaseModel):
    """What to look for."""

    text: Text
    limit: int = Field(default=10, ge=1, le=50, description="At most so many.")
    priority: Literal["low", "high"] | None = None


@channel.post("/tickets")
async def opened(ctx: RouteContext, body: Ticket) -> Accepted:
    """Tell the ticket's conversation about it."""
    delivery = await ctx.send(body.text, continuation_token=f"ticket-{body.id}")
    return Accepted(delivery, {"priority": body.priority})


@channel.post("/tasks")
async def task(ctx: RouteContext, body: Ticket) -> Delivery:
    """Do something once, and be done."""
    return await ctx.dispatch(body.text)


@channel.get("/tickets")
async def search(ctx: RouteContext, query: Search) -> Found:
    """Look for tickets.

    The newest come first.
    """
    ticket = Ticket(id="t1", text=query.text, priority=query.priority or "low")
    return Found(tickets=[ticket][: query.limit])


@channel.put("/tickets/{id}")
async def replaced(ctx: RouteContext, body: Ticket | None = None) -> Ticket | None:
    """Replace a ticket, or leave it as it is."""
    return body


@channel.delete("/tickets/{id}", responses={410: Closed}, raises=(NotFound, Conflict))
async def closed(ctx: RouteContext) -> Closed | Reply:
    """Close a ticket; the first time only."""
    gone: Closed = {"id": ctx.params["id"], "by": ctx.principal.id}
    return gone if len(ctx.params["id"]) % 2 else Reply(gone, status=410)


@channel.patch("/anything")
async def anything(ctx: RouteContext, body: Any) -> dict[str, Any]:
    """Return what came."""
    return {"got": body}


@channel.get("/badge", responses={304: None})
async def badge(ctx: RouteContext) -> Annotated[Reply, Media("image/svg+xml")]:
    """Draw the number of tickets."""
    return Reply('<svg xmlns="http://www.w3.org/2000/svg"/>', content_type="image/svg+xml")


@channel.get("/log/{sessionId}")
async def log(ctx: RouteContext) -> EventStream:
    """Follow a session of the desk."""
    return EventStream(await ctx.reach(ctx.params["sessionId"]))


@channel.get("/")
async def root(ctx: RouteContext):  # type: ignore[no-untyped-def]
    """Say hello."""
    return {"hello": ctx.agent}
