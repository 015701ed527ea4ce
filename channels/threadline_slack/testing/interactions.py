"""Buttons, modals, shortcuts and commands: what is sent, and what becomes of the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote_plus, urlencode

from threadline_slack.testing.activity import Activity, Author
from threadline_slack.testing.model import App, Channel, Install, Json, Message, User, View
from threadline_slack.testing.outbound import Answer, Outbound
from threadline_slack.testing.refusal import Refusal
from threadline_slack.testing.sockets import Sockets
from threadline_slack.testing.state import State
from threadline_slack.testing.views import Views
from threadline_slack.testing.wire import message_json, view_json

__all__ = ["Interaction", "Interactions", "ResponseUrl"]

_FORM = "application/x-www-form-urlencoded"
_URL_SECONDS = 30 * 60
_URL_USES = 5


@dataclass(slots=True)
class ResponseUrl:
    """What stands behind a ``response_url``: five uses within half an hour."""

    app: str
    channel: str
    user: str
    message: Message | None
    made: float
    used: int = 0


class Interaction:
    """Something a person did that one app is asked about once; await it for the answer.

    ``answer`` is None until there is one. An answer that failed is what the person sees as an
    error: nothing is sent again.
    """

    def __init__(self, kind: str, payload: Json) -> None:
        self.kind = kind
        self.payload = payload
        self.answer: Answer | None = None
        self.task: asyncio.Task[Answer] | None = None

    def __await__(self) -> Generator[Any, None, Answer]:
        if self.task is None:
            raise RuntimeError("The interaction was never sent.")
        return asyncio.shield(self.task).__await__()


class Interactions:
    """Sends interactions to the app they belong to, and does what it answers."""

    def __init__(
        self, state: State, activity: Activity, views: Views, outbound: Outbound, sockets: Sockets
    ) -> None:
        self.all: list[Interaction] = []
        self.urls: dict[str, ResponseUrl] = {}
        self._state = state
        self._activity = activity
        self._views = views
        self._outbound = outbound
        self._sockets = sockets

    # What people do; payloads after docs.slack.dev/reference/interaction-payloads

    def actions(self, user: User, message: Message, action: Json) -> Interaction:
        """Use an element of a message."""
        channel = self._state.channels[message.channel]
        install = self._owner(message.app, user)
        container = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": channel.id,
            "is_ephemeral": message.only_for is not None,
        }
        container |= {"thread_ts": message.root} if message.root else {}
        payload = {
            **self._common("block_actions", user, install),
            "container": container,
            "trigger_id": self._views.trigger(install, user),
            "channel": {"id": channel.id, "name": channel.name or "directmessage"},
            "state": {"values": {}},
            "response_url": self._response_url(install.app, channel, user, message),
            "actions": [action],
        }
        if message.only_for is None:
            payload["message"] = message_json(self._state, message)
        return self._send(install, "block_actions", payload)

    def view_actions(self, user: User, view: View, action: Json, values: Json) -> Interaction:
        """Use an element of a view."""
        install = self._owner(view.app, user)
        payload = {
            **self._common("block_actions", user, install),
            "container": {"type": "view", "view_id": view.id},
            "trigger_id": self._views.trigger(install, user),
            "view": view_json(view, values=values),
            "actions": [action],
        }
        return self._send(install, "block_actions", payload)

    def submission(self, user: User, view: View, values: Json) -> Interaction:
        """Submit a modal; what the app answers is done to it."""
        install = self._owner(view.app, user)
        payload = {
            **self._common("view_submission", user, install),
            "trigger_id": self._views.trigger(install, user),
            "view": view_json(view, values=values),
            "response_urls": [],
        }
        return self._send(install, "view_submission", payload, view=view)

    def closed(self, user: User, view: View, *, cleared: bool) -> Interaction | None:
        """Close a modal; the app hears of it only if it wanted to."""
        view.open = False
        if not view.body.get("notify_on_close"):
            return None
        install = self._owner(view.app, user)
        payload = {
            **self._common("view_closed", user, install),
            "view": view_json(view),
            "is_cleared": cleared,
        }
        return self._send(install, "view_closed", payload)

    def shortcut(self, user: User, app: App, callback_id: str) -> Interaction:
        """Use a global shortcut."""
        install = self._state.installed(app, user)
        payload = {
            **self._common("shortcut", user, install),
            "action_ts": self._state.ts(),
            "callback_id": callback_id,
            "trigger_id": self._views.trigger(install, user),
        }
        return self._send(install, "shortcut", payload)

    def message_action(
        self, user: User, app: App, callback_id: str, message: Message
    ) -> Interaction:
        """Use a message shortcut."""
        channel = self._state.channels[message.channel]
        install = self._state.installed(app, user)
        payload = {
            **self._common("message_action", user, install),
            "action_ts": self._state.ts(),
            "callback_id": callback_id,
            "trigger_id": self._views.trigger(install, user),
            "response_url": self._response_url(app, channel, user, message),
            "message_ts": message.ts,
            "channel": {"id": channel.id, "name": channel.name or "directmessage"},
            "message": message_json(self._state, message),
        }
        return self._send(install, "message_action", payload)

    def suggestion(self, user: User, message: Message, element: Json, value: str) -> Interaction:
        """Type into a select whose options the app supplies."""
        channel = self._state.channels[message.channel]
        install = self._owner(message.app, user)
        payload = {
            **self._common("block_suggestion", user, install),
            "container": {
                "type": "message",
                "message_ts": message.ts,
                "channel_id": channel.id,
                "is_ephemeral": message.only_for is not None,
            },
            "action_id": element["action_id"],
            "block_id": element["block_id"],
            "value": value,
            "channel": {"id": channel.id, "name": channel.name},
            "message": message_json(self._state, message),
        }
        return self._send(install, "block_suggestion", payload)

    def command(
        self, user: User, app: App, channel: Channel, command: str, text: str
    ) -> Interaction:
        """Send a slash command; what the app answers is shown to the person, or to all."""
        install = self._state.installed(app, user)
        team = self._state.teams[user.team]
        payload: Json = {
            "token": app.verification_token,
            "team_id": team.id,
            "team_domain": team.domain,
            "channel_id": channel.id,
            "channel_name": channel.name or "directmessage",
            "user_id": user.id,
            "user_name": user.name,
            "command": command,
            "text": text,
            "api_app_id": app.id,
            "is_enterprise_install": str(install.team is None).lower(),
            "response_url": self._response_url(app, channel, user, None),
            "trigger_id": self._views.trigger(install, user),
        }
        payload |= {"enterprise_id": team.enterprise} if team.enterprise else {}
        return self._send(install, "slash_command", payload)

    # What apps do with a response_url

    def respond(self, token: str, body: Json) -> str | None:
        """Do what was posted to a ``response_url``; returns an error, or None."""
        url = self.urls.get(token)
        if url is None:
            return "invalid_token"
        expired = self._state.clock.monotonic() - url.made > _URL_SECONDS
        if expired or url.used >= _URL_USES:
            return "expired_url" if expired else "used_url"
        url.used += 1
        content: Json = {
            name: body[name] for name in ("blocks", "attachments", "metadata") if name in body
        }
        if body.get("delete_original") and url.message is not None:
            self._activity.delete(url.message)
        elif body.get("replace_original") and url.message is not None:
            fresh = {"blocks": None, "attachments": None, **content, "text": body.get("text", "")}
            self._activity.edit(url.message, by=None, **fresh)
        else:
            public = body.get("response_type") == "in_channel"
            self._show(url, body.get("text", ""), public, body.get("thread_ts"), content)
        return None

    def _show(
        self, url: ResponseUrl, text: str, public: bool, thread: str | None, content: Json
    ) -> None:
        """Post as a classic bot does: with a bot's id and no user."""
        channel = self._state.channels[url.channel]
        install = self._owner(url.app, self._state.users[url.user])
        author = Author(
            self._state.users[url.user].team,
            None,
            install.bot_id,
            install.app.id,
            username=install.app.name,
        )
        if public:
            self._activity.post(
                channel, author, text, thread_ts=thread, subtype="bot_message", **content
            )
        else:
            self._activity.whisper(channel, author, text, to=url.user, **content)

    # Sending

    def _owner(self, app: str | None, user: User) -> Install:
        if app is None:
            raise LookupError("This belongs to no app, so nobody would hear of it.")
        return self._state.installed(self._state.app(app), user)

    def _common(self, kind: str, user: User, install: Install) -> Json:
        team = self._state.teams[user.team]
        enterprise = {"id": team.enterprise, "name": team.enterprise} if team.enterprise else None
        return {
            "type": kind,
            "user": {
                "id": user.id,
                "username": user.name,
                "name": user.name,
                "team_id": user.team,
            },
            "api_app_id": install.app.id,
            "token": install.app.verification_token,
            "team": {"id": team.id, "domain": team.domain},
            "enterprise": enterprise,
            "is_enterprise_install": install.team is None,
        }

    def _response_url(self, app: App, channel: Channel, user: User, message: Message | None) -> str:
        token = self._state.mint("response-")
        made = self._state.clock.monotonic()
        self.urls[token] = ResponseUrl(app.id, channel.id, user.id, message, made)
        return f"{self._state.url}/actions/{user.team}/{token}"

    def _send(
        self, install: Install, kind: str, payload: Json, *, view: View | None = None
    ) -> Interaction:
        interaction = Interaction(kind, payload)
        self.all.append(interaction)
        interaction.task = self._outbound.spawn(self._run(install.app, interaction, view))
        return interaction

    async def _run(self, app: App, interaction: Interaction, view: View | None) -> Answer:
        answer = await self._ask(app, interaction)
        interaction.answer = answer
        if answer.ok and view is not None:
            try:
                self._views.answered(view, answer.body)
            except Refusal as refusal:
                answer = Answer(answer.status, answer.body, answer.headers, refusal.error)
                interaction.answer = answer
        if answer.ok and interaction.kind == "slash_command":
            self._command_answered(interaction.payload, answer.body)
        return answer

    async def _ask(self, app: App, interaction: Interaction) -> Answer:
        command = interaction.kind == "slash_command"
        if app.socket_mode:
            over: Literal["interactive", "slash_commands"]
            over = "slash_commands" if command else "interactive"
            ack = await self._sockets.interaction(app, interaction.payload, over)
            return Answer(None, failure="timeout") if ack is None else Answer(200, ack)
        url = app.interactivity_url or app.request_url
        if url is None:
            return Answer(None, failure="connection_failed")
        if command:
            raw = urlencode(interaction.payload)
        else:
            text = json.dumps(interaction.payload, ensure_ascii=False, separators=(",", ":"))
            raw = f"payload={quote_plus(text)}"
        return await self._outbound.post(app, url, raw.encode(), _FORM)

    def _command_answered(self, payload: Json, body: Any) -> None:
        if not body:
            return
        said = body if isinstance(body, dict) else {"text": body}
        token = payload["response_url"].rpartition("/")[2]
        content = {name: said[name] for name in ("blocks", "attachments") if name in said}
        public = said.get("response_type") == "in_channel"
        self._show(self.urls[token], said.get("text", ""), public, None, content)
