"""Posts to an outside API: visible exactly once where the target lets us look.

An intent is durable before the first call, a receipt after it. What may have been sent already, after
a crash or an answer that never came, is looked up with ``find`` before anything is sent again. A
target without ``find`` gets the post again: doubled is bad, silence is worse.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import structlog
from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception
from tenacity.wait import wait_exponential_jitter

from threadline.channel.limiter import Limiter
from threadline.clock import Clock
from threadline.errors import ThreadlineError
from threadline.store.base import OutboundRecord, Store

__all__ = ["CanEdit", "CanFind", "Outbox", "Post", "Target", "TryAgain"]

log = structlog.get_logger("threadline.channel")

GIVE_UP_SECONDS = 900.0
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


class TryAgain(ThreadlineError):
    """The target could not take the post now; ``retry_after`` is in seconds, when it is known.

    ``sent=False`` says that it surely was not taken, so that nobody has to look for it.
    """

    code = "try_again"
    status = 503

    def __init__(
        self, message: str, *, retry_after: float | None = None, sent: bool | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.sent = sent

    @classmethod
    def when(cls, status: int, headers: Mapping[str, str]) -> None:
        """Raise when an HTTP answer says that trying again may help: 408, 425, 429 and 5xx."""
        if status not in _RETRIED_STATUS:
            return
        given = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
        after = float(given) if given.replace(".", "", 1).isdigit() else None
        sent = False if status == 429 else None
        raise cls(f"The target answered {status}.", retry_after=after, sent=sent)


@dataclass(frozen=True, slots=True)
class Post:
    """One thing to say at a target; ``id`` is the same however often it is tried."""

    id: str
    session_id: str
    turn_id: str | None
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Target(Protocol):
    """Where a channel posts; ``credential`` and ``method`` name the limit that calls share."""

    credential: str
    method: str

    async def send(self, post: Post) -> str:
        """Post it and return the target's own reference of it.

        Raises TryAgain when trying again may help; connection errors and timeouts count as that.
        """


@runtime_checkable
class CanFind(Protocol):
    """A target that can say whether it has a post already."""

    async def find(self, post: Post) -> str | None:
        """Return the reference of the post if the target has it, by ``post.id``."""


@runtime_checkable
class CanEdit(Protocol):
    """A target whose posts can be changed."""

    async def edit(self, ref: str, post: Post) -> None:
        """Make the post say what ``post`` says."""


class Outbox:
    """Sends posts with intents, receipts, retries and limits."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limiter: Limiter,
        *,
        channel: str,
        stamp: Callable[[], str],
    ) -> None:
        self._store = store
        self._clock = clock
        self._limiter = limiter
        self._channel = channel
        self._stamp = stamp

    async def post(self, post: Post, target: Target) -> OutboundRecord:
        """See to it that the target shows the post once; return what came of it.

        A post that is there already, with another text, is edited where the target can. A record
        with ``failure`` says that it was given up, after 15 minutes or for good.
        """
        digest = hashlib.sha256(post.text.encode()).hexdigest()
        intent = OutboundRecord(
            post.id, post.session_id, self._channel, post.turn_id, self._stamp()
        )
        record, fresh = await self._store.intent(intent)
        known = record.ref if record.settled else None
        if record.settled and (record.digest == digest or not _may_change(record, target)):
            return record
        attempt = _Attempt(post, target, self._limiter, maybe_sent=not fresh, ref=known)
        record = dataclasses.replace(record, digest=digest)
        try:
            ref = await self._retried(attempt)
        except RetryError as error:
            return await self._give_up(record, error.last_attempt.exception())
        except Exception as error:
            return await self._give_up(record, error)
        return await self._settle(dataclasses.replace(record, ref=ref, failure=None))

    async def progress(self, target: Target, call: Callable[[], Awaitable[Any]]) -> bool:
        """Make a call if nobody has to wait for it; False when it was left out or failed."""
        if self._limiter.busy(target.credential, target.method):
            return False
        try:
            async with self._limiter.turn(target.credential, target.method, final=False):
                await call()
        except Exception as error:
            if isinstance(error, TryAgain) and error.retry_after is not None:
                self._limiter.pause(target.credential, target.method, error.retry_after)
            log.info("progress.left_out", channel=self._channel, error=repr(error))
            return False
        return True

    async def _retried(self, attempt: _Attempt) -> str:
        began = self._clock.monotonic()
        backoff = wait_exponential_jitter(initial=0.5, max=60.0, jitter=0.5)

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome is not None else None
            asked = error.retry_after if isinstance(error, TryAgain) else None
            if asked is not None:
                attempt.pause(asked)
            return asked if asked is not None else float(backoff(state))

        retrying = AsyncRetrying(
            retry=retry_if_exception(is_transient),
            wait=wait,
            stop=lambda state: self._clock.monotonic() - began >= GIVE_UP_SECONDS,
            sleep=self._clock.sleep,
        )
        result: str = await retrying(attempt.run)
        return result

    async def _give_up(self, record: OutboundRecord, error: BaseException | None) -> OutboundRecord:
        log.error(
            "outbound.failed",
            session=record.session_id,
            channel=self._channel,
            post=record.post_id,
            error=repr(error),
        )
        return await self._settle(dataclasses.replace(record, failure=_sentence(error)))

    async def _settle(self, record: OutboundRecord) -> OutboundRecord:
        record = dataclasses.replace(record, settled_at=self._stamp())
        await self._store.receipt(record)
        return record


def _may_change(record: OutboundRecord, target: Target) -> bool:
    return record.ref is not None and isinstance(target, CanEdit)


class _Attempt:
    """One post on its way; remembers whether it may have arrived already."""

    def __init__(
        self,
        post: Post,
        target: Target,
        limiter: Limiter,
        *,
        maybe_sent: bool,
        ref: str | None = None,
    ) -> None:
        self._post = post
        self._target = target
        self._limiter = limiter
        self._maybe_sent = maybe_sent
        self._ref = ref

    def pause(self, seconds: float) -> None:
        """Hold back everybody who shares the limit."""
        self._limiter.pause(self._target.credential, self._target.method, seconds)

    async def run(self) -> str:
        """Look if need be, then send."""
        target, post = self._target, self._post
        async with self._limiter.turn(target.credential, target.method, final=True):
            ref = self._ref
            if ref is None and self._maybe_sent and isinstance(target, CanFind):
                ref = await target.find(post)
            if ref is not None:
                if isinstance(target, CanEdit):
                    await target.edit(ref, post)
                return ref
            before, self._maybe_sent = self._maybe_sent, True
            try:
                return await target.send(post)
            except TryAgain as error:
                self._maybe_sent = before if error.sent is False else True
                raise


def is_transient(error: BaseException) -> bool:
    """Tell whether trying again may help: TryAgain, and whatever a connection raises."""
    if isinstance(error, TryAgain | ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError):
        return not isinstance(error, PermissionError | FileNotFoundError)
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(names & {"aiohttp.ClientConnectionError", "httpx.TransportError"})


def _sentence(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:1000]
