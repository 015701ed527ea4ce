"""Check runs, which only apps can make.

https://docs.github.com/en/rest/checks/runs
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from threadline_github.testing.model import App, Check, Json
from threadline_github.testing.refusal import Refusal, forbidden, invalid
from threadline_github.testing.table import Ask, Reply, endpoint, paged

__all__: list[str] = []

_READ, _WRITE = "checks:read", "checks:write"
_MOST_ANNOTATIONS, _MOST_ACTIONS = 50, 3
_LONGEST = 65_535
_CONCLUSIONS = (
    "action_required",
    "cancelled",
    "failure",
    "neutral",
    "success",
    "skipped",
    "stale",
    "timed_out",
)
_LEVELS = "notice", "warning", "failure"
_NEEDED = "path", "start_line", "end_line", "annotation_level", "message"
_LENGTHS = {"label": 20, "description": 40, "identifier": 20}


def _bad(message: str) -> Refusal:
    return Refusal(422, f"Invalid request.\n\n{message}")


def _app(ask: Ask) -> App:
    if ask.caller.via is None:
        raise forbidden("You must authenticate via a GitHub App.")
    return ask.caller.via


def _check(ask: Ask) -> Check:
    found: Check = ask.find(lambda: ask.state.check(ask.repository, ask.number("id")))
    return found


@endpoint("POST /check-runs", _WRITE)
def create_check(ask: Ask) -> Reply:
    app, fields = _app(ask), ask.fields
    missing = [name for name in ("name", "head_sha") if not fields.get(name)]
    if missing:
        raise _bad(f'"{missing[0]}" wasn\'t supplied.')
    if not ask.state.knows_commit(ask.repository, fields["head_sha"]):
        raise Refusal(422, f"No commit found for SHA: {fields['head_sha']}")
    _valid(fields)
    made = ask.activity.check(ask.repository, app, ask.acting, fields["name"], fields["head_sha"])
    ended = _fill(ask, made, fields)
    ask.activity.check_changed(made, ask.acting, created=True, completed=ended)
    return Reply(ask.wire.check(made), 201)


@endpoint("PATCH /check-runs/{id}", _WRITE)
def update_check(ask: Ask) -> Reply:
    check, fields = _check(ask), ask.fields
    if check.app is not _app(ask):
        raise forbidden(
            f"Invalid app_id `{_app(ask).id}` - check run can only be modified by the "
            "GitHub App that created it."
        )
    _valid(fields)
    ended = _fill(ask, check, fields)
    ask.activity.check_changed(check, ask.acting, created=False, completed=ended)
    return Reply(ask.wire.check(check))


@endpoint("GET /check-runs/{id}", _READ)
def get_check(ask: Ask) -> Reply:
    return Reply(ask.wire.check(_check(ask)))


@endpoint("GET /check-runs/{id}/annotations", _READ)
def list_annotations(ask: Ask) -> Reply:
    return paged(ask, _check(ask).annotations, lambda one: one)


@endpoint("POST /check-runs/{id}/rerequest", _WRITE)
def rerequest_check(ask: Ask) -> Reply:
    ask.activity.rerun(_check(ask), ask.acting)
    return Reply({}, 201)


@endpoint("GET /commits/{ref}/check-runs", _READ)
def list_checks(ask: Ask) -> Reply:
    return _listed(ask, ask.params["ref"])


@endpoint("GET /commits/{a}/{b}/check-runs", _READ)
def list_checks_of_branch(ask: Ask) -> Reply:
    return _listed(ask, f"{ask.params['a']}/{ask.params['b']}")


@endpoint("GET /commits/pull/{number}/head/check-runs", _READ)
def list_checks_of_pull(ask: Ask) -> Reply:
    return _listed(ask, f"pull/{ask.params['number']}/head")


def _listed(ask: Ask, ref: str) -> Reply:
    sha = ask.state.resolve(ask.repository, ref)
    if sha is None:
        raise Refusal(422, f"No commit found for SHA: {ref}")
    query = ask.query
    found = [
        one
        for one in ask.repository.checks
        if one.head_sha == sha
        and query.get("check_name") in (None, one.name)
        and query.get("status") in (None, one.status)
        and query.get("app_id") in (None, str(one.app.id if one.app else 15368))
    ]
    if query.get("filter", "latest") == "latest":
        found = list({(one.app, one.name): one for one in found}.values())
    return paged(ask, found[::-1], ask.wire.check, "check_runs")


def _valid(fields: Json) -> None:
    """Raise Refusal for what GitHub does not take."""
    conclusion = fields.get("conclusion")
    if conclusion is not None and conclusion not in _CONCLUSIONS:
        raise _bad(f"{conclusion} is not a member of {list(_CONCLUSIONS)}.")
    if fields.get("status") == "completed" and conclusion is None:
        raise invalid("CheckRun", "conclusion", "missing_field")
    if fields.get("output") is not None:
        _output(fields["output"])
    actions = fields.get("actions") or []
    if len(actions) > _MOST_ACTIONS:
        raise _bad(_too_many(_MOST_ACTIONS, len(actions)))
    for action in actions:
        for name, most in _LENGTHS.items():
            if not 0 < len(action.get(name) or "") <= most:
                raise _bad(f"actions/{name} has at most {most} characters, and is not blank.")


def _output(output: Any) -> None:
    for name in ("title", "summary"):
        if not isinstance(output.get(name), str) or not output[name]:
            raise _bad(f'"{name}" wasn\'t supplied.')
    for name in ("summary", "text"):
        if len(output.get(name) or "") > _LONGEST:
            raise _bad(f"Only {_LONGEST} characters are allowed in {name}.")
    annotations = output.get("annotations") or []
    if len(annotations) > _MOST_ANNOTATIONS:
        raise _bad(_too_many(_MOST_ANNOTATIONS, len(annotations)))
    for one in annotations:
        missing = [name for name in _NEEDED if one.get(name) in (None, "")]
        if missing:
            raise _bad(f'"{missing[0]}" wasn\'t supplied.')
        if one["annotation_level"] not in _LEVELS:
            raise _bad(f"{one['annotation_level']} is not a member of {list(_LEVELS)}.")
        columns = "start_column" in one or "end_column" in one
        if columns and one["start_line"] != one["end_line"]:
            raise _bad("columns need start_line and end_line to be the same.")


def _too_many(most: int, given: int) -> str:
    return f"No more than {most} items are allowed; {given} were supplied."


def _fill(ask: Ask, check: Check, fields: Json) -> bool:
    """Put down what is given; says whether the run has ended by that."""
    was, now = check.status, ask.state.now()
    for name in ("name", "external_id", "details_url"):
        if fields.get(name) is not None:
            setattr(check, name, fields[name])
    check.status = fields.get("status") or check.status
    if fields.get("started_at"):
        check.started_at = datetime.fromisoformat(fields["started_at"])
    if fields.get("conclusion") is not None:
        check.status, check.conclusion = "completed", fields["conclusion"]
        check.completed_at = now
    elif check.status != "completed":
        check.conclusion = check.completed_at = None
    if check.started_at is None and check.status != "queued":
        check.started_at = now
    output = fields.get("output") or {}
    for name in ("title", "summary", "text"):
        if output.get(name) is not None:
            setattr(check, name, output[name])
    check.annotations += output.get("annotations") or []
    if fields.get("actions") is not None:
        check.actions = list(fields["actions"])
    return check.status == "completed" and was != "completed"
