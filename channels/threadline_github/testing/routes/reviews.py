"""Reviews and comments on the diff, which stand only on lines that are part of it.

https://docs.github.com/en/rest/pulls/reviews, https://docs.github.com/en/rest/pulls/comments
"""

from __future__ import annotations

from typing import Any

from threadline_github.testing.diffs import patches
from threadline_github.testing.model import Pull, Review, ReviewComment
from threadline_github.testing.refusal import Refusal, forbidden, unprocessable
from threadline_github.testing.routes.issues import may_change, since
from threadline_github.testing.table import LONGEST, Ask, Reply, endpoint, paged

__all__: list[str] = []

_READ, _WRITE = "pull_requests:read", "pull_requests:write"
_OWN = {
    "APPROVE": "Can not approve your own pull request",
    "REQUEST_CHANGES": "Can not request changes on your own pull request",
}
_SIDES = ("LEFT", "RIGHT")


def _commit(ask: Ask, pull: Pull) -> str:
    commit = ask.fields.get("commit_id") or pull.head
    if commit not in pull.diffs:
        raise unprocessable("commit_id is not part of the pull request")
    return str(commit)


def _misplaced(pull: Pull, commit: str, one: Any) -> str | None:
    """Return what is wrong with where a comment is to stand."""
    path, line, side = one.get("path"), one.get("line"), one.get("side") or "RIGHT"
    patch = next((p for p in patches(pull.diffs[commit]) if p.path == path), None)
    if patch is None:
        return "Path could not be resolved"
    if side not in _SIDES or not isinstance(line, int):
        return "Pull request review thread line must be an integer"
    hunk = patch.hunk_of(line, side)
    if hunk is None:
        return "Line could not be resolved"
    start = one.get("start_line")
    if start is None:
        return None
    if start >= line:
        return "Pull request review thread start line must precede the end line."
    if patch.hunk_of(start, one.get("start_side") or side) != hunk:
        return "Pull request review thread start line must be part of the same hunk as the line."
    return None


def _checked(pull: Pull, commit: str, comments: Any) -> list[Any]:
    """Return the comments of a review that is to be made; raises Refusal for any that is bad."""
    if not isinstance(comments, list):
        raise Refusal(422, "Invalid request.\n\ncomments is not an array.")
    for one in comments:
        if not isinstance(one, dict) or not isinstance(one.get("path"), str):
            raise Refusal(422, 'Invalid request.\n\n"path" wasn\'t supplied.')
        body = one.get("body")
        if not isinstance(body, str) or not body.strip():
            raise unprocessable("Pull request review comment body can't be blank")
        if len(body) > LONGEST:
            raise unprocessable(f"Body is too long (maximum is {LONGEST} characters)")
        problem = _misplaced(pull, commit, one)
        if problem is not None:
            raise unprocessable(problem)
    return comments


# Reviews


@endpoint("GET /pulls/{number}/reviews", _READ)
def list_reviews(ask: Ask) -> Reply:
    return paged(ask, ask.pull().reviews, ask.wire.review)


@endpoint("POST /pulls/{number}/reviews", _WRITE)
def create_review(ask: Ask) -> Reply:
    pull, fields = ask.pull(), ask.fields
    event = fields.get("event") or "PENDING"
    if event not in ("APPROVE", "REQUEST_CHANGES", "COMMENT", "PENDING"):
        raise Refusal(422, f"Invalid request.\n\nFor 'properties/event', {event!r} is not a value.")
    if event in _OWN and pull.author is ask.acting:
        raise unprocessable(_OWN[event])
    if pull.locked:
        raise forbidden("Unable to create review because issue is locked.")
    commit, body = _commit(ask, pull), _body(fields.get("body"))
    comments = _checked(pull, commit, fields.get("comments") or [])
    needed = event == "REQUEST_CHANGES" or (event == "COMMENT" and not comments)
    if needed and not body.strip():
        raise unprocessable("Pull request review body can't be blank")
    made = ask.activity.review(
        pull, ask.acting, body, event, comments, commit=commit, app=ask.caller.via
    )
    return Reply(ask.wire.review(made))


def _body(text: Any) -> str:
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Refusal(422, "Invalid request.\n\nbody is not a string.")
    if len(text) > LONGEST:
        raise unprocessable(f"Body is too long (maximum is {LONGEST} characters)")
    return text


