"""One mounted channel at work: its door into the session core."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from threadline.agent.shelf import Shelf
from threadline.channel.channel import Channel
from threadline.channel.context import Delivery, Session
from threadline.channel.limiter import Limiter
from threadline.channel.outbox import Outbox
from threadline.clock import instant, iso
from threadline.errors import InvalidRequest, NotFound, StoreUnavailable
from threadline.harness.base import ToolResult
from threadline.ids import is_delivery_id, is_session_id, new_id
from threadline.principal import Principal
from threadline.session.access import channel_principal
from threadline.session.core import SessionCore
from threadline.session.workspace import decode_files
from threadline.store.base import AcceptRequest, Admission, Mode, SessionRecord

__all__ = ["ChannelRuntime"]

MAX_TITLE = 300
MAX_FEEDBACK = 10_000


class ChannelRuntime:
    """Gives a channel's routes and handlers the core, in the channel's name."""

    def __init__(
        self,
        channel: Channel,
        core: SessionCore,
        *,
        agent: str,
        slug: str = "",
        description: str = "",
        limiter: Limiter | None = None,
        url: Callable[[str], str] = lambda path: path,
        shelf: Shelf | None = None,
    ) -> None:
        self.channel = channel
        self.core = core
        self.store = core.store
        self.agent = agent
        self.description = description
        self.url = url
        self.shelf = shelf or Shelf(core, url=url)
        self.log = structlog.get_logger("threadline.channel").bind(
            agent=slug or agent, channel=channel.id
        )
        self.own_principal = channel_principal(channel.id)
        clock = core.services.clock
        self.outbox = Outbox(
            core.store,
            clock,
            limiter or Limiter(clock),
            channel=channel.id,
            stamp=core.services.stamp,
            mask=core.services.mask,
        )
        self._deferred: set[asyncio.Future[Any]] = set()

    async def send(
        self,
        message: str,
        *,
        speaker: Principal,
        may: Callable[[SessionRecord], bool],
        continuation_token: str | None,
        session_id: str | None,
        admission: Admission | None,
        delivery_id: str | None,
        mode: Mode,
        title: str | None,
        context: Sequence[str],
        workspace_files: Mapping[str, Any] | None,
        cwd: str | Path | None,
        purpose: str | None,
        dry_run: bool,
        as_of: datetime | str | None,
        attachments: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any] | None,
        steer: bool,
    ) -> Delivery:
        """Check a message whole, then journal it."""
        _check_text("message", message)
        for block in _strings("context", context):
            _check_text("context", block)
        if mode not in ("chat", "task"):
            raise InvalidRequest(f"mode is 'chat' or 'task', not {mode!r}.")
        if admission not in (None, "preempt", "coalesce"):
            raise InvalidRequest(f"admission is 'preempt' or 'coalesce', not {admission!r}.")
        if delivery_id is not None and not is_delivery_id(delivery_id):
            raise InvalidRequest("A deliveryId is 1 to 200 printable characters.")
        if title is not None:
            _check_text("title", title)
            if len(title) > MAX_TITLE:
                raise InvalidRequest(f"title has at most {MAX_TITLE} characters.")
        if purpose is not None:
            _check_text("purpose", purpose)
        request = AcceptRequest(
            channel=self.channel.id,
            principal=speaker,
            owner=self.own_principal if self.channel.owner == "channel" else speaker,
            may=may,
            text=message,
            admission=admission or self.channel.admission,
            at=self.core.services.stamp(),
            delivery_id=delivery_id,
            session_id=session_id,
            token=self._token(continuation_token, session_id, mode),
            rotating=self.channel.tokens.rotates,
            mode=mode,
            title=title,
            purpose=purpose,
            dry_run=dry_run,
            as_of=past(as_of, self.core.services.clock.now()),
            cwd=_folder(cwd),
            sender=speaker.to_wire(),
            context=list(context),
            attachments=[dict(item) for item in attachments],
            files=decode_files(workspace_files),
            metadata=dict(metadata or {}),
            steers=steer,
        )
        result, admitted = await self.core.send(request)
        return Delivery(
            result.delivery.delivery_id,
            result.session.id,
            result.token,
            admitted,
            result.delivery,
            self,
        )

    def _token(self, token: str | None, session_id: str | None, mode: Mode) -> str | None:
        """Check the token; one that names a stored session is checked by the store."""
        if session_id is not None:
            if not is_session_id(session_id):
                raise InvalidRequest(f"{session_id[:80]!r} is not a session id.")
            if not isinstance(token, str) or not token:
                raise InvalidRequest(
                    "continuationToken is required for a follow-up: the newest one you were given."
                )
            record = self.store.session(session_id)
            return token if record is None else self.core.services.normal_token(record, token)
        if self.channel.tokens.rotates:
            if token is not None:
                raise InvalidRequest("This channel's tokens rotate: a new session takes none.")
            return None
        if token is None and mode == "task":
            return new_id("task")
        if isinstance(token, str):
            token = self.channel.tokens.normal(token)
        self.channel.tokens.check(token)
        return token

    async def call_tool(
        self,
        name: str,
        value: Any,
        principal: Principal,
        session_id: str | None,
        *,
        dry_run: bool,
        as_of: datetime | str | None,
        purpose: str | None,
    ) -> ToolResult:
        """Check a direct call, then run it; bound to a session it takes the session's lock."""
        names = [tool.name for tool in self.core.services.tools.infos()]
        if name not in names:
            available = ", ".join(names) or "none"
            raise NotFound(f"There is no tool {name!r}. Available: {available}.", available=names)
        return await self.core.call_tool(
            name,
            value,
            principal,
            session_id,
            dry_run=dry_run,
            as_of=past(as_of, self.core.services.clock.now()),
            purpose=purpose,
        )

    async def stop(
        self, session_id: str, *, clear_pending: bool = False, before: datetime | None = None
    ) -> bool:
        """Stop a session's turn."""
        moment = iso(before) if before is not None else None
        return await self.core.stop(session_id, clear_pending=clear_pending, before=moment)

    async def feedback(
        self, session_id: str, rating: str, by: Principal, more: Mapping[str, str | None]
    ) -> None:
        """Record what somebody thinks of an answer."""
        if rating not in ("positive", "negative"):
            raise InvalidRequest(f"rating is 'positive' or 'negative', not {rating!r}.")
        said = {name: value for name, value in more.items() if value is not None}
        for name, value in said.items():
            _check_text(name, value)
            if len(value) > MAX_FEEDBACK:
                raise InvalidRequest(f"{name} has at most {MAX_FEEDBACK:,} characters.")
        data = {"rating": rating, "by": by.to_wire(), **said}
        if not await self.core.note(session_id, "feedback.given", data):
            raise StoreUnavailable("The session cannot record this now. Send it again in a moment.")

    def find(self, token_or_id: str) -> Session | None:
        """Return a session by this channel's token, else by its id."""
        record = None
        if not self.channel.tokens.rotates:
            token = self.channel.tokens.normal(token_or_id)
            record = self.store.session_by_token(self.channel.id, token)
        if record is None:
            record = self.store.session(token_or_id)
        return Session(record, self) if record is not None else None

    def sessions(self, principal: Principal, limit: int) -> list[Session]:
        """Return a principal's sessions, or an operator's view of all."""
        owner = None if principal.operator else principal.key
        return [Session(record, self) for record in self.store.sessions(owner, limit=limit)]

    def defer(self, work: Awaitable[Any]) -> None:
        """Track work that goes on after the response.

        Raises TypeError when it is not awaitable.
        """
        if not inspect.isawaitable(work):
            raise TypeError(f"defer() takes an awaitable, not {type(work).__name__}.")
        task = asyncio.ensure_future(self._guarded(work))
        self._deferred.add(task)
        task.add_done_callback(self._deferred.discard)
        if inspect.iscoroutine(work):
            # One that is cancelled before its first step has not touched it.
            close = work.close
            task.add_done_callback(lambda _: close())

    async def _guarded(self, work: Awaitable[Any]) -> None:
        """Whatever deferred work raises is logged; SystemExit must not end the event loop."""
        try:
            await work
        except asyncio.CancelledError:
            self.log.warning("deferred.cancelled")
            raise
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self.log.error("deferred.failed", error=repr(error), exc_info=error)

    async def finish(self, seconds: float) -> None:
        """Wait for deferred work, and what that defers, then cancel what is left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._deferred and (left := deadline - loop.time()) > 0:
            await asyncio.wait(list(self._deferred), timeout=left)
        late = list(self._deferred)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)


def past(as_of: datetime | str | None, now: datetime) -> str | None:
    """Return a time that is not later than now, as the wire has it; raises InvalidRequest."""
    if as_of is None:
        return None
    try:
        moment = instant(as_of.isoformat() if isinstance(as_of, datetime) else as_of)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"asOf is an ISO 8601 instant with a timezone, such as 2026-01-31T12:00:00Z: {error}."
        ) from None
    if moment > iso(now):
        raise InvalidRequest(f"asOf is {moment}, which is later than now.")
    return moment


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str):
        raise InvalidRequest(f"{name} must be a string.")
    if not text.strip():
        raise InvalidRequest(f"{name} must not be empty or blank.")
    if "\x00" in text:
        raise InvalidRequest(f"{name} must not hold NUL characters.")
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise InvalidRequest(f"{name} must be valid Unicode; it holds a lone surrogate.")


def _strings(name: str, value: Any) -> Sequence[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidRequest(f"{name} must be a list of strings.")
    return value


def _folder(cwd: str | Path | None) -> str | None:
    if cwd is None:
        return None
    folder = Path(cwd)
    if not folder.is_absolute() or not folder.is_dir():
        raise InvalidRequest(
            f"cwd must be an absolute path of an existing folder, not {str(cwd)!r}."
        )
    return str(folder)
