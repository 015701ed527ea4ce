"""views.open, push, update and publish."""

from __future__ import annotations

from threadline_slack.testing.model import Json
from threadline_slack.testing.table import Ask, method
from threadline_slack.testing.wire import view_json

__all__: list[str] = []


@method("views.open", tier=4)
def open_(ask: Ask) -> Json:
    """Open a modal."""
    view = ask.desk.views.open(ask.install, ask.need("trigger_id"), ask.value("view"))
    return {"view": view_json(view)}


@method("views.push", tier=4)
def push(ask: Ask) -> Json:
    """Put a modal on top of the one that is open."""
    view = ask.desk.views.open(ask.install, ask.need("trigger_id"), ask.value("view"), push=True)
    return {"view": view_json(view)}


@method("views.update", tier=4)
def update(ask: Ask) -> Json:
    """Replace a view."""
    which = {name: ask.maybe(name) for name in ("view_id", "external_id", "hash")}
    view = ask.desk.views.update(ask.install, ask.value("view"), **which)
    return {"view": view_json(view)}


@method("views.publish", tier=4)
def publish(ask: Ask) -> Json:
    """Publish a home tab."""
    user = ask.user("user_id")
    view = ask.desk.views.publish(ask.install, user, ask.value("view"), ask.maybe("hash"))
    return {"view": view_json(view)}
