"""What a webhook means for the agent: nothing, a question, or the end of a pull request; no I/O.

Payloads are read as they come: what is missing, null or of another type is taken for unknown.
https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from threadline_github.inbound.prose import command, mentions

__all__ = [
    "DEFAULT_ON",
    "TRIGGERS",
    "Ask",
    "Closed",
    "Decision",
    "Ignore",
    "Me",
    "Moved",
    "Person",
    "Place",
    "Rules",
    "decide",
]

Kind = Literal["pr", "issue"]
TRIGGERS = frozenset(
    {
        "check_failed",
        "closed",
        "command",
        "comment",
        "draft",
        "edited",
        "mention",
        "opened",
        "ready_for_review",
        "reopened",
        "rerequested",
        "review",
        "review_requested",
        "synchronize",
    }
)
DEFAULT_ON = frozenset(
    {
        "command",
        "mention",
        "opened",
        "ready_for_review",
        "reopened",
        "rerequested",
        "review_requested",
        "synchronize",
    }
)
_FAILED = frozenset({"failure", "timed_out", "action_required", "startup_failure"})
_AUTHORS = frozenset({"opened", "synchronize", "edited"})
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's own account, as far as it is known: ``login`` of an App ends in ``[bot]``."""

    login: str | None = None
    id: int | None = None
    app_id: int | None = None

    def wrote(self, author: Mapping[str, Any], app: Any = None) -> bool:
        """Tell whether an account, or the App that was used, is this one."""
        login = _string(author.get("login")).lower()
        own = self.login is not None and login == self.login.lower()
        by_app = isinstance(app, dict) and self.app_id is not None and app.get("id") == self.app_id
        return own or by_app or (self.id is not None and author.get("id") == self.id)


@dataclass(frozen=True, slots=True)
class Rules:
    """What starts a turn, and for whom.

    ``on`` are of :data:`TRIGGERS`; ``comment`` is any comment in a conversation that the agent is
    in, ``draft`` lets drafts start turns. ``associations`` may ask; ``bots`` are the logins of
    other bots that may. ``repositories``: full names, None for all that the bot is installed in.
    ``commands``: the names that count as ``/name`` at the beginning of a line.
    """

    on: frozenset[str] = DEFAULT_ON
    associations: frozenset[str] = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
    bots: frozenset[str] = frozenset()
    repositories: frozenset[str] | None = None
    commands: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Person:
    """Whose doing an event is; ``association`` is empty where GitHub does not say it."""

    login: str
    id: int
    association: str = ""
    bot: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A conversation: a pull request or an issue of a repository, known by the repository's id."""

    repository: int
    name: str
    kind: Kind
    number: int


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing is to be done, for a reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A message for the agent.

    ``key`` is the same for every delivery of the same thing, by whichever hook it came. ``joins``:
    it is of interest only where the agent takes part already. ``head`` is the commit that the event
    was about, ``fork`` says that its code comes from elsewhere. ``context`` is data, not orders.
    """

    place: Place
    person: Person
    trigger: str
    text: str
    key: str
    joins: bool = False
    head: str | None = None
    fork: bool = False
    context: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Closed:
    """A pull request is closed: its worktree can go when no turn runs."""

    place: Place
    merged: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """A repository has another name or owner; what was known of its installation is void."""

    repository: int
    name: str


Decision: TypeAlias = Ignore | Ask | Closed | Moved
_Json = Mapping[str, Any]


def decide(event: str, payload: _Json, me: Me, rules: Rules) -> list[Decision]:
    """Return what a delivery asks for; ``event`` is ``X-GitHub-Event``."""
    repository = _repository(payload)
    if repository is None:
        return [Ignore(f"{event}: no repository")]
    number, name = repository
    if event == "repository" and payload.get("action") in ("transferred", "renamed"):
        return [Moved(number, name)]
    if rules.repositories is not None and name not in rules.repositories:
        return [Ignore(f"{event}: {name} is not listed")]
    sender = _part(payload, "sender")
    if me.wrote(sender) and payload.get("action") not in ("rerequested", "requested_action"):
        return [Ignore(f"{event}: the agent's own doing")]
    reader = _READERS.get(event)
    if reader is None:
        return [Ignore(f"{event}: an event that starts nothing")]
    found = reader(_Delivery(event, payload, me, rules, number, name))
    return [_admitted(one, rules) for one in found]


def _admitted(decision: Decision, rules: Rules) -> Decision:
    """Refuse those who may not ask."""
    if not isinstance(decision, Ask):
        return decision
    if decision.trigger not in rules.on:
        return Ignore(f"{decision.trigger} starts nothing")
    person = decision.person
    if person.bot and person.login.lower() not in {login.lower() for login in rules.bots}:
        return Ignore("another bot")
    if person.association and not person.bot and person.association not in rules.associations:
        return Ignore(f"a person who may not ask ({person.association})")
    return decision


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One webhook, and what it is read with."""

    event: str
    payload: _Json
    me: Me
    rules: Rules
    repository: int
    name: str

    @property
    def action(self) -> str:
        return _string(self.payload.get("action"))

    def place(self, kind: Kind, number: Any) -> Place | None:
        if not isinstance(number, int) or isinstance(number, bool):
            return None
        return Place(self.repository, self.name, kind, number)

    def person(self, account: _Json, association: Any = "") -> Person:
        login = _string(account.get("login"))
        bot = account.get("type") == "Bot" or login.endswith("[bot]")
        identity = account.get("id")
        return Person(
            login, identity if isinstance(identity, int) else 0, _string(association), bot
        )


