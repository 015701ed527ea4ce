"""Installing the app by a browser: Bolt's OAuth flow at two routes of the channel.

``…/install`` leads to Slack, and Slack leads back to ``…/oauth_redirect``. Both are open; a state
in the address, which a cookie has to repeat, binds the way back to the browser that set out.
https://docs.slack.dev/authentication/installing-with-oauth
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin

from threadline import Principal, Reply, RouteContext
from threadline.channel.auth import AuthRequest, Policy, documented
from threadline.errors import NotFound
from threadline_slack.bots import Bots
from threadline_slack.config import API_URL
from threadline_slack.installing.workspaces import Workspaces
from threadline_slack.setup.manifest import bot_scopes, needs_of

if TYPE_CHECKING:
    from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
    from slack_bolt.response import BoltResponse

    from threadline_slack.channel import SlackChannel

__all__ = ["INSTALLER", "Installing", "browsers"]

INSTALLER = "slack-install"
"""The kind of the principal that a browser on these routes is."""

_INSTALL, _BACK = "/install", "/oauth_redirect"
_STATE_SECONDS = 600
_COOKIE = "slack-app-oauth-state"
_QUERY = frozenset({"code", "error", "state"})


def browsers(channel: SlackChannel) -> Policy:
    """Admit anybody to the two routes of the installation, and to nothing else."""

    @documented({"type": "apiKey", "in": "cookie", "name": _COOKIE})
    def browser(request: AuthRequest) -> Principal | None:
        own = rf"(?:/[a-z0-9-]+)?{re.escape(channel.prefix)}(?:{_INSTALL}|{_BACK})"
        admitted = request.method == "GET" and re.fullmatch(own, request.path) is not None
        return Principal(INSTALLER, channel.id) if admitted else None

    return browser


class Installing:
    """Declares the routes of a channel, and answers them."""

    def __init__(self, channel: SlackChannel, bots: Bots) -> None:
        self._channel = channel
        self._bots = bots
        channel.get(_INSTALL, raises=(NotFound,), responses={302: None})(self.install)
        channel.get(_BACK, raises=(NotFound,))(self.back)

    async def install(self, ctx: RouteContext) -> Reply:
        """Lead a browser to Slack to install the app; ``?team=T…`` asks for a workspace."""
        from slack_bolt.request.async_request import AsyncBoltRequest

        if not ctx.url("").startswith("https://"):
            ctx.log.warning(
                "slack.no_https", hint="Slack leads back to --public-url https://… only."
            )
        team = ctx.query.get("team", "")
        query = {"team": team} if re.fullmatch(r"[A-Z0-9]+", team) else {}
        request = AsyncBoltRequest(body="", query=query)
        return _reply(await self._flow(ctx).handle_installation(request))

    async def back(self, ctx: RouteContext) -> Reply:
        """Take a browser back from Slack, and keep the installation."""
        from slack_bolt.request.async_request import AsyncBoltRequest

        query = {name: value for name, value in ctx.query.items() if name in _QUERY}
        cookie = ctx.headers.get("cookie", "")
        request = AsyncBoltRequest(body="", query=query, headers={"cookie": cookie})
        return _reply(await self._flow(ctx).handle_callback(request))

    def _flow(self, ctx: RouteContext) -> AsyncOAuthFlow:
        """Return Bolt's flow, with our address as it is known by now."""
        workspaces = self._bots.workspaces
        if workspaces is None:
            raise NotFound(
                "This bot serves one workspace, by its token; nobody else can install it. To let "
                "others, set SLACK_CLIENT_ID and SLACK_CLIENT_SECRET instead."
            )
        return flow(
            workspaces,
            scopes=bot_scopes(needs_of(self._channel, name=ctx.agent, many=True)),
            install_url=ctx.url(self._channel.prefix + _INSTALL),
            redirect_url=ctx.url(self._channel.prefix + _BACK),
        )


def flow(
    workspaces: Workspaces, *, scopes: list[str], install_url: str, redirect_url: str
) -> AsyncOAuthFlow:
    """Return Bolt's flow, which keeps its installations in ``workspaces``."""
    from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
    from slack_bolt.oauth.async_oauth_settings import AsyncOAuthSettings
    from slack_sdk.oauth.state_store.stateless import StatelessOAuthStateStore

    oauth, app = workspaces.oauth, workspaces.app
    settings = AsyncOAuthSettings(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret,
        scopes=scopes,
        user_scopes=[],
        redirect_uri=redirect_url,
        install_path=install_url,
        install_page_rendering_enabled=False,
        redirect_uri_path=redirect_url,
        authorization_url=_authorization_url(app.base_url),
        installation_store=cast("Any", workspaces),
        # Signed, so that it survives a restart, and no visitor makes us keep anything.
        state_store=StatelessOAuthStateStore(
            expiration_seconds=_STATE_SECONDS, signing_secret=_state_secret(oauth.keys[0])
        ),
        state_cookie_name=_COOKIE,
        state_expiration_seconds=_STATE_SECONDS,
    )
    return AsyncOAuthFlow(client=app, settings=settings)


def _state_secret(key: str) -> str:
    """Return a secret of its own, made from the key that encrypts."""
    return hashlib.sha256(f"state {key}".encode()).hexdigest()


def _authorization_url(api_url: str) -> str:
    """Return where Slack asks people for their consent; of the server that the API is at."""
    return urljoin(api_url if api_url != API_URL else "https://slack.com/", "/oauth/v2/authorize")


def _reply(answer: BoltResponse) -> Reply:
    headers = {name: values[0] for name, values in answer.headers.items()}
    kind = headers.pop("content-type", None)
    return Reply(answer.body, answer.status, {**headers, "Cache-Control": "no-store"}, kind)
