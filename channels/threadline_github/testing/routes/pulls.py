"""Pull requests, their files and commits.

https://docs.github.com/en/rest/pulls/pulls
"""

from __future__ import annotations

from threadline_github.testing.model import Json, Pull
from threadline_github.testing.refusal import Refusal, not_found, unprocessable
from threadline_github.testing.routes.issues import change
from threadline_github.testing.table import Ask, Reply, endpoint, paged

__all__: list[str] = []

_DIFF_LINES = 20_000
_DIFF_KIND = "application/vnd.github.diff"


@endpoint("GET /pulls", "pull_requests:read")
def list_pulls(ask: Ask) -> Reply:
    state, head = ask.query.get("state", "open"), ask.query.get("head")
    found = [
        one
        for one in reversed(ask.state.pulls(ask.repository))
        if state in ("all", one.state) and head in (None, _label(one))
    ]
    return paged(ask, found, ask.wire.pull)


def _label(pull: Pull) -> str:
    owner = "unknown" if pull.source is None else pull.source.owner.login
    return f"{owner}:{pull.branch}"


@endpoint("GET /pulls/{number}", "pull_requests:read")
def get_pull(ask: Ask) -> Reply:
    pull = ask.pull()
    if "diff" in ask.accept:
        if pull.diff.count("\n") > _DIFF_LINES:
            message = (
                "Sorry, the diff exceeded the maximum number of lines (20000). Consider using "
                "'List pull requests files' API or locally cloning the repository instead."
            )
            detail = {"resource": "PullRequest", "field": "diff", "code": "too_large"}
            raise Refusal(406, message, errors=[detail])
        return Reply(text=pull.diff, kind=_DIFF_KIND)
    return Reply(ask.wire.pull(pull))


@endpoint("PATCH /pulls/{number}", "pull_requests:write")
def update_pull(ask: Ask) -> Reply:
    pull = ask.pull()
    change(ask, pull)
    return Reply(ask.wire.pull(pull))


@endpoint("GET /compare/{base}...{head}", "contents:read")
def compare(ask: Ask) -> Reply:
    head = ask.state.resolve(ask.repository, ask.params["head"])
    for pull in ask.state.pulls(ask.repository):
        if head in pull.diffs:
            if "diff" in ask.accept:
                return Reply(text=pull.diffs[head], kind=_DIFF_KIND)
            base = {"sha": pull.base_sha}
            files = ask.wire.files(pull, head)
            return Reply({"status": "ahead", "merge_base_commit": base, "files": files})
    raise not_found()


@endpoint("GET /pulls/{number}/files", "pull_requests:read")
def list_files(ask: Ask) -> Reply:
    return paged(ask, ask.wire.files(ask.pull())[:3000], lambda one: one)


@endpoint("GET /pulls/{number}/commits", "pull_requests:read")
def list_commits(ask: Ask) -> Reply:
    pull = ask.pull()

    def written(sha: str) -> Json:
        url = ask.wire.at(ask.repository, f"/commits/{sha}")
        author = {"name": pull.author.login, "email": "", "date": None}
        return {"sha": sha, "url": url, "commit": {"message": pull.title, "author": author}}

    return paged(ask, list(pull.diffs), written)


@endpoint("POST /pulls/{number}/requested_reviewers", "pull_requests:write")
def request_reviewers(ask: Ask) -> Reply:
    pull = ask.pull()
    for login in ask.fields.get("reviewers") or ():
        if login.lower() == pull.author.login.lower():
            raise unprocessable(message="Review cannot be requested from pull request author.")
        if login.lower() not in ask.state.accounts:
            raise unprocessable(message="Reviews may only be requested from collaborators.")
        account = ask.state.account(login)
        ask.activity.request_review(pull, ask.acting, account)
    return Reply(ask.wire.pull(pull), 201)
