"""Webhooks of an incident tracker: one conversation an incident, named by the incident's id."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from threadline import (
    Accepted,
    Channel,
    Event,
    EventContext,
    MessageReceived,
    NudgeDelivered,
    RouteContext,
)
from threadline.auth import bearer, local_dev_strict


class IncidentChanged(BaseModel):
    """The tracker's webhook."""

    id: str
    status: str


channel = Channel(
    auth=[local_dev_strict(), bearer(env="INCIDENTS_TOKEN")],
    admission="coalesce",
    owner="channel",
)

# How each webhook reached the agent, by its delivery id, since this process began. A set fits
# handlers that run at least once: what is seen twice is in it once.
steered: set[str] = set()
prompted: set[str] = set()


@channel.post("/incidents")
async def incident_changed(ctx: RouteContext, body: IncidentChanged) -> Accepted:
    """Tell the incident's session what changed."""
    delivery = await ctx.send(
        f"Incident {body.id} is now {body.status}.",
        continuation_token=body.id,
        delivery_id=ctx.headers.get("x-delivery-id"),
        title=f"Incident {body.id}",
    )
    return Accepted(delivery)


@channel.on("nudge.delivered")
async def on_nudge(event: Event[NudgeDelivered], ctx: EventContext) -> None:
    """The running turn took a webhook at a tool boundary."""
    if event.data.delivery_id is not None:
        steered.add(event.data.delivery_id)


@channel.on("message.received")
async def on_prompt(event: Event[MessageReceived], ctx: EventContext) -> None:
    """A turn began with one webhook, or with several that had waited."""
    prompted.update(event.data.delivery_ids)


@channel.get("/deliveries")
async def deliveries(ctx: RouteContext) -> dict[str, Any]:
    """Say which webhooks were steered into a running turn, and which became a prompt."""
    return {"steered": sorted(steered), "prompted": sorted(prompted)}
