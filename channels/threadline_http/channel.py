"""``/v1/session`` and its kin, written against the public channel API.

Source: the wire contract, "HTTP API". Tokens are opaque and rotate: each accepted follow-up returns
a new one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Any, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictStr
from pydantic.alias_generators import to_camel

from threadline.channel.answers import NDJSON, Media
from threadline.channel.auth import Policy
from threadline.channel.channel import Channel
from threadline.channel.context import Delivery, EventStream, RouteContext, Session
from threadline.channel.tokens import rotating
from threadline.errors import (
    ApprovalClosed,
    Conflict,
    DeliveryConflict,
    Forbidden,
    IndexOutOfRange,
    InvalidRequest,
    NotFound,
    StaleToken,
    TaskSession,
)
from threadline.session.access import Action
from threadline.store.base import Admission
from threadline_http.answers import (
    ApprovalDecided,
    Approvals,
    Cost,
    EventDump,
    ParkedCall,
    SessionAnswer,
    SessionDeleted,
    SessionEntry,
    Sessions,
    TurnStopped,
)
from threadline_http.cost import Account

__all__ = ["HttpChannel"]


def _whole(value: Any) -> Any:
    """Take the digits of a whole number only: no sign, point, space or other writing system."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("must be a whole number from 0")
    return value


_Number = Annotated[int, BeforeValidator(_whole)]
_Positive = Annotated[_Number, Field(ge=1)]

Lines = Annotated[EventStream, Media(NDJSON)]

_REACHED = (Forbidden, NotFound)
_READ = (*_REACHED, IndexOutOfRange)
_SPOKEN = (*_REACHED, StaleToken, TaskSession, DeliveryConflict, Conflict)
_DECIDED = (*_REACHED, ApprovalClosed)
_KEY = {"Idempotency-Key": "Another way to give the deliveryId; the two may not differ."}
_RESUME = {"Last-Event-ID": "Of server-sent events: the last index that the browser has."}


