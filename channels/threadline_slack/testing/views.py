"""Modals and home tabs: triggers, the stack a person has open, and what answers do to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from threadline_slack.testing.blocks import check_blocks, identified
from threadline_slack.testing.model import Install, Json, User, View
from threadline_slack.testing.refusal import Refusal, invalid
from threadline_slack.testing.state import State

__all__ = ["Views"]

_TRIGGER_SECONDS = 3.0
_DEEPEST = 3
_LARGEST = 250_000


@dataclass(slots=True)
class _Trigger:
    app: str
    user: str
    team: str
    made: float
    used: bool = False


class Views:
    """All views of all people."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._triggers: dict[str, _Trigger] = {}

    def trigger(self, install: Install, user: User) -> str:
        """Return a trigger id, good once and for three seconds."""
        identity = f"{self._state.mint('1')}.{self._state.mint('2')}.fixture"
        self._triggers[identity] = _Trigger(
            install.app.id, user.id, user.team, self._state.clock.monotonic()
        )
        return identity

    def stack(self, user: str) -> list[View]:
        """Return the modals a person has open, the top one last."""
        return [
            view
            for view in self._state.views.values()
            if view.user == user and view.open and view.body.get("type") == "modal"
        ]

    def home(self, user: str, app: str) -> View | None:
        """Return the home tab that an app has published for a person."""
        for view in self._state.views.values():
            if view.user == user and view.app == app and view.body.get("type") == "home":
                return view
        return None

    def open(self, install: Install, trigger_id: str, body: Any, *, push: bool = False) -> View:
        """Open a modal, or push one; raises :class:`Refusal`."""
        body = self._checked(body, "modal")
        trigger = self._redeem(install, trigger_id)
        below = self.stack(trigger.user)
        if push and len(below) >= _DEEPEST:
            raise Refusal("push_limit_reached")
        under = below[-1] if push and below else None
        return self._add(install, trigger.user, trigger.team, body, under)

    def update(self, install: Install, body: Any, **which: str | None) -> View:
        """Replace a view, named by ``view_id`` or ``external_id``, if its hash is still that."""
        found = next(
            (
                view
                for view in self._state.views.values()
                if view.app == install.app.id
                and (
                    view.id == which.get("view_id")
                    or (which.get("external_id") or "\0") == view.body.get("external_id")
                )
            ),
            None,
        )
        if found is None or not found.open:
            raise Refusal("not_found")
        if which.get("hash") not in (None, found.hash):
            raise Refusal("hash_conflict")
        self._replace(found, self._checked(body, found.body["type"]))
        return found

    def publish(self, install: Install, user: User, body: Any, hash_: str | None) -> View:
        """Publish a home tab."""
        body = self._checked(body, "home")
        home = self.home(user.id, install.app.id)
        if home is None:
            return self._add(install, user.id, user.team, body, None)
        if hash_ not in (None, home.hash):
            raise Refusal("hash_conflict")
        self._replace(home, body)
        return home

    def answered(self, view: View, body: Any) -> None:
        """Do to a submitted modal what the app answered."""
        answer = body if isinstance(body, Mapping) else {}
        match answer.get("response_action"):
            case "errors":
                view.errors = dict(answer.get("errors", {}))
            case "update":
                self._replace(view, self._checked(answer.get("view"), "modal"))
            case "push":
                user = self._state.user(view.user)
                install = self._state.installed(self._state.app(view.app), user)
                fresh = self._checked(answer.get("view"), "modal")
                self._add(install, view.user, view.team, fresh, view)
            case "clear":
                for one in self.stack(view.user):
                    one.open = False
            case _:
                view.open = False

    def _redeem(self, install: Install, identity: str) -> _Trigger:
        trigger = self._triggers.get(identity)
        if trigger is None or trigger.app != install.app.id:
            raise Refusal("invalid_trigger_id")
        if trigger.used:
            raise Refusal("exchanged_trigger_id")
        if self._state.clock.monotonic() - trigger.made > _TRIGGER_SECONDS:
            raise Refusal("expired_trigger_id")
        trigger.used = True
        return trigger

    def _checked(self, body: Any, kind: str) -> Json:
        """Return the view as it is kept; raises :class:`Refusal`."""
        if not isinstance(body, dict):
            raise invalid("must provide an object [json-pointer:/view]")
        problems = check_blocks(body.get("blocks"), view=True)
        if body.get("type") != kind:
            problems.append(f"[ERROR] type must be {kind} [json-pointer:/view/type]")
        if kind == "modal":
            title = body.get("title")
            if not isinstance(title, Mapping) or not title.get("text"):
                problems.append("[ERROR] missing required field: title [json-pointer:/view]")
            elif len(str(title["text"])) > 24:
                problems.append(
                    "[ERROR] must be less than 25 characters [json-pointer:/view/title]"
                )
            blocks = body["blocks"] if isinstance(body.get("blocks"), list) else []
            inputs = any(block.get("type") == "input" for block in blocks)
            if inputs and not body.get("submit"):
                problems.append("[ERROR] missing required field: submit [json-pointer:/view]")
        if problems:
            raise invalid(*problems)
        if len(json.dumps(body)) > _LARGEST:
            raise Refusal("view_too_large")
        return {**body, "blocks": identified(body["blocks"])}

    def _add(self, install: Install, user: str, team: str, body: Json, under: View | None) -> View:
        identity = self._state.mint("V")
        view = View(
            identity,
            team,
            install.app.id,
            install.bot_id,
            user,
            body,
            self._state.mint("hash-"),
            under.root if under else identity,
            under.id if under else None,
        )
        self._state.views[identity] = view
        return view

    def _replace(self, view: View, body: Json) -> None:
        view.body, view.hash, view.errors = body, self._state.mint("hash-"), {}
