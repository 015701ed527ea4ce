"""The bodies that Slack sends to the one endpoint, and what people did by them; no I/O.

https://docs.slack.dev/interactivity/handling-user-interaction
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs

import orjson

from threadline.errors import InvalidRequest
from threadline_slack.inbound.decide import TOKEN, Person, Place

__all__ = ["Interaction", "Kind", "interactions", "is_interaction", "parse", "reaction"]

Kind: TypeAlias = Literal[
    "action", "command", "options", "reaction", "shortcut", "view", "view_closed"
]
_VIEWS: dict[str, Kind] = {"view_submission": "view", "view_closed": "view_closed"}
_SHORTCUTS = ("message_action", "shortcut")
_TS = re.compile(r"[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Interaction:
    """What a person did: pressed, chose, submitted, typed a command, used a shortcut, reacted.

    ``name`` is the action id, callback id, command or reaction; ``id`` is the same whenever Slack
    sends it again. ``team`` is the workspace that the app is installed in, ``home`` the person's
    own. ``token`` is the conversation's, None where there is none, as behind a global shortcut;
    ``ts`` is that of the message acted upon. ``value`` is what a button carries, what was typed or
    chosen; ``values`` is all that was chosen. ``state`` has what stands in the inputs, by action
    id. ``metadata`` is a modal's ``private_metadata``; ``raw`` is the whole payload.
    """

    kind: Kind
    name: str
    id: str
    user: str
    team: str
    home: str = ""
    user_name: str | None = None
    external: bool = False
    channel: str = ""
    ts: str = ""
    token: str | None = None
    value: str = ""
    values: tuple[str, ...] = ()
    label: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    metadata: str = ""
    action_ts: str = ""
    trigger_id: str = ""
    response_url: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def person(self) -> Person:
        """Who it was."""
        return Person(self.home or self.team, self.user, external=self.external)

    @property
    def place(self) -> Place | None:
        """Where the conversation is."""
        return Place.of(self.token) if self.token is not None else None

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Interaction:
        """Read what :meth:`to_wire` wrote; raises TypeError when it is of another version."""
        return cls(**{**wire, "values": tuple(wire.get("values") or ())})


def parse(content_type: str, body: bytes) -> dict[str, Any]:
    """Return what a body says: JSON, a form's ``payload``, or the form; raises InvalidRequest."""
    media = content_type.partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        return _object(body)
    try:
        form = parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        raise InvalidRequest("The body is not a form.") from None
    fields = {name: values[-1] for name, values in form.items()}
    return _object(fields["payload"]) if "payload" in fields else fields


