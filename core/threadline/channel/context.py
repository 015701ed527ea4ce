"""What routes, event handlers and lifecycle hooks are given."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from threadline import ndjson
from threadline.agent.shelf import Place
from threadline.channel.outbox import CanRemove, Post
from threadline.errors import Forbidden, InvalidRequest, NotFound
from threadline.principal import Principal
from threadline.session.access import Action
from threadline.store.base import (
    Admission,
    DecisionRecord,
    DeliveryRecord,
    Mode,
    OutboundRecord,
    SessionRecord,
)

if TYPE_CHECKING:
    from threadline.agent.shelf import ContextArtifacts
    from threadline.channel.deadline import Deadline
    from threadline.channel.outbox import Target
    from threadline.channel.runtime import ChannelRuntime
    from threadline.clock import Clock
    from threadline.events import Event
    from threadline.harness.base import ToolInfo, ToolResult
    from threadline.session.admission import Admitted
    from threadline.session.core import Fate
    from threadline.session.parking import ParkedCall

__all__ = [
    "Accepted",
    "Context",
    "Delivery",
    "EventContext",
    "EventStream",
    "KeyValues",
    "Reply",
    "RouteContext",
    "Session",
    "closing",
]


@contextlib.asynccontextmanager
async def closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close what reads a log when the reader leaves early, and not whenever it is collected."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


@dataclass(frozen=True, slots=True)
class Delivery:
    """An accepted message.

    ``admitted``: ``"started"`` a turn, ``"queued"`` behind what runs, ``"preempted"`` it, or
    ``"duplicate"`` when this id was accepted before.
    """

    delivery_id: str
    session_id: str
    continuation_token: str
    admitted: Admitted
    _record: DeliveryRecord = field(repr=False)
    _runtime: ChannelRuntime = field(repr=False)

    async def outcome(self) -> Fate:
        """Wait until the log says what became of it: steered, prompted or cleared."""
        return await self._runtime.core.fate(self._record, settled=False)

    async def settled(self) -> Fate:
        """Wait for the end of the turn that carries it; ``result`` or ``error`` says how."""
        return await self._runtime.core.fate(self._record, settled=True)

    def to_wire(self) -> dict[str, Any]:
        """Return ``{sessionId, continuationToken, deliveryId, admitted}``."""
        return {
            "sessionId": self.session_id,
            "continuationToken": self.continuation_token,
            "deliveryId": self.delivery_id,
            "admitted": self.admitted,
        }


@dataclass(frozen=True, slots=True)
class Session:
    """A stored conversation, as a route sees it."""

    record: SessionRecord
    _runtime: ChannelRuntime = field(repr=False)

    @property
    def id(self) -> str:
        """The session id."""
        return self.record.id

    @property
    def mode(self) -> Mode:
        """``"chat"`` or ``"task"``."""
        return self.record.mode

    @property
    def continuation_token(self) -> str | None:
        """The current token in the channel that created the session."""
        return self._runtime.store.token(self.record.id, self.record.channel)

    @property
    def status(self) -> str:
        """``running``, ``queued``, ``parked``, ``waiting``, ``completed`` or ``failed``."""
        return self._runtime.core.status(self.record.id)

    async def next_index(self) -> int:
        """Return the index that the next event will have."""
        return await self._runtime.store.next_index(self.record.id) or 0

    def events(self, start: int = 0) -> AsyncIterator[bytes]:
        """Yield the stored lines from an index on, in chunks of whole lines."""
        return self._runtime.store.read(self.record.id, start)

    def follow(self, start: int = 0) -> AsyncIterator[bytes]:
        """Yield as :meth:`events` does, then go on; an empty chunk says that this is all so far."""
        return self._runtime.store.read(self.record.id, start, follow=True)

    async def recorded(self, *types: str, start: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of some types, in order, as the log has them from an index on."""
        marks = [f'"{type_}"'.encode() for type_ in types]
        async with closing(self.events(start)) as chunks:
            async for chunk in chunks:
                for line in chunk.split(b"\n"):
                    event = ndjson.parse(line) if any(mark in line for mark in marks) else None
                    if event is not None and event.get("type") in types:
                        yield event

    async def blob(self, blob_id: str) -> bytes | None:
        """Return a tool's output that was too large for the log, as JSON; None without one."""
        path = self._runtime.store.blob(self.record.id, blob_id)
        return None if path is None else await asyncio.to_thread(path.read_bytes)

    def to_wire(self) -> dict[str, Any]:
        """Return what ``GET /v1/sessions`` says of it."""
        record = self.record
        wire: dict[str, Any] = {
            "sessionId": record.id,
            "channel": record.channel,
            "mode": record.mode,
            "status": self.status,
            "createdAt": record.created_at,
            "principal": record.owner.to_wire(),
        }
        more = {"title": record.title, "purpose": record.purpose}
        return wire | {key: value for key, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Accepted:
    """Answer 202 with the delivery, and more fields if wanted."""

    delivery: Delivery | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the body."""
        return {"ok": True, **(self.delivery.to_wire() if self.delivery else {}), **self.extra}


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer with a status, a body (JSON value, text or bytes) and headers."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class EventStream:
    """Answer with a session's stored lines; with ``follow``, go on as they are recorded."""

    session: Session
    start: int = 0
    follow: bool = True
    limit: int | None = None


class KeyValues:
    """JSON values that the store keeps for one channel."""

    def __init__(self, runtime: ChannelRuntime) -> None:
        self._store = runtime.store
        self._prefix = f"channel/{runtime.channel.id}/"

    async def get(self, key: str) -> Any:
        """Return a kept value, or None."""
        return await self._store.kv_get(self._prefix + key)

    async def put(self, key: str, value: Any) -> None:
        """Keep a JSON value durably."""
        await self._store.kv_put(self._prefix + key, value)

    async def delete(self, key: str) -> bool:
        """Forget a value; False when there was none."""
        return await self._store.kv_delete(self._prefix + key)


class Context:
    """What every piece of channel code may do."""

    def __init__(self, runtime: ChannelRuntime, principal: Principal | None = None) -> None:
        self._runtime = runtime
        self.principal = principal or runtime.own_principal
        self.kv = KeyValues(runtime)
        self.log = runtime.log

    @property
    def channel(self) -> str:
        """The channel's id."""
        return self._runtime.channel.id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._runtime.agent

    @property
    def description(self) -> str:
        """What the agent says of itself, or nothing."""
        return self._runtime.description

    @property
    def clock(self) -> Clock:
        """The host's time."""
        return self._runtime.core.services.clock

    @property
    def folder(self) -> Path:
        """A folder on this host for the channel's own files, such as clones; made when asked."""
        folder = self._runtime.store.folder(self.channel)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @property
    def artifacts(self) -> ContextArtifacts:
        """The channel's artifacts; an event handler has those of its session's owner."""
        return self._runtime.shelf.at(self._place(), self._place_of)

    def _place(self) -> Place:
        return Place(self._runtime.own_principal)

    def _place_of(self, session_id: str, action: Action) -> Place:
        session = self.session(session_id, action=action)
        if session is None:
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        return self._runtime.shelf.in_session(session.id)

    async def send(
        self,
        message: str,
        *,
        continuation_token: str | None = None,
        session_id: str | None = None,
        admission: Admission | None = None,
        delivery_id: str | None = None,
        principal: Principal | None = None,
        mode: Mode = "chat",
        title: str | None = None,
        context: Sequence[str] = (),
        workspace_files: Mapping[str, Any] | None = None,
        cwd: str | Path | None = None,
        purpose: str | None = None,
        dry_run: bool = False,
        as_of: datetime | str | None = None,
        attachments: Sequence[Mapping[str, Any]] = (),
        metadata: Mapping[str, Any] | None = None,
        steer: bool = True,
    ) -> Delivery:
        """Start or continue a conversation; it is durable when this returns.

        ``session_id`` names the stored session and needs its current token; channels whose tokens
        rotate use it for follow-ups. With ``steer=False`` it never enters a turn that runs: it
        waits for the next one, and so does what comes behind it. Raises InvalidRequest,
        UnsupportedOption, Forbidden, NotFound, StaleToken, TaskSession, DeliveryConflict,
        StoreUnavailable or Draining; then nothing was recorded.
        """
        return await self._runtime.send(
            message,
            speaker=principal or self.principal,
            may=lambda record: self._may_send(principal, record),
            continuation_token=continuation_token,
            session_id=session_id,
            admission=admission,
            delivery_id=delivery_id,
            mode=mode,
            title=title,
            context=context,
            workspace_files=workspace_files,
            cwd=cwd,
            purpose=purpose,
            dry_run=dry_run,
            as_of=as_of,
            attachments=attachments,
            metadata=metadata,
            steer=steer,
        )

    async def dispatch(self, message: str, **options: Any) -> Delivery:
        """Start a task session: :meth:`send` with ``mode="task"``, and a fresh token by default."""
        return await self.send(message, mode="task", **options)

    def defer(self, work: Awaitable[Any]) -> None:
        """Run work after the response; a failure is logged, and shutdown waits for it."""
        self._runtime.defer(work)

    async def stop(
        self,
        token_or_id: str,
        *,
        clear_pending: bool = False,
        before: datetime | None = None,
    ) -> bool:
        """Interrupt a session's turn; False when nothing ran. Durable when it returns.

        ``clear_pending`` also drops what waits; ``before`` spares what was accepted later.
        """
        session = self.session(token_or_id, action="stop")
        if session is None:
            return False
        return await self._runtime.stop(session.id, clear_pending=clear_pending, before=before)

    async def approvals(self, token_or_id: str) -> list[ParkedCall]:
        """Return the tool calls of a session that wait for a decision, oldest first."""
        session = self.session(token_or_id)
        return await self._runtime.core.approvals(session.id) if session is not None else []

    async def resolve_approval(
        self,
        token_or_id: str,
        call_id: str,
        decision: Literal["approved", "denied"],
        *,
        reason: str | None = None,
        principal: Principal | None = None,
    ) -> DecisionRecord:
        """Decide a tool call that waits, as the caller or another principal; durable on return.

        The tool's approvers may; when it names none, whoever may speak in the session. The first
        decision counts. Raises NotFound, Forbidden, ApprovalClosed, InvalidRequest,
        StoreUnavailable or Draining.
        """
        if decision not in ("approved", "denied"):
            raise InvalidRequest(f"decision is 'approved' or 'denied', not {decision!r}.")
        found = self._runtime.find(token_or_id)
        if found is None:
            raise NotFound(f"There is no session {token_or_id[:80]!r}.")
        return await self._runtime.core.decide(
            found.id,
            call_id,
            decision,
            principal or self.principal,
            may=lambda record: self._may_send(principal, record),
            reason=reason,
        )

    async def feedback(
        self,
        token_or_id: str,
        rating: Literal["positive", "negative"],
        *,
        turn_id: str | None = None,
        message_ref: str | None = None,
        comment: str | None = None,
        principal: Principal | None = None,
    ) -> None:
        """Record what the caller, or another principal, thinks of an answer; durable on return.

        It is ``feedback.given`` in the session's log; a later one of the same person about the same
        turn takes its place. ``message_ref`` is the channel's name of the message. While the log
        cannot be written it waits. Raises InvalidRequest, NotFound, Forbidden or StoreUnavailable.
        """
        session = self.session(token_or_id)
        if session is None:
            raise NotFound(f"There is no session {token_or_id[:80]!r}.")
        by = principal or self.principal
        if not self._may_send(principal, session.record):
            raise Forbidden("This session belongs to another principal.")
        more = {"turnId": turn_id, "messageRef": message_ref, "comment": comment}
        await self._runtime.feedback(session.id, rating, by, more)

    async def delete(self, token_or_id: str) -> bool:
        """Remove a session with its log, history and workspace; False when there is none."""
        session = self.session(token_or_id, action="delete")
        return session is not None and await self._runtime.core.delete(session.id)

    def session(self, token_or_id: str, *, action: Action = "read") -> Session | None:
        """Return a session by this channel's token or by its id; None when there is none.

        Raises Forbidden when the caller may not do this to it.
        """
        session = self._runtime.find(token_or_id)
        if session is None:
            return None
        if not self._may(session.record, action):
            raise Forbidden("This session belongs to another principal.")
        return session

    def sessions(self, *, limit: int = 1000) -> list[Session]:
        """Return the sessions that the caller owns, newest first; an operator sees all."""
        return self._runtime.sessions(self.principal, limit)

    def tools(self) -> list[ToolInfo]:
        """Return the tools that :meth:`call_tool` can run; a built-in one's source says so."""
        return list(self._runtime.core.services.tools.infos())

    async def call_tool(
        self,
        name: str,
        input: Any = None,  # noqa: A002 - as the wire has it
        *,
        session_id: str | None = None,
        dry_run: bool = False,
        as_of: datetime | str | None = None,
        purpose: str | None = None,
    ) -> ToolResult:
        """Run a tool without a model turn, as the caller; an error of the tool is in the result.

        Bound to a session, which the caller must be allowed to speak in, it takes the session's
        lock. A cancellation reaches the tool. Raises NotFound, Forbidden, SessionBusy,
        WorkspaceUnavailable, UnsupportedOption, Conflict or Draining; then nothing was run.
        """
        if session_id is not None:
            session = self.session(session_id, action="send")
            if session is None:
                raise NotFound(f"There is no session {session_id[:80]!r}.")
            session_id = session.id
        return await self._runtime.call_tool(
            name, input, self.principal, session_id, dry_run=dry_run, as_of=as_of, purpose=purpose
        )

    def url(self, path: str) -> str:
        """Return an absolute address below the agent's own, for answers."""
        return self._runtime.url(path)

    def _may(self, record: SessionRecord, action: Action) -> bool:
        return self._runtime.channel.may(self.principal, record, action)

    def _may_send(self, principal: Principal | None, record: SessionRecord) -> bool:
        return self._runtime.channel.may(principal or self.principal, record, "send")


class RouteContext(Context):
    """What a route's handler is given; ``principal`` is the caller."""

    def __init__(
        self,
        runtime: ChannelRuntime,
        principal: Principal,
        *,
        method: str,
        path: str,
        params: Mapping[str, str],
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        request: Any,
        elsewhere: Callable[[SessionRecord, Action], Awaitable[bool]] | None = None,
        gone: asyncio.Event | None = None,
        ending: asyncio.Event | None = None,
    ) -> None:
        super().__init__(runtime, principal)
        self.method: str = method
        self.path = path
        self.params = params
        self.query = query
        self.headers = headers
        self.body = body
        self.request = request
        self._elsewhere = elsewhere
        self._gone = gone or asyncio.Event()
        self._ending = ending or asyncio.Event()
        self._granted: set[tuple[str, Action]] = set()

    async def hung_up(self) -> None:
        """Return when the caller has hung up; the handler itself goes on for half a minute more."""
        await self._gone.wait()

    async def shutting_down(self) -> None:
        """Return when the host begins to shut down; a handler that waits should answer then."""
        await self._ending.wait()

    async def reach(self, session_id: str, *, action: Action = "read") -> Session:
        """Return a session of any channel of the agent.

        When this channel would not let the caller do this, the session's own channel is asked: what
        it admits this very request to do there is allowed here. Raises NotFound or Forbidden.
        """
        record = self._runtime.store.session(session_id)
        if record is None:
            raise NotFound(f"There is no session {session_id[:80]!r}.")
        if not self._may(record, action):
            if self._elsewhere is None or not await self._elsewhere(record, action):
                raise Forbidden("This session belongs to another principal.")
            self._granted.add((record.id, action))
        return Session(record, self._runtime)

    def _may(self, record: SessionRecord, action: Action) -> bool:
        return (record.id, action) in self._granted or super()._may(record, action)

    def _may_send(self, principal: Principal | None, record: SessionRecord) -> bool:
        granted = principal is None and (record.id, "send") in self._granted
        return granted or super()._may_send(principal, record)


class EventContext(Context):
    """What an event handler is given; ``session`` is the one that the event belongs to."""

    def __init__(
        self,
        runtime: ChannelRuntime,
        session: Session,
        event: Event[Any] | None = None,
        identity: str = "",
        deadline: Deadline | None = None,
        answer: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        super().__init__(runtime, session.record.owner)
        self._answer = answer
        self.session_record = session
        self.event = event
        self._identity = identity
        self._deadline = deadline
        self._unnamed: Counter[str] = Counter()

    async def post(
        self,
        target: Target,
        text: str,
        *,
        key: str = "",
        answers: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> OutboundRecord:
        """Post at an outside target, visible once however often this handler runs.

        An intent is durable before the call, a receipt after it; transient errors are retried with
        backoff for 15 minutes, which do not count as the handler's own time. ``key`` names the post
        within the session: the same key again edits it. Without one, each post of a handler is
        named by its event and its place in the handler; those of a turn's answer by the turn that
        was first asked, so that a turn which was interrupted after its answer edits it instead of
        giving another. With ``answers`` it is named like these whatever the event is, so that what
        is said when a turn starts is edited into its answer. The record that comes back has
        ``ref``, or ``failure`` when it was given up.
        Raises NotFound when the session was deleted.
        """
        session_id = self.session_record.id
        name = f"key/{key}" if key else self._next_name(await self._named(answers=answers))
        post_id = f"{session_id}/{self.channel}/{name}"
        turn_id = self.event.turn_id if self.event is not None else None
        post = Post(post_id, session_id, turn_id, text, metadata or {})
        with self._deadline.held() if self._deadline else contextlib.nullcontext():
            return await self._runtime.outbox.post(post, target)

    async def take_back_rest(self, target: Target) -> None:
        """Take back what this handler posted before, beyond what it has posted now.

        A turn's answer may have stood in three messages when the host died, and the one after it
        takes one; the two that are left over go. It is for posts without a key; the target needs
        ``remove``. Raises TypeError when it has none.
        """
        if not isinstance(target, CanRemove):
            raise TypeError(f"{type(target).__name__} has no remove().")
        for record in self._posted(f"{self._identity}/"):
            number = record.post_id.rpartition("/")[2]
            if number.isdecimal() and int(number) > self._unnamed[self._identity]:
                with self._deadline.held() if self._deadline else contextlib.nullcontext():
                    await self._runtime.outbox.take_back(record, target)

    async def answered(self) -> bool:
        """Tell whether a final answer to what the event's turn was asked is on display already.

        A turn can fail behind its answer, as when the host died in between too often.
        """
        name = await self._answer() if self._answer is not None else None
        if name is None:
            return False
        rest = (one.post_id.partition(name)[2][:1] for one in self._posted(name) if one.ref)
        return any(begins in ("", "#", "/") for begins in rest)

    def _posted(self, begins: str) -> list[OutboundRecord]:
        """Return the session's posts whose names begin so."""
        session_id = self.session_record.id
        prefix = f"{session_id}/{self.channel}/{begins}"
        posts = self._runtime.store.outbound(session_id)
        return [record for record in posts if record.post_id.startswith(prefix)]

    async def _named(self, *, answers: bool) -> str:
        """Return what a post without a key is named after."""
        if not answers or self._answer is None:
            return self._identity
        return await self._answer() or self._identity

    def _next_name(self, identity: str) -> str:
        self._unnamed[identity] += 1
        count = self._unnamed[identity]
        return identity if count == 1 else f"{identity}/{count}"

    async def progress(self, target: Target, call: Callable[[], Awaitable[Any]]) -> bool:
        """Make a call that shows progress, when nothing more important needs the target now.

        Best effort: it waits for no limit and is not retried. False says that it was left out.
        """
        return await self._runtime.outbox.progress(target, call)

    def _place(self) -> Place:
        return self._runtime.shelf.in_session(self.session_record.id)

    def session(self, token_or_id: str | None = None, *, action: Action = "read") -> Session | None:
        """Return the event's session, or another one of this channel."""
        return (
            self.session_record
            if token_or_id is None
            else super().session(token_or_id, action=action)
        )

    def _may(self, record: SessionRecord, action: Action) -> bool:
        return record.channel == self.channel or super()._may(record, action)
