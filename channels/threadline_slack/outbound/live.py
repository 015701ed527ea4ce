"""Messages that are shown before they are complete: the calls that write them, end or remove them.

A message begins as a native stream, or as a post that is edited, and carries no identity until it
is complete. One whose beginning may have been lost is known by being unfinished: it still streams,
or has a Stop button.
https://docs.slack.dev/reference/methods/chat.startStream
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from threadline import EventContext, Post, TryAgain
from threadline_slack.inbound.decide import Person
from threadline_slack.interaction import cards
from threadline_slack.outbound.deleted import QuestionDeleted
from threadline_slack.outbound.thread import EVENT_TYPE, Thread, _said, error_of

if TYPE_CHECKING:
    from threadline_slack.bots import Bot
    from threadline_slack.inbound.decide import Place

__all__ = ["Ending", "Kind", "Removal", "Shown", "Writer", "is_refused", "progress"]

Kind: TypeAlias = Literal["stream", "edits"]
Keep: TypeAlias = Callable[[], Awaitable[None]]

ENDED = frozenset({"message_not_in_streaming_state", "stopped_by_user"})
"""What is said of a stream that takes no more."""
_GONE = "(removed)"
_PAGES = 20


@dataclass(slots=True, eq=False)
class Shown:
    """One message on its way. ``ts`` None: nobody knows whether it was begun.

    ``text`` is what it shows for sure, None when that is not sure; ``open`` is whether a stream may
    still take more, and ``lost`` that it can be changed no more. Times are monotonic seconds.
    """

    kind: Kind
    ts: str | None = None
    text: str | None = None
    open: bool = True
    lost: bool = False
    opened: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return what a restart needs to know of it."""
        return {"kind": self.kind, "ts": self.ts}


def is_refused(error: BaseException) -> str:
    """Return Slack's name of an error that says for sure that nothing was done, or nothing."""
    name = error_of(error)
    status = getattr(getattr(error, "response", None), "status_code", 0)
    return name if name and status == 200 and not isinstance(error, TryAgain) else ""


async def progress(
    ctx: EventContext, target: Thread, call: Callable[[], Coroutine[Any, Any, Any]]
) -> bool:
    """Make a call that shows progress, and return when it has really ended; False if it failed.

    One that is given up for its time may still arrive, and must not do so behind what comes next.
    """
    running: list[asyncio.Task[Any]] = []

    async def once() -> None:
        running.append(asyncio.ensure_future(call()))
        await asyncio.shield(running[0])

    try:
        made = await ctx.progress(target, once)
        if made or not running:
            return made
        await asyncio.wait(running)
        return not running[0].cancelled() and running[0].exception() is None
    except asyncio.CancelledError:
        for task in running:
            task.cancel()
        raise


class Writer(Thread):
    """Makes the calls of one conversation's live messages."""

    def __init__(self, bot: Bot, place: Place, method: str = "chat.postMessage") -> None:
        super().__init__(bot.client, place, bot.deleted)
        self._bot = bot
        self.method = method

    async def start(self, text: str, asker: Person) -> str:
        """Begin a stream; return its ``ts``."""
        answer = await self._call(
            lambda: self._client.chat_startStream(
                channel=self._place.channel,
                thread_ts=self._place.root or "",
                recipient_user_id=asker.user,
                recipient_team_id=asker.team,
                markdown_text=text,
            )
        )
        return str(answer["ts"])

    async def append(self, ts: str, text: str) -> None:
        """Add to a stream."""
        await self._call(
            lambda: self._client.chat_appendStream(
                channel=self._place.channel, ts=ts, markdown_text=text
            )
        )

    async def stop(self, ts: str, text: str = "", **more: Any) -> None:
        """End a stream, with the rest of it."""
        answer = await self._call(
            lambda: self._client.chat_stopStream(
                channel=self._place.channel, ts=ts, markdown_text=text or None, **more
            )
        )
        await self._check(answer)

    async def begin(self, text: str, blocks: list[dict[str, Any]]) -> str:
        """Post a message that will be edited; return its ``ts``."""
        answer = await self._call(
            lambda: self._client.chat_postMessage(
                channel=self._place.channel,
                thread_ts=self._place.root,
                text=text,
                blocks=blocks,
                unfurl_links=False,
                unfurl_media=False,
            )
        )
        await self._check(answer)
        return str(answer["ts"])

    async def rewrite(self, ts: str, text: str, blocks: list[dict[str, Any]], **more: Any) -> None:
        """Let a message say something else; raises TryAgain while it still streams."""
        try:
            await self._call(
                lambda: self._client.chat_update(
                    channel=self._place.channel,
                    ts=ts,
                    text=text,
                    blocks=blocks,
                    attachments=[],
                    **more,
                )
            )
        except Exception as error:
            if is_refused(error) != "streaming_state_conflict":
                raise
            raise TryAgain("The message still streams.") from error

    async def remove(self, ts: str) -> None:
        """Delete a message; where that is not allowed it says nothing any more."""
        try:
            await super().remove(ts)
        except Exception as error:
            if not is_refused(error):
                raise
            await self.rewrite(ts, _GONE, [])

    async def locate(self, shown: Shown, known: Collection[str], keep: Keep) -> None:
        """Find a message that may have been begun; ended, it could not be told from others."""
        shown.ts, shown.text = await self._unfinished(known), None
        if shown.ts is not None:
            await keep()

    async def _unfinished(self, known: Collection[str]) -> str | None:
        """Return the newest message of ours that was left unfinished, beside those known."""
        found, cursor = None, None
        # A channel is listed from its newest message on, a thread from its oldest.
        for _ in range(_PAGES if self._place.root else 1):
            answer = await self._call(lambda at=cursor: self._read(self._place.root, at))  # type: ignore[misc]
            for message in answer.get("messages") or []:
                ts = str(message.get("ts"))
                if ts not in known and self._bot.me.wrote(message) and _is_unfinished(message):
                    found = max(found or ts, ts)
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return found


