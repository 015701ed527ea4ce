"""What the answers to a doctor's questions mean, and the fix of each problem; no I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from threadline.cli.checks import Check, clock_check
from threadline_github.setup.manifest import Needs, events, permissions

__all__ = [
    "NETWORK",
    "SECONDS",
    "Answer",
    "app_check",
    "app_refused",
    "cause",
    "clock",
    "events_check",
    "git_check",
    "installation_checks",
    "listed",
    "permissions_check",
    "rate_check",
    "refused",
    "scopes_check",
    "token_check",
    "token_refused",
]

SECONDS = 10.0
"""How long each question may take, which is how long GitHub waits for an answer."""

_SKEW = 30
_LEVELS = ("read", "write", "admin")
_GIT = (2, 31)  # the first to take its configuration from the environment
_SOON = timedelta(days=7)
_FEW = 0.1
NETWORK = "Check the network, a proxy, and what GITHUB_API_URL says."
_ACCEPT = "Whoever installed the App accepts its new permissions there: {}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What GitHub answered: the names of headers are in lower case, ``body`` is None if no JSON."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def ok(self) -> bool:
        """True when it is no refusal."""
        return 200 <= self.status < 300

    @property
    def object(self) -> Mapping[str, Any]:
        """The body, if it is an object."""
        return self.body if isinstance(self.body, dict) else {}

    @property
    def items(self) -> list[Mapping[str, Any]]:
        """The objects of the body, if it is a list."""
        found = self.body if isinstance(self.body, list) else []
        return [item for item in found if isinstance(item, dict)]

    @property
    def said(self) -> str:
        """The status, and what the server says of it."""
        message = self.object.get("message")
        return f"{self.status}: {message}" if message else str(self.status)


# Who the bot is


def app_check(app: Mapping[str, Any]) -> Check:
    """Return which App it is."""
    said = f"It is the App {app.get('slug')} ({app.get('id')}), whose posts are by {_bot(app)}."
    return Check("app", "ok", said)


def app_refused(answer: Answer, prefix: str) -> Check:
    """Return why the App could not sign in."""
    said = f"GitHub does not let the App sign in ({answer.said})."
    key, number = f"{prefix}GITHUB_APP_PRIVATE_KEY", f"{prefix}GITHUB_APP_ID"
    fix = f"{number} and {key} have to be of one App; its settings have the id, and make a new key."
    if answer.status == 404:
        fix = f"Is {number} the App's id, and {prefix}GITHUB_API_URL the server that it is at?"
    return Check("app", "problem", said, fix)


def token_check(user: Mapping[str, Any], headers: Mapping[str, str], now: datetime) -> Check:
    """Return whose token it is, and for how long."""
    login = user.get("login")
    said = f"It is the token of {login}."
    expires = _expiry(headers.get("github-authentication-token-expiration", ""))
    if expires is not None and expires - now < _SOON:
        fix = "Make a new one in time: Settings, Developer settings, Personal access tokens."
        return Check("token", "problem", f"{said} It expires at {expires:%Y-%m-%d %H:%M}.", fix)
    if user.get("type") == "User":
        fix = "Have a user of its own for the bot, or a GitHub App, unless nobody works as it."
        return Check("token", "note", f"{said} What {login} writes never starts a turn.", fix)
    return Check("token", "ok", said)


def token_refused(answer: Answer) -> Check:
    """Return that a token is not taken."""
    fix = "Make a new one: Settings, Developer settings, Personal access tokens."
    return Check("token", "problem", f"GitHub does not take the token ({answer.said}).", fix)


def _expiry(text: str) -> datetime | None:
    """Read a date as ``2026-01-31 12:00:00 UTC`` or ``… +0200``."""
    try:
        found = datetime.strptime(text.replace("UTC", "+0000"), "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return None
    return found.astimezone(UTC)


def clock(date: str | None, now: datetime) -> Check:
    """Compare the header ``Date`` of an answer with this machine's clock."""
    fix = "Set it, by NTP for example: an App signs in with the time."
    return clock_check(date, now, whose="GitHub's", skew=_SKEW, fix=fix)


# What it may, and is told


def permissions_check(held: Mapping[str, Any], needs: Needs, settings: str) -> Check:
    """Compare what an App asks for with what is needed; ``settings`` is its page's address."""
    wanted = permissions(needs)
    if missing := _missing(held, wanted):
        fix = f"Set them at {settings}; then whoever installed the App accepts them."
        return Check("permissions", "problem", f"The App lacks {_levels(missing)}.", fix)
    unused = {name: level for name, level in held.items() if name not in wanted}
    more = f" It does not need {_levels(unused)}." if unused else ""
    return Check("permissions", "ok", f"The App asks for all that it needs.{more}")


def events_check(held: Collection[str], needs: Needs, settings: str, name: str = "events") -> Check:
    """Compare the events that are sent with those that are needed."""
    wanted = set(events(needs))
    missing = set() if "*" in held else wanted - set(held)
    if missing:
        return Check(name, "problem", f"Not sent: {listed(missing)}.", f"Tick them at {settings}.")
    return Check(name, "ok", f"All {len(wanted)} that are needed are sent.")


