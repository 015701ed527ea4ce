"""Elements people use and fill in, and how their values are sent; pure.

Shapes after docs.slack.dev/reference/interaction-payloads/block_actions-payload and
view-interactions-payload.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from threadline_slack.testing.model import Json, View
from threadline_slack.testing.wire import elements_of

__all__ = ["action", "filled_in", "find", "values_of"]

_ONE_OPTION = ("static_select", "external_select", "overflow", "radio_buttons")
_MORE_OPTIONS = ("checkboxes", "multi_static_select", "multi_external_select")
_IDS = {
    "users_select": "selected_user",
    "conversations_select": "selected_conversation",
    "channels_select": "selected_channel",
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "datetimepicker": "selected_date_time",
}


def find(
    elements: Sequence[Json], action_id: str, value: str | None, *, force: bool = False
) -> Json:
    """Return the element with this ``action_id``; of several, the one that has ``value``.

    ``force`` makes up a button that is not there. Raises LookupError.
    """
    named = [one for one in elements if one.get("action_id") == action_id]
    fitting = [one for one in named if value is None or one.get("value") in (None, value)]
    if fitting or named:
        return (fitting or named)[0]
    if force:
        text = {"type": "plain_text", "text": action_id}
        return {"type": "button", "action_id": action_id, "block_id": "gone", "text": text}
    there = ", ".join(str(one.get("action_id")) for one in elements) or "nothing to press"
    raise LookupError(f"There is no {action_id!r} to use; there is: {there}.")


def action(element: Json, value: str | None, ts: str) -> Json:
    """Return what an app is told that was done with an element."""
    kind = element["type"]
    made: Json = {
        "type": kind,
        "action_id": element["action_id"],
        "block_id": element["block_id"],
        "action_ts": ts,
    }
    if kind == "feedback_buttons":
        return made | _feedback(element, value)
    if kind in ("button", "icon_button"):
        made |= {"text": element.get("text", {})}
        made |= {"style": element["style"]} if element.get("style") else {}
        chosen = value if value is not None else element.get("value")
        return made | ({"value": chosen} if chosen is not None else {})
    return made | _state(element, value)


def _feedback(element: Json, value: str | None) -> Json:
    for name in ("positive_button", "negative_button"):
        button = element.get(name, {})
        if value in (None, button.get("value")):
            return {"text": button.get("text", {}), "value": button.get("value")}
    raise LookupError(f"There is no feedback button with the value {value!r}.")


def filled_in(view: View, given: Mapping[str, Any]) -> Json:
    """Return ``state.values`` of a modal; raises LookupError for an input that is not there."""
    values = values_of(view)
    left = dict(given)
    for element in elements_of(view.body["blocks"]):
        name = element["action_id"]
        if name in left:
            entered = {"type": element["type"], **_state(element, left.pop(name))}
            values.setdefault(element["block_id"], {})[name] = entered
    if left:
        raise LookupError(f"The view has no input {', '.join(left)}.")
    return values


def values_of(view: View) -> Json:
    """Return ``state.values`` of a view as it was first shown."""
    values: Json = {}
    for element in elements_of(view.body["blocks"]):
        if element["type"] not in ("button", "icon_button", "overflow"):
            shown = {"type": element["type"], **_state(element, None)}
            values.setdefault(element["block_id"], {})[element["action_id"]] = shown
    return values


def _state(element: Json, value: Any) -> Json:
    """Return the fields that hold what an element's value is now."""
    kind = element["type"]
    if kind in _ONE_OPTION:
        chosen = _option(element, value) if value is not None else element.get("initial_option")
        return {"selected_option": chosen}
    if kind in _MORE_OPTIONS:
        if value is None:
            return {"selected_options": element.get("initial_options", [])}
        several = [value] if isinstance(value, str) else list(value)
        return {"selected_options": [_option(element, one) for one in several]}
    if kind in _IDS:
        name = _IDS[kind]
        initial = element.get(name.replace("selected", "initial"))
        return {name: value if value is not None else initial}
    if kind.startswith("multi_"):
        return {f"selected_{kind.split('_')[1]}": list(value or [])}
    return {"value": value if value is not None else element.get("initial_value")}


def _option(element: Json, value: str) -> Json:
    options = list(element.get("options", []))
    for group in element.get("option_groups", []):
        options += group.get("options", [])
    for option in options:
        if option.get("value") == value:
            found: Json = option
            return found
    if element["type"].endswith("external_select"):
        return {"text": {"type": "plain_text", "text": value}, "value": value}
    raise LookupError(f"{element['action_id']} has no option with the value {value!r}.")