def _is_unfinished(message: Mapping[str, Any]) -> bool:
    if message.get("streaming_state") in ("in_progress", "errored"):
        return True
    elements = [
        element
        for block in message.get("blocks") or []
        if block.get("type") == "actions"
        for element in block.get("elements") or []
    ]
    return any(element.get("action_id") == cards.STOP for element in elements)


class Ending(Writer):
    """Where a post goes whose message is shown already: that message is completed.

    When that cannot be done it is posted anew, and the message that was shown is left as it is;
    ``known`` are the other messages on their way, and ``keep`` keeps where this one is.
    """

    def __init__(
        self,
        bot: Bot,
        place: Place,
        shown: Shown,
        known: Collection[str],
        keep: Keep,
        *,
        status: str = "",
    ) -> None:
        streams = shown.kind == "stream" and shown.open
        super().__init__(bot, place, "chat.stopStream" if streams else "chat.update")
        self._shown = shown
        self._known = known
        self._keep = keep
        self._more = {"session_status": status} if status else {}

    async def send(self, post: Post) -> str:
        """Complete the message, or post anew; returns the ``ts``."""
        if self._place in self._deleted:
            raise QuestionDeleted("The question was deleted, so nothing is posted.")
        shown = self._shown
        if shown.ts is None:
            await self.locate(shown, self._known, self._keep)
        if shown.ts is not None and not shown.lost and await self._completed(shown.ts, post):
            return shown.ts
        return await super().send(post)

    async def _completed(self, ts: str, post: Post) -> bool:
        shown, whole = self._shown, str(post.metadata.get("stream") or "")
        extra = list(post.metadata.get("extra") or [])
        clean = bool(whole) and shown.text is not None and whole.startswith(shown.text)
        identity = {"event_type": EVENT_TYPE, "event_payload": {"id": post.id}}
        if shown.kind == "stream" and shown.open:
            rest = whole[len(shown.text or "") :] if clean else ""
            more = {"metadata": identity, "blocks": extra or None} if clean else {}
            if await self._stopped(ts, rest, **self._more, **more) and clean:
                shown.text = whole
                return True
        elif clean and shown.text == whole and shown.kind == "stream" and not extra:
            return True
        try:
            await self.rewrite(ts, **_said(post), metadata=identity)
        except TryAgain:
            shown.open = shown.kind == "stream"
            raise
        except Exception as error:
            if not is_refused(error):
                raise
            shown.lost = True
        return not shown.lost

    async def _stopped(self, ts: str, rest: str, **more: Any) -> bool:
        """End the stream; True when it took the rest as well."""
        shown = self._shown
        for text, given in ((rest, more), ("", {})):
            before, shown.text = shown.text, None
            try:
                await self.stop(ts, text, **given)
            except Exception as error:
                if not (name := is_refused(error)):
                    raise
                shown.text = before
                if name in ENDED or not (text or given):
                    break
            else:
                shown.open = False
                return given is more
        shown.open = False
        return False


class Removal(Writer):
    """Where a message goes that is not needed any more: away."""

    def __init__(
        self, bot: Bot, place: Place, shown: Shown, known: Collection[str], keep: Keep
    ) -> None:
        super().__init__(bot, place, "chat.delete")
        self._shown = shown
        self._known = known
        self._keep = keep
        self._refused = False

    async def send(self, post: Post) -> str:
        """Remove the message; returns the ``ts``."""
        shown = self._shown
        if shown.ts is None:
            await self.locate(shown, self._known, self._keep)
        if shown.ts is None:
            return "none"
        if shown.kind == "stream" and shown.open:
            try:
                await self.stop(shown.ts)
            except Exception as error:
                if not (name := is_refused(error)):
                    raise
                shown.open = name not in ENDED
            else:
                shown.open = False
        try:
            await self.remove(shown.ts)
        except Exception as error:
            if not is_refused(error) or self._refused or shown.kind == "edits":
                raise
            # A stream that is still open is refused too.
            self._refused = shown.open = True
            raise TryAgain("The message may still stream.") from error
        return shown.ts

    async def find(self, post: Post) -> str | None:
        """Say that nothing is known of it: it may be removed again."""
        return None