def _object(text: bytes | str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        raise InvalidRequest("The body is not JSON.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body is not a JSON object.")
    return value


def interactions(payload: Mapping[str, Any], *, flat_dms: bool = False) -> list[Interaction]:
    """Return what a payload says that somebody did; nothing for one that is not of that kind.

    ``flat_dms``: a direct conversation outside of threads is one conversation.
    """
    kind = payload.get("type")
    if "command" in payload:
        return [_command(payload, flat_dms)]
    if kind == "block_actions":
        return list(_actions(payload, flat_dms))
    if kind == "block_suggestion":
        named = _text(payload, "action_id"), _text(payload, "value")
        return [_by_message(payload, flat_dms, kind="options", name=named[0], value=named[1])]
    if kind in _SHORTCUTS:
        name = _text(payload, "callback_id")
        return [_by_message(payload, flat_dms, kind="shortcut", name=name)]
    if kind in _VIEWS:
        name = _text(_part(payload, "view"), "callback_id")
        return [_by_message(payload, flat_dms, kind=_VIEWS[str(kind)], name=name)]
    return []


def is_interaction(payload: Mapping[str, Any]) -> bool:
    """Tell whether a payload says that somebody did something."""
    kinds = "block_actions", "block_suggestion", *_SHORTCUTS, *_VIEWS
    return "command" in payload or payload.get("type") in kinds


def reaction(envelope: Mapping[str, Any], team: str) -> Interaction | None:
    """Return the reaction that an event tells of; its conversation is not known yet.

    Whose it is in a channel shared with others is not said, so there all are taken for others'.
    """
    event = _part(envelope, "event")
    item = _part(event, "item")
    if event.get("type") != "reaction_added" or item.get("type") != "message":
        return None
    name, user, channel = _text(event, "reaction"), _text(event, "user"), _text(item, "channel")
    when = _text(event, "event_ts") or _text(envelope, "event_id")
    return Interaction(
        kind="reaction",
        name=name,
        id=f"{team}:{channel}:{user}:{name}:{when}"[:200],
        user=user,
        team=team,
        external=bool(envelope.get("is_ext_shared_channel")),
        channel=channel,
        ts=_text(item, "ts"),
        value=name,
        action_ts=_text(event, "event_ts"),
        raw=envelope,
    )


# One payload


def _actions(payload: Mapping[str, Any], flat_dms: bool) -> Iterator[Interaction]:
    found = payload.get("actions")
    actions = [one for one in (found if isinstance(found, list) else []) if isinstance(one, dict)]
    for number, action in enumerate(actions):
        chosen = _chosen(action)
        made = _by_message(
            payload,
            flat_dms,
            kind="action",
            name=_text(action, "action_id"),
            value=chosen[0] if chosen else "",
            values=chosen,
            label=_text(_part(action, "text"), "text"),
            action_ts=_text(action, "action_ts"),
        )
        yield made if number == 0 else dataclasses.replace(made, id=f"{made.id[:190]}/{number}")


def _by_message(payload: Mapping[str, Any], flat_dms: bool, **more: Any) -> Interaction:
    """Return an interaction with who it was, and where: by its message, or by its modal."""
    user, view = _part(payload, "user"), _part(payload, "view")
    container, message = _part(payload, "container"), _part(payload, "message")
    team, home = _team(payload), _text(user, "team_id")
    channel = _text(_part(payload, "channel"), "id") or _text(container, "channel_id")
    ts = _text(container, "message_ts") or _text(payload, "message_ts") or _text(message, "ts")
    thread = _text(container, "thread_ts") or _text(message, "thread_ts")
    hidden = bool(container.get("is_ephemeral"))
    metadata = _text(view, "private_metadata")
    action_ts = more.pop("action_ts", "") or _text(payload, "action_ts")
    token = _token(team, channel, thread or ("" if hidden else ts), flat=flat_dms and not thread)
    if token is None and re.fullmatch(TOKEN, metadata):
        token = metadata
    return Interaction(
        **more,
        id=_identity(payload, team, channel, action_ts),
        user=_text(user, "id"),
        team=team,
        home=home or team,
        user_name=_text(user, "name") or _text(user, "username") or None,
        external=bool(home) and home not in (team, _text(_part(payload, "enterprise"), "id")),
        channel=channel,
        ts=ts,
        token=token,
        state=_entered(_part(view or payload, "state")),
        metadata=metadata,
        action_ts=action_ts,
        trigger_id=_text(payload, "trigger_id"),
        response_url=_text(payload, "response_url"),
        raw=payload,
    )


def _command(payload: Mapping[str, Any], flat_dms: bool) -> Interaction:
    team, channel = _text(payload, "team_id"), _text(payload, "channel_id")
    return Interaction(
        kind="command",
        name=_text(payload, "command"),
        id=_identity(payload, team, channel, ""),
        user=_text(payload, "user_id"),
        team=team,
        home=team,
        user_name=_text(payload, "user_name") or None,
        channel=channel,
        token=_token(team, channel, "", flat=flat_dms),
        value=_text(payload, "text").strip(),
        trigger_id=_text(payload, "trigger_id"),
        response_url=_text(payload, "response_url"),
        raw=payload,
    )


def _team(payload: Mapping[str, Any]) -> str:
    """Return the installed workspace: that of our own message, else the payload's.

    Where a whole organisation installed the app Slack may name none but the person's own; nobody
    else has its shortcuts and modals, and whose its buttons are its messages say.
    """
    message = _part(payload, "message")
    own = message.get("app_id") and message.get("app_id") == payload.get("api_app_id")
    installed = _text(_part(payload, "view"), "app_installed_team_id")
    team = (_text(message, "team") if own else "") or (installed if installed[:1] == "T" else "")
    team = team or _text(_part(payload, "team"), "id")
    return team or _text(_part(payload, "user"), "team_id")


def _token(team: str, channel: str, root: str, *, flat: bool) -> str | None:
    if flat and channel.startswith("D"):
        return Place(team, channel, None).token
    token = Place(team, channel, root).token if _TS.fullmatch(root) else ""
    return token if re.fullmatch(TOKEN, token) else None


def _identity(payload: Mapping[str, Any], team: str, channel: str, action_ts: str) -> str:
    """Return a name by what Slack makes anew for each deed."""
    view = _part(payload, "view")
    made = _text(payload, "trigger_id") or ":".join(
        part
        for part in (
            str(payload.get("type")),
            channel,
            _text(_part(payload, "user"), "id"),
            _text(view, "id"),
            _text(view, "hash"),
            action_ts,
        )
        if part
    )
    return f"{team}:{made}"[:200]


# Values


def _entered(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stands in the inputs: a text, a list of texts where several may be chosen."""
    entered = {}
    for block in _part(state, "values").values():
        for name, element in block.items() if isinstance(block, dict) else ():
            several = str(element.get("type", "")).startswith(("multi_", "checkboxes"))
            chosen = _chosen(element)
            entered[name] = list(chosen) if several else (chosen[0] if chosen else None)
    return entered


def _chosen(element: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of an element, whatever its type calls them."""
    for name, value in element.items():
        if name == "value" or name.startswith("selected_"):
            several = value if isinstance(value, list) else [value]
            values = (one.get("value") if isinstance(one, dict) else one for one in several)
            return tuple(str(one) for one in values if one is not None)
    return ()


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _text(whole: Mapping[str, Any], name: str) -> str:
    value = whole.get(name)
    return value if isinstance(value, str) else ""
