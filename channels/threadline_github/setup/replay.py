"""A delivery that is sent by hand: one that was saved, or one made of what GitHub says."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from threadline.cli.exits import HostUnreachableError, UsageError
from threadline.clock import iso
from threadline_github.client import GitHubRefused
from threadline_github.inbound.decide import Ignore, Me, Rules, decide
from threadline_github.setup.signing import signed

if TYPE_CHECKING:
    from threadline.clock import Clock
    from threadline_github.client import Client

__all__ = [
    "Answered",
    "Asked",
    "Delivery",
    "commented",
    "guess",
    "me_of",
    "opened",
    "read",
    "reasons",
    "send",
    "synthesised",
    "target",
]

_SECONDS = 30.0
_TARGET = re.compile(r"([\w.-]+/[\w.-]+)#([1-9]\d*)")
_MAY = frozenset({"admin", "maintain", "write"})
_GUESSES = (
    ("deployment_status", ("deployment_status",)),
    ("deployment", ("deployment",)),
    ("discussion", ("discussion",)),
    ("issue_comment", ("comment", "issue")),
    ("pull_request_review_comment", ("comment", "pull_request")),
    ("pull_request_review_thread", ("thread", "pull_request")),
    ("pull_request_review", ("review", "pull_request")),
    ("check_run", ("check_run",)),
    ("check_suite", ("check_suite",)),
    ("workflow_run", ("workflow_run",)),
    ("pull_request", ("pull_request",)),
    ("issues", ("issue",)),
    ("push", ("commits", "ref")),
    ("ping", ("zen",)),
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is sent: the name of the event, the delivery's id, and the payload."""

    event: str
    guid: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the host answered; ``body`` is text where it is no JSON object."""

    status: int
    body: Mapping[str, Any] | str

    @property
    def ok(self) -> bool:
        """True when the host took it."""
        return 200 <= self.status < 300

    @property
    def object(self) -> Mapping[str, Any]:
        """The body, if it is an object."""
        return self.body if isinstance(self.body, Mapping) else {}

    @property
    def accepted(self) -> list[Mapping[str, Any]]:
        """What was accepted, each ``{sessionId, deliveryId, admitted, …}``."""
        body = self.object
        listed = body.get("deliveries")
        found = listed if isinstance(listed, list) else [body]
        return [one for one in found if isinstance(one, Mapping) and one.get("sessionId")]


def target(text: str) -> tuple[str, int] | None:
    """Return the repository and the number that ``owner/repo#7`` names; None for a file's name."""
    found = _TARGET.fullmatch(text)
    return (found[1], int(found[2])) if found is not None else None


# What was saved


def read(text: str, event: str | None, *, new_id: bool, now: datetime) -> Delivery:
    """Return what a file holds: a payload, or a delivery as GitHub's API tells it.

    A delivery keeps its id, by which a host knows it again; a payload alone gets a new one. With
    ``new_id`` either is made to look as if it had happened now. Raises UsageError.
    """
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise UsageError(f"The file is not JSON: {error}.") from None
    if not isinstance(whole, dict):
        raise UsageError("The file holds no JSON object.")
    request = whole.get("request")
    payload, guid = whole, None
    if isinstance(request, dict) and "payload" in request:
        headers = request.get("headers")
        named = {str(key).lower(): value for key, value in (headers or {}).items()}
        payload = _payload(request["payload"])
        guid = named.get("x-github-delivery") or whole.get("guid")
        event = event or named.get("x-github-event") or whole.get("event")
    event = event or guess(payload)
    if event is None:
        raise UsageError("What event this is cannot be seen. Give --event, such as pull_request.")
    if new_id:
        return Delivery(event, _guid(), _anew(payload, now))
    return Delivery(event, str(guid or _guid()), payload)


def _payload(value: Any) -> dict[str, Any]:
    """Return a delivery's payload, which a form's may be text; raises UsageError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        raise UsageError("The delivery in the file has no payload.")
    return value


def guess(payload: Mapping[str, Any]) -> str | None:
    """Return which event a payload is of, by its keys; None if they do not tell."""
    for event, keys in _GUESSES:
        if all(key in payload for key in keys):
            return event
    renamed = payload.get("action") in ("renamed", "transferred")
    return "repository" if renamed and "repository" in payload else None


def _anew(payload: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a payload as of something that happened now: a host tells the same by these fields.

    A comment on a line keeps its id, since the answer goes below it.
    """
    found = dict(payload)
    for name in ("pull_request", "check_run", "check_suite", "workflow_run"):
        if isinstance(found.get(name), dict):
            found[name] = found[name] | {"updated_at": _stamp(now)}
    written = "review" if "review" in found else "comment" if "issue" in found else None
    if written is not None and isinstance(found.get(written), dict):
        found[written] = found[written] | {"id": _number(now)}
    return found


