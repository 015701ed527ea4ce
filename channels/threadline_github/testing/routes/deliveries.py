"""What was delivered to a webhook, and once more.

https://docs.github.com/en/rest/apps/webhooks, https://docs.github.com/en/rest/repos/webhooks
"""

from __future__ import annotations

import base64
from urllib.parse import urlencode

from threadline_github.testing.model import App, Hook, Json
from threadline_github.testing.places import stamp
from threadline_github.testing.refusal import Refusal, not_found
from threadline_github.testing.table import Ask, Reply, endpoint
from threadline_github.testing.webhooks import Delivery

__all__: list[str] = []

_PAGE, _MOST = 30, 100


def _short(one: Delivery) -> Json:
    installation = one.payload.get("installation") or {}
    repository = one.payload.get("repository") or {}
    return {
        "id": one.id,
        "guid": one.guid,
        "delivered_at": stamp(one.at),
        "redelivery": one.redelivery,
        "duration": 0.03,
        "status": one.status,
        "status_code": one.status_code,
        "event": one.event,
        "action": one.action,
        "installation_id": installation.get("id"),
        "repository_id": repository.get("id"),
        "throttled_at": None,
    }


def _listed(ask: Ask, hook: Hook) -> Reply:
    size = int(ask.query.get("per_page") or _PAGE)
    if not 0 < size <= _MOST:
        raise Refusal(422, "Invalid request.\n\nper_page is not between 1 and 100.")
    found = [one for one in ask.desk.webhooks.kept_of(hook) if _wanted(ask, one)]
    cursor = ask.query.get("cursor")
    if cursor is not None:
        begin = _begin(cursor)
        found = [one for one in found if one.id <= begin]
    headers = {}
    if len(found) > size:
        query = urlencode({**ask.query, "cursor": _cursor(found[size])})
        headers["Link"] = f'<{ask.url}?{query}>; rel="next"'
    return Reply([_short(one) for one in found[:size]], headers=headers)


def _cursor(one: Delivery) -> str:
    return "v1_" + base64.urlsafe_b64encode(str(one.id).encode()).decode().rstrip("=")


def _begin(cursor: str) -> int:
    """Return the delivery that a page begins with; raises Refusal."""
    text = cursor.removeprefix("v1_")
    try:
        return int(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise Refusal(400, "Invalid cursor") from None


def _wanted(ask: Ask, one: Delivery) -> bool:
    outcome, again = ask.query.get("status"), ask.query.get("redelivery")
    ok = 200 <= one.status_code < 400
    if outcome is not None and (outcome == "success") is not ok:
        return False
    return again is None or (again == "true") is one.redelivery


def _found(ask: Ask, hook: Hook) -> Delivery:
    for one in ask.desk.webhooks.kept_of(hook):
        if one.id == ask.number("id"):
            return one
    raise not_found()


def _whole(ask: Ask, hook: Hook) -> Reply:
    one = _found(ask, hook)
    body = {
        **_short(one),
        "url": hook.url or "",
        "request": {"headers": one.headers, "payload": one.payload},
        "response": {"headers": one.answer_headers, "payload": one.answer},
    }
    return Reply(body)


def _again(ask: Ask, hook: Hook) -> Reply:
    ask.desk.webhooks.redeliver(_found(ask, hook))
    return Reply({}, 202)


# Of an app


def _app(ask: Ask) -> App:
    assert ask.caller.app is not None
    return ask.caller.app


@endpoint("GET /app/hook/config", who="app")
def get_config(ask: Ask) -> Reply:
    return Reply(ask.wire.hook_config(_app(ask).hook))


@endpoint("PATCH /app/hook/config", who="app")
def update_config(ask: Ask) -> Reply:
    hook, fields = _app(ask).hook, ask.fields
    hook.url = fields.get("url", hook.url)
    hook.secret = fields.get("secret", hook.secret)
    hook.content_type = fields.get("content_type", hook.content_type)
    return Reply(ask.wire.hook_config(hook))


@endpoint("GET /app/hook/deliveries", who="app")
def list_app_deliveries(ask: Ask) -> Reply:
    return _listed(ask, _app(ask).hook)


@endpoint("GET /app/hook/deliveries/{id}", who="app")
def get_app_delivery(ask: Ask) -> Reply:
    return _whole(ask, _app(ask).hook)


@endpoint("POST /app/hook/deliveries/{id}/attempts", who="app")
def redeliver_of_app(ask: Ask) -> Reply:
    return _again(ask, _app(ask).hook)


# Of a repository


def _hook(ask: Ask) -> Hook:
    found: Hook = ask.find(lambda: ask.state.hook(ask.repository, int(ask.params["hook"])))
    return found


@endpoint("GET /hooks/{hook}/deliveries", "repository_hooks:read")
def list_deliveries(ask: Ask) -> Reply:
    return _listed(ask, _hook(ask))


@endpoint("GET /hooks/{hook}/deliveries/{id}", "repository_hooks:read")
def get_delivery(ask: Ask) -> Reply:
    return _whole(ask, _hook(ask))


@endpoint("POST /hooks/{hook}/deliveries/{id}/attempts", "repository_hooks:write")
def redeliver(ask: Ask) -> Reply:
    return _again(ask, _hook(ask))
