"""Repositories, who may do what in them, and their webhooks.

https://docs.github.com/en/rest/repos/repos, https://docs.github.com/en/rest/repos/webhooks
"""

from __future__ import annotations

from threadline_github.testing.model import Hook
from threadline_github.testing.refusal import Refusal
from threadline_github.testing.table import Ask, Reply, endpoint, paged

__all__: list[str] = []

_ROLES = {"admin": "admin", "write": "write", "read": "read", "none": "none"}


@endpoint("GET ", "metadata:read")
def get_repository(ask: Ask) -> Reply:
    return Reply(ask.wire.repository(ask.repository))


@endpoint("GET /collaborators/{login}/permission", "metadata:read")
def get_permission(ask: Ask) -> Reply:
    account = ask.find(lambda: ask.state.account(ask.params["login"]))
    permission = ask.state.permission(ask.repository, account)
    body = {
        "permission": permission,
        "role_name": _ROLES[permission],
        "user": ask.wire.account(account),
    }
    return Reply(body)


@endpoint("GET /hooks", "repository_hooks:read")
def list_hooks(ask: Ask) -> Reply:
    return paged(ask, ask.repository.hooks, lambda one: ask.wire.hook(ask.repository, one))


@endpoint("POST /hooks", "repository_hooks:write")
def create_hook(ask: Ask) -> Reply:
    config = ask.fields.get("config") or {}
    if not config.get("url"):
        raise Refusal(422, 'Invalid request.\n\n"url" wasn\'t supplied.')
    events = set(ask.fields.get("events") or ["push"])
    made = Hook(
        ask.state.mint(),
        "repository",
        ask.repository.id,
        config.get("secret") or "",
        config["url"],
        "json" if config.get("content_type") == "json" else "form",
        None if "*" in events else events,
    )
    ask.repository.hooks.append(made)
    ask.desk.publisher.ping(made, ask.acting, ask.repository)
    return Reply(ask.wire.hook(ask.repository, made), 201)


@endpoint("GET /hooks/{id}", "repository_hooks:read")
def get_hook(ask: Ask) -> Reply:
    hook = ask.find(lambda: ask.state.hook(ask.repository, ask.number("id")))
    return Reply(ask.wire.hook(ask.repository, hook))


@endpoint("DELETE /hooks/{id}", "repository_hooks:write")
def delete_hook(ask: Ask) -> Reply:
    hook = ask.find(lambda: ask.state.hook(ask.repository, ask.number("id")))
    ask.repository.hooks.remove(hook)
    return Reply(status=204)
