"""Rooms of a chat service whose API now and then refuses, fails, or says nothing."""

from __future__ import annotations

import os

import aiohttp
from pydantic import BaseModel

from threadline import (
    Accepted,
    Channel,
    Context,
    Event,
    EventContext,
    MessageAppended,
    MessageCompleted,
    Post,
    RouteContext,
    TurnFailed,
)

SERVICE = os.environ.get("OUTBOUND_SERVICE", "http://127.0.0.1:9")
RESUMED = ("host_restarted", "host_shutdown")


class Said(BaseModel):
    """A message in a room."""

    room: str
    text: str
    id: str


class Messages:
    """Where answers are posted."""

    credential = "service"
    method = "messages"

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def send(self, post: Post) -> str:
        """Post a message."""
        body = {"id": post.id, "text": post.text}
        async with self._http.post("/messages", json=body) as answer:
            return str((await answer.json())["ref"])

    async def find(self, post: Post) -> str | None:
        """Look for a message by its id."""
        async with self._http.get("/messages", params={"id": post.id}) as answer:
            found = (await answer.json())["messages"]
        return str(found[0]["ref"]) if found else None

    async def edit(self, ref: str, post: Post) -> None:
        """Change a message."""
        async with self._http.patch(f"/messages/{ref}", json={"text": post.text}):
            pass

    async def typing(self, text: str) -> None:
        """Show what is being written."""
        async with self._http.post("/typing", json={"text": text}):
            pass


class Rooms(Channel):
    """Many speak in a room; each answer is a message there."""

    def __init__(self) -> None:
        super().__init__(admission="coalesce", owner="channel")
        self.messages: Messages
        self.http: aiohttp.ClientSession
        self.post("/said")(self.said)
        self.on("message.appended")(self.writing)
        self.on("message.completed")(self.answered)
        self.on("turn.failed")(self.failed)

    async def on_start(self, ctx: Context) -> None:
        """Connect."""
        timeout = aiohttp.ClientTimeout(total=5)
        self.http = aiohttp.ClientSession(SERVICE, raise_for_status=True, timeout=timeout)
        self.messages = Messages(self.http)

    async def on_stop(self, ctx: Context) -> None:
        """Disconnect."""
        await self.http.close()

    async def said(self, ctx: RouteContext, body: Said) -> Accepted:
        """Pass a message on."""
        delivery = await ctx.send(body.text, continuation_token=body.room, delivery_id=body.id)
        return Accepted(delivery)

    async def writing(self, event: Event[MessageAppended], ctx: EventContext) -> None:
        """Show what is being written, if there is time for it."""
        await ctx.progress(self.messages, lambda: self.messages.typing(event.data.delta))

    async def answered(self, event: Event[MessageCompleted], ctx: EventContext) -> None:
        """Post the answer."""
        if event.data.finish_reason == "stop":
            await ctx.post(self.messages, event.data.text)

    async def failed(self, event: Event[TurnFailed], ctx: EventContext) -> None:
        """Say that there will be no answer."""
        if event.data.code not in RESUMED:
            await ctx.post(self.messages, f"Sorry: {event.data.message}")


channel = Rooms()
