"""A small page beside a FakeSlack: read channels and threads, post as a person, press buttons.

The page asks for all that it shows twice a second. What it does is JSON, which no page of another
origin can send without being asked for by name.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadline_slack.setup.demo.paint import painted
from threadline_slack.testing.model import Channel, Message
from threadline_slack.testing.wire import message_json
from threadline_slack.words.tokens import escape

if TYPE_CHECKING:
    from aiohttp import web

    from threadline_slack.testing import FakeSlack

__all__ = ["Page"]

_ASSETS = Path(__file__).parent / "assets"
_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}
_BODY = 16 * 1024 * 1024
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page:
    """Serves the page of one workspace on 127.0.0.1; port 0 takes a free one."""

    def __init__(self, slack: FakeSlack, port: int = 0) -> None:
        self._slack = slack
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        from aiohttp import web

        application = web.Application(client_max_size=_BODY)
        application.add_routes(
            [
                web.get("/", self._asset),
                web.get("/{name:page\\.(?:css|js)}", self._asset),
                web.get("/favicon.ico", self._no_icon),
                web.get("/view", self._view),
                web.post("/{what:post|click|stop}", self._act),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    # Requests

    async def _asset(self, request: web.Request) -> web.Response:
        from aiohttp import web

        path = _ASSETS / request.match_info.get("name", "page.html")
        return web.Response(
            body=path.read_bytes(),
            content_type=_TYPES[path.suffix],
            charset="utf-8",
            headers=_HEADERS,
        )

    async def _no_icon(self, request: web.Request) -> web.Response:
        from aiohttp import web

        del request
        return web.Response(status=204)

    async def _view(self, request: web.Request) -> web.Response:
        from aiohttp import web

        query = request.query
        try:
            shown = self.view(
                query.get("user", ""), query.get("channel", ""), query.get("thread", "")
            )
        except LookupError as error:
            return web.json_response({"error": str(error)}, status=404)
        return web.json_response(shown, headers=_HEADERS)

    async def _act(self, request: web.Request) -> web.Response:
        """Do what a person does; what Slack would not show them is refused."""
        from aiohttp import web

        if request.content_type != "application/json":
            return web.json_response({"error": "Send JSON."}, status=415)
        body = await request.json()
        act: Callable[[dict[str, Any]], None] = {
            "post": self._post,
            "click": self._click,
            "stop": self._stop,
        }[request.match_info["what"]]
        try:
            act(body)
        except (LookupError, TypeError, ValueError, binascii.Error) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"ok": True})

    # What a person does

    def _post(self, body: dict[str, Any]) -> None:
        """Post words, or a file with words."""
        person = self._slack.user(body["user"])
        text = self.typed(str(body.get("text") or ""))
        thread = body.get("thread") or None
        file = body.get("file")
        if file:
            content = base64.b64decode(file["content"], validate=True)
            person.upload(body["channel"], str(file["name"]), content, text=text, thread_ts=thread)
        elif text.strip():
            person.post(body["channel"], text, thread_ts=thread)

    def _click(self, body: dict[str, Any]) -> None:
        person = self._slack.user(body["user"])
        person.click(str(body["ts"]), str(body["action"]), body.get("value"))

    def _stop(self, body: dict[str, Any]) -> None:
        self._slack.user(body["user"]).press_stop(body["channel"], body["thread"])

    def typed(self, text: str) -> str:
        """Return what a person typed as Slack keeps it: ``@name`` of somebody is a mention."""
        users = {user.name: user.id for user in self._slack.state.users.values()}
        names = "|".join(re.escape(name) for name in sorted(users, key=len, reverse=True))
        return re.sub(
            rf"(?<![\w@])@({names})(?![\w-])", lambda found: f"<@{users[found[1]]}>", escape(text)
        )

    # What a person sees

    def view(self, user: str, channel: str, thread: str) -> dict[str, Any]:
        """Return all that the page shows; the first person and channel unless it is said.

        Raises LookupError.
        """
        state = self._slack.state
        people = [one for one in state.users.values() if one.bot_id is None]
        me = state.user(user or people[0].id)
        channels = [one for one in state.channels.values() if me.id in one.members]
        here = state.channel(channel) if channel else channels[0]
        if me.id not in here.members:
            raise LookupError(f"{me.name} is not in {here.id}.")
        return {
            "me": me.id,
            "agent": state.user(self._slack.app.bot_user).name,
            "people": [{"id": one.id, "name": one.real_name} for one in people],
            "channels": [{"id": one.id, "name": self._name(one, me.id)} for one in channels],
            "channel": here.id,
            "messages": self._messages(here, "", me.id),
            "thread": self._messages(here, thread, me.id) if thread else [],
            "status": self._slack.status(here.id, thread) if thread else "",
            "working": bool(thread) and self._slack.session(here.id, thread) == "processing",
        }

    def _messages(self, channel: Channel, thread: str, me: str) -> list[dict[str, Any]]:
        found = self._slack.messages(channel.id, thread or None)
        whispers = [
            one for one in self._slack.whispers(me, channel.id) if (one.root or "") == thread
        ]
        return [self._message(one) for one in sorted([*found, *whispers], key=lambda one: one.ts)]

    def _message(self, message: Message) -> dict[str, Any]:
        shown = message_json(self._slack.state, message)
        return {
            "ts": message.ts,
            "author": self._called(message.user or "") or message.username or "an app",
            "bot": message.bot_id is not None,
            "parts": painted(shown, self._called),
            "files": [file.name for file in message.files],
            "reactions": [f":{name}:" for name in message.reactions],
            "replies": len(message.replies),
            "edited": message.edited is not None,
            "whisper": message.only_for is not None,
        }

    def _name(self, channel: Channel, me: str) -> str:
        if channel.kind == "channel":
            return f"#{channel.name}"
        return ", ".join(self._called(one) for one in channel.members if one != me)

    def _called(self, identity: str) -> str:
        state = self._slack.state
        if identity in state.users:
            return state.users[identity].name
        return state.channels[identity].name if identity in state.channels else identity
