"""Slack's clients: a workspace's, whose token is looked up and refreshed, and the app's own."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient
    from slack_sdk.web.async_slack_response import AsyncSlackResponse

__all__ = ["app_client", "token_of", "workspace_client"]

Prepare = Callable[["AsyncWebClient"], Awaitable[None]]


def workspace_client(api_url: str, http: aiohttp.ClientSession, prepare: Prepare) -> AsyncWebClient:
    """Return a client that ``prepare`` gives its token before each call."""
    from slack_sdk.web.async_client import AsyncWebClient

    class WorkspaceClient(AsyncWebClient):
        async def prepared(self) -> None:
            await prepare(self)

        async def api_call(self, api_method: str, **options: Any) -> AsyncSlackResponse:
            await self.prepared()
            return await super().api_call(api_method, **options)

    return WorkspaceClient(None, api_url, session=http, retry_handlers=[])


async def token_of(client: AsyncWebClient) -> str:
    """Return the token of a client for a call that is not one of the Web API."""
    prepared = getattr(client, "prepared", None)
    if prepared is not None:
        await prepared()
    return client.token or ""


def app_client(api_url: str, http: aiohttp.ClientSession) -> AsyncWebClient:
    """Return a client for calls of the app itself, by its client id and secret."""
    from slack_sdk.web.async_client import AsyncWebClient

    class AppClient(AsyncWebClient):
        async def api_call(
            self,
            api_method: str,
            *,
            auth: dict[str, str] | None = None,
            headers: dict[str, str] | None = None,
            **options: Any,
        ) -> AsyncSlackResponse:
            if auth is not None:
                # aiohttp has deprecated the class by which slack_sdk would write this header.
                headers = {**(headers or {}), "Authorization": _basic(**auth)}
            return await super().api_call(api_method, headers=headers, **options)

    return AppClient(None, api_url, session=http, retry_handlers=[])


def _basic(client_id: str, client_secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
