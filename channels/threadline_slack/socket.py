"""Socket Mode: events over a connection that we open; acknowledged when they are durable.

https://docs.slack.dev/apis/events-api/using-socket-mode
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from slack_sdk.socket_mode.aiohttp import SocketModeClient

__all__ = ["Take", "client", "close"]

log = structlog.get_logger("threadline.channel")

Take = Callable[[Mapping[str, Any]], Awaitable[Any]]


def client(app_token: str, api_url: str, take: Take) -> SocketModeClient:
    """Return a client, not connected yet; every request is given to ``take``, then acknowledged.

    What ``take`` raises leaves the request unacknowledged, so that Slack sends it again. The client
    answers pings, tries again until it is connected, and opens a new connection when one ends.
    """
    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest
    from slack_sdk.socket_mode.response import SocketModeResponse
    from slack_sdk.web.async_client import AsyncWebClient

    web = AsyncWebClient(token=app_token, base_url=api_url)
    made = SocketModeClient(app_token=app_token, web_client=web)

    async def listen(socket: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        try:
            answer = await take(request.payload)
        except Exception as error:
            log.warning("slack.not_acknowledged", type=request.type, error=repr(error))
            return
        payload = answer if isinstance(answer, dict) and request.accepts_response_payload else None
        await socket.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))

    made.socket_mode_request_listeners.append(listen)
    return made


async def close(socket: SocketModeClient) -> None:
    """End a connection, and what keeps it open."""
    await socket.close()  # type: ignore[no-untyped-call]
    await socket.aiohttp_client_session.close()
