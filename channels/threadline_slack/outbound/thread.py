"""A thread of Slack as a place to post; a post carries its identity in the message's metadata.

https://docs.slack.dev/messaging/message-metadata
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from threadline import Post, TryAgain
from threadline_slack.inbound.decide import Place
from threadline_slack.outbound.deleted import Deleted, QuestionDeleted

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Thread", "content", "error_of"]

EVENT_TYPE = "threadline_post"
_PAGE, _PAGES = 200, 20
_NO_REPLY = frozenset({"cannot_reply_to_message", "restricted_action_thread_locked"})
_PASSING = frozenset(
    {
        "fatal_error",
        "internal_error",
        "ratelimited",
        "rate_limited",
        "request_timeout",
        "service_unavailable",
        "team_added_to_org",
    }
)


def error_of(error: BaseException) -> str:
    """Return Slack's own name of an error, or nothing."""
    response = getattr(error, "response", None)
    try:
        return str(response["error"]) if response is not None else ""
    except (KeyError, TypeError):
        return ""


def content(text: str, blocks: list[dict[str, Any]], asker: str | None = None) -> Mapping[str, Any]:
    """Return what a post needs beside its text; the target sends both.

    ``asker`` is the user id to name where the post cannot stand in its thread.
    """
    return {"text": text, "blocks": blocks, "asker": asker}


class Thread:
    """Where a conversation's posts go; ``place.root`` is None outside of threads.

    ``deleted`` has the threads that are known to be gone.
    """

    def __init__(
        self, client: AsyncWebClient, place: Place, deleted: Deleted | None = None
    ) -> None:
        self._client = client
        self._place = place
        self._deleted = deleted or Deleted()
        self.credential = hashlib.sha256((client.token or "").encode()).hexdigest()[:12]
        self.method = "chat.postMessage"

    async def send(self, post: Post) -> str:
        """Post a message; returns its ``ts``.

        Where the first post takes no replies it goes into the channel, and names the asker. Raises
        QuestionDeleted when the first post is gone; Slack would show the message in the channel.
        """
        await self._look(post)
        try:
            answer = await self._post(post, self._place.root)
        except Exception as error:
            if self._place.root is None or error_of(error) not in _NO_REPLY:
                raise
            answer = await self._post(_addressed(post), None)
            return str(answer["ts"])
        await self._check(answer)
        return str(answer["ts"])

    async def _post(self, post: Post, root: str | None) -> Any:
        return await self._call(
            lambda: self._client.chat_postMessage(
                channel=self._place.channel,
                thread_ts=root,
                metadata={"event_type": EVENT_TYPE, "event_payload": {"id": post.id}},
                unfurl_links=False,
                unfurl_media=False,
                **_said(post),
            )
        )

    async def _look(self, post: Post) -> None:
        """Raise QuestionDeleted when the thread is known to be gone, or Slack says so now."""
        place, deleted = self._place, self._deleted
        if deleted.due(place, post.turn_id):
            try:
                await self._client.conversations_replies(
                    channel=place.channel, ts=place.root or "", limit=1
                )
            except Exception as error:
                if error_of(error) == "thread_not_found":
                    deleted.add(place)
                elif error_of(error) in ("ratelimited", "rate_limited"):
                    deleted.looks = False
        if place in deleted:
            raise QuestionDeleted("The question was deleted, so nothing is posted.")

    async def _check(self, answer: Any) -> None:
        """Take a message away that is not in its thread: its first post was deleted."""
        message = answer.get("message")
        root = self._place.root
        if root is None or not isinstance(message, dict) or message.get("thread_ts") == root:
            return
        self._deleted.add(self._place)
        await self._call(
            lambda: self._client.chat_delete(channel=self._place.channel, ts=str(answer["ts"]))
        )
        raise QuestionDeleted("The question was deleted, so the answer was taken back.")

    async def find(self, post: Post) -> str | None:
        """Read the conversation for the message with the post's identity.

        What a thread does not take stands in the channel, so an empty thread is not all there is.
        """
        root = self._place.root
        try:
            found, replies = await self._find(post, root)
        except Exception as error:
            if root is None or error_of(error) != "thread_not_found":
                raise
            found, replies = None, 0
        if found is None and root is not None and not replies:
            found, _ = await self._find(post, None, pages=1)
        return found

    async def _find(
        self, post: Post, root: str | None, pages: int = _PAGES
    ) -> tuple[str | None, int]:
        """Return the message, and how many others than the first one there are."""
        cursor: str | None = None
        others = 0
        for _ in range(pages):
            answer = await self._call(lambda at=cursor: self._read(root, at))  # type: ignore[misc]
            for message in answer.get("messages") or []:
                others += message.get("ts") != root
                metadata = message.get("metadata") or {}
                payload = metadata.get("event_payload") or {}
                if metadata.get("event_type") == EVENT_TYPE and payload.get("id") == post.id:
                    return str(message["ts"]), others
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                break
        return None, others

    async def edit(self, ref: str, post: Post) -> None:
        """Change a message; blocks are always given, since Slack keeps those that are left out."""
        await self._call(
            lambda: self._client.chat_update(
                channel=self._place.channel, ts=ref, attachments=[], **_said(post)
            )
        )

    async def remove(self, ref: str) -> None:
        """Delete a message; one that is gone already is no error."""
        try:
            await self._call(lambda: self._client.chat_delete(channel=self._place.channel, ts=ref))
        except Exception as error:
            if error_of(error) != "message_not_found":
                raise

    async def _read(self, root: str | None, cursor: str | None) -> Any:
        if root is None:
            return await self._client.conversations_history(
                channel=self._place.channel, include_all_metadata=True, limit=_PAGE, cursor=cursor
            )
        return await self._client.conversations_replies(
            channel=self._place.channel,
            ts=root,
            include_all_metadata=True,
            limit=_PAGE,
            cursor=cursor,
        )

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call; what Slack says of itself in the body of a 200 may pass, too."""
        try:
            return await call()
        except Exception as error:
            if error_of(error) in _PASSING:
                headers = getattr(getattr(error, "response", None), "headers", None) or {}
                TryAgain.when(getattr(error.response, "status_code", 0), headers)  # type: ignore[attr-defined]
                raise TryAgain(f"Slack answered {error_of(error)}.") from error
            raise


def _addressed(post: Post) -> Post:
    """Return a post that names who asked, as it does not stand below the question."""
    asker = post.metadata.get("asker")
    if not asker:
        return post
    said = _said(post)
    address = {"type": "section", "text": {"type": "mrkdwn", "text": f"<@{asker}>"}}
    shown = {
        "text": f"<@{asker}> {said['text']}",
        "blocks": [address, *said["blocks"]] if said["blocks"] else [],
    }
    return dataclasses.replace(post, metadata={**post.metadata, **shown})


def _said(post: Post) -> dict[str, Any]:
    return {
        "text": str(post.metadata.get("text") or post.text),
        "blocks": list(post.metadata.get("blocks") or []),
    }