def _review(ask: Ask) -> Review:
    pull = ask.pull()
    found: Review = ask.find(lambda: ask.state.review(pull, ask.number("id")))
    return found


@endpoint("GET /pulls/{number}/reviews/{id}", _READ)
def get_review(ask: Ask) -> Reply:
    return Reply(ask.wire.review(_review(ask)))


@endpoint("PUT /pulls/{number}/reviews/{id}", _WRITE)
def update_review(ask: Ask) -> Reply:
    review, body = _review(ask), _body(ask.fields.get("body"))
    may_change(ask, review.author, ask.repository)
    ask.activity.edit_review(review, ask.acting, body)
    return Reply(ask.wire.review(review))


@endpoint("PUT /pulls/{number}/reviews/{id}/dismissals", _WRITE)
def dismiss_review(ask: Ask) -> Reply:
    review = _review(ask)
    review.state = "DISMISSED"
    return Reply(ask.wire.review(review))


@endpoint("GET /pulls/{number}/reviews/{id}/comments", _READ)
def list_comments_of_review(ask: Ask) -> Reply:
    review = _review(ask)
    found = [one for one in review.pull.review_comments if one.review == review.id]
    return paged(ask, [one for one in found if not one.deleted], ask.wire.review_comment)


# Comments on the diff


def _comment(ask: Ask) -> ReviewComment:
    found: ReviewComment = ask.find(
        lambda: ask.state.review_comment(ask.repository, ask.number("id"))
    )
    return found


@endpoint("GET /pulls/{number}/comments", _READ)
def list_review_comments(ask: Ask) -> Reply:
    recent = since(ask)
    found = [one for one in ask.pull().review_comments if not one.deleted and recent(one)]
    return paged(ask, found, ask.wire.review_comment)


@endpoint("POST /pulls/{number}/comments", _WRITE)
def create_review_comment(ask: Ask) -> Reply:
    pull, fields, text = ask.pull(), ask.fields, ask.text("PullRequestReviewComment")
    if fields.get("in_reply_to") is not None:
        return _reply(ask, pull, int(fields["in_reply_to"]), text)
    if not fields.get("commit_id"):
        raise Refusal(422, 'Invalid request.\n\n"commit_id" wasn\'t supplied.')
    commit = _commit(ask, pull)
    whole = fields.get("subject_type") == "file"
    problem = None if whole else _misplaced(pull, commit, fields)
    if problem is not None:
        raise unprocessable(problem, message="Validation Failed")
    made = ask.activity.review_comment(
        pull,
        ask.acting,
        text,
        path=str(fields.get("path")),
        line=None if whole else fields.get("line"),
        side=fields.get("side") or "RIGHT",
        start_line=fields.get("start_line"),
        commit=commit,
        app=ask.caller.via,
    )
    return Reply(ask.wire.review_comment(made), 201)


@endpoint("POST /pulls/{number}/comments/{id}/replies", _WRITE)
def create_reply(ask: Ask) -> Reply:
    return _reply(ask, ask.pull(), ask.number("id"), ask.text("PullRequestReviewComment"))


def _reply(ask: Ask, pull: Pull, identity: int, text: str) -> Reply:
    first = ask.find(lambda: ask.state.review_comment(ask.repository, identity))
    if first.pull is not pull or first.reply_to is not None:
        raise unprocessable("in_reply_to is not a top-level comment of this pull request")
    made = ask.activity.review_comment(
        pull,
        ask.acting,
        text,
        path=first.path,
        line=first.line,
        side=first.side,
        reply_to=first,
        app=ask.caller.via,
    )
    return Reply(ask.wire.review_comment(made), 201)


@endpoint("GET /pulls/comments/{id}", _READ)
def get_review_comment(ask: Ask) -> Reply:
    return Reply(ask.wire.review_comment(_comment(ask)))


@endpoint("PATCH /pulls/comments/{id}", _WRITE)
def update_review_comment(ask: Ask) -> Reply:
    comment, text = _comment(ask), ask.text("PullRequestReviewComment")
    may_change(ask, comment.author, ask.repository)
    ask.activity.edit_review_comment(comment, ask.acting, text)
    return Reply(ask.wire.review_comment(comment))


@endpoint("DELETE /pulls/comments/{id}", _WRITE)
def delete_review_comment(ask: Ask) -> Reply:
    comment = _comment(ask)
    may_change(ask, comment.author, ask.repository)
    ask.activity.delete_review_comment(comment, ask.acting)
    return Reply(status=204)