# Comments


def _issue_comment(delivery: _Delivery) -> list[Decision]:
    issue, comment = _part(delivery.payload, "issue"), _part(delivery.payload, "comment")
    kind: Kind = "pr" if isinstance(issue.get("pull_request"), dict) else "issue"
    return [_comment(delivery, delivery.place(kind, issue.get("number")), comment)]


def _review_comment(delivery: _Delivery) -> list[Decision]:
    pull, comment = _part(delivery.payload, "pull_request"), _part(delivery.payload, "comment")
    where = _string(comment.get("path"))
    line = comment.get("line") or comment.get("original_line")
    at = f"{where}:{line}" if isinstance(line, int) else where
    hunk = _string(comment.get("diff_hunk"))
    context = (f"The comment is on {at}:\n{hunk}",) if where else ()
    about = {"review_comment": comment.get("id"), "path": where, "line": line}
    place = delivery.place("pr", pull.get("number"))
    return [_comment(delivery, place, comment, pull=pull, context=context, about=about)]


def _review(delivery: _Delivery) -> list[Decision]:
    pull, review = _part(delivery.payload, "pull_request"), _part(delivery.payload, "review")
    if delivery.action not in ("submitted", "edited"):
        return [Ignore(f"a review that is {delivery.action}")]
    place = delivery.place("pr", pull.get("number"))
    state = _string(review.get("state")).lower().replace("_", " ")
    context = (f"It is a review of the pull request: {state}.",) if state else ()
    return [_comment(delivery, place, review, pull=pull, context=context, spoken="review")]


def _issue(delivery: _Delivery) -> list[Decision]:
    issue = _part(delivery.payload, "issue")
    if delivery.action not in ("opened", "edited"):
        return [Ignore(f"an issue that is {delivery.action}")]
    return [_comment(delivery, delivery.place("issue", issue.get("number")), issue)]


def _comment(
    delivery: _Delivery,
    place: Place | None,
    comment: _Json,
    *,
    pull: _Json | None = None,
    context: tuple[str, ...] = (),
    about: _Json | None = None,
    spoken: str = "comment",
) -> Decision:
    """Read what somebody wrote; an edit counts only when it addresses the agent first."""
    me, body = delivery.me, _string(comment.get("body"))
    author = _part(comment, "user")
    if place is None or not isinstance(comment.get("id"), int):
        return Ignore(f"{delivery.event}: no place")
    if me.wrote(author, comment.get("performed_via_github_app")):
        return Ignore("the agent's own words")
    if delivery.action not in ("created", "submitted", "opened", "edited"):
        return Ignore(f"a comment that is {delivery.action}")
    trigger = _trigger(body, me, delivery.rules)
    if delivery.action == "edited":
        before = _string(_part(_part(delivery.payload, "changes"), "body").get("from"))
        if trigger is None or _trigger(before, me, delivery.rules) is not None:
            return Ignore("an edit")
    person = delivery.person(author, comment.get("author_association"))
    if isinstance(comment.get("performed_via_github_app"), dict):
        person = replace(person, bot=True)
    return Ask(
        place,
        person,
        trigger or spoken,
        body if body.strip() else f"(A {spoken} without words.)",
        f"{delivery.event}/{comment['id']}",
        joins=trigger is None,
        head=_head(pull),
        fork=pull is not None and _is_fork(pull),
        context=context,
        about={"comment": comment["id"], **(about or {})},
    )


def _trigger(body: str, me: Me, rules: Rules) -> str | None:
    """Return how a text addresses the agent, if it does."""
    if me.login is not None and mentions(body, me.login):
        return "mention"
    found = command(body)
    return "command" if found is not None and found[0] in rules.commands else None


# Pull requests


def _pull_request(delivery: _Delivery) -> list[Decision]:
    pull, action = _part(delivery.payload, "pull_request"), delivery.action
    place = delivery.place("pr", pull.get("number"))
    if place is None:
        return [Ignore("a pull request without a number")]
    found: list[Decision] = []
    if action == "closed":
        found.append(Closed(place, pull.get("merged") is True))
    told = _told(delivery, pull)
    if told is None:
        return found or [Ignore(f"a pull request that is {action}")]
    if pull.get("draft") is True and action != "closed" and "draft" not in delivery.rules.on:
        return [*found, Ignore("a draft")]
    stamp = _string(pull.get("updated_at"))
    key = f"pull_request/{place.number}/{action}/{_head(pull)}/{stamp}"
    ask = Ask(
        place,
        _actor(delivery, pull),
        action,
        told,
        key,
        joins=action in ("closed", "edited"),
        head=_head(pull),
        fork=_is_fork(pull),
    )
    return [*found, ask]