# What is made of what GitHub says


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be made: a pull request that is opened, or with ``comment`` a comment there.

    ``login`` is who does it, None for the author.
    """

    repository: str
    number: int
    comment: str | None = None
    login: str | None = None


async def synthesised(client: Client, asked: Asked, clock: Clock) -> tuple[Delivery, Me]:
    """Return a delivery as GitHub would send it, and who the bot is.

    Raises UsageError when there is no such thing, GitHubRefused or TryAgain.
    """
    me = await me_of(client)
    number = await _installation(client, asked.repository)
    repository = await _get(client, f"/repos/{asked.repository}", number, asked.repository)
    kind = "pulls" if asked.comment is None else "issues"
    what = f"{'pull request' if asked.comment is None else 'pull request or issue'} #{asked.number}"
    path = f"/repos/{asked.repository}/{kind}/{asked.number}"
    thing = await _get(client, path, number, f"{what} in {asked.repository}")
    person, association = thing.get("user"), thing.get("author_association")
    if asked.login is not None:
        person, association = await _person(client, repository, asked.login, number)
    person = person if isinstance(person, dict) else {}
    if me.wrote(person):
        raise UsageError(
            f"It would be by {person.get('login')}, which is the agent: what it does itself starts "
            "nothing. Say who does it by --as LOGIN."
        )
    now = clock.now()
    if asked.comment is None:
        event, payload = "pull_request", opened(thing, person, str(association or ""), now)
    else:
        event = "issue_comment"
        payload = commented(thing, person, str(association or ""), asked.comment, now)
    payload |= {"repository": repository, "sender": person}
    if number is not None:
        payload["installation"] = {"id": number}
    return Delivery(event, _guid(), payload), me


def opened(
    pull: Mapping[str, Any], person: Mapping[str, Any], association: str, now: datetime
) -> dict[str, Any]:
    """Return the payload of a pull request that is opened now, by a person."""
    changed = {"user": person, "author_association": association, "updated_at": _stamp(now)}
    return {
        "action": "opened",
        "number": pull.get("number"),
        "pull_request": {**pull, **changed},
    }


def commented(
    issue: Mapping[str, Any],
    person: Mapping[str, Any],
    association: str,
    text: str,
    now: datetime,
) -> dict[str, Any]:
    """Return the payload of a comment that a person makes now; GitHub knows nothing of it."""
    number = _number(now)
    comment = {
        "id": number,
        "body": text,
        "user": person,
        "author_association": association,
        "created_at": _stamp(now),
        "updated_at": _stamp(now),
        "html_url": f"{issue.get('html_url', '')}#issuecomment-{number}",
    }
    return {"action": "created", "issue": dict(issue), "comment": comment}


async def me_of(client: Client) -> Me:
    """Return who the bot is; raises GitHubRefused or TryAgain."""
    if client.config.app_id is None:
        user = await client.request("GET", "/user")
        return Me(str(user["login"]), int(user["id"]))
    app = await client.request("GET", "/app", as_app=True)
    return Me(f"{app['slug']}[bot]", None, int(app["id"]))


async def _installation(client: Client, repository: str) -> int | None:
    if client.config.app_id is None:
        return None
    path = f"/repos/{repository}/installation"
    try:
        found = await client.request("GET", path, as_app=True)
    except GitHubRefused as error:
        if error.github_status != 404:
            raise
        raise UsageError(f"The App is not installed in {repository}.") from None
    return int(found["id"])


async def _get(client: Client, path: str, installation: int | None, what: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = await client.request("GET", path, installation=installation)
    except GitHubRefused as error:
        if error.github_status != 404:
            raise
        raise UsageError(f"There is no {what}, as far as the bot may see.") from None
    return found


async def _person(
    client: Client, repository: Mapping[str, Any], login: str, installation: int | None
) -> tuple[dict[str, Any], str]:
    """Return an account, and what it is to a repository, as far as GitHub tells the bot."""
    person = await _get(client, f"/users/{login}", installation, f"user {login}")
    owner = repository.get("owner")
    if isinstance(owner, dict) and owner.get("id") == person.get("id"):
        return person, "OWNER"
    path = f"/repos/{repository['full_name']}/collaborators/{login}/permission"
    try:
        found = await client.request("GET", path, installation=installation)
    except GitHubRefused:
        return person, "NONE"
    return person, "COLLABORATOR" if found.get("permission") in _MAY else "NONE"


def _guid() -> str:
    return str(uuid.uuid4())


def _number(now: datetime) -> int:
    """Return an id that GitHub has given to nothing: its own are smaller by far."""
    return round(now.timestamp() * 1000)


def _stamp(now: datetime) -> str:
    return iso(now)


# Sending


async def send(url: str, secret: str, delivery: Delivery) -> Answered:
    """Send a delivery as GitHub does; raises HostUnreachableError."""
    import aiohttp

    body = json.dumps(delivery.payload, ensure_ascii=False).encode()
    headers = signed(secret, body, delivery.event, delivery.guid)
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            text = await answer.text()
            status = answer.status
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise HostUnreachableError(
            f"No host answers at {url}: {str(error) or type(error).__name__}.\n"
            "Start one with 'threadline serve', or check --url."
        ) from error
    try:
        said = json.loads(text)
    except ValueError:
        said = text
    return Answered(status, said if isinstance(said, dict) else text)


def reasons(delivery: Delivery, me: Me, rules: Rules) -> list[str]:
    """Return why a delivery starts nothing, as far as its payload and the rules tell."""
    decisions = decide(delivery.event, delivery.payload, me, rules)
    return [one.reason for one in decisions if isinstance(one, Ignore)]
