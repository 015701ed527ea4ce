"""A thread of Slack as a place to post; a post carries its identity in the message's metadata.

https://docs.slack.dev/messaging/message-metadata
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from threadline import Post, TryAgain
from threadline_slack.inbound import Place

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Thread", "content", "error_of"]

EVENT_TYPE = "threadline_post"
_PAGE, _PAGES = 200, 20
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


def content(text: str, blocks: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Return what a post needs beside its text; the target sends both."""
    return {"text": text, "blocks": blocks}


class Thread:
    """Where a conversation's posts go; ``place.root`` is None outside of threads."""

    def __init__(self, client: AsyncWebClient, place: Place) -> None:
        self._client = client
        self._place = place
        self.credential = hashlib.sha256((client.token or "").encode()).hexdigest()[:12]
        self.method = "chat.postMessage"

    async def send(self, post: Post) -> str:
        """Post a message; returns its ``ts``."""
        answer = await self._call(
            lambda: self._client.chat_postMessage(
                channel=self._place.channel,
                thread_ts=self._place.root,
                metadata={"event_type": EVENT_TYPE, "event_payload": {"id": post.id}},
                unfurl_links=False,
                unfurl_media=False,
                **_said(post),
            )
        )
        return str(answer["ts"])

    async def find(self, post: Post) -> str | None:
        """Read the conversation for the message with the post's identity."""
        cursor: str | None = None
        for _ in range(_PAGES):
            answer = await self._call(lambda at=cursor: self._read(at))  # type: ignore[misc]
            for message in answer.get("messages") or []:
                metadata = message.get("metadata") or {}
                payload = metadata.get("event_payload") or {}
                if metadata.get("event_type") == EVENT_TYPE and payload.get("id") == post.id:
                    return str(message["ts"])
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None:
                return None
        return None

    async def edit(self, ref: str, post: Post) -> None:
        """Change a message; blocks are always given, since Slack keeps those that are left out."""
        await self._call(
            lambda: self._client.chat_update(
                channel=self._place.channel, ts=ref, attachments=[], **_said(post)
            )
        )

    async def _read(self, cursor: str | None) -> Any:
        if self._place.root is None:
            return await self._client.conversations_history(
                channel=self._place.channel, include_all_metadata=True, limit=_PAGE, cursor=cursor
            )
        return await self._client.conversations_replies(
            channel=self._place.channel,
            ts=self._place.root,
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


def _said(post: Post) -> dict[str, Any]:
    return {
        "text": str(post.metadata.get("text") or post.text),
        "blocks": list(post.metadata.get("blocks") or []),
    }
