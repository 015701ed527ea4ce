"""Issues, comments on issues and pull requests, labels and reactions.

https://docs.github.com/en/rest/issues
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from threadline_github.testing.model import Comment, Issue, Reaction, Repository
from threadline_github.testing.refusal import Refusal, forbidden, invalid, not_found
from threadline_github.testing.table import Ask, Endpoint, Reply, endpoint, paged
from threadline_github.testing.wire import EMOJI

__all__ = ["may_change", "since"]

_READ = "issues:read", "pull_requests:read"
_WRITE = "issues:write", "pull_requests:write"


def since(ask: Ask) -> Callable[[Any], bool]:
    """Return what keeps those that changed since the query says; raises Refusal."""
    text = ask.query.get("since")
    if text is None:
        return lambda one: True
    try:
        moment = datetime.fromisoformat(text)
        return lambda one: bool(one.updated_at >= moment)
    except (ValueError, TypeError):
        raise Refusal(422, "Invalid request.\n\nsince is not a valid timestamp.") from None


def may_change(ask: Ask, author: Any, repository: Repository) -> None:
    """Raise Refusal unless the caller may change what an account wrote."""
    acting = ask.acting
    if acting is author or ask.state.permission(repository, acting) in ("write", "admin"):
        return
    if ask.caller.installation is None:
        raise forbidden("Must have admin rights to Repository.")


# Issues


@endpoint("GET /issues", *_READ)
def list_issues(ask: Ask) -> Reply:
    state = ask.query.get("state", "open")
    wanted = [
        one
        for one in ask.repository.threads.values()
        if state in ("all", one.state) and since(ask)(one)
    ]
    return paged(ask, wanted[::-1], ask.wire.issue)


@endpoint("POST /issues", "issues:write")
def create_issue(ask: Ask) -> Reply:
    title, body = ask.text("Issue", "title"), ask.text("Issue", blank=True)
    made = ask.activity.open_issue(ask.repository, ask.acting, title, body or None)
    return Reply(ask.wire.issue(made), 201)


@endpoint("GET /issues/{number}", *_READ)
def get_issue(ask: Ask) -> Reply:
    return Reply(ask.wire.issue(ask.thread()))


@endpoint("PATCH /issues/{number}", *_WRITE)
def update_issue(ask: Ask) -> Reply:
    thread = ask.thread()
    change(ask, thread)
    return Reply(ask.wire.issue(thread))


def change(ask: Ask, thread: Issue) -> None:
    """Change an issue or pull request as the body says."""
    fields = ask.fields
    title = ask.text("Issue", "title") if "title" in fields else None
    body = ask.text("Issue", blank=True) if "body" in fields else None
    if title is not None or body is not None:
        ask.activity.edit(thread, ask.acting, title=title, body=body)
    state = fields.get("state", thread.state)
    if state != thread.state and state == "closed":
        ask.activity.close(thread, ask.acting)
    elif state != thread.state:
        ask.activity.reopen(thread, ask.acting)


# Comments


@endpoint("GET /issues/{number}/comments", *_READ)
def list_comments(ask: Ask) -> Reply:
    recent = since(ask)
    found = [one for one in ask.thread().comments if not one.deleted and recent(one)]
    return paged(ask, found, ask.wire.comment)


@endpoint("GET /issues/comments", *_READ)
def list_all_comments(ask: Ask) -> Reply:
    recent = since(ask)
    found = [
        comment
        for thread in ask.repository.threads.values()
        for comment in thread.comments
        if not comment.deleted and recent(comment)
    ]
    found.sort(key=lambda one: (one.updated_at, one.id))
    return paged(
        ask, found[::-1] if ask.query.get("direction") == "desc" else found, ask.wire.comment
    )


@endpoint("POST /issues/{number}/comments", *_WRITE)
def create_comment(ask: Ask) -> Reply:
    thread, text = ask.thread(), ask.text("IssueComment")
    if thread.locked:
        raise forbidden("Unable to create comment because issue is locked.")
    made = ask.activity.comment(thread, ask.acting, text, ask.caller.via)
    url = ask.wire.comment(made)["url"]
    return Reply(ask.wire.comment(made), 201, {"Location": url})


def _comment(ask: Ask) -> Comment:
    found: Comment = ask.find(lambda: ask.state.comment(ask.repository, ask.number("id")))
    return found


@endpoint("GET /issues/comments/{id}", *_READ)
def get_comment(ask: Ask) -> Reply:
    return Reply(ask.wire.comment(_comment(ask)))


@endpoint("PATCH /issues/comments/{id}", *_WRITE)
def update_comment(ask: Ask) -> Reply:
    comment, text = _comment(ask), ask.text("IssueComment")
    may_change(ask, comment.author, ask.repository)
    return Reply(ask.wire.comment(ask.activity.edit_comment(comment, ask.acting, text)))


@endpoint("DELETE /issues/comments/{id}", *_WRITE)
def delete_comment(ask: Ask) -> Reply:
    comment = _comment(ask)
    may_change(ask, comment.author, ask.repository)
    ask.activity.delete_comment(comment, ask.acting)
    return Reply(status=204)


# Labels


def _labels(ask: Ask) -> Reply:
    return Reply([ask.wire.label(ask.repository, one) for one in ask.thread().labels])


def _named(ask: Ask) -> list[str]:
    body = ask.body
    names = body if isinstance(body, list) else ask.fields.get("labels")
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list):
        raise Refusal(422, 'Invalid request.\n\n"labels" wasn\'t supplied.')
    found: list[Any] = [one.get("name") if isinstance(one, dict) else one for one in names]
    for name in found:
        if not isinstance(name, str) or not name or len(name) > 50:
            raise invalid("Label", "name", "invalid")
    return found


@endpoint("GET /issues/{number}/labels", *_READ)
def list_labels(ask: Ask) -> Reply:
    return _labels(ask)


@endpoint("POST /issues/{number}/labels", *_WRITE)
def add_labels(ask: Ask) -> Reply:
    for name in _named(ask):
        ask.activity.label(ask.thread(), ask.acting, name)
    return _labels(ask)


@endpoint("PUT /issues/{number}/labels", *_WRITE)
def set_labels(ask: Ask) -> Reply:
    thread, wanted = ask.thread(), _named(ask)
    for name in [*thread.labels]:
        if name not in wanted:
            ask.activity.label(thread, ask.acting, name, add=False)
    for name in wanted:
        ask.activity.label(thread, ask.acting, name)
    return _labels(ask)


@endpoint("DELETE /issues/{number}/labels/{name}", *_WRITE)
def remove_label(ask: Ask) -> Reply:
    thread = ask.thread()
    known = {one.lower(): one for one in thread.labels}
    name = known.get(ask.params["name"].lower())
    if name is None:
        raise not_found("Label does not exist")
    ask.activity.label(thread, ask.acting, name, add=False)
    return _labels(ask)


# Reactions


def _reactions(path: str, of: Callable[[Ask], list[Reaction]]) -> list[Endpoint]:
    """Make the endpoints for the emoji of one kind of thing."""

    def listed(ask: Ask) -> Reply:
        return paged(ask, of(ask), ask.wire.reaction)

    def add(ask: Ask) -> Reply:
        content = ask.fields.get("content")
        if content not in EMOJI:
            raise invalid("Reaction", "content", "invalid")
        made, new = ask.activity.react(of(ask), ask.acting, content)
        return Reply(ask.wire.reaction(made), 201 if new else 200)

    def remove(ask: Ask) -> Reply:
        found = of(ask)
        for one in found:
            if one.id == int(ask.params["reaction"]):
                found.remove(one)
                return Reply(status=204)
        raise not_found()

    return [
        endpoint(f"GET {path}/reactions", *_READ)(listed),
        endpoint(f"POST {path}/reactions", *_WRITE)(add),
        endpoint(f"DELETE {path}/reactions/{{reaction}}", *_WRITE)(remove),
    ]


list_issue_reactions, add_issue_reaction, remove_issue_reaction = _reactions(
    "/issues/{number}", lambda ask: ask.thread().reactions
)
list_comment_reactions, add_comment_reaction, remove_comment_reaction = _reactions(
    "/issues/comments/{id}", lambda ask: _comment(ask).reactions
)
list_review_comment_reactions, add_review_comment_reaction, remove_review_comment_reaction = (
    _reactions(
        "/pulls/comments/{id}",
        lambda ask: (
            ask.find(lambda: ask.state.review_comment(ask.repository, ask.number("id"))).reactions
        ),
    )
)