def _told(delivery: _Delivery, pull: _Json) -> str | None:
    """Return what to say of an action; None for one that is of no interest."""
    number, title = pull.get("number"), _string(pull.get("title"))
    what = f"Pull request #{number} ({title})"
    by = _string(_part(delivery.payload, "sender").get("login"))
    head = (_head(pull) or "")[:12]
    match delivery.action:
        case "opened" | "reopened":
            return f"{what} was {delivery.action} by {by}. Its head is {head}."
        case "ready_for_review":
            return f"{what} is ready for review. Its head is {head}."
        case "synchronize":
            return f"{what} has new commits. Its head is now {head}."
        case "review_requested":
            wanted = _part(delivery.payload, "requested_reviewer")
            return f"{by} asks you to review {what}." if delivery.me.wrote(wanted) else None
        case "closed":
            end = "merged" if pull.get("merged") is True else "closed without a merge"
            return f"{what} was {end} by {by}."
        case "edited":
            return f"{what} has another title, text or base now."
    return None


def _actor(delivery: _Delivery, pull: _Json) -> Person:
    """Return who did it, with the author's association where an author may do it by themselves.

    Anybody else needs rights in the repository to do the other things to a pull request.
    """
    sender, author = _part(delivery.payload, "sender"), _part(pull, "user")
    by_author = sender.get("id") == author.get("id") or delivery.action in _AUTHORS
    return delivery.person(sender, pull.get("author_association") if by_author else "")


# Checks


def _checks(delivery: _Delivery) -> list[Decision]:
    """Read a check suite, a check run or a workflow run, for each of its pull requests."""
    check = _part(delivery.payload, delivery.event)
    own = delivery.me.app_id is not None and _part(check, "app").get("id") == delivery.me.app_id
    again = delivery.action in ("rerequested", "requested_action")
    if own != again:
        return [Ignore(f"{delivery.event}: not for the agent")]
    if not again and (delivery.action != "completed" or check.get("conclusion") not in _FAILED):
        return [Ignore(f"{delivery.event}: nothing failed")]
    pulls = check.get("pull_requests") or _part(check, "check_suite").get("pull_requests")
    found: list[Decision] = []
    for pull in pulls if isinstance(pulls, list) else []:
        place = delivery.place("pr", pull.get("number")) if isinstance(pull, dict) else None
        if place is not None:
            found.append(_check(delivery, check, place, again=again))
    return found or [Ignore(f"{delivery.event}: no pull request")]


def _check(delivery: _Delivery, check: _Json, place: Place, *, again: bool) -> Ask:
    name = _string(check.get("name")) or _string(_part(check, "app").get("name")) or delivery.event
    sha = _string(check.get("head_sha"))
    number = f"{check.get('id')}/{check.get('run_attempt', 1)}"
    if again:
        button = _string(_part(delivery.payload, "requested_action").get("identifier"))
        asked = f"presses {button!r} on" if button else "asks for another run of"
        by = _string(_part(delivery.payload, "sender").get("login"))
        text = f"{by} {asked} the check {name} on {sha[:12]}."
        key = f"{delivery.event}/{number}/{delivery.action}/{check.get('updated_at', '')}"
        person = delivery.person(_part(delivery.payload, "sender"))
        return Ask(place, person, "rerequested", text, key, head=sha or None)
    ended = _string(check.get("conclusion")).replace("_", " ")
    text = f"The check {name} ended in {ended} on {sha[:12]}: {_string(check.get('html_url'))}"
    person = Person(_string(_part(delivery.payload, "sender").get("login")), 0)
    key = f"{delivery.event}/{number}/{check.get('conclusion')}"
    return Ask(place, person, "check_failed", text.rstrip(": "), key, joins=True, head=sha or None)


_READERS = {
    "check_run": _checks,
    "check_suite": _checks,
    "issue_comment": _issue_comment,
    "issues": _issue,
    "pull_request": _pull_request,
    "pull_request_review": _review,
    "pull_request_review_comment": _review_comment,
    "workflow_run": _checks,
}


def _repository(payload: _Json) -> tuple[int, str] | None:
    """Return a repository's id and its full name in lower case: letter case does not matter."""
    found = _part(payload, "repository")
    number, name = found.get("id"), _string(found.get("full_name")).lower()
    if not isinstance(number, int) or isinstance(number, bool) or _NAME.fullmatch(name) is None:
        return None
    return number, name


def _head(pull: _Json | None) -> str | None:
    return _string(_part(pull or {}, "head").get("sha")) or None


def _is_fork(pull: _Json) -> bool:
    """Tell whether the code is from elsewhere; a repository that is gone counts as such."""
    head, base = _part(_part(pull, "head"), "repo"), _part(_part(pull, "base"), "repo")
    return head.get("id") is None or head.get("id") != base.get("id")


def _part(whole: _Json, name: str) -> _Json:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
