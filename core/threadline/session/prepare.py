"""What a channel fetches for a delivery, after it is durable and before the model sees it.

Preparations run side by side, each with a deadline; prompts keep arrival order; an interrupt never
waits for one. When one fails, the prompt says what is missing: the delivery is never lost for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from threadline.clock import Clock
from threadline.errors import ThreadlineError
from threadline.store.base import DeliveryRecord

__all__ = ["Preparations", "Prepared", "Preparer"]

log = structlog.get_logger("threadline.session")

PREPARE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was fetched: blocks the model reads before the message, and files for the workspace.

    ``provisional``: it is as of a turn that runs. A message that is not steered into that turn is
    prepared once more, from nothing, when its own begins.
    """

    context: Sequence[str] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    attachments: Sequence[Mapping[str, Any]] = ()
    provisional: bool = False


Preparer = Callable[[DeliveryRecord], "Awaitable[Prepared | None] | None"]
Seconds = Callable[[DeliveryRecord], float]
"""How long a preparation may take."""


def usual(_: DeliveryRecord) -> float:
    """Return 20 seconds."""
    return PREPARE_SECONDS


class Preparations:
    """The preparations of one session's pending deliveries."""

    def __init__(
        self,
        preparer: Preparer | None,
        clock: Clock,
        done: Callable[[DeliveryRecord], None],
        seconds: Seconds = usual,
    ) -> None:
        self._preparer = preparer
        self._seconds = seconds
        self._clock = clock
        self._done = done
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._begun: set[int] = set()
        self._provisional: dict[int, DeliveryRecord | None] = {}

    def begin_rest(self, pending: Sequence[DeliveryRecord]) -> None:
        """Start fetching for what waited for its turn, which is about to begin."""
        for delivery in pending:
            before = self._provisional.get(delivery.seq)
            if before is not None:
                self._provisional[delivery.seq] = None
                self._begun.discard(delivery.seq)
                self._done(before)
            self.begin(before or delivery)
        waiting = {delivery.seq for delivery in pending}
        self._begun &= waiting
        self._provisional = {n: d for n, d in self._provisional.items() if n in waiting}

    def begin(self, delivery: DeliveryRecord) -> None:
        """Start fetching, if the delivery's channel wants to; once for each delivery."""
        if self._preparer is None or delivery.seq in self._begun:
            return
        self._begun.add(delivery.seq)
        work = self._preparer(delivery)
        if work is None:
            return
        # A future of its own: one that is dropped before it began must be closed, too.
        fetching = asyncio.ensure_future(work)
        task = asyncio.get_running_loop().create_task(self._run(delivery, fetching))
        task.add_done_callback(lambda _: fetching.cancel())
        self._tasks[delivery.seq] = task

    def unready(self, deliveries: Iterable[DeliveryRecord]) -> list[asyncio.Task[None]]:
        """Return what must end before these can be prompted."""
        return [task for d in deliveries if (task := self._tasks.get(d.seq)) is not None]

    def ready(self, deliveries: Sequence[DeliveryRecord]) -> list[DeliveryRecord]:
        """Return the deliveries before the first that is not ready."""
        first = next((n for n, d in enumerate(deliveries) if d.seq in self._tasks), None)
        return list(deliveries[:first])

    def drop(self, seqs: Collection[int] | None = None) -> None:
        """Stop fetching for deliveries that are not pending any more, or for all."""
        for seq in list(self._tasks) if seqs is None else seqs:
            task = self._tasks.pop(seq, None)
            if task is not None:
                task.cancel()

    async def _run(self, delivery: DeliveryRecord, work: Awaitable[Prepared | None]) -> None:
        prepared = await self._fetched(delivery, work)
        if self._tasks.pop(delivery.seq, None) is None:
            return
        if prepared is not None:
            if prepared.provisional:
                self._provisional.setdefault(delivery.seq, delivery)
            delivery = dataclasses.replace(
                delivery,
                context=[*delivery.context, *prepared.context],
                files={**delivery.files, **prepared.files},
                attachments=[*delivery.attachments, *prepared.attachments],
            )
        self._done(delivery)

    async def _fetched(
        self, delivery: DeliveryRecord, work: Awaitable[Prepared | None]
    ) -> Prepared | None:
        """Return what was fetched in time, or a block that says that something is missing."""
        fetching = asyncio.ensure_future(work)
        seconds = self._seconds(delivery)
        deadline = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait([fetching, deadline], return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                return _missing(delivery, f"it took longer than {seconds:g} s")
            return fetching.result()
        except asyncio.CancelledError:
            if not fetching.cancelled():
                raise
            return _missing(delivery, "it was cancelled")
        except Exception as error:
            return _missing(delivery, f"{type(error).__name__}: {error}", error)
        finally:
            fetching.cancel()
            deadline.cancel()


def _missing(delivery: DeliveryRecord, why: str, error: Exception | None = None) -> Prepared:
    """Say in the prompt that something is missing; the words of a foreign error are for the log."""
    log.warning("prepare.failed", session=delivery.session_id, channel=delivery.channel, error=why)
    if error is not None and not isinstance(error, ThreadlineError):
        why = type(error).__name__
    return Prepared([f"[What belongs to this message could not be fetched ({why}).]"])