def installation_checks(
    installations: Sequence[Mapping[str, Any]], needs: Needs, app_url: str
) -> list[Check]:
    """Return for each installation whether it works, and allows what is needed."""
    if not installations:
        fix = f"Install it at {app_url}/installations/new."
        return [Check("installation", "problem", "The App is installed nowhere.", fix)]
    return [_installation(one, needs) for one in installations]


def _installation(one: Mapping[str, Any], needs: Needs) -> Check:
    account = one.get("account")
    login = account.get("login") if isinstance(account, dict) else None
    who, where = f"{login} ({one.get('id')})", str(one.get("html_url") or "its settings")
    if one.get("suspended_at"):
        said = f"The installation of {who} is suspended since {one['suspended_at']}."
        return Check("installation", "problem", said, f"Unsuspend it at {where}.")
    held = one.get("permissions")
    if missing := _missing(held if isinstance(held, dict) else {}, permissions(needs)):
        said = f"The installation of {who} does not allow {_levels(missing)}."
        return Check("installation", "problem", said, _ACCEPT.format(where))
    sent = one.get("events")
    if isinstance(sent, list) and (lost := set(events(needs)) - set(map(str, sent))):
        said = f"Of the installation of {who} these events are not sent: {listed(lost)}."
        return Check("installation", "problem", said, _ACCEPT.format(where))
    some = "some" if one.get("repository_selection") == "selected" else "all"
    return Check("installation", "ok", f"{who} has installed it, in {some} repositories.")


def scopes_check(held: str | None, needs: Needs) -> list[Check]:
    """Compare a token's scopes, by the header ``x-oauth-scopes``, with those that are needed."""
    found = []
    scopes = {scope.strip() for scope in (held or "").split(",")} - {""}
    if not scopes:
        said = "GitHub does not say what a fine-grained token may do."
        wanted = {name: level for name, level in permissions(needs).items() if name != "checks"}
        fix = f"It needs {_levels(wanted)}, and webhooks: read to ask for missed deliveries."
        found.append(Check("scopes", "note", said, fix))
    elif "repo" not in scopes and "public_repo" not in scopes:
        fix = "Make a token with the scope repo, or public_repo for public repositories alone."
        found.append(Check("scopes", "problem", f"The token has {listed(scopes)}, no repo.", fix))
    else:
        found.append(Check("scopes", "ok", f"The token has {listed(scopes)}."))
    if needs.checks:
        said = "GitHub lets no token make check runs; only an App may."
        fix = "Use a GitHub App (`threadline github manifest`), or leave check= out."
        found.append(Check("check runs", "problem", said, fix))
    return found


def _missing(held: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the permissions that are not there, or not high enough."""
    return {
        name: level
        for name, level in wanted.items()
        if held.get(name) not in _LEVELS[_LEVELS.index(level) :]
    }


# The rest


def rate_check(answer: Mapping[str, Any], now: datetime) -> Check:
    """Return how many calls are left, by ``GET /rate_limit``."""
    resources = answer.get("resources")
    core = resources.get("core") if isinstance(resources, dict) else None
    remaining, limit, reset = (_number(core, key) for key in ("remaining", "limit", "reset"))
    if remaining is None or limit is None:
        return Check("rate limit", "note", "The server does not say how many calls are left.")
    said = f"{remaining} of {limit} calls are left."
    if remaining >= limit * _FEW:
        return Check("rate limit", "ok", said)
    minutes = 60 if reset is None else max(round((reset - now.timestamp()) / 60), 0)
    fix = f"In {minutes} minutes there are {limit} again. What else uses the same credentials?"
    return Check("rate limit", "problem", said, fix)


def _number(whole: Any, key: str) -> int | None:
    found = whole.get(key) if isinstance(whole, dict) else None
    return found if isinstance(found, int) else None


def git_check(version: str | None) -> Check:
    """Return whether worktrees can be made, by what ``git --version`` says; None without git."""
    least = ".".join(map(str, _GIT))
    fix = f"Install git {least} or newer where the host runs, or say worktree=False."
    if version is None:
        return Check("git", "problem", "There is no git on this machine.", fix)
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None:
        return Check("git", "problem", f"git does not say its version: {version[:80]!r}.", fix)
    if (int(found[1]), int(found[2])) < _GIT:
        return Check("git", "problem", f"{version.strip()} is older than {least}.", fix)
    return Check("git", "ok", f"{version.strip()} makes the worktrees.")


def refused(name: str, what: str, answer: Answer | Exception, fix: str) -> Check:
    """Return that a question was refused, or that nobody answers; ``what`` begins the sentence."""
    if isinstance(answer, Answer):
        return Check(name, "problem", f"{what} ({answer.said}).", fix)
    if isinstance(answer, TimeoutError):
        return Check(name, "problem", f"There is no answer within {SECONDS:.0f} s.", NETWORK)
    return Check(name, "problem", f"GitHub cannot be reached: {cause(answer)}.", NETWORK)


def cause(error: BaseException) -> str:
    """Return why a connection failed, in the operating system's words where they are behind it."""
    said = type(error).__name__
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, ConnectionError) and at.errno:
            said = os.strerror(at.errno)
        elif isinstance(at, OSError) and at.strerror:
            said = at.strerror
        at = at.__cause__ or at.__context__
    return said


def _bot(app: Mapping[str, Any]) -> str:
    return f"{app.get('slug')}[bot]"


def _levels(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {level}" for name, level in sorted(found.items()))


def listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
