"""The manifest of an agent's Slack app: made from what its channel does; no I/O.

https://docs.slack.dev/reference/app-manifest
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from threadline_slack.channel import SlackChannel

__all__ = [
    "Command",
    "Needs",
    "Shortcut",
    "address",
    "bot_events",
    "bot_scopes",
    "manifest",
    "needs_of",
    "user_name",
]

_NAME, _DESCRIPTION, _AGENT, _PROMPTS = 35, 140, 300, 4
_LOUD = ("message.channels", "message.groups", "message.mpim")


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command; ``name`` begins with a slash."""

    name: str
    description: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Shortcut:
    """An entry of a message's menu, or with ``scope`` global of the composer's."""

    callback_id: str
    name: str
    description: str
    scope: Literal["message", "global"] = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an agent's app has to be allowed, told and shown.

    ``socket``: events come by Socket Mode, else to an address. ``follow_ups`` and ``watch`` (names
    or ids of channels) need every post of the channels that the bot is in; without them it hears of
    mentions and direct messages alone. ``agent``: the app is declared an agent, with sessions that
    have a status and a stop button; ``prompts`` are ``(title, message)`` to begin with. ``acks``:
    it marks messages by reactions; ``reactions``: it hears of people's. ``many``: it is installed
    by OAuth in more than one workspace.
    """

    name: str
    description: str = ""
    socket: bool = True
    follow_ups: bool = True
    watch: tuple[str, ...] = ()
    agent: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    commands: tuple[Command, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()
    acks: bool = False
    reactions: bool = False
    many: bool = False


def bot_scopes(needs: Needs) -> list[str]:
    """Return the bot's scopes, sorted.

    Threads are read wherever the bot is asked: for what was said before, and for posts of its own
    that a crash left unconfirmed.
    """
    places = ("channels", "groups", "im", "mpim")
    wanted = {
        "app_mentions:read": True,
        "chat:write": True,
        "users:read": True,
        "channels:read": True,
        "groups:read": True,
        "mpim:read": True,
        "files:read": True,
        "files:write": True,
        "reactions:write": needs.acks,
        "reactions:read": needs.reactions,
        "commands": bool(needs.commands or needs.shortcuts),
        "assistant:write": needs.agent,
    } | {f"{place}:history": True for place in places}
    return sorted(scope for scope, on in wanted.items() if on)


def bot_events(needs: Needs) -> list[str]:
    """Return the events to subscribe to, sorted."""
    found = {"app_mention", "message.im"}
    if needs.follow_ups or needs.watch:
        found.update(_LOUD)
    if needs.agent:
        found |= {"agent_session_stopped", "app_context_changed", "app_home_opened"}
    if needs.reactions:
        found.add("reaction_added")
    if needs.many:
        found |= {"app_uninstalled", "tokens_revoked"}
    return sorted(found)


def manifest(
    needs: Needs,
    *,
    events_url: str | None = None,
    redirect_url: str | None = None,
    org: bool = False,
) -> dict[str, Any]:
    """Return the manifest.

    ``events_url`` is the one endpoint, ignored with Socket Mode; ``redirect_url`` is where OAuth
    returns to; ``org`` lets a whole organisation install the app. Raises ValueError without an
    address that is needed.
    """
    if not needs.socket and events_url is None:
        raise ValueError("Without Socket Mode the app needs an address for its events.")
    if needs.many and redirect_url is None:
        raise ValueError("An app for many workspaces needs an address that OAuth returns to.")
    url = None if needs.socket else events_url
    oauth: dict[str, Any] = {"scopes": {"bot": bot_scopes(needs)}}
    if needs.many:
        oauth = {"redirect_urls": [redirect_url], **oauth}
    return {
        "display_information": _display(needs),
        "features": _features(needs, url),
        "oauth_config": oauth,
        "settings": {
            "event_subscriptions": _with(url, "request_url") | {"bot_events": bot_events(needs)},
            "interactivity": {"is_enabled": True}
            | _with(url, "request_url")
            | _with(url, "message_menu_options_url"),
            "org_deploy_enabled": org,
            "socket_mode_enabled": needs.socket,
            "token_rotation_enabled": False,
        },
    }


def _display(needs: Needs) -> dict[str, str]:
    description = " ".join(needs.description.split())
    shown = {"name": _short(needs.name, _NAME)}
    return shown | ({"description": _short(description, _DESCRIPTION)} if description else {})


def _features(needs: Needs, url: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        # Without the tab, or with it read-only, nobody can write to the bot directly.
        "app_home": {
            "home_tab_enabled": False,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": user_name(needs.name), "always_online": True},
    }
    if needs.agent:
        about = needs.description or f"Ask {needs.name}."
        prompts = [{"title": title, "message": text} for title, text in needs.prompts[:_PROMPTS]]
        found["agent_view"] = {"agent_description": _short(about, _AGENT)} | (
            {"suggested_prompts": prompts} if prompts else {}
        )
    if needs.shortcuts:
        found["shortcuts"] = [
            {
                "name": _short(one.name, 24),
                "type": one.scope,
                "callback_id": one.callback_id,
                "description": _short(one.description or one.name, 150),
            }
            for one in needs.shortcuts
        ]
    if needs.commands:
        found["slash_commands"] = [_command(one, url) for one in needs.commands]
    return found


def _command(command: Command, url: str | None) -> dict[str, Any]:
    return {
        "command": command.name,
        "description": command.description or "Ask the agent.",
        **({"usage_hint": command.hint} if command.hint else {}),
        **_with(url, "url"),
        # So that a mention in it comes with its id.
        "should_escape": True,
    }


def _with(value: str | None, key: str) -> dict[str, Any]:
    return {} if value is None else {key: value}


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def user_name(name: str) -> str:
    """Return a name of the letters that a bot user's may have."""
    return re.sub(r"[^a-z0-9_.]+", "-", name.lower()).strip("-.")[:80] or "agent"


# What a channel needs


def needs_of(
    channel: SlackChannel,
    *,
    name: str,
    description: str | None = None,
    socket: bool = True,
    many: bool = False,
) -> Needs:
    """Return what a channel needs; the rest is said by the environment and the agent."""
    return Needs(
        name=name,
        description=description or "",
        socket=socket,
        follow_ups=channel.rules.follow_ups,
        watch=tuple(sorted(channel.lookout.channels)),
        agent=channel.assistant is not None,
        prompts=channel.assistant.prompts if channel.assistant is not None else (),
        commands=tuple(
            Command(name, one.description, one.hint)
            for name, one in sorted(channel.commands.items())
        ),
        shortcuts=tuple(
            Shortcut(id_, one.title or _title(id_), one.description, one.scope)
            for id_, one in sorted(channel.shortcuts.items())
        ),
        acks=channel.acks,
        reactions=bool(channel.reactions),
        many=many,
    )


def _title(callback_id: str) -> str:
    return callback_id.replace("_", " ").capitalize()


def address(base: str, channel: SlackChannel, path: str) -> str:
    """Return the public address of a channel's route; ``base`` may be that address already."""
    whole = channel.prefix + path
    base = base.rstrip("/")
    return base if base.endswith(whole) else base + whole
