"""Posts to an outside API: visible exactly once where the target lets us look.

An intent is durable before the first call, a receipt after it. What may have been sent already,
after a crash or an answer that never came, is looked up with ``find`` before anything is sent
again. A target without ``find`` gets the post again: doubled is bad, silence is worse.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type
from tenacity.wait import wait_exponential, wait_random_exponential

from threadline.cancelled import is_cancelled
from threadline.channel.deadline import Deadline
from threadline.channel.limiter import Limiter
from threadline.channel.target import (
    CanEdit,
    CanFind,
    CanRemove,
    IsPatient,
    Post,
    Target,
    TryAgain,
    sentence,
    understood,
)
from threadline.clock import Clock
from threadline.errors import NotFound, StoreUnavailable
from threadline.store.base import OutboundRecord, Store
from threadline.telemetry import span

__all__ = ["CanEdit", "CanFind", "CanRemove", "Outbox", "Post", "Target", "TryAgain"]

log = structlog.get_logger("threadline.channel")

GIVE_UP_SECONDS = 900.0
ATTEMPT_SECONDS = 60.0
PROGRESS_SECONDS = 10.0
_SOON_SECONDS = 10.0

T = TypeVar("T")


class Outbox:
    """Sends posts with intents, receipts, retries and limits; ``mask`` hides known secrets."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limiter: Limiter,
        *,
        channel: str,
        stamp: Callable[[], str],
        mask: Callable[[bytes], bytes] = lambda line: line,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limiter = limiter
        self._channel = channel
        self._stamp = stamp
        self._mask = mask
        jitter = wait_random_exponential(multiplier=0.25, max=12)
        self._backoff = wait_exponential(multiplier=0.5, max=48) + jitter
        self._posting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def post(self, post: Post, target: Target) -> OutboundRecord:
        """See to it that the target shows the post once; return what came of it.

        A post that is there already, with another text, is edited where the target can. A record
        with ``failure`` says that it was given up, for good or after 15 minutes, or as long as the
        target is patient. Cancelled, it leaves an intent, which the next call looks up. Raises
        NotFound when the session is gone.
        """
        one = self._posting.setdefault(post.id, asyncio.Lock())
        async with one:
            return await self._post(post, target)

    async def _post(self, post: Post, target: Target) -> OutboundRecord:
        digest = hashlib.sha256(post.text.encode("utf-8", "surrogatepass")).hexdigest()
        intent = OutboundRecord(
            post.id, post.session_id, self._channel, post.turn_id, self._stamp(), digest=digest
        )
        kept, fresh = await self._stored(lambda: self._store.intent(intent))
        if kept.settled and not self._differs(kept, digest, target):
            return kept
        attempt = _Attempt(
            post,
            target,
            ref=kept.ref,
            maybe_sent=not fresh,
            same_text=kept.digest == digest,
        )
        record = dataclasses.replace(kept, digest=digest)
        try:
            ref = await self._retried(attempt)
        except Exception as error:
            self._check_session(post)
            return await self._give_up(record, attempt, error)
        return await self._settle(dataclasses.replace(record, ref=ref, failure=None))

    def _differs(self, kept: OutboundRecord, digest: str, target: Target) -> bool:
        """Tell whether there is more to do for a post that was settled before."""
        if kept.digest == digest:
            return False
        if kept.ref is None or isinstance(target, CanEdit):
            return True
        log.warning("outbound.not_edited", session=kept.session_id, post=kept.post_id, ref=kept.ref)
        return False

    async def take_back(self, record: OutboundRecord, target: Target) -> None:
        """See to it that the target does not show a post any more; one that failed stays noted.

        The next post of the same name is sent anew. Raises NotFound when the session is gone.
        """
        one = self._posting.setdefault(record.post_id, asyncio.Lock())
        async with one:
            if record.settled and record.ref is None:
                return
            post = Post(record.post_id, record.session_id, record.turn_id, "")
            removal = _Removal(post, target, ref=record.ref, maybe_sent=True, same_text=True)
            gone = dataclasses.replace(record, ref=None, digest=None, failure="It was taken back.")
            try:
                await self._retried(removal)
            except Exception as error:
                self._check_session(post)
                await self._give_up(record, removal, error)
                return
            await self._settle(gone)

    async def progress(self, target: Target, call: Callable[[], Awaitable[Any]]) -> bool:
        """Make a call if nobody has to wait for it; False when it was left out or failed."""
        key = target.credential, target.method
        if self._limiter.busy(*key):
            return False
        try:
            limit = Deadline(self._clock, PROGRESS_SECONDS)
            async with self._limiter.turn(*key, final=False), limit:
                await call()
        except BaseException as error:
            if _is_ours(error):
                raise
            again = understood(error)
            if isinstance(again, TryAgain) and again.retry_after is not None:
                self._limiter.pause(*key, again.retry_after)
            log.info("progress.left_out", channel=self._channel, error=sentence(error))
            return False
        return True

    # Trying

    async def _retried(self, attempt: _Attempt) -> str:
        target = attempt.target
        patience = target.patience if isinstance(target, IsPatient) else GIVE_UP_SECONDS
        until = self._clock.monotonic() + patience

        async def once() -> str:
            return await self._once(attempt, until)

        def again(state: RetryCallState) -> None:
            log.warning(
                "outbound.again",
                session=attempt.post.session_id,
                channel=self._channel,
                post=attempt.post.id,
                attempt=state.attempt_number,
                seconds=round(state.upcoming_sleep, 3),
                error=attempt.error,
            )

        retrying = self._retrying(TryAgain, until, again)
        result: str = await retrying(once)
        return result

    async def _once(self, attempt: _Attempt, until: float) -> str:
        """Try once, in a place of the limit."""
        target, post = attempt.target, attempt.post
        key = target.credential, target.method
        left = until - self._clock.monotonic()
        async with self._limiter.turn(*key, final=True, seconds=left):
            self._check_session(post)
            try:
                with span("threadline.outbound", session=post.session_id, channel=self._channel):
                    async with Deadline(self._clock, ATTEMPT_SECONDS):
                        return await attempt.run()
            except BaseException as error:
                if _is_ours(error):
                    raise
                told = attempt.failed(error)
                if isinstance(told, TryAgain) and told.retry_after is not None:
                    # Before the place is given to the next one.
                    self._limiter.pause(*key, told.retry_after)
                if told is error:
                    raise
                raise told from error

    def _retrying(
        self,
        kind: type[Exception],
        until: float,
        before_sleep: Callable[[RetryCallState], None] | None = None,
    ) -> AsyncRetrying:
        """Return what tries again after such an error; no attempt begins after ``until``."""

        def wait(state: RetryCallState) -> float:
            backoff = min(self._backoff(state), max(until - self._clock.monotonic(), 0.0))
            error = state.outcome.exception() if state.outcome is not None else None
            asked = error.retry_after if isinstance(error, TryAgain) else None
            return backoff if asked is None else max(asked, min(backoff, _SOON_SECONDS))

        def stop(state: RetryCallState) -> bool:
            left = until - self._clock.monotonic()
            return left <= 0 or state.upcoming_sleep > left

        return AsyncRetrying(
            retry=retry_if_exception_type(kind),
            wait=wait,
            stop=stop,
            sleep=self._clock.sleep,
            before_sleep=before_sleep,
            reraise=True,
        )

    # Keeping

    async def _stored(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, again and again while the disk is full or failing: the answer waits for it."""
        retrying = self._retrying(StoreUnavailable, self._clock.monotonic() + GIVE_UP_SECONDS)

        async def once() -> T:
            return await write()

        result: T = await retrying(once)
        return result

    async def _give_up(
        self, record: OutboundRecord, attempt: _Attempt, error: Exception
    ) -> OutboundRecord:
        said = attempt.error or sentence(error)
        failure = self._mask(said.encode("utf-8", "replace")).decode("utf-8", "replace")
        log.error(
            "outbound.failed",
            session=record.session_id,
            channel=self._channel,
            post=record.post_id,
            error=failure,
        )
        return await self._settle(dataclasses.replace(record, ref=attempt.ref, failure=failure))

    async def _settle(self, record: OutboundRecord) -> OutboundRecord:
        record = dataclasses.replace(record, settled_at=self._stamp())
        await self._stored(lambda: self._store.receipt(record))
        return record

    def _check_session(self, post: Post) -> None:
        """Raise NotFound when the session was deleted: nothing of it is posted any more."""
        if self._store.session(post.session_id) is None:
            raise NotFound(f"Session {post.session_id} was deleted, so nothing of it is posted.")


class _Attempt:
    """One post on its way; remembers whether it may have arrived already."""

    def __init__(
        self, post: Post, target: Target, *, ref: str | None, maybe_sent: bool, same_text: bool
    ) -> None:
        self.post = post
        self.target = target
        self.ref = ref
        self.error = ""
        self._edits = ref is not None
        self._same_text = same_text or not maybe_sent
        self._maybe_sent = maybe_sent
        self._sure_before = False

    async def run(self) -> str:
        """Look if need be, edit what is there, else send."""
        target, post = self.target, self.post
        self._sure_before = not self._maybe_sent
        if self.ref is None and self._maybe_sent and isinstance(target, CanFind):
            self.ref = _found(await target.find(post))
            self._edits = not self._same_text
        if self.ref is None:
            self._maybe_sent = True
            self.ref = _reference(await target.send(post), post)
        elif self._edits and isinstance(target, CanEdit):
            self.ref = _found(await target.edit(self.ref, post), "edit") or self.ref
        return self.ref

    def failed(self, error: BaseException) -> Exception:
        """Take note of a failure; return TryAgain when trying again may help."""
        told = understood(error)
        self.error = sentence(error)
        if isinstance(told, TryAgain) and told.sent is False and self._sure_before:
            self._maybe_sent = False
        return told


class _Removal(_Attempt):
    """The removal of a post that may be there."""

    async def run(self) -> str:
        """Look it up if need be, and take it back."""
        target = self.target
        if self.ref is None and isinstance(target, CanFind):
            self.ref = _found(await target.find(self.post))
        if self.ref is not None and isinstance(target, CanRemove):
            await target.remove(self.ref)
        return self.ref or ""


def _is_ours(error: BaseException) -> bool:
    """Tell whether this very task is to end, from what a client's library raises by itself."""
    if isinstance(error, Exception | SystemExit | KeyboardInterrupt):
        return False
    return not isinstance(error, asyncio.CancelledError) or is_cancelled()


def _found(ref: object, by: str = "find") -> str | None:
    if ref is None or ref == "":
        return None
    if isinstance(ref, bool) or not isinstance(ref, str | int):
        raise TypeError(f"{by}() returned {type(ref).__name__}; it returns a reference or None.")
    return str(ref)


def _reference(ref: object, post: Post) -> str:
    """Return what a target called a post; it is there, whatever the target says."""
    if isinstance(ref, str | int) and not isinstance(ref, bool) and ref != "":
        return str(ref)
    log.warning("outbound.no_reference", post=post.id, got=type(ref).__name__)
    return post.id
