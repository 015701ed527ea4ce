"""Which app hears of what, and the bodies of the events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from threadline_slack.testing.model import App, Channel, Install, Json, Message
from threadline_slack.testing.state import State
from threadline_slack.testing.wire import channel_type, is_system, mentions, message_json

__all__ = ["EVENT_SCOPES", "Publisher"]

_MESSAGES = {
    "channel": "message.channels",
    "group": "message.groups",
    "im": "message.im",
    "mpim": "message.mpim",
}

EVENT_SCOPES = {
    "message.channels": "channels:history",
    "message.groups": "groups:history",
    "message.im": "im:history",
    "message.mpim": "mpim:history",
    "app_mention": "app_mentions:read",
    "reaction_added": "reactions:read",
    "reaction_removed": "reactions:read",
    "member_joined_channel": "channels:read",
    "member_left_channel": "channels:read",
    "file_shared": "files:read",
    "assistant_thread_started": "assistant:write",
    "assistant_thread_context_changed": "assistant:write",
    "app_context_changed": "assistant:write",
    "agent_session_stopped": "chat:write",
    "agent_session_title_changed": "chat:write",
}
"""What an installation needs to hear of an event; events that are not here need nothing."""


class Publisher:
    """Makes the events of what happens, and hands each app its own.

    An app hears of what happens in conversations its bot is a member of. ``send`` gets the app and
    the whole body, with ids of its own.
    """

    def __init__(self, state: State, send: Callable[[App, Json], None]) -> None:
        self._state = state
        self._send = send

    # Messages

    def posted(self, message: Message) -> None:
        """Tell of a new message: a message event, and a mention's twin with another event id."""
        channel = self._state.channels[message.channel]
        event = self._message_event(message, channel)
        if message.subtype == "thread_broadcast" and (root := self._state.root(message)):
            event["root"] = message_json(self._state, root)
        self._tell(channel, event, message)
        self._mention(channel, event, message)

    def edited(self, message: Message, before: Json) -> None:
        """Tell of an edit; a mention in the edited text is heard of again, with ``edited``.

        That second event is not documented, but reported: slackapi/bolt-js#960.
        """
        channel = self._state.channels[message.channel]
        now = message_json(self._state, message)
        self._tell(channel, self._change("message_changed", channel, now, before), message)
        if message.edited is not None:
            self._mention(channel, self._message_event(message, channel), message)

    def deleted(self, message: Message, before: Json) -> None:
        """Tell that a message is gone."""
        channel = self._state.channels[message.channel]
        change = self._change("message_deleted", channel, None, before)
        self._tell(channel, {**change, "deleted_ts": message.ts}, message)

    def _message_event(self, message: Message, channel: Channel) -> Json:
        event = message_json(self._state, message)
        if message.team not in channel.teams[:1]:
            event["user_team"] = event["source_team"] = message.team
        return {
            **event,
            "channel": channel.id,
            "event_ts": message.ts,
            "channel_type": channel_type(channel),
        }

    def _change(self, subtype: str, channel: Channel, now: Json | None, before: Json) -> Json:
        ts = self._state.ts()
        return {
            "type": "message",
            "subtype": subtype,
            **({"message": now} if now is not None else {}),
            "previous_message": before,
            "channel": channel.id,
            "hidden": True,
            "ts": ts,
            "event_ts": ts,
            "channel_type": channel_type(channel),
        }

    def _tell(self, channel: Channel, event: Json, message: Message) -> None:
        own = None if self._state.options.own_events else message.app
        self.publish(_MESSAGES[channel.kind], event, channel, team=message.team, but=own)

    def _mention(self, channel: Channel, event: Json, message: Message) -> None:
        """Tell the bots that are mentioned; in direct and group messages there is no twin."""
        if channel.kind not in ("channel", "group") or is_system(message):
            return
        named = set(mentions(message.text))
        twin = {name: value for name, value in event.items() if name != "channel_type"}
        twin["type"] = "app_mention"
        for install in self._listeners(channel, "app_mention"):
            if install.bot_user in named and message.app != install.app.id:
                self._send(install.app, self.body(install, twin, channel, team=message.team))

    # Whatever else

    def publish(
        self,
        name: str,
        event: Json,
        channel: Channel,
        *,
        team: str,
        only: str | None = None,
        but: str | None = None,
    ) -> None:
        """Send an event of a conversation to the apps that subscribe to ``name``.

        ``team`` is where it comes from; ``only`` and ``but`` are ids of apps.
        """
        for install in self._listeners(channel, name):
            if install.app.id != but and only in (None, install.app.id):
                self._send(install.app, self.body(install, event, channel, team=team))

    def tell(self, install: Install, name: str, event: Json) -> None:
        """Send an event that belongs to no conversation to one installation."""
        if self._hears(install, name):
            team = install.team or next(
                one.id
                for one in self._state.teams.values()
                if self._state.in_reach(install, one.id)
            )
            self._send(install.app, self.body(install, event, None, team=team))

    def body(self, install: Install, event: Json, channel: Channel | None, *, team: str) -> Json:
        """Return an event in its envelope, under a new event id."""
        state = self._state
        identity = state.mint("Ev")
        authorization: dict[str, Any] = {
            "enterprise_id": install.enterprise,
            "team_id": install.team,
            "user_id": install.bot_user,
            "is_bot": True,
            "is_enterprise_install": install.team is None,
        }
        body: Json = {
            "token": install.app.verification_token,
            "team_id": team,
            "context_team_id": install.team,
            "context_enterprise_id": install.enterprise,
            "api_app_id": install.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": identity,
            "event_time": state.now(),
            "authorizations": [authorization],
            "is_ext_shared_channel": channel is not None and channel.external,
            "event_context": f"4-{identity}",
        }
        return body | ({"enterprise_id": install.enterprise} if install.enterprise else {})

    def _listeners(self, channel: Channel, name: str) -> list[Install]:
        """Return one installation of each app that hears of this here."""
        found: dict[str, Install] = {}
        for install in self._state.installs():
            there = install.bot_user in channel.members and self._state.sees(install, channel)
            if there and self._hears(install, name):
                found.setdefault(install.app.id, install)
        return list(found.values())

    def _hears(self, install: Install, name: str) -> bool:
        scope = EVENT_SCOPES.get(name)
        events = install.app.events
        return (events is None or name in events) and (scope is None or scope in install.scopes)
