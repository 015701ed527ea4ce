"""The line under a thread that says what the agent does; it belongs to a turn.

https://docs.slack.dev/reference/methods/assistant.threads.setStatus
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from threadline_slack.inbound import Place
from threadline_slack.thread import Thread, error_of

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

__all__ = ["Status"]

_NEVER = frozenset({"unknown_method", "missing_scope", "not_allowed_token_type"})


class StatusTarget(Thread):
    """The thread, with the limit of the status call."""

    def __init__(self, client: AsyncWebClient, place: Place) -> None:
        super().__init__(client, place)
        self.method = "assistant.threads.setStatus"


class Status:
    """Shows statuses as long as the server knows the method and lets the app use it."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client
        self.available = True

    def target(self, place: Place) -> Thread:
        """Return what the call counts against."""
        return StatusTarget(self._client, place)

    async def show(self, place: Place, text: str) -> None:
        """Show a text, or nothing for an empty one; only threads have a status."""
        if place.root is None or not self.available:
            return
        try:
            await self._client.assistant_threads_setStatus(
                channel_id=place.channel, thread_ts=place.root, status=text
            )
        except Exception as error:
            if error_of(error) not in _NEVER:
                raise
            self.available = False
