"""Slack's other addresses: uploads, downloads, response URLs, webhooks, the OAuth page."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from threadline.testing.pulse import Pulse
from threadline_slack.testing.activity import Activity, Author
from threadline_slack.testing.interactions import Interactions
from threadline_slack.testing.model import Install, Json
from threadline_slack.testing.state import State
from threadline_slack.testing.uploads import Uploads

__all__ = ["Pages"]

_SIGN_IN = "<!DOCTYPE html><html><head><title>Sign in to Slack</title></head></html>"


class Pages:
    """Handlers for what is not the Web API. ``webhooks`` maps a path to bot and channel."""

    def __init__(
        self,
        state: State,
        activity: Activity,
        interactions: Interactions,
        uploads: Uploads,
        pulse: Pulse,
    ) -> None:
        self.webhooks: dict[str, tuple[Author, str]] = {}
        self._state = state
        self._activity = activity
        self._interactions = interactions
        self._uploads = uploads
        self._pulse = pulse

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/upload/v1/{token}", self.upload),
            web.get("/files-pri/{file}/{tail:.+}", self.download),
            web.get("/signin", self.sign_in),
            web.post("/actions/{team}/{token}", self.respond),
            web.post("/services/{path:.+}", self.webhook),
            web.get("/oauth/v2/authorize", self.authorize),
        ]

    async def upload(self, request: web.Request) -> web.Response:
        """Take the bytes of a file, as a raw body or as a form's file."""
        content = b""
        if request.content_type == "multipart/form-data":
            for value in (await request.post()).values():
                if isinstance(value, web.FileField):
                    content = value.file.read()
        else:
            content = await request.read()
        if not self._uploads.receive(request.match_info["token"], content):
            return web.Response(status=404, text="There is no such upload.")
        self._pulse.beat()
        return web.Response(text=f"OK - {len(content)}")

    async def download(self, request: web.Request) -> web.Response:
        """Give a file to a token that may read it; anybody else is sent to sign in, with 200."""
        identity = request.match_info["file"].rpartition("-")[2]
        file = self._state.files.get(identity)
        if file is None or file.deleted or file.content is None:
            return web.Response(status=404, text="not found")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        install = self._state.by_token(token)
        if install is None or install.revoked or not self._may_read(install, file.channels):
            raise web.HTTPFound(f"{self._state.url}/signin")
        return web.Response(body=file.content, content_type=file.mimetype.partition(";")[0])

    def _may_read(self, install: Install, channels: list[str]) -> bool:
        if "files:read" not in install.scopes:
            return False
        return any(install.bot_user in self._state.channels[one].members for one in channels)

    async def sign_in(self, request: web.Request) -> web.Response:
        """Show the page that a download without access ends at."""
        del request
        return web.Response(text=_SIGN_IN, content_type="text/html")

    async def respond(self, request: web.Request) -> web.Response:
        """Take what an app posts to a ``response_url``."""
        with self._pulse.busy("a response_url"):
            body = await _json(request)
            error = self._interactions.respond(request.match_info["token"], body)
        if error is not None:
            return web.json_response({"ok": False, "error": error}, status=404)
        return web.Response(text="ok")

    async def webhook(self, request: web.Request) -> web.Response:
        """Post by an incoming webhook, as classic bots do: with a bot's id and no user."""
        with self._pulse.busy("an incoming webhook"):
            found = self.webhooks.get(request.match_info["path"])
            if found is None:
                return web.Response(status=404, text="no_service")
            body = await _json(request)
            author, channel = found
            content = {
                name: body[name] for name in ("blocks", "attachments", "thread_ts") if name in body
            }
            if not body.get("text") and not content:
                return web.Response(status=400, text="no_text")
            self._activity.post(
                self._state.channel(channel),
                author,
                body.get("text", ""),
                subtype="bot_message",
                **content,
            )
        return web.Response(text="ok")

    async def authorize(self, request: web.Request) -> web.Response:
        """Show the OAuth page to a person who allows everything: it leads straight back."""
        query = request.query
        apps = [a for a in self._state.apps.values() if a.client_id == query.get("client_id")]
        if not apps:
            return web.Response(status=400, text="invalid_client_id")
        team = query.get("team") or next(iter(self._state.teams))
        scopes = [scope for scope in query.get("scope", "").split(",") if scope]
        install = next((one for one in apps[0].installs if one.team == team), None)
        if install is None:
            install = self._state.install(apps[0], team=team, scopes=scopes)
        code = self._state.mint("code-")
        self._state.codes[code] = install
        back = urlencode({"code": code, "state": query.get("state", "")})
        raise web.HTTPFound(f"{query.get('redirect_uri', '')}?{back}")


async def _json(request: web.Request) -> Json:
    """Return a JSON body, sent as such or in a form's ``payload``."""
    raw: Any = await request.read()
    if request.content_type == "application/x-www-form-urlencoded":
        raw = (await request.post()).get("payload", "{}")
    try:
        body = json.loads(raw or b"{}")
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