class _Body(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")


class StartSession(_Body):
    """The body of ``POST /v1/session``."""

    message: StrictStr
    title: StrictStr | None = None
    dry_run: StrictBool | None = None
    as_of: StrictStr | None = None
    workspace_files: dict[str, StrictStr | dict[str, StrictStr]] | None = None
    purpose: StrictStr | None = Field(default=None, max_length=100)
    delivery_id: StrictStr | None = None
    admission: Admission | None = None


class FollowUp(_Body):
    """The body of ``POST /v1/session/{sessionId}``."""

    message: StrictStr
    continuation_token: StrictStr
    workspace_files: dict[str, StrictStr | dict[str, StrictStr]] | None = None
    dry_run: StrictBool | None = None
    as_of: StrictStr | None = None
    delivery_id: StrictStr | None = None
    admission: Admission | None = None


class Stop(_Body):
    """The optional body of ``POST /v1/session/{sessionId}/stop``."""

    clear_pending: StrictBool = False


class Approval(_Body):
    """The body of ``POST /v1/session/{sessionId}/approvals/{callId}``."""

    decision: StrictStr = Field(pattern="^(approve|approved|deny|denied)$")
    reason: StrictStr | None = Field(default=None, max_length=2000)


class StreamQuery(BaseModel):
    """The query of the stream."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    start_index: _Number = Field(default=0, ge=0)


class EventsQuery(StreamQuery):
    """The query of the dump."""

    limit: _Positive | None = None
    format: str = Field(default="ndjson", pattern="^(ndjson|json)$")


class SessionsQuery(BaseModel):
    """The query of the list; ``sessionId`` asks for one session."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    session_id: str | None = None
    limit: _Number = Field(default=100, ge=1, le=1000)


class HttpChannel(Channel):
    """Conversations of programs and of the playground; preempts by default."""

    def __init__(self, *, auth: Sequence[Policy] | None = None) -> None:
        super().__init__(auth=auth, admission="preempt", tokens=rotating(), mount="/v1")
        self.post("/session", raises=(DeliveryConflict,), headers=_KEY)(self.start)
        self.post("/session/{sessionId}", raises=_SPOKEN, headers=_KEY)(self.follow_up)
        self.get("/session/{sessionId}/stream", raises=_READ, headers=_RESUME)(self.stream)
        self.get("/session/{sessionId}/events", raises=_READ)(self.dump)
        self.post("/session/{sessionId}/stop", raises=_REACHED)(self.stop_turn)
        self.get("/session/{sessionId}/cost", raises=_REACHED)(self.cost)
        self.get("/session/{sessionId}/approvals", raises=_REACHED)(self.list_approvals)
        decide = self.post("/session/{sessionId}/approvals/{callId}", raises=_DECIDED)
        decide(self.resolve_approval)
        self.delete("/session/{sessionId}", raises=_REACHED)(self.remove)
        self.get("/sessions", raises=_REACHED)(self.list_sessions)

    async def start(self, ctx: RouteContext, body: StartSession) -> SessionAnswer:
        """Open a durable conversation."""
        delivery = await ctx.send(
            body.message,
            title=body.title,
            purpose=body.purpose,
            admission=body.admission,
            delivery_id=_delivery_id(ctx, body.delivery_id),
            workspace_files=body.workspace_files,
            dry_run=bool(body.dry_run),
            as_of=body.as_of,
        )
        return _answer(ctx, delivery)

    async def follow_up(self, ctx: RouteContext, body: FollowUp) -> SessionAnswer:
        """Continue a chat session, also one that another channel created."""
        await _session(ctx, "send")
        delivery = await ctx.send(
            body.message,
            session_id=ctx.params["sessionId"],
            continuation_token=body.continuation_token,
            admission=body.admission,
            delivery_id=_delivery_id(ctx, body.delivery_id),
            workspace_files=body.workspace_files,
            dry_run=bool(body.dry_run),
            as_of=body.as_of,
        )
        return _answer(ctx, delivery)

    async def stream(self, ctx: RouteContext, query: StreamQuery) -> EventStream:
        """Replay from an index, then follow new events."""
        return EventStream(await _session(ctx, "read"), query.start_index)

    async def dump(self, ctx: RouteContext, query: EventsQuery) -> EventDump | Lines:
        """Return the recorded events once."""
        session = await _session(ctx, "read")
        if query.format == "ndjson":
            return EventStream(session, query.start_index, follow=False, limit=query.limit)
        return {
            "sessionId": session.id,
            "events": await _recorded(session, query.start_index, query.limit),
            "playgroundUrl": _playground(ctx, session.id),
        }

    async def stop_turn(self, ctx: RouteContext, body: Stop | None = None) -> TurnStopped:
        """Interrupt the turn without sending another message."""
        session = await _session(ctx, "stop")
        clear = body is not None and body.clear_pending
        stopped = await ctx.stop(session.id, clear_pending=clear)
        return {"ok": True, "sessionId": session.id, "stopped": stopped}

    async def cost(self, ctx: RouteContext) -> Cost:
        """Return each turn's token usage and estimated cost in US dollars.

        A cost that is not known is null, and ``unknownModels`` names the models without a price.
        """
        session = await _session(ctx, "read")
        account = Account()
        async for chunk in session.events():
            for line in chunk.split(b"\n") if b'"turn.' in chunk else ():
                if b'"turn.' in line:
                    account.add(orjson.loads(line))
        return cast("Cost", {"sessionId": session.id, **account.to_wire()})

    async def resolve_approval(self, ctx: RouteContext, body: Approval) -> ApprovalDecided:
        """Decide a tool call that waits for a person; the first decision counts."""
        session_id, call_id = ctx.params["sessionId"], ctx.params["callId"]
        with contextlib.suppress(Forbidden):
            # Whoever may speak there by another channel's rules may decide by default.
            await ctx.reach(session_id, action="send")
        approved = body.decision.startswith("approve")
        record = await ctx.resolve_approval(
            session_id, call_id, "approved" if approved else "denied", reason=body.reason
        )
        return {
            "ok": True,
            "sessionId": record.session_id,
            "callId": record.call_id,
            "decision": record.decision,
            "by": dict(record.by),
        }

    async def list_approvals(self, ctx: RouteContext) -> Approvals:
        """List the tool calls of a session that wait for a person."""
        session = await _session(ctx, "read")
        waiting = await ctx.approvals(session.id)
        parked = [cast("ParkedCall", call.to_wire()) for call in waiting]
        return {"sessionId": session.id, "approvals": parked}

    async def remove(self, ctx: RouteContext) -> SessionDeleted:
        """Delete a session with its log, history and workspace."""
        session = await _session(ctx, "delete")
        await ctx.delete(session.id)
        return {"ok": True, "sessionId": session.id, "deleted": True}

    async def list_sessions(self, ctx: RouteContext, query: SessionsQuery) -> Sessions:
        """List the caller's sessions, newest first."""
        if query.session_id is not None:
            found = await ctx.reach(query.session_id)
            return {"sessions": [_entry(found)]}
        return {"sessions": [_entry(s) for s in ctx.sessions(limit=query.limit)]}


async def _session(ctx: RouteContext, action: Action) -> Session:
    return await ctx.reach(ctx.params["sessionId"], action=action)


async def _recorded(session: Session, start: int, limit: int | None) -> list[Any]:
    """Return stored events as they are, not decoded and encoded again."""
    if start > (next_index := await session.next_index()):
        raise IndexOutOfRange(
            f"The log has no index {start} yet; the next one is {next_index}.",
            nextIndex=next_index,
        )
    lines: list[Any] = []
    async for chunk in session.events(start):
        lines += [orjson.Fragment(line) for line in chunk.split(b"\n")[:-1]]
        if limit is not None and len(lines) >= limit:
            break
    return lines[:limit]


def _delivery_id(ctx: RouteContext, in_body: str | None) -> str | None:
    """Return the id from the body or the ``Idempotency-Key`` header; they may not differ."""
    in_header = ctx.headers.get("idempotency-key")
    if in_body is not None and in_header is not None and in_body != in_header:
        raise InvalidRequest("deliveryId and the Idempotency-Key header differ; send one.")
    return in_body if in_body is not None else in_header


def _entry(session: Session) -> SessionEntry:
    return cast("SessionEntry", session.to_wire())


def _answer(ctx: RouteContext, delivery: Delivery) -> SessionAnswer:
    return {
        "ok": True,
        "sessionId": delivery.session_id,
        "continuationToken": delivery.continuation_token,
        "deliveryId": delivery.delivery_id,
        "admitted": delivery.admitted,
        "playgroundUrl": _playground(ctx, delivery.session_id),
        "traceUrl": ctx.url(f"/v1/session/{delivery.session_id}/events"),
    }


def _playground(ctx: RouteContext, session_id: str) -> str:
    return ctx.url(f"/playground?sessionId={session_id}")
