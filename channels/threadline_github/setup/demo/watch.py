"""What stands in a pull request, and what is new in it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Post", "Read", "news", "posts"]

Read: TypeAlias = Callable[[str], Awaitable[Any]]
"""Reads a path below the repository's; None where GitHub refuses."""

_HIDDEN = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_STATES = {
    "APPROVED": "approved",
    "CHANGES_REQUESTED": "asks for changes",
    "COMMENTED": "reviewed",
}


@dataclass(frozen=True, slots=True)
class Post:
    """One thing that people see, and where it is; ``key`` stays while it is edited."""

    key: str
    what: str
    address: str
    text: str = ""


async def posts(read: Read, number: int) -> list[Post]:
    """Return all that stands in a pull request, checks of its head included, oldest kind first."""
    pull = await read(f"/pulls/{number}")
    if pull is None:
        return []
    head = pull["head"]["sha"]
    comments = await read(f"/issues/{number}/comments?per_page=100") or []
    reviews = await read(f"/pulls/{number}/reviews?per_page=100") or []
    lines = await read(f"/pulls/{number}/comments?per_page=100") or []
    checks = await read(f"/commits/{head}/check-runs?filter=all") or {"check_runs": []}
    return [
        *(_check(check) for check in checks["check_runs"]),
        *(_comment(comment) for comment in comments),
        *(_review(review) for review in reviews),
        *(_line(comment) for comment in lines),
        Post(
            "state",
            f"The pull request is {'merged' if pull.get('merged') else pull['state']}",
            _at(pull),
        ),
    ]


def news(known: Mapping[str, Post], now: Iterable[Post]) -> list[Post]:
    """Return what is new, or says something else than it did."""
    return [post for post in now if known.get(post.key) != post]


def _state(pull: Mapping[str, Any]) -> Post:
    state = "merged" if pull.get("merged") else pull["state"]
    return Post("state", f"The pull request is {state}", _at(pull))


def _comment(comment: Mapping[str, Any]) -> Post:
    return Post(f"comment {comment['id']}", _who(comment), _at(comment), _text(comment))


def _review(review: Mapping[str, Any]) -> Post:
    state = _STATES.get(str(review.get("state")), str(review.get("state")).lower())
    return Post(f"review {review['id']}", f"{_who(review)} {state}", _at(review), _text(review))


def _line(comment: Mapping[str, Any]) -> Post:
    line = comment.get("line") or comment.get("original_line") or "?"
    where = f"{comment.get('path')}:{line}"
    what = f"{_who(comment)} at {where}"
    return Post(f"line {comment['id']}", what, _at(comment), _text(comment))


def _check(check: Mapping[str, Any]) -> Post:
    output = check.get("output") or {}
    outcome = check.get("conclusion") or str(check.get("status")).replace("_", " ")
    done = check.get("conclusion") is not None
    title = f", {output['title']}" if done and output.get("title") else ""
    commit = str(check.get("head_sha"))[:7]
    what = f"Check {check.get('name')} on {commit}: {outcome}{title}"
    return Post(f"check {check['id']}", what, _at(check))


def _who(item: Mapping[str, Any]) -> str:
    return str((item.get("user") or {}).get("login") or "somebody")


def _at(item: Mapping[str, Any]) -> str:
    """Return where the API shows it; a server on one's own machine has no pages."""
    if "url" in item:
        return str(item["url"])
    return f"{item.get('pull_request_url', '')}/reviews/{item.get('id')}"


def _text(item: Mapping[str, Any]) -> str:
    return _HIDDEN.sub("", str(item.get("body") or "")).strip()
