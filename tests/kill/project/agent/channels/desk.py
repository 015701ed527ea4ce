"""Rooms in which many speak: stable tokens, coalescing; and tasks."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel

from threadline import Accepted, Channel, Event, EventContext, RouteContext, TurnCompleted

channel = Channel(admission="coalesce", owner="channel")
HANDLED = os.environ.get("KILL_HANDLED")


class Said(BaseModel):
    """A message in a room."""

    room: str
    text: str
    id: str


@channel.post("/said")
async def said(ctx: RouteContext, body: Said) -> Accepted:
    """Pass a message on."""
    delivery = await ctx.send(body.text, continuation_token=body.room, delivery_id=body.id)
    return Accepted(delivery)


@channel.post("/asked")
async def asked(ctx: RouteContext, body: Said) -> Accepted:
    """Start a task."""
    delivery = await ctx.dispatch(body.text, continuation_token=body.room, delivery_id=body.id)
    return Accepted(delivery)


@channel.on("turn.completed")
async def completed(event: Event[TurnCompleted], ctx: EventContext) -> None:
    """Write down that the event was handled."""
    if HANDLED:
        _write(json.dumps([event.session_id, event.index]) + "\n")


def _write(line: str) -> None:
    with Path(str(HANDLED)).open("a") as file:
        file.write(line)
