"""What the answers to a doctor's questions mean, and the fix of each problem; no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from threadline_github.inbound.sweep import leads_to
from threadline_github.setup.manifest import Needs, events, permissions

__all__ = [
    "NETWORK",
    "SECONDS",
    "Answer",
    "Check",
    "address_check",
    "app_check",
    "app_hook_check",
    "app_refused",
    "clock_check",
    "deliveries_check",
    "events_check",
    "git_check",
    "hook_of",
    "installation_checks",
    "permissions_check",
    "rate_check",
    "refused",
    "repository_hook_checks",
    "scopes_check",
    "token_check",
    "token_refused",
    "unreachable",
]

SECONDS = 10.0
"""How long each question may take, which is how long GitHub waits for an answer."""

_SKEW = 30
_LEVELS = ("read", "write", "admin")
_GIT = (2, 31)  # the first to take its configuration from the environment
_SOON = timedelta(days=7)
_FEW = 0.1
NETWORK = "Check the network, a proxy, and what GITHUB_API_URL says."
_WHERE = (
    "The address is the agent's as `threadline serve` prints it, with the agent's name in its path "
    "if the host has several."
)
_SECRET = "Use the same secret here and there. If it is the same: does a proxy change the body?"
_ACCEPT = "Whoever installed the App accepts its new permissions there: {}"
_FAILURES = {
    401: _SECRET,
    403: "Something in front of the host refuses GitHub.",
    404: _WHERE,
    405: _WHERE,
    502: "Was the host running? It asks for what it missed when it starts.",
    503: "Was the host running, and had its disk room? It asks for what it missed by itself.",
    504: "Was the host running? It asks for what it missed when it starts.",
}
_UNSENT = "Is the host running, and the address public? GitHub calls from the internet."


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; ``fix`` says what to do about a problem, or where to look for a note."""

    name: str
    state: Literal["ok", "problem", "note"]
    said: str
    fix: str = ""

    def to_wire(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return asdict(self)


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


def clock_check(date: str | None, now: datetime) -> Check:
    """Compare the header ``Date`` of an answer with this machine's clock."""
    try:
        theirs = parsedate_to_datetime(date or "")
    except ValueError:
        return Check("clock", "note", "The server does not say what time it is.")
    ahead = round((now - theirs).total_seconds())
    if abs(ahead) <= _SKEW:
        return Check("clock", "ok", "This machine's clock agrees with GitHub's.")
    way = "ahead of" if ahead > 0 else "behind"
    said = f"This machine's clock is {abs(ahead)} seconds {way} GitHub's."
    return Check(
        "clock", "problem", said, "Set it, by NTP for example: an App signs in with the time."
    )


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
        return Check(name, "problem", f"Not sent: {_listed(missing)}.", f"Tick them at {settings}.")
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
        said = f"Of the installation of {who} these events are not sent: {_listed(lost)}."
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
        found.append(Check("scopes", "problem", f"The token has {_listed(scopes)}, no repo.", fix))
    else:
        found.append(Check("scopes", "ok", f"The token has {_listed(scopes)}."))
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


# Where events come to


def app_hook_check(config: Mapping[str, Any], needs: Needs, settings: str) -> list[Check]:
    """Return what is wrong with an App's webhook, by ``GET /app/hook/config``."""
    url = str(config.get("url") or "")
    if not url:
        fix = f"Make it active, with the agent's address, at {settings}."
        return [Check("webhook", "problem", "The App has no webhook.", fix)]
    return [_hook(url, config, needs, settings)]


def hook_of(hooks: Sequence[Mapping[str, Any]], path: str) -> Mapping[str, Any] | None:
    """Return the webhook of a repository that leads to an agent, an active one if there is."""
    ours = [hook for hook in hooks if leads_to(hook, path)]
    return next((hook for hook in ours if hook.get("active")), ours[0] if ours else None)


def repository_hook_checks(
    name: str, hook: Mapping[str, Any] | None, needs: Needs, site: str
) -> list[Check]:
    """Return what is wrong with a repository's webhook."""
    settings = f"{site}/{name}/settings/hooks"
    if hook is None:
        said = f"No webhook of {name} leads to the agent."
        fix = (
            f"Add one at {settings}: the agent's address with {needs.path}, application/json, the "
            f"secret, and the events {_listed(events(needs))}."
        )
        return [Check("webhook", "problem", said, fix)]
    settings = f"{settings}/{hook.get('id')}"
    if not hook.get("active"):
        said = f"The webhook of {name} is not active."
        return [Check("webhook", "problem", said, f"Make it active at {settings}.")]
    sent = hook.get("events")
    held = [str(event) for event in sent] if isinstance(sent, list) else []
    config = hook.get("config")
    checked = _hook(_url(hook), config if isinstance(config, dict) else {}, needs, settings)
    return [checked, events_check(held, needs, settings)]


def _url(hook: Mapping[str, Any]) -> str:
    config = hook.get("config")
    return str(config.get("url") or "") if isinstance(config, dict) else ""


def _hook(url: str, config: Mapping[str, Any], needs: Needs, settings: str) -> Check:
    if not config.get("secret"):
        said = f"The webhook to {url} has no secret, so nothing that it sends can be trusted."
        return Check("webhook", "problem", said, f"Set the secret at {settings}.")
    if not urlsplit(url).path.rstrip("/").endswith(needs.path):
        said = f"The webhook leads to {url}, which does not end in {needs.path}."
        fix = f"Unless a proxy changes the path, set the agent's address with it at {settings}."
        return Check("webhook", "problem", said, fix)
    if config.get("content_type") not in ("json", "form"):
        said = f"The webhook sends the content type {config.get('content_type')!r}."
        return Check("webhook", "problem", said, f"Choose application/json at {settings}.")
    if str(config.get("insecure_ssl", "0")) != "0":
        said = f"The webhook to {url} does not verify the host's certificate."
        return Check("webhook", "note", said, f"Enable SSL verification at {settings}.")
    return Check("webhook", "ok", f"Events come to {url}, signed.")


def address_check(url: str, status: int, seconds: float) -> Check:
    """Return what an address answered to a signed ``ping``."""

    def problem(said: str, fix: str) -> Check:
        return Check("address", "problem", f"{url} {said}", fix)

    if status == 401:
        return problem("refuses what is signed with this webhook secret.", _SECRET)
    if status in (404, 405):
        return problem(f"is no route of the host ({status}).", _WHERE)
    if 300 <= status < 400:
        return problem(f"redirects ({status}); GitHub does not follow.", "Name the last address.")
    if not 200 <= status < 300:
        return problem(f"answers {status}.", "Look at the host's log.")
    if seconds > SECONDS:
        return problem(
            f"takes {seconds:.0f} seconds; GitHub waits {SECONDS:.0f}.", "Look at what is between."
        )
    return Check("address", "ok", f"{url} answers, and checks signatures.")


def unreachable(url: str, error: Exception) -> Check:
    """Return that an address of the host does not answer."""
    return Check("address", "problem", f"{url} cannot be reached: {_why(error)}.", _UNSENT)


def deliveries_check(deliveries: Sequence[Mapping[str, Any]], where: str = "") -> Check:
    """Return how the newest deliveries went, newest first; the last attempt at each counts."""
    newest: dict[str, Mapping[str, Any]] = {}
    for one in deliveries:
        newest.setdefault(str(one.get("guid")), one)
    of = f" of {where}" if where else ""
    if not newest:
        fix = "Open a pull request, or redeliver the ping in the webhook's settings."
        return Check("deliveries", "note", f"No deliveries{of} in the last days.", fix)
    failed = [one for one in newest.values() if not _taken(one)]
    if not failed:
        return Check("deliveries", "ok", f"The last {len(newest)}{of} were all taken.")
    last = failed[0]
    code = _code(last)
    counts = Counter(_code(one) or "no answer" for one in failed).most_common()
    what = " ".join(str(last[key]) for key in ("event", "action") if last.get(key))
    said = (
        f"{len(failed)} of the last {len(newest)}{of} were not taken "
        f"({', '.join(f'{code} × {count}' for code, count in counts)}); the newest is {what} at "
        f"{last.get('delivered_at')}: {last.get('status')}."
    )
    state: Literal["problem", "note"] = "problem" if last is next(iter(newest.values())) else "note"
    return Check("deliveries", state, said, _FAILURES.get(code, "Look at the host's log."))


def _taken(delivery: Mapping[str, Any]) -> bool:
    return 200 <= _code(delivery) < 300 or delivery.get("status") == "pending"


def _code(delivery: Mapping[str, Any]) -> int:
    code = delivery.get("status_code")
    return code if isinstance(code, int) else 0


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
    return Check(name, "problem", f"GitHub cannot be reached: {_why(answer)}.", NETWORK)


def _why(error: Exception) -> str:
    """Return why a connection failed; an error's own words may hold an address with a secret."""
    return str(getattr(error, "strerror", None) or type(error).__name__)


def _bot(app: Mapping[str, Any]) -> str:
    return f"{app.get('slug')}[bot]"


def _levels(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {level}" for name, level in sorted(found.items()))


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
